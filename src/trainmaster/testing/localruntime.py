"""A `cluster.session.Runtime` without a kubelet: commands are local processes, ports are local ports.

For tests of what speaks to one. Every pod exists, has one container, and the log and main process that a test gives it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import struct
import termios
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from trainmaster.cluster.registry.status_error import ApiError, bad_request
from trainmaster.cluster.streams.session import STDERR, STDOUT

_MANY = 64


class LocalSession(asyncio.SubprocessProtocol):
    """A process with pipes, or with a terminal, at its streams."""

    def __init__(self) -> None:
        self.size: tuple[int, int] | None = None
        self.was_killed = False
        self._transport: asyncio.SubprocessTransport | None = None
        self._terminal: int | None = None
        self._chunks: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue()
        self._open = {STDOUT, STDERR}
        self._exited = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    @classmethod
    async def start(cls, command: Sequence[str], *, tty: bool = False) -> LocalSession:
        session = cls()
        loop = asyncio.get_running_loop()
        if tty:
            session._terminal, inner = pty.openpty()
            os.set_blocking(session._terminal, False)
            loop.add_reader(session._terminal, session._read_terminal)
            options: dict[str, Any] = {"stdin": inner, "stdout": inner, "stderr": inner, "preexec_fn": _own_terminal}
            await loop.subprocess_exec(lambda: session, *command, start_new_session=True, **options)
            os.close(inner)
        else:
            await loop.subprocess_exec(lambda: session, *command, start_new_session=True)
        return session

    @property
    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        while (chunk := await self._chunks.get()) is not None:
            self._pause(False)
            yield chunk

    async def write_stdin(self, data: bytes) -> None:
        if self._terminal is not None:
            os.write(self._terminal, data)
            return
        pipe = self._pipe(0)
        if pipe.is_closing():
            raise BrokenPipeError
        pipe.write(data)
        await self._room.wait()

    async def close_stdin(self) -> None:
        if self._terminal is None:
            self._pipe(0).close()

    def resize(self, columns: int, rows: int) -> None:
        self.size = (columns, rows)
        if self._terminal is not None:
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def wait(self) -> int:
        await self._exited.wait()
        code = cast(asyncio.SubprocessTransport, self._transport).get_returncode()
        return code if code is not None and code >= 0 else 128 - (code or 0)

    async def kill(self) -> None:
        assert self._transport is not None
        if not self._exited.is_set():
            self.was_killed = True
            self._transport.kill()
            await self._exited.wait()
        self._transport.close()
        self._close_terminal()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._chunks.put_nowait((fd, data))
        if self._chunks.qsize() > _MANY:
            self._pause(True)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._room.set()
        self._end({fd})

    def process_exited(self) -> None:
        self._exited.set()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def _pipe(self, fd: int) -> asyncio.WriteTransport:
        assert self._transport is not None
        return cast(asyncio.WriteTransport, self._transport.get_pipe_transport(fd))

    def _pause(self, paused: bool) -> None:
        for fd in () if self._terminal is not None else (STDOUT, STDERR):
            pipe = cast(asyncio.ReadTransport, self._pipe(fd))
            if not pipe.is_closing():
                (pipe.pause_reading if paused else pipe.resume_reading)()

    def _read_terminal(self) -> None:
        try:
            data = os.read(cast(int, self._terminal), 1 << 16)
        except OSError:  # the last process at the terminal has gone
            data = b""
        if data:
            self._chunks.put_nowait((STDOUT, data))
        else:
            asyncio.get_running_loop().remove_reader(cast(int, self._terminal))
            self._end({STDOUT, STDERR})

    def _end(self, channels: set[int]) -> None:
        if self._open and not self._open - channels:
            self._chunks.put_nowait(None)
        self._open -= channels

    def _close_terminal(self) -> None:
        if self._terminal is not None:
            asyncio.get_running_loop().remove_reader(self._terminal)
            os.close(self._terminal)
            self._terminal = None


class Attached:
    """A client at a process that outlives it."""

    def __init__(self, main: LocalSession) -> None:
        self._main = main
        self.output = main.output
        self.write_stdin = main.write_stdin
        self.close_stdin = main.close_stdin
        self.resize = main.resize
        self.wait = main.wait

    async def kill(self) -> None:
        return


@dataclass
class Log:
    """A log that grows while it is read; `released` once a reader has let go of it."""

    lines: list[bytes] = field(default_factory=list)
    is_complete: bool = False
    released: asyncio.Event = field(default_factory=asyncio.Event)
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def add(self, *lines: bytes, complete: bool = False) -> None:
        async with self._news:
            self.lines.extend(lines)
            self.is_complete = complete
            self._news.notify_all()

    async def read(self, start: int, follow: bool) -> AsyncIterator[bytes]:
        try:
            while True:
                while start < len(self.lines):
                    yield self.lines[start]
                    start += 1
                if not follow or self.is_complete:
                    return
                async with self._news:
                    if start == len(self.lines) and not self.is_complete:
                        await self._news.wait()
        finally:
            self.released.set()


@dataclass
class LocalRuntime:
    """`asked` has the options of every log that was opened; `sessions` every command that was started."""

    log: Log = field(default_factory=Log)
    main: LocalSession | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    sessions: list[LocalSession] = field(default_factory=list)
    container: str = "main"
    started: asyncio.Event = field(default_factory=asyncio.Event)

    def open_log(self, namespace: str, pod: str, container: str, **options: Any) -> AsyncIterator[bytes]:
        self._check(pod, container)
        self.asked.append({"namespace": namespace, "pod": pod, "container": container, **options})
        tail = options["tail"]
        start = 0 if tail is None else max(0, len(self.log.lines) - tail)
        return self.log.read(start, options["follow"])

    async def exec(
        self, namespace: str, pod: str, container: str, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> LocalSession:
        self._check(pod, container)
        session = await LocalSession.start(command, tty=tty)
        if not stdin:
            await session.close_stdin()
        self.sessions.append(session)
        self.started.set()
        return session

    async def attach(self, namespace: str, pod: str, container: str, *, stdin: bool, tty: bool) -> Attached:
        self._check(pod, container)
        if self.main is None:
            raise bad_request(f"container {self.container} has no process")
        return Attached(self.main)

    async def connect(self, namespace: str, pod: str, port: int) -> tuple[StreamReader, StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", port)

    def _check(self, pod: str, container: str) -> None:
        if container not in ("", self.container):
            raise ApiError(400, "BadRequest", f"container {container} is not valid for pod {pod}")


def _own_terminal() -> None:
    """Makes the terminal on stdin the controlling one, so that Ctrl-C and SIGWINCH reach the process."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
