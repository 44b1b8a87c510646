"""What happened, in order, and those who follow it: the store's objects, its changes, its watches.

A watch is a position in a line of changes, not a buffer of its own: a thousand watchers cost a thousand integers, and
one that falls behind the line's start is told so (`Expired`).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

ChangeType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]


class Expired(Exception):
    """The history no longer reaches back to what a watcher has yet to see."""


class Entry:
    """One object at one revision."""

    __slots__ = ("_value", "key", "raw", "revision")

    def __init__(self, key: str, revision: int, raw: bytes, value: dict[str, Any] | None = None) -> None:
        self.key = key
        self.revision = revision
        self.raw = raw
        self._value = value

    def __repr__(self) -> str:
        return f"Entry({self.key!r}, {self.revision})"

    @property
    def value(self) -> dict[str, Any]:
        """Decoded on demand, so that old revisions and a just opened store need not hold it."""
        value = self._value
        if value is None:
            value = self._value = msgspec.json.decode(self.raw)
        return value

    def forget(self) -> None:
        self._value = None


class Change(NamedTuple):
    type: ChangeType
    prefix: str
    entry: Entry
    previous: Entry | None


class Line:
    """Changes in order of revision, numbered without gaps from `start` to `end`, and those who wait for the next."""

    __slots__ = ("_changes", "_waiting", "closed", "end", "start")

    def __init__(self) -> None:
        self._changes: dict[int, Change] = {}
        self._waiting: set[asyncio.Future[None]] = set()
        self.start = self.end = 0
        self.closed = False

    def __len__(self) -> int:
        return self.end - self.start

    def append(self, change: Change) -> None:
        self._changes[self.end] = change
        self.end += 1

    def pop(self) -> Change:
        change = self._changes.pop(self.start)
        self.start += 1
        return change

    def at(self, position: int) -> Change:
        return self._changes[position]

    def back(self, count: int) -> Change | None:
        return self._changes.get(self.end - count)

    def position_after(self, revision: int) -> int:
        span = range(self.start, self.end)
        return self.start + bisect_right(span, revision, key=lambda position: self.at(position).entry.revision)

    async def wait(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    def wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    def close(self) -> None:
        self.closed = True
        self.wake()


class Watch(AsyncIterator[Change]):
    """A position in the history. Ends when closed or when the store closes; Expired when it is left behind."""

    def __init__(self, line: Line, after: int, *, is_closed: bool) -> None:
        self._line = line
        self._after = after
        self._position = line.position_after(after)
        self._closed = is_closed

    async def __anext__(self) -> Change:
        while not (self._closed or self._line.closed):
            change = self._next()
            if change is not None:
                return change
            await self._line.wait()
        raise StopAsyncIteration

    async def batch(self, limit: int = 1_000) -> list[Change]:
        """All changes there are by now, at least one; none when the watch has ended."""
        changes = [change async for change in _first(self)]
        while changes and len(changes) < limit and (change := self._next()) is not None:
            changes.append(change)
        return changes

    def close(self) -> None:
        self._closed = True
        self._line.wake()

    def _next(self) -> Change | None:
        line = self._line
        if self._position < line.start:
            self._closed = True
            raise Expired("the watcher was too slow: changes it had not seen have left the history")
        while self._position < line.end:
            change = line.at(self._position)
            self._position += 1
            if change.entry.revision > self._after:  # one may ask for a future revision, and gets nothing before it
                return change
        return None


async def _first(watch: Watch) -> AsyncIterator[Change]:
    async for change in watch:
        yield change
        return
