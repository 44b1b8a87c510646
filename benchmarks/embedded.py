"""The embedded cluster as a process of its own: says where its kubeconfig is and runs until told to end."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from trainmaster.cluster.cluster import Cluster, ClusterOptions
from trainmaster.kube import connections


async def serve(home: Path) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    cluster = Cluster(ClusterOptions(home, sandbox="ports"))
    async with cluster.running():
        print(cluster.kubeconfig, flush=True)
        await stop.wait()


connections.slim_down()  # as `trainmaster up` does
asyncio.run(serve(Path(sys.argv[1])))
