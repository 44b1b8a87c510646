"""The process that starts containers, seen from the cluster's side."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from trainmaster.cluster.kubelet import zygote
from trainmaster.cluster.kubelet.zygote import Zygote


def test_a_helper_that_does_not_end_is_killed_also_by_a_cancelled_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zygote, "_STOP_SECONDS", 0.1)

    async def serve(started: asyncio.Future[int]) -> None:
        helper = await Zygote.start({"namespaces": False}, tmp_path / "errors")
        os.kill(helper.pid, signal.SIGSTOP)
        started.set_result(helper.pid)
        try:
            await asyncio.Event().wait()
        finally:
            await helper.close()

    async def main() -> int:
        started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(serve(started), name="cluster")
            pid = await started
            serving.cancel()
        return pid

    pid = asyncio.run(main())

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
