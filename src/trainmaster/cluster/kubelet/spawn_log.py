"""Writes a container's output the way container runtimes do: `TIME stdout F line`, one file per attempt, rotated.

Runs inside the container's init (`spawn_init`); `logfiles` reads what it writes. A line without its end is written as
partial (`P`) when the container pauses, so that a follower sees a prompt at once and joins it with the rest later.
"""

from __future__ import annotations

import os
import time

MAX_BYTES = 10 << 20
MAX_FILES = 5
MAX_LINE = 16 << 10


class LogWriter:
    """One attempt's log. Files are named relative to an open directory: the path may be hidden by a volume later."""

    def __init__(self, path: str, max_bytes: int = MAX_BYTES, max_files: int = MAX_FILES) -> None:
        directory, self._name = os.path.split(path)
        os.makedirs(directory, exist_ok=True)
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._max_bytes, self._max_files = max_bytes, max_files
        self._open_lines: dict[bytes, bytes] = {}
        self._file = self._open()
        self._size = os.fstat(self._file).st_size

    @property
    def has_open_line(self) -> bool:
        return bool(self._open_lines)

    def write(self, stream: bytes, data: bytes) -> None:
        """Whole lines are written now, what follows the last newline when more comes or at the next `flush`."""
        *lines, rest = (self._open_lines.pop(stream, b"") + data).split(b"\n")
        start = _start(stream)
        records = [_records(start, line) for line in lines]
        while len(rest) > MAX_LINE:
            records.append(b"%s P %s\n" % (start, rest[:MAX_LINE]))
            rest = rest[MAX_LINE:]
        if rest:
            self._open_lines[stream] = rest
        if records:
            self._append(b"".join(records))

    def flush(self) -> None:
        for stream, rest in self._open_lines.items():
            self._append(b"%s P %s\n" % (_start(stream), rest))
        self._open_lines.clear()

    def close(self) -> None:
        self.flush()
        os.close(self._file)
        os.close(self._directory)

    def _append(self, records: bytes) -> None:
        if self._size and self._size + len(records) > self._max_bytes:
            self._rotate()
        view = memoryview(records)
        while view:
            view = view[os.write(self._file, view) :]
        self._size += len(records)

    def _rotate(self) -> None:
        os.close(self._file)
        for number in range(self._max_files - 1, 0, -1):
            older = f"{self._name}.{number}"
            newer = f"{self._name}.{number - 1}" if number > 1 else self._name
            try:
                os.rename(newer, older, src_dir_fd=self._directory, dst_dir_fd=self._directory)
            except FileNotFoundError:
                continue
        self._file, self._size = self._open(), 0

    def _open(self) -> int:
        flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self._name, flags, 0o600, dir_fd=self._directory)


def _start(stream: bytes) -> bytes:
    seconds, fraction = divmod(time.time_ns(), 10**9)
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return b"%s.%09dZ %s" % (moment.encode(), fraction, stream)


def _records(start: bytes, line: bytes) -> bytes:
    if len(line) <= MAX_LINE:
        return b"%s F %s\n" % (start, line)
    pieces = [line[at : at + MAX_LINE] for at in range(0, len(line), MAX_LINE)]
    return b"".join(b"%s P %s\n" % (start, piece) for piece in pieces[:-1]) + b"%s F %s\n" % (start, pieces[-1])
