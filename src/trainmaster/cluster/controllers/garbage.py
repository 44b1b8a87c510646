"""Deletes what lost its owner, and holds back or releases owners that wait for their dependents.

The rules are kube-controller-manager's. An owner is there only if the object of that kind and name has the uid that
the reference names. An object

- with a present owner stays; references to absent owners, or to ones that wait for it to go, are taken off it;
- whose owners all wait for their dependents (foreground deletion) is deleted, in the foreground if it has its own;
- whose owners are all absent is deleted, by the way its own finalizers ask for, else in the background;
- that is terminating with finalizer `foregroundDeletion` goes once no dependent with blockOwnerDeletion is left, or
  once only a circle of such objects, each waiting for the next, holds it;
- that is terminating with finalizer `orphan` goes once its dependents no longer refer to it.

`Index` knows dependents by their owner's uid; it is fed by one watch of everything, custom resources included, so
nothing is ever searched for. `decide` is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from trainmaster.cluster.controllers.control import (
    Loop,
    Objects,
    Registry,
    has_finalizer,
    is_terminating,
    with_metadata,
    without_finalizer,
)
from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.storage.store import ALL, Change

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"

Json: TypeAlias = Mapping[str, Any]


class Place(NamedTuple):
    """Where an object is kept."""

    prefix: str
    key: str


Presence: TypeAlias = Literal["present", "absent", "waiting", "unknown"]
"""Of an owner: `waiting` means it goes once its dependents have; `unknown` that its kind is not served here."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with one object; all of it nothing by default."""

    delete: Literal["", "Background", "Foreground", "Orphan"] = ""
    drop_owners: tuple[str, ...] = ()
    drop_finalizer: str = ""
    release: tuple[Place, ...] = ()
    look_at: tuple[Place, ...] = ()


NOTHING = Decision()


class Index:
    """Who refers to whom, by the owner's uid."""

    def __init__(self) -> None:
        self._dependents: dict[str, dict[Place, bool]] = {}
        self._owners: dict[Place, frozenset[str]] = {}

    def clear(self) -> None:
        self._dependents.clear()
        self._owners.clear()

    def put(self, place: Place, references: list[Json]) -> None:
        owners = frozenset(str(reference.get("uid")) for reference in references)
        for uid in self._owners.pop(place, frozenset()) - owners:
            self._forget(uid, place)
        for reference in references:
            blocks = bool(reference.get("blockOwnerDeletion"))
            self._dependents.setdefault(str(reference.get("uid")), {})[place] = blocks
        if owners:
            self._owners[place] = owners

    def places(self) -> list[Place]:
        """Of everything that has an owner."""
        return list(self._owners)

    def dependents(self, uid: str) -> list[Place]:
        return list(self._dependents.get(uid, ()))

    def blocking(self, uid: str) -> list[Place]:
        return [place for place, blocks in self._dependents.get(uid, {}).items() if blocks]

    def _forget(self, uid: str, place: Place) -> None:
        dependents = self._dependents[uid]
        del dependents[place]
        if not dependents:
            del self._dependents[uid]


def owners_of(obj: Json) -> list[Json]:
    return list(obj["metadata"].get("ownerReferences") or ())


def is_waiting(obj: Json) -> bool:
    """Being deleted in the foreground: there until its dependents are gone."""
    return is_terminating(obj) and has_finalizer(obj, FOREGROUND)


def decide(
    obj: Json, index: Index, presence_of: Callable[[Json], Presence], read: Callable[[Place], Json | None]
) -> Decision:
    uid = obj["metadata"]["uid"]
    if is_terminating(obj) and has_finalizer(obj, ORPHAN):
        return Decision(release=tuple(index.dependents(uid)), drop_finalizer=ORPHAN)
    if is_waiting(obj):
        if not index.blocking(uid) or _waits_for_itself(uid, index, read):
            return Decision(drop_finalizer=FOREGROUND)
        return Decision(look_at=tuple(place for place in index.dependents(uid) if not _is_waiting_at(place, read)))
    if is_terminating(obj):
        return NOTHING
    return _judge_owners(obj, index, presence_of)


def _is_waiting_at(place: Place, read: Callable[[Place], Json | None]) -> bool:
    obj = read(place)
    return obj is not None and is_waiting(obj)


def _waits_for_itself(uid: str, index: Index, read: Callable[[Place], Json | None]) -> bool:
    """Through a circle of objects that block and wait for one another; none of them would ever go."""
    seen: set[str] = set()
    ahead = [uid]
    while ahead:
        found = (read(place) for place in index.blocking(ahead.pop()))
        waiting = {str(obj["metadata"]["uid"]) for obj in found if obj is not None and is_waiting(obj)}
        if uid in waiting:
            return True
        ahead += waiting - seen
        seen |= waiting
    return False


