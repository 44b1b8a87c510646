"""Churn on an embedded cluster that stays up: many small jobs, one after the other, and what that leaves behind.

    python -m benchmarks.soak --rate 1 --minutes 120
    python -m benchmarks.soak --rate 2 --minutes 10 --forget-after 120

Jobs of one rank are created at the rate, end at once and are removed with their pods. Memory, open files, threads and
disk of the cluster's process are printed over time. They are flat if the last quarter of the run is not above the one
before it by more than the tolerance; both begin after what is kept for a while (Events, logs of removed pods) has begun
to be removed, so a run shorter than twice that time judges nothing. A floor of change is always allowed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainmaster.cli.embedded import EmbeddedOptions, embedded
from trainmaster.cluster.kubelet.ending import Ending
from trainmaster.kube import config as kubeconfig
from trainmaster.kube import connections
from trainmaster.kube.client import Client
from trainmaster.kube.errors import KubeError
from trainmaster.kube.transport import HttpTransport
from trainmaster.objects.resource import EVENTS, PODS, Resource

JOBS = Resource("kubeflow.org", "v1", "jaxjobs", "JAXJob")
TOLERANCE = 0.05
FLOORS = {"memory_mb": 8.0, "files": 8.0, "threads": 4.0, "disk_mb": 8.0}
"""Changes of this size are noise: an allocator's arena, a connection, a page of the log."""


@dataclass(frozen=True, slots=True)
class Sample:
    seconds: float
    memory_mb: float
    files: int
    threads: int
    disk_mb: float
    jobs: int
    pods: int
    events: int


def verdicts(samples: Sequence[Sample], forget_after: float) -> dict[str, str]:
    """What grows, by the name of the figure, in words; empty if all is flat."""
    end = samples[-1].seconds
    late = [sample for sample in samples if sample.seconds >= end / 2]
    before = [sample for sample in late if sample.seconds < end * 3 / 4]
    after = [sample for sample in late if sample.seconds >= end * 3 / 4]
    if not before or not after or end < 2 * forget_after:
        return {"run": f"too short to judge: it takes {2 * forget_after:g} s until as much is forgotten as is made"}
    grown = {}
    for name, floor in FLOORS.items():
        first, last = (statistics.median(float(getattr(each, name)) for each in part) for part in (before, after))
        if last - first > max(floor, TOLERANCE * first):
            grown[name] = f"{name} grows: {first:g} in the third quarter, {last:g} in the last"
    return grown


def a_job(name: str) -> dict[str, Any]:
    container = {"name": "jax", "image": "any", "command": ["true"]}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "JAXJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "runPolicy": {"ttlSecondsAfterFinished": 2, "cleanPodPolicy": "All"},
            "jaxReplicaSpecs": {"Worker": {"replicas": 1, "restartPolicy": "Never", "template": template}},
        },
    }


async def serve(home: Path, forget_after: float) -> None:
    """The cluster, as `trainmaster up` has it, until SIGTERM."""
    connections.slim_down()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    options = EmbeddedOptions(home=str(home), forget_after=forget_after)
    async with embedded(options, Path(), announce=False, ending=Ending(limit=0.0)):
        print("up", flush=True)
        await stop.wait()


async def churn(client: Client, rate: float, seconds: float) -> None:
    began, number = time.monotonic(), 0
    while (now := time.monotonic() - began) < seconds:
        await asyncio.sleep(max(0.0, number / rate - now))
        with contextlib.suppress(KubeError):  # a machine that is too busy makes fewer
            await client.create(JOBS, a_job(f"soak-{number}"))
        number += 1


async def observe(client: Client, pid: int, home: Path, seconds: float, every: float) -> list[Sample]:
    began, samples = time.monotonic(), list[Sample]()
    print("seconds  memory MB  files  threads  disk MB  jobs  pods  events", flush=True)
    while (now := time.monotonic() - began) < seconds:
        counts = [len((await client.list(kind, "default")).items) for kind in (JOBS, PODS, EVENTS)]
        memory, files, threads = of_process(pid)
        sample = Sample(now, memory, files, threads, disk_of(home), *counts)
        samples.append(sample)
        print(
            f"{now:7.0f} {memory:10.1f} {files:6} {threads:8} {sample.disk_mb:8.1f} "
            f"{counts[0]:5} {counts[1]:5} {counts[2]:7}",
            flush=True,
        )
        await asyncio.sleep(every)
    return samples


def of_process(pid: int) -> tuple[float, int, int]:
    """Megabytes of memory, open files, threads."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024, len(os.listdir(f"/proc/{pid}/fd")), int(fields["Threads"])


def disk_of(home: Path) -> float:
    total = 0
    for directory, _, names in os.walk(home):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(directory, name)).st_blocks * 512
    return total / 2**20


async def soak(home: Path, pid: int, options: argparse.Namespace) -> int:
    seconds = options.minutes * 60
    client = Client(HttpTransport(kubeconfig.load(str(home / "kubeconfig"))))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(churn(client, options.rate, seconds), name="churn")
            watched = group.create_task(observe(client, pid, home, seconds, options.every), name="observe")
    finally:
        await client.close()
    grown = verdicts(watched.result(), options.forget_after)
    print("\n".join(grown.values()) or "flat", flush=True)
    return 1 if grown else 0


def main(options: argparse.Namespace) -> int:
    if options.serve:
        asyncio.run(serve(Path(options.serve), options.forget_after))
        return 0
    with tempfile.TemporaryDirectory(prefix="soak-") as home:
        command = [
            sys.executable,
            "-m",
            "benchmarks.soak",
            "--serve",
            home,
            "--forget-after",
            str(options.forget_after),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            try:
                if process.stdout.readline() != b"up\n":
                    return 1
                return asyncio.run(soak(Path(home), process.pid, options))
            finally:
                process.terminate()


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rate", type=float, default=1.0, help="jobs per second")
    parser.add_argument("--minutes", type=float, default=120.0, help="how long")
    parser.add_argument("--every", type=float, default=30.0, help="seconds between samples")
    parser.add_argument("--forget-after", type=float, default=3600.0, help="seconds that Events and logs are kept")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(parsed()))
