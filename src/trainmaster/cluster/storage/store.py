"""All objects of the cluster and their recent history, behind one revision counter.

Readers and watchers use memory only, and see a change once it is on disk. Writes are numbered as they come; while one
batch is being written by the log's thread (`store_log`) the next one gathers, so that many writers share a
transaction. A second write to a key waits for the first: its caller has not seen the state it would replace.

Changes and watches are in `store_history`. `Entry.raw` is the object's JSON, encoded once for all readers.
Objects handed in belong to the store, and what it hands out is everybody's: nobody changes either.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from trainmaster.cluster.storage.store_history import Change, ChangeType, Entry, Expired, Line, Watch
from trainmaster.cluster.storage.store_log import BATCH, Log, Record, StoreError

__all__ = ["Change", "Entry", "Exists", "Expired", "Missing", "Stale", "Store", "StoreError", "Watch"]

ALL: Final = ""
"""Watched instead of one prefix: the changes of all."""

HISTORY = 10_000
"""Revisions that can still be watched from."""

HISTORY_BYTES = 64 << 20
"""Of the objects in the history: a few large ones that change often would fill the memory. A tenth of the revisions
stays whatever its size, so that watches need not begin again and again."""

FIRST_REVISION = 1
"""Of an empty store. Not 0: a list's resourceVersion of 0 means "any" to clients."""

_DECODED = 256
"""Changes for which a superseded object stays decoded: after that its JSON is enough, at a fifth of the memory."""

_log = logging.getLogger(__name__)


class Exists(Exception):
    """A create of a key that is taken."""


class Stale(Exception):
    """The object is not, or no longer, at the expected revision; `current` is the one it has, None if it is gone."""

    def __init__(self, message: str, current: int | None) -> None:
        super().__init__(message)
        self.current = current


class Missing(Exception):
    """A removal of a key that is not there."""


