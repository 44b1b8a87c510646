"""Reads the logs of containers: the last lines, from a moment on, and on as they grow. `spawn_log` writes them.

A log is one file per attempt (`<pod uid>/<container>/<n>.log`) and its rotated predecessors (`.1` is the newest). Its
records are `TIME stream F|P text`; the time has a fixed length, so no record has to be parsed to be filtered.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from trainmaster.cluster.kubelet.spawn_log import MAX_FILES

_TIME, _TAG, _TEXT = 30, 38, 40
_BLOCK = 1 << 16
_PAUSE = 0.05
_OVERFLOW = -1
"""In the place of a watch's number: more has happened than the kernel could note."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which part of a log, and how it is shown."""

    tail: int | None = None
    since: float | None = None
    timestamps: bool = False
    limit_bytes: int | None = None


def files_of(path: Path) -> list[Path]:
    """The parts of one log, oldest first."""
    rotated = [path.with_name(f"{path.name}.{number}") for number in range(MAX_FILES - 1, 0, -1)]
    return [part for part in (*rotated, path) if part.exists()]


def read(path: Path, selection: Selection) -> bytes:
    """What the log has now; for short logs and tests."""
    view = _Shown(selection)
    return b"".join(view.take(records) for records in _records(path, selection))


def last_text(path: Path, *, lines: int, limit: int) -> str:
    """The end of a log, for a termination message."""
    text = read(path, Selection(tail=lines)) if path.exists() else b""
    return text[-limit:].decode(errors="replace")


def _records(path: Path, selection: Selection) -> Iterator[list[bytes]]:
    parts = files_of(path)
    start = 0
    if selection.tail is not None:
        parts, start = _tail_of(parts, selection.tail)
    for part in parts:
        with part.open("rb") as file:
            file.seek(start)
            while lines := file.readlines(_BLOCK):
                yield lines
        start = 0


def _tail_of(parts: list[Path], wanted: int) -> tuple[list[Path], int]:
    """From which file, and where in it, the last lines begin. A line ends with a whole record, not a partial one."""
    if wanted <= 0:
        return parts[-1:], parts[-1].stat().st_size if parts else 0
    found = 0
    for index in range(len(parts) - 1, -1, -1):
        for offset, tag in _backwards(parts[index]):
            is_end = tag == b"F"
            if is_end and found == wanted:
                return parts[index:], offset
            found += is_end or found == 0
    return parts, 0


