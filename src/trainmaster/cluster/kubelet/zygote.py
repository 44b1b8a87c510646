"""Our end of the helper process that starts containers (`spawn`): requests out, answers and exits in.

No task is needed: the event loop calls us when the helper has said something. If the helper dies, everything it had
started is dead too, by the kernel; every process then counts as killed and every open request fails. Whoever waits for
`is_lost` starts another (`launcher`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import resource
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, create_subprocess_exec
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainmaster.cluster.storage import private

_SOURCE = Path(__file__).parents[3]
_PROGRAM = "import sys; sys.path.append({source!r}); from trainmaster.cluster.kubelet.spawn import main; main()"
_START_SECONDS = 30.0
OPEN_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)
"""What this process was started with, and containers get: programs that use select() count on the usual 1024."""
_STOP_SECONDS = 10.0
_KILLED = 128 + signal.SIGKILL


class HelperError(Exception):
    """The helper could not do what was asked; `stage` tells whether a command or what surrounds it was at fault."""

    def __init__(self, message: str, *, stage: str = "setup", code: int = 0) -> None:
        super().__init__(message)
        self.stage = stage
        self.code = code

    @property
    def is_missing_file(self) -> bool:
        return self.stage == "exec" and self.code in (errno.ENOENT, errno.ENOTDIR)


class HelperGone(HelperError):
    """The helper has died, or it was another one that knew what was asked about."""

    def __init__(self) -> None:
        super().__init__("the helper process that starts containers is gone")


class Zygote:
    """Made by `start`, ended by `close`; neither may be cancelled half-way without leaving the other to do the rest."""

    def __init__(self, channel: socket.socket, process: asyncio.subprocess.Process) -> None:
        self._channel = channel
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._number = 0
        self._answers: dict[int, asyncio.Future[tuple[dict[str, Any], list[int]]]] = {}
        self._exits: dict[str, asyncio.Future[int]] = {}
        self._sending = asyncio.Lock()
        self.is_lost = asyncio.Event()
        self.taken: frozenset[str] = frozenset()
        """Names of the processes that ended with the helper, and not by themselves."""
        self.able: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        return self._process.pid

    @classmethod
    async def start(cls, settings: Mapping[str, Any], errors: Path) -> Zygote:
        """HelperError when this machine does not allow what the settings ask for; `errors` gets the helper's stderr."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with theirs, os.fdopen(private.open_private(errors, append), "ab") as log:
            try:
                process = await create_subprocess_exec(
                    *(sys.executable, "-I", "-S", "-X", "utf8", "-c", _PROGRAM.format(source=str(_SOURCE))),
                    *(str(theirs.fileno()), json.dumps({**settings, "parent": os.getpid(), "open_files": OPEN_FILES})),
                    stdin=DEVNULL,
                    stdout=DEVNULL,
                    stderr=log,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # Ctrl-C is for us; containers get SIGTERM in their turn
                    cwd="/",
                )
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        zygote = cls(ours, process)
        try:
            await zygote._greet(errors)
        except BaseException:
            await zygote.close()
            raise
        return zygote

    async def _greet(self, errors: Path) -> None:
        async with asyncio.timeout(_START_SECONDS):
            told = await self._loop.sock_recv(self._channel, 65536)
        if not told:
            raise HelperError(f"the helper process ended at once; see {errors}")
        answer = json.loads(told)
        if "error" in answer:
            raise HelperError(answer["error"])
        self.able = answer["ok"]
        self._loop.add_reader(self._channel, self._on_message)

    async def close(self) -> None:
        """Ends every container and the helper. May be called again."""
        if self._channel.fileno() >= 0:
            self._loop.remove_reader(self._channel)
            self._channel.close()
        self._lose()
        try:
            # Not asyncio.timeout: before Python 3.11.3 it raises CancelledError in a task that was cancelled.
            await asyncio.wait_for(self._process.wait(), _STOP_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def ask(
        self, operation: str, body: Mapping[str, Any], fds: Sequence[int] = ()
    ) -> tuple[dict[str, Any], list[int]]:
        """The answer and the descriptors that came with it, which the caller owns."""
        if self.is_lost.is_set():
            raise HelperGone
        self._number += 1
        number = self._number
        answer = self._answers[number] = self._loop.create_future()
        try:
            await self._send({**body, "op": operation, "id": number}, fds)
            told, received = await answer
            return told, received
        finally:
            self._answers.pop(number, None)

    def expect_exit(self, name: str) -> asyncio.Future[int]:
        """Resolved with the exit code of what is about to be started under this name."""
        exit_code = self._exits[name] = self._loop.create_future()
        return exit_code

    def forget_exit(self, name: str) -> None:
        self._exits.pop(name, None)

    async def _send(self, request: Mapping[str, Any], fds: Sequence[int]) -> None:
        memory = os.memfd_create("request", os.MFD_CLOEXEC)
        try:
            with os.fdopen(os.dup(memory), "wb") as file:
                file.write(json.dumps(request).encode())
            async with self._sending:
                while not self._try_send([memory, *fds]):
                    await self._until_writable()
        finally:
            os.close(memory)

    def _try_send(self, fds: Sequence[int]) -> bool:
        try:
            socket.send_fds(self._channel, [b"r"], fds)
        except BlockingIOError:
            return False
        except OSError as error:
            raise HelperGone from error
        return True

    async def _until_writable(self) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_writer(self._channel, lambda: None if ready.done() else ready.set_result(None))
        try:
            await ready
        finally:
            self._loop.remove_writer(self._channel)

    def _on_message(self) -> None:
        while True:
            try:
                told, fds, _, _ = socket.recv_fds(self._channel, 65536, 4)
            except BlockingIOError:
                return
            except OSError:
                told, fds = b"", []
            if not told:
                self._loop.remove_reader(self._channel)
                self._lose()
                return
            self._dispatch(json.loads(told), fds)

    def _dispatch(self, message: dict[str, Any], fds: list[int]) -> None:
        if "exit" in message:
            exit_code = self._exits.pop(message["exit"], None)
            if exit_code is not None and not exit_code.done():
                exit_code.set_result(message["code"])
            return
        answer = self._answers.get(message["id"])
        if answer is None or answer.done():
            for fd in fds:
                os.close(fd)
        elif "error" in message:
            answer.set_exception(HelperError(message["error"], stage=message["stage"], code=message["errno"]))
        else:
            answer.set_result((message["ok"], fds))

    def _lose(self) -> None:
        self.is_lost.set()
        self.taken |= self._exits.keys()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(HelperGone())
        for exit_code in self._exits.values():
            if not exit_code.done():
                exit_code.set_result(_KILLED)
        self._exits.clear()
