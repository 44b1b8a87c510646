"""A watch as a client sees it: only its namespace, only what its selectors match, in the version it asked for.

An object that begins to match is ADDED to this client, one that ceases to is DELETED, whatever really happened to it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

from trainmaster.cluster.registry.conversion import entry_as
from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.selectors import Matcher
from trainmaster.cluster.registry.status_error import ApiError, expired
from trainmaster.cluster.storage.store import Change, Entry, Expired, Store
from trainmaster.objects import meta


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """`raw` is the object's JSON, shared by all watchers."""

    type: str
    entry: Entry

    @property
    def raw(self) -> bytes:
        return self.entry.raw

    @property
    def value(self) -> dict[str, Any]:
        return self.entry.value


class WatchStream(AsyncIterator[WatchEvent]):
    """Ends when closed or when the store closes; ApiError 410 when the history no longer reaches back."""

    def __init__(self, store: Store, kind: Kind, namespace: str, after: int | None, matches: Matcher | None) -> None:
        self._kind = kind
        self._within = f"{namespace}/" if namespace and kind.namespaced else ""
        self._matches = matches
        self._initial = iter(self._present(store, namespace) if after is None else ())
        try:
            self._watch = store.watch(kind.prefix, store.revision if after is None else after)
        except Expired:
            raise _too_old(after, store.compacted) from None

    def _present(self, store: Store, namespace: str) -> Iterable[WatchEvent]:
        entries = store.list(self._kind.prefix, namespace if self._kind.namespaced else "")
        return [WatchEvent("ADDED", entry_as(self._kind, entry)) for entry in entries if self._is_wanted(entry)]

    async def __anext__(self) -> WatchEvent:
        for event in self._initial:
            return event
        try:
            async for change in self._watch:
                if (told := self._told(change)) is not None:
                    return told
        except Expired:
            raise expired("too old resource version: the watcher was too slow") from None
        raise StopAsyncIteration

    async def batch(self, limit: int = 1_000) -> list[WatchEvent]:
        """All events there are by now, at least one; none when the watch has ended. Saves a wake-up per event."""
        events = list(self._initial)
        while not events:
            try:
                changes = await self._watch.batch(limit)
            except Expired:
                raise expired("too old resource version: the watcher was too slow") from None
            if not changes:
                return []
            events = [told for change in changes if (told := self._told(change)) is not None]
        return events

    def close(self) -> None:
        self._watch.close()

    def _told(self, change: Change) -> WatchEvent | None:
        entry = change.entry
        if self._within and not entry.key.startswith(self._within):
            return None
        kind = self._kind
        if self._matches is None:
            return WatchEvent(change.type, entry if kind.is_storage_version else entry_as(kind, entry))
        did = change.type != "ADDED" and change.previous is not None and self._is_wanted(change.previous)
        does = change.type != "DELETED" and self._is_wanted(entry)
        if not did and not does:
            return None
        if change.type == "MODIFIED" and change.previous is not None and not does:
            return WatchEvent("DELETED", entry_as(kind, _last_seen(change.previous, entry)))
        name = "MODIFIED" if did and does else "ADDED" if does else "DELETED"
        return WatchEvent(name, entry_as(kind, entry))

    def _is_wanted(self, entry: Entry) -> bool:
        return self._matches is None or self._matches(entry.value)


def _last_seen(previous: Entry, entry: Entry) -> Entry:
    """What a client that loses sight of an object knew of it, at the version from which to go on."""
    metadata = {**previous.value["metadata"], "resourceVersion": str(entry.revision)}
    value = {**previous.value, "metadata": metadata}
    return Entry(entry.key, entry.revision, meta.encode(value), value)


def _too_old(after: int | None, compacted: int) -> ApiError:
    return expired(f"too old resource version: {after} ({compacted})")