class Store:
    """Made by `Store.open`, which fills it from the log; closed by `close`."""

    def __init__(self, *, history: int = HISTORY) -> None:
        self.revision = FIRST_REVISION
        self.compacted = 0
        self._history_limit = history
        self._history_bytes = 0
        self.cold: set[str] = set()
        """Prefixes of which objects are written, passed on and rarely read again: they do not stay decoded."""
        self._shelves: dict[str, _Shelf] = {}
        self._all = Line()
        self._garbage: list[int] = []
        self._garbage_bytes = 0
        self._numbered = FIRST_REVISION
        self._writer: _Writer | None = None
        self._closed = False

    @classmethod
    async def open(cls, path: Path | None, *, full_sync: bool = False, history: int = HISTORY) -> Store:
        """With no path, nothing outlives the process. `full_sync` also survives a power cut, for an fsync per batch."""
        store = cls(history=history)
        if path is not None:
            store._writer = await _Writer.open(store, path, full_sync=full_sync)
        return store

    def get(self, prefix: str, key: str) -> Entry | None:
        shelf = self._shelves.get(prefix)
        return shelf.entries.get(key) if shelf else None

    def list(self, prefix: str, namespace: str = "") -> list[Entry]:
        """All objects of a kind, or of a kind in a namespace, sorted by key."""
        shelf = self._shelves.get(prefix)
        return shelf.within(namespace) if shelf else []

    def prefixes(self) -> Sequence[str]:
        return sorted(self._shelves)

    async def put(self, prefix: str, key: str, obj: Mapping[str, Any], *, expect: int | None) -> Entry:
        """Creates (expect None) or replaces the revision `expect`; returns when the change is durable."""
        current = await self._settled(prefix, key)
        if expect is None and current is not None:
            raise Exists(f"{prefix} {key} exists at revision {current.revision}")
        if expect is not None and (current is None or current.revision != expect):
            raise _stale(prefix, key, expect, current)
        return await self._commit("MODIFIED" if current else "ADDED", prefix, key, obj, current)

    async def remove(
        self, prefix: str, key: str, *, expect: int | None = None, final: Mapping[str, Any] | None = None
    ) -> Entry:
        """Deletes; the entry returned, and told to watchers, is the last state at the revision of the deletion."""
        current = await self._settled(prefix, key)
        if current is None:
            raise Missing(f"{prefix} {key} does not exist")
        if expect is not None and current.revision != expect:
            raise _stale(prefix, key, expect, current)
        return await self._commit("DELETED", prefix, key, current.value if final is None else final, current)

    def watch(self, prefix: str, after: int) -> Watch:
        """Every change later than revision `after`, of one prefix or of ALL."""
        if after < self.compacted:
            raise Expired(f"revision {after} is too old: history begins after {self.compacted}")
        line = self._all if prefix == ALL else self._shelf(prefix).line
        return Watch(line, after, is_closed=self._closed)

    async def close(self) -> None:
        """Ends watches, then writes what is pending and lets go of the file. Later writes are refused."""
        if self._closed:
            return
        self._closed = True
        for line in (self._all, *(shelf.line for shelf in self._shelves.values())):
            line.close()
        if self._writer is not None:
            await self._writer.close()

    async def _settled(self, prefix: str, key: str) -> Entry | None:
        """The committed state, once no write to this key is under way."""
        if self._writer is not None:
            await self._writer.settled(prefix, key)
        if self._closed:
            raise StoreError("the store is closed")
        return self.get(prefix, key)

    async def _commit(
        self, type_: ChangeType, prefix: str, key: str, obj: Mapping[str, Any], previous: Entry | None
    ) -> Entry:
        revision = self._numbered + 1
        value = {**obj, "metadata": {**(obj.get("metadata") or {}), "resourceVersion": str(revision)}}
        change = Change(type_, prefix, Entry(key, revision, msgspec.json.encode(value), value), previous)
        self._numbered = revision
        if self._writer is None:
            self.publish((change,))
            self.take_garbage()  # there is no log to drop it from
        else:
            await self._writer.write(change)
        return change.entry

    def publish(self, changes: tuple[Change, ...]) -> None:
        """Makes committed changes visible, in order; then wakes whoever waits for them."""
        for change in changes:
            self._record(change)
        for prefix in {change.prefix for change in changes}:
            self._shelves[prefix].line.wake()
        self._all.wake()

    def restore(self, compacted: int, records: Sequence[Record]) -> None:
        """Fills an empty store. Rows up to `compacted` are what was left alive; later ones are history as well."""
        self.compacted = compacted
        self.revision = max(compacted, FIRST_REVISION)
        for record in records:
            shelf = self._shelf(record.prefix)
            previous = shelf.entries.get(record.key)
            type_: ChangeType = "DELETED" if record.deleted else "MODIFIED" if previous else "ADDED"
            entry = Entry(record.key, record.revision, record.value)
            if record.revision > compacted:
                self._record(Change(type_, record.prefix, entry, previous))
            else:
                shelf.place(type_, entry)
                self.revision = max(self.revision, record.revision)
        self._numbered = self.revision

    def take_garbage(self) -> Sequence[int]:
        """Rows of the log that no reader and no watcher can reach; none while they are too few for a transaction."""
        if len(self._garbage) * 10 < self._history_limit and self._garbage_bytes * 10 < HISTORY_BYTES:
            return ()
        garbage, self._garbage, self._garbage_bytes = self._garbage, [], 0
        return garbage

    def _record(self, change: Change) -> None:
        shelf = self._shelf(change.prefix)
        shelf.place(change.type, change.entry)
        shelf.line.append(change)
        self._all.append(change)
        self.revision = change.entry.revision
        self._history_bytes += len(change.entry.raw)
        if (old := self._all.back(_DECODED)) is not None:
            self._forget(old)
        while self._is_history_full():
            self._drop_oldest()

    def _forget(self, old: Change) -> None:
        if old.previous is not None:
            old.previous.forget()
        if old.type == "DELETED" or old.prefix in self.cold:
            old.entry.forget()

    def _is_history_full(self) -> bool:
        length = len(self._all)
        is_large = self._history_bytes > HISTORY_BYTES and length * 10 > self._history_limit
        return length > self._history_limit or is_large

    def _drop_oldest(self) -> None:
        change = self._all.pop()
        self._shelves[change.prefix].line.pop()
        self.compacted = change.entry.revision
        self._history_bytes -= len(change.entry.raw)
        if change.previous is not None:
            self._discard(change.previous)
        if change.type == "DELETED":
            self._discard(change.entry)

    def _discard(self, entry: Entry) -> None:
        self._garbage.append(entry.revision)
        self._garbage_bytes += len(entry.raw)

    def _shelf(self, prefix: str) -> _Shelf:
        shelf = self._shelves.get(prefix)
        if shelf is None:
            shelf = self._shelves[prefix] = _Shelf()
        return shelf