def _backwards(path: Path) -> Iterator[tuple[int, bytes]]:
    """(where the record ends, its tag), from the last record to the first."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        rest = b""
        while end > 0:
            start = max(0, end - _BLOCK)
            file.seek(start)
            block = file.read(end - start) + rest
            rest, *lines = block.splitlines(keepends=True) if start else [b"", *block.splitlines(keepends=True)]
            at = start + len(block)
            for line in reversed(lines):
                yield at, line[_TAG : _TAG + 1]
                at -= len(line)
            end = start


class _Shown:
    """Turns records into what a client sees, within its limits."""

    def __init__(self, selection: Selection) -> None:
        moment = datetime.fromtimestamp(selection.since, UTC) if selection.since is not None else None
        self._since = moment.strftime("%Y-%m-%dT%H:%M:%S.%f").encode() if moment else b""
        self._timestamps = selection.timestamps
        self._left = selection.limit_bytes
        self._is_line_open = False

    @property
    def is_full(self) -> bool:
        return self._left is not None and self._left <= 0

    def take(self, records: list[bytes]) -> bytes:
        shown = b"".join(self._text(record) for record in records if record >= self._since)
        if self._left is not None:
            shown = shown[: max(0, self._left)]
            self._left -= len(shown)
        return shown

    def _text(self, record: bytes) -> bytes:
        is_partial = record[_TAG : _TAG + 1] == b"P"
        text = record[_TEXT:-1] if is_partial else record[_TEXT:]
        stamp = record[: _TIME + 1] if self._timestamps and not self._is_line_open else b""
        self._is_line_open = is_partial
        return stamp + text


class LogWatch:
    """Wakes those who follow a log. One inotify descriptor serves all: a user may have only so many of them."""

    _MODIFY_OR_CREATE = 0x2 | 0x100

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), f"inotify: {os.strerror(ctypes.get_errno())}")
        self._loop = asyncio.get_running_loop()
        self._rest: asyncio.TimerHandle | None = None
        self._listen()
        self._watches: dict[Path, int] = {}
        self._directories: dict[int, Path] = {}
        self._waiting: dict[Path, set[asyncio.Event]] = {}

    def close(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    @property
    def is_idle(self) -> bool:
        return not self._watches and not self._waiting

    def add(self, path: Path) -> asyncio.Event:
        """Set whenever something happens in the log's directory; the caller clears it, and calls `remove` later."""
        directory, event = path.parent, asyncio.Event()
        if directory not in self._watches:
            watch = self._libc.inotify_add_watch(self._fd, os.fsencode(directory), self._MODIFY_OR_CREATE)
            if watch < 0:
                raise OSError(ctypes.get_errno(), f"inotify watch on {directory}")
            self._watches[directory], self._directories[watch] = watch, directory
        self._waiting.setdefault(directory, set()).add(event)
        return event

    def remove(self, path: Path, event: asyncio.Event) -> None:
        directory = path.parent
        waiting = self._waiting.get(directory, set())
        waiting.discard(event)
        if not waiting:
            self._waiting.pop(directory, None)
            watch = self._watches.pop(directory, None)
            if watch is not None:
                self._directories.pop(watch, None)
                self._libc.inotify_rm_watch(self._fd, watch)

    def wake(self, path: Path) -> None:
        """For what inotify does not see: the container has ended."""
        self._wake(path.parent)

    def _listen(self) -> None:
        self._loop.add_reader(self._fd, self._on_ready)

    def _on_ready(self) -> None:
        """Who prints a lot is not to be slowed down by those who read it: they look twenty times a second."""
        self._loop.remove_reader(self._fd)
        self._rest = self._loop.call_later(_PAUSE, self._listen)
        with contextlib.suppress(BlockingIOError):
            while True:
                self._tell(os.read(self._fd, _BLOCK))

    def _tell(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            watch, _, _, length = struct.unpack_from("iIII", data, at)
            at += 16 + length
            for directory in self._waiting if watch == _OVERFLOW else [self._directories.get(watch, Path())]:
                self._wake(directory)

    def _wake(self, directory: Path) -> None:
        for event in self._waiting.get(directory, ()):
            event.set()


async def stream(path: Path, selection: Selection) -> AsyncIterator[bytes]:
    """The log as it is."""
    view = _Shown(selection)
    for records in _records(path, selection):
        if shown := view.take(records):
            yield shown
        if view.is_full:
            return


async def follow(
    path: Path, selection: Selection, watch: LogWatch, is_over: Callable[[], bool]
) -> AsyncGenerator[bytes, None]:
    """The log as it is and as it grows, until the container has ended and everything it wrote was told."""
    view = _Shown(selection)
    async with contextlib.aclosing(_grow(path, selection, watch, is_over)) as growing:
        async for records in growing:
            if shown := view.take(records):
                yield shown
            if view.is_full:
                return


async def attach(path: Path, watch: LogWatch, is_over: Callable[[], bool]) -> AsyncGenerator[tuple[int, bytes], None]:
    """What the container writes from now on, with the number of the stream."""
    view = _Shown(Selection())
    async with contextlib.aclosing(_grow(path, Selection(tail=0), watch, is_over)) as growing:
        async for records in growing:
            for record in records:
                yield 2 if record[_TIME + 1 :].startswith(b"stderr") else 1, view.take([record])


async def _grow(
    path: Path, selection: Selection, watch: LogWatch, is_over: Callable[[], bool]
) -> AsyncGenerator[list[bytes], None]:
    changed = watch.add(path)
    reader = _Reader(path, selection)
    try:
        while True:
            changed.clear()
            was_over = is_over()
            while records := reader.next():
                yield records
            if was_over:
                return
            await changed.wait()
    finally:
        reader.close()
        watch.remove(path, changed)


class _Reader:
    """Reads on where it stopped, through rotations: an open file keeps its content when it is renamed."""

    def __init__(self, path: Path, selection: Selection) -> None:
        self._path = path
        parts, start = files_of(path), 0
        if selection.tail is not None:
            parts, start = _tail_of(parts, selection.tail)
        self._files: list[BinaryIO] = [part.open("rb") for part in parts]
        self._rest = b""
        self._is_last_look = False
        if self._files:
            self._files[0].seek(start)

    def next(self) -> list[bytes]:
        """Whole records; none when there are no more at present."""
        while True:
            data = self._files[0].read(_BLOCK) if self._files else b""
            *lines, self._rest = (self._rest + data).split(b"\n")
            if lines:
                return [line + b"\n" for line in lines]
            if not data and not self._advance():
                return []

    def _advance(self) -> bool:
        if len(self._files) > 1:
            self._files.pop(0).close()
            return True
        if not self._is_replaced():
            return False
        if self._files and not self._is_last_look:
            self._is_last_look = True  # something may have been written between our last read and the rotation
            return True
        later = self._later()
        if later:
            self.close()
            self._files, self._is_last_look = later, False
        return bool(later)

    def _later(self) -> list[BinaryIO]:
        """The files after ours, of which there may be several by now. Opened from the newest on: a rotation in the
        meantime shows one of them twice that way, and hides one the other way."""
        own = os.fstat(self._files[0].fileno()).st_ino if self._files else None
        later: dict[int, BinaryIO] = {}
        for part in reversed(files_of(self._path)):
            with contextlib.suppress(FileNotFoundError):
                file = part.open("rb")
                number = os.fstat(file.fileno()).st_ino
                if number != own and number not in later:
                    later[number] = file
                    continue
                file.close()
                if number == own:
                    break
        return list(reversed(later.values()))

    def _is_replaced(self) -> bool:
        if not self._path.exists():
            return False
        return not self._files or os.fstat(self._files[0].fileno()).st_ino != self._path.stat().st_ino

    def close(self) -> None:
        for file in self._files:
            file.close()
        self._files = []