def _judge_owners(obj: Json, index: Index, presence_of: Callable[[Json], Presence]) -> Decision:
    references = owners_of(obj)
    states = {str(reference.get("uid")): presence_of(reference) for reference in references}
    found = set(states.values())
    if not found or "unknown" in found:
        return NOTHING
    if "present" in found:
        return Decision(drop_owners=tuple(uid for uid, state in states.items() if state != "present"))
    if "waiting" in found and index.dependents(obj["metadata"]["uid"]):
        return Decision(delete="Foreground")
    if has_finalizer(obj, ORPHAN):
        return Decision(delete="Orphan")
    return Decision(delete="Foreground" if has_finalizer(obj, FOREGROUND) else "Background")


class GarbageCollector:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._index = Index()
        self._by_prefix: dict[str, Kind] = {}
        self._by_name: dict[tuple[str, str], Kind] = {}
        self._loop = Loop(
            "garbage", registry.store, {ALL: self._concerned}, self._reconcile, reset=self._index.clear, workers=16
        )

    async def run(self) -> None:
        self._know_kinds()
        self._registry.kinds.on_change(self._know_kinds)
        await self._loop.run()

    def _know_kinds(self) -> None:
        """Called when custom resources come or go; owners of an unknown kind may have become known."""
        kinds = list(self._registry.kinds)
        self._by_name = {(kind.group, kind.kind): kind for kind in reversed(kinds)}
        stored_last = sorted(kinds, key=lambda kind: kind.is_storage_version)  # only that version takes what is stored
        self._by_prefix = {kind.prefix: kind for kind in stored_last if kind.prefix == f"{kind.group}/{kind.plural}"}
        for place in self._index.places():
            self._loop.mark(place)

    def _concerned(self, change: Change) -> Iterator[Place]:
        """The object itself if its ties changed, its dependents if they may have lost it, owners that wait for it."""
        place = Place(change.prefix, change.entry.key)
        obj = change.entry.value
        if change.type == "MODIFIED" and change.previous and _ties(obj) == _ties(change.previous.value):
            return
        gone = change.type == "DELETED"
        self._index.put(place, [] if gone else owners_of(obj))
        if not gone and (owners_of(obj) or is_terminating(obj)):
            yield place
        if gone or is_waiting(obj):
            yield from self._index.dependents(obj["metadata"].get("uid", ""))
        for reference in _all_owners(change):
            owner = self._place_of(reference, obj)
            if owner is not None and (state := self._read(owner)) is not None and is_waiting(state):
                yield owner

    async def _reconcile(self, place: Place) -> None:
        obj = self._read(place)
        kind = self._by_prefix.get(place.prefix)
        if obj is None or kind is None:
            return
        decision = decide(obj, self._index, lambda reference: self._presence_of(reference, obj), self._read)
        await self._carry_out(decision, Objects(self._registry, kind), obj)

    async def _carry_out(self, decision: Decision, objects: Objects, obj: Json) -> None:
        for place in decision.look_at:
            self._loop.mark(place)
        for place in decision.release:
            await self._release(place, obj["metadata"]["uid"])
        if decision.drop_finalizer:
            await objects.update(without_finalizer(obj, decision.drop_finalizer))
        if decision.drop_owners:
            await objects.update(_without_owners(obj, decision.drop_owners))
        if decision.delete:
            await objects.delete(obj, policy=decision.delete)

    async def _release(self, place: Place, uid: str) -> None:
        obj, kind = self._read(place), self._by_prefix.get(place.prefix)
        if obj is not None and kind is not None:
            await Objects(self._registry, kind).update(_without_owners(obj, (uid,)))

    def _presence_of(self, reference: Json, obj: Json) -> Presence:
        place = self._place_of(reference, obj)
        if place is None:
            return "unknown"
        owner = self._read(place)
        if owner is None or owner["metadata"].get("uid") != reference.get("uid"):
            return "absent"
        return "waiting" if is_waiting(owner) else "present"

    def _place_of(self, reference: Json, obj: Json) -> Place | None:
        """None if the kind is not served, or if a cluster-wide object claims an owner inside some namespace."""
        group, _, _ = str(reference.get("apiVersion", "")).rpartition("/")
        kind = self._by_name.get((group, str(reference.get("kind", ""))))
        namespace = obj["metadata"].get("namespace", "")
        if kind is None or (kind.namespaced and not namespace):
            return None
        return Place(kind.prefix, kind.key(namespace, str(reference.get("name", ""))))

    def _read(self, place: Place) -> Json | None:
        entry = self._store.get(place.prefix, place.key)
        return entry.value if entry else None


def _ties(obj: Json) -> tuple[Any, ...]:
    """Everything in an object that a decision here may depend on."""
    metadata = obj["metadata"]
    return (
        metadata.get("uid"),
        metadata.get("ownerReferences"),
        metadata.get("finalizers"),
        metadata.get("deletionTimestamp"),
    )


def _all_owners(change: Change) -> list[Json]:
    """Owners it has, and those it had just before: they too may have waited for this change."""
    before = owners_of(change.previous.value) if change.previous is not None else []
    return [*owners_of(change.entry.value), *before]


def _without_owners(obj: Json, uids: tuple[str, ...]) -> dict[str, Any]:
    kept = [reference for reference in owners_of(obj) if reference.get("uid") not in uids]
    return with_metadata(obj, ownerReferences=kept or None)