def _stale(prefix: str, key: str, expect: int, current: Entry | None) -> Stale:
    found = "it does not exist" if current is None else f"it is at {current.revision}"
    return Stale(f"{prefix} {key} was expected at revision {expect}, {found}", current.revision if current else None)


class _Shelf:
    """The objects of one prefix, and their changes."""

    __slots__ = ("entries", "keys", "line")

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.keys: list[str] = []  # sorted
        self.line = Line()

    def place(self, type_: ChangeType, entry: Entry) -> None:
        if type_ == "DELETED":
            del self.entries[entry.key]
            del self.keys[bisect_left(self.keys, entry.key)]
            return
        if entry.key not in self.entries:
            insort(self.keys, entry.key)
        self.entries[entry.key] = entry

    def within(self, namespace: str) -> list[Entry]:
        keys = self.keys
        if namespace:
            # "0" is the character after "/"
            keys = keys[bisect_left(keys, f"{namespace}/") : bisect_left(keys, f"{namespace}0")]
        return [self.entries[key] for key in keys]


class _Writer:
    """Carries changes to the log's thread, a batch at a time, and publishes them when they are there."""

    def __init__(self, store: Store, log: Log, thread: ThreadPoolExecutor) -> None:
        self._store = store
        self._log = log
        self._thread = thread
        self._queue: list[Change] = []
        self._futures: dict[tuple[str, str], asyncio.Future[None]] = {}
        self._is_busy = False

    @classmethod
    async def open(cls, store: Store, path: Path, *, full_sync: bool) -> _Writer:
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-log")
        try:
            log = await loop.run_in_executor(thread, partial(Log.open, path, full_sync=full_sync))
            try:
                await loop.run_in_executor(thread, lambda: store.restore(*log.read()))
            except BaseException:
                await loop.run_in_executor(thread, log.close)
                raise
        except BaseException:
            thread.shutdown()
            raise
        return cls(store, log, thread)

    async def settled(self, prefix: str, key: str) -> None:
        while (future := self._futures.get((prefix, key))) is not None:
            await asyncio.wait((future,))

    async def write(self, change: Change) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._futures[change.prefix, change.entry.key] = future
        if not self._queue and not self._is_busy:
            loop.call_soon(self._flush)  # not now: others who are ready to write share the transaction
        self._queue.append(change)
        await asyncio.shield(future)  # a caller that gives up does not undo what is on its way to the disk

    async def close(self) -> None:
        try:
            while self._futures:
                await asyncio.wait(tuple(self._futures.values()))
        finally:
            # Not awaited: the file must be let go even by a task that is being cancelled, and this takes milliseconds.
            closing = self._thread.submit(self._log.close)
            self._thread.shutdown()
        closing.result()

    def _flush(self) -> None:
        if self._is_busy or not self._queue:
            return
        batch, self._queue = tuple(self._queue[:BATCH]), self._queue[BATCH:]
        records = [
            Record(change.entry.revision, change.prefix, change.entry.key, change.type == "DELETED", change.entry.raw)
            for change in batch
        ]
        self._is_busy = True
        writing = asyncio.get_running_loop().run_in_executor(self._thread, self._log.append, records)
        writing.add_done_callback(partial(self._written, batch))

    def _written(self, batch: tuple[Change, ...], writing: asyncio.Future[None]) -> None:
        self._is_busy = False
        error = writing.exception()
        if error is None:
            self._store.publish(batch)
        for change in batch:
            future = self._futures.pop((change.prefix, change.entry.key))
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
        self._compact()
        self._flush()

    def _compact(self) -> None:
        garbage = self._store.take_garbage()
        if garbage:
            self._is_busy = True
            compacted = self._store.compacted
            compacting = asyncio.get_running_loop().run_in_executor(self._thread, self._log.compact, garbage, compacted)
            compacting.add_done_callback(self._compacted)

    def _compacted(self, compacting: asyncio.Future[None]) -> None:
        self._is_busy = False
        if (error := compacting.exception()) is not None:
            # Not lost: the rows are found again when the file is next opened.
            _log.warning("old revisions could not be dropped", extra={"error": str(error)})
        self._flush()
