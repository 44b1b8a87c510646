"""Commands inside containers, with somebody at their streams: kubectl exec, exec probes and hooks.

Output is read only as fast as it is taken, input accepted only as fast as it is read; no task runs in the background.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator

from trainmaster.cluster.kubelet import spawn_init
from trainmaster.cluster.kubelet.launcher import Process
from trainmaster.cluster.streams.session import STDERR, STDOUT

_BLOCK = 1 << 16


class CommandSession:
    """A `Session` over a command's pipes or terminal."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._terminal = process.streams.take("terminal")
        if self._terminal >= 0:
            self._input, self._sources = self._terminal, {self._terminal: STDOUT}
        else:
            self._input = process.streams.take("stdin")
            self._sources = {process.streams.take("stdout"): STDOUT, process.streams.take("stderr"): STDERR}
        for fd in {self._input, *self._sources} - {-1}:
            os.set_blocking(fd, False)

    @property
    def output(self) -> AsyncIterator[tuple[int, bytes]]:
        return self._read()

    async def _read(self) -> AsyncIterator[tuple[int, bytes]]:
        open_fds = dict(self._sources)
        while open_fds:
            got_any = False
            for fd, channel in list(open_fds.items()):
                data = read_now(fd)
                if data:
                    got_any = True
                    yield channel, data
                elif data is not None:
                    del open_fds[fd]
            if open_fds and not got_any:
                await until_ready(list(open_fds), [])

    async def write_stdin(self, data: bytes) -> None:
        if self._input < 0:
            raise BrokenPipeError("the command has no input")
        await write_all(self._input, data)

    async def close_stdin(self) -> None:
        if self._input >= 0 and self._input != self._terminal:
            os.close(self._input)
            self._input = -1
        elif self._terminal >= 0:
            await self.write_stdin(b"\x04")  # a terminal has no end of input but this

    def resize(self, columns: int, rows: int) -> None:
        if self._terminal >= 0:
            spawn_init.resize(self._terminal, columns, rows)

    async def wait(self) -> int:
        return await self._process.wait()

    async def kill(self) -> None:
        await self._process.kill()
        for fd in {self._input, *self._sources} - {-1}:
            os.close(fd)
        self._input, self._terminal, self._sources = -1, -1, {}
        self._process.close()


class FailedSession:
    """A command that could not be started."""

    def __init__(self, message: str, code: int) -> None:
        self._message, self._code = message, code

    @property
    def output(self) -> AsyncIterator[tuple[int, bytes]]:
        return self._tell()

    async def _tell(self) -> AsyncIterator[tuple[int, bytes]]:
        yield STDERR, f"{self._message}\n".encode()

    async def write_stdin(self, data: bytes) -> None:
        raise BrokenPipeError("the command did not start")

    async def close_stdin(self) -> None:
        return

    def resize(self, columns: int, rows: int) -> None:
        return

    async def wait(self) -> int:
        return self._code

    async def kill(self) -> None:
        return


def read_now(fd: int) -> bytes | None:
    """None when nothing is there yet, empty at the end."""
    try:
        return os.read(fd, _BLOCK)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno == errno.EIO:  # the last process has closed the terminal
            return b""
        raise


async def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            await until_ready([], [fd])
        except OSError as error:
            raise BrokenPipeError(error.errno, "the command reads no more") from error


async def until_ready(readable: list[int], writable: list[int]) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    try:
        for fd in readable:
            loop.add_reader(fd, wake)
        for fd in writable:
            loop.add_writer(fd, wake)
        await ready
    finally:
        for fd in readable:
            loop.remove_reader(fd)
        for fd in writable:
            loop.remove_writer(fd)
