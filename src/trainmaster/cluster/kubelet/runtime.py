"""What the API server asks about running containers, answered: logs, commands, attachments, connections.

It implements `session.Runtime` over the kubelet's workers. Refusals are worded as a kubelet words them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from trainmaster.cluster.kubelet import logfiles, spawn_init
from trainmaster.cluster.kubelet.commands import CommandSession, FailedSession, write_all
from trainmaster.cluster.kubelet.container_target import exec_config
from trainmaster.cluster.kubelet.kubelet import Kubelet
from trainmaster.cluster.kubelet.launcher import Process
from trainmaster.cluster.kubelet.logfiles import LogWatch, Selection
from trainmaster.cluster.kubelet.podstatus import Record
from trainmaster.cluster.kubelet.podworker import PodWorker
from trainmaster.cluster.kubelet.zygote import HelperError
from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.cluster.streams.session import Session

_DEFAULT = "kubectl.kubernetes.io/default-container"
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127


class PodRuntime:
    def __init__(self, kubelet: Kubelet) -> None:
        self._kubelet = kubelet

    def open_log(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        previous: bool,
        follow: bool,
        tail: int | None,
        since: float | None,
        timestamps: bool,
        limit_bytes: int | None,
    ) -> AsyncIterator[bytes]:
        worker = self._worker(namespace, pod)
        record = self._record(worker, container)
        if "waiting" in record.state and not record.last_state:
            raise _bad(
                f'container "{record.name}" in pod "{pod}" is waiting to start: {record.state["waiting"]["reason"]}'
            )
        attempt = record.restart_count
        if previous and attempt == 0:
            raise _bad(f'previous terminated container "{record.name}" in pod "{pod}" not found')
        path = worker.scene.log_path(record.name, attempt - 1 if previous else attempt)
        selection = Selection(tail, since, timestamps, limit_bytes)
        if previous or not follow or not path.parent.is_dir():
            return logfiles.stream(path, selection)

        def is_over() -> bool:
            return not record.is_running or record.restart_count != attempt

        return logfiles.follow(path, selection, worker.scene.house.logs, is_over)

    async def exec(
        self, namespace: str, pod: str, container: str, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> Session:
        process = self._process(namespace, pod, container)
        if not command:
            raise _bad("you must specify at least 1 command for the container")
        try:
            config = exec_config(process, list(command), stdin=stdin, tty=tty)
            return CommandSession(await self._kubelet.house.sandbox.exec(process, config))
        except HelperError as error:
            code = _NOT_FOUND if error.is_missing_file else _NOT_EXECUTABLE
            return FailedSession(f'exec failed: "{command[0]}": {error}', code)

    async def attach(self, namespace: str, pod: str, container: str, *, stdin: bool, tty: bool) -> Session:
        worker = self._worker(namespace, pod)
        process = self._process(namespace, pod, container)
        record = self._record(worker, container)
        path = worker.scene.log_path(record.name, record.restart_count)
        return AttachedSession(process, path, worker.scene.house.logs)

    async def connect(self, namespace: str, pod: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        worker = self._worker(namespace, pod)
        if worker.scene.box is None:
            raise _bad(f"unable to forward port because pod is not running. Current status={worker.phase}")
        connected = await self._kubelet.house.sandbox.connect(worker.scene.box, port, local=True)
        return await asyncio.open_connection(sock=connected)

    def _worker(self, namespace: str, pod: str) -> PodWorker:
        worker = self._kubelet.worker(namespace, pod)
        if worker is None:
            raise ApiError(404, "NotFound", f'pods "{pod}" not found', {"name": pod, "kind": "pods"})
        return worker

    def _record(self, worker: PodWorker, container: str) -> Record:
        metadata = worker.scene.pod["metadata"]
        names = list(worker.records)
        main = [c["name"] for c in worker.scene.pod["spec"]["containers"]]
        name = container or (metadata.get("annotations") or {}).get(_DEFAULT) or (main[0] if len(main) == 1 else "")
        if not name:
            raise _bad(
                f"a container name must be specified for pod {metadata['name']}, choose one of: [{' '.join(names)}]"
            )
        if name not in worker.records:
            raise _bad(f"container {name} is not valid for pod {metadata['name']}")
        return worker.records[name]

    def _process(self, namespace: str, pod: str, container: str) -> Process:
        worker = self._worker(namespace, pod)
        record = self._record(worker, container)
        runner = worker.runners.get(record.name)
        if runner is None or runner.process is None or not runner.process.is_running:
            raise _bad(f'container not found ("{record.name}"): it is not running')
        return runner.process


class AttachedSession:
    """A client at the streams of a container's own process: its output from now on, and its input if it has one."""

    def __init__(self, process: Process, log: Path, watch: LogWatch) -> None:
        self._process = process
        self._log = log
        self._watch = watch

    @property
    def output(self) -> AsyncIterator[tuple[int, bytes]]:
        return logfiles.attach(self._log, self._watch, lambda: not self._process.is_running)

    async def write_stdin(self, data: bytes) -> None:
        target = self._input
        if target < 0:
            raise BrokenPipeError("the container has no input")
        os.set_blocking(target, False)
        await write_all(target, data)

    @property
    def _input(self) -> int:
        streams = self._process.streams
        return streams.terminal if streams.terminal >= 0 else streams.stdin

    async def close_stdin(self) -> None:
        """The next client may still want to write; only a container that is fed once sees the end."""
        return

    def resize(self, columns: int, rows: int) -> None:
        if self._process.streams.terminal >= 0:
            spawn_init.resize(self._process.streams.terminal, columns, rows)

    async def wait(self) -> int:
        return await self._process.wait()

    async def kill(self) -> None:
        return


def _bad(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)
