"""A picture of one kind of object in the cluster, never older than what we did ourselves.

Two streams flow in: what the `reflector` hears from the server, and what our own writes answered
(write-through), so that the next reconcile sees what the last one did. They arrive in any order; the picture must
never go back in time. What decides:

- resourceVersions of one kind are numbers that only grow, across objects and across deletions. Of two states of an
  object the one with the larger version is the newer. (Where they are not numbers, the last to arrive wins.)
- The reflector hears everything in order. When it has heard version N, it has heard all there was up to N: what is
  not in the cache then and has no newer version is gone.
- A deletion we made ourselves is remembered by uid until the reflector has heard of it too, lest older news of the
  same object raise it from the dead.

Whoever subscribes is told of every change, whichever stream it came by, and of nothing else. One cache, one
reflector.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Generic, TypeAlias, TypeVar

from trainmaster.objects.meta import Stored

T = TypeVar("T", bound=Stored)

Handler: TypeAlias = Callable[[T | None, T | None], None]
"""Told of a change as (old, new); one of them is None when the object appears or disappears."""

_Change: TypeAlias = tuple[T | None, T | None]


class Cache(Generic[T]):
    def __init__(self, indexes: Mapping[str, Callable[[T], Iterable[str]]] | None = None) -> None:
        self._index_of = dict(indexes or {})
        self._objects: dict[str, T] = {}
        self._indexes: dict[str, dict[str, dict[str, T]]] = {name: {} for name in self._index_of}
        self._heard = ""
        self._removed: dict[str, str] = {}  # by us and not yet heard of: uid -> the last version we knew
        self._graves: dict[str, str] = {}  # key -> uid of the last of them under that key
        self._handlers: list[Handler[T]] = []

    @property
    def resource_version(self) -> str:
        """How far the reflector has heard; empty before its first list."""
        return self._heard

    def get(self, key: str) -> T | None:
        """By `metadata.key`."""
        return self._objects.get(key)

    def by(self, index: str, value: str) -> list[T]:
        """Those with this value in that index, sorted by key."""
        bucket = self._indexes[index].get(value, {})
        return [bucket[key] for key in sorted(bucket)]

    def values(self) -> Collection[T]:
        """All of them, as they are now: do not await while walking through."""
        return self._objects.values()

    def __len__(self) -> int:
        return len(self._objects)

    def subscribe(self, handler: Handler[T]) -> None:
        """Called in the middle of whatever changed the cache: it must be quick and must not raise."""
        self._handlers.append(handler)

    def replace(self, objects: Iterable[T], resource_version: str, *, unread: Collection[str] = ()) -> None:
        """Takes over a full list, as of that version, and tells of the differences only.

        `unread` are keys of objects that were in the list and could not be decoded: they stay as they were.
        """
        listed = {item.metadata.key: item for item in objects}
        uids = {item.metadata.uid for item in listed.values()}
        # A list that lies behind what was heard before means that the server itself went back in time (etcd was
        # restored): what we remember is of a future that no longer exists, and the list is all there is.
        is_rewound = is_older(resource_version, self._heard)
        if is_rewound:
            self._removed.clear()
        self._heard = resource_version
        self._removed = {
            uid: version
            for uid, version in self._removed.items()
            # In the list: made before we removed it. Newer than the list: its end is still to be heard of.
            if uid in uids or is_older(resource_version, version)
        }
        self._graves = {key: uid for key, uid in self._graves.items() if uid in self._removed}
        changes: list[_Change[T]] = []
        for key, held in list(self._objects.items()):
            is_newer = is_older(resource_version, held.metadata.resource_version) and not is_rewound
            if key not in listed and key not in unread and not is_newer:
                changes.append(self._drop(held))
        for item in listed.values():
            if is_rewound or not self._is_stale(item):
                changes += self._keep(item)
        self._tell(changes)

    def apply_event(self, type: str, item: T) -> None:
        """Takes over one watch event: ADDED, MODIFIED or DELETED."""
        self.advance(item.metadata.resource_version)
        if type == "DELETED":
            self._removed.pop(item.metadata.uid, None)
            if self._graves.get(item.metadata.key) == item.metadata.uid:
                del self._graves[item.metadata.key]
            held = self._objects.get(item.metadata.key)
            if held is not None and not self._is_outlived(item, held):
                self._tell([self._drop(held)])
        elif not self._is_stale(item):
            self._tell(self._keep(item))

    def advance(self, resource_version: str) -> None:
        """The reflector has heard everything up to here."""
        if not is_older(resource_version, self._heard):  # some servers tell of a deletion under an old version
            self._heard = resource_version or self._heard

    def wrote(self, item: T) -> None:
        """Takes over what the server answered to a create, update or patch of ours."""
        version = item.metadata.resource_version
        is_absent = item.metadata.key not in self._objects
        if is_absent and self._heard and not is_older(self._heard, version) and _are_numbers(self._heard, version):
            return  # the reflector is past it: someone deleted it before we heard our answer
        if not self._is_stale(item):
            self._tell(self._keep(item))

    def removed(self, item: T | str, uid: str = "") -> None:
        """Forgets what a delete of ours has really removed, given the object or its key, and its uid."""
        key = item if isinstance(item, str) else item.metadata.key
        uid = uid if isinstance(item, str) else uid or item.metadata.uid
        held = self._objects.get(key)
        if held is None or (uid and held.metadata.uid != uid):
            return  # heard of already, or its successor is here
        self._removed[held.metadata.uid] = held.metadata.resource_version
        self._graves[key] = held.metadata.uid
        self._tell([self._drop(held)])

    def _is_stale(self, item: T) -> bool:
        """Whether we know something newer, or just as new, under the same key."""
        if item.metadata.uid in self._removed:
            return True
        held = self._objects.get(item.metadata.key)
        if held is None:
            # Of a predecessor of what we removed we may hear only now: it is long gone, too.
            grave = self._removed.get(self._graves.get(item.metadata.key, ""), "")
            return is_older(item.metadata.resource_version, grave)
        if held.metadata.resource_version == item.metadata.resource_version:
            return held.metadata.uid == item.metadata.uid
        return is_older(item.metadata.resource_version, held.metadata.resource_version)

    def _is_outlived(self, deleted: T, held: T) -> bool:
        """Whether news of a deletion is older than what is held: its successor, or the same that came back."""
        if _are_numbers(deleted.metadata.resource_version, held.metadata.resource_version):
            return is_older(deleted.metadata.resource_version, held.metadata.resource_version)
        return deleted.metadata.uid != held.metadata.uid

    def _keep(self, item: T) -> Iterator[_Change[T]]:
        key = item.metadata.key
        held = self._objects.get(key)
        if held is not None and held.metadata.uid != item.metadata.uid:
            yield self._drop(held)  # another object of the same name: two changes, not one
            held = None
        if held is not None:
            self._unindex(key, held)
        self._objects[key] = item
        for name, values_of in self._index_of.items():
            for value in values_of(item):
                self._indexes[name].setdefault(value, {})[key] = item
        yield held, item

    def _drop(self, held: T) -> _Change[T]:
        key = held.metadata.key
        self._unindex(key, held)
        del self._objects[key]
        return held, None

    def _unindex(self, key: str, held: T) -> None:
        for name, values_of in self._index_of.items():
            index = self._indexes[name]
            for value in values_of(held):
                bucket = index.get(value)
                if bucket is not None:
                    bucket.pop(key, None)
                    if not bucket:
                        del index[value]

    def _tell(self, changes: Iterable[_Change[T]]) -> None:
        for old, new in list(changes):  # first change all, then tell: who is told sees the cache as it is
            for handler in self._handlers:
                handler(old, new)


def is_older(version: str, other: str) -> bool:
    """False where they cannot be compared."""
    return _are_numbers(version, other) and int(version) < int(other)


def _are_numbers(version: str, other: str) -> bool:
    return version.isdecimal() and other.isdecimal()
