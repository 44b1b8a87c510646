"""What controllers are made of: a loop that turns changes into work, and the objects of one kind to work on.

`Loop` is level-based: a change only marks keys, a worker later brings each marked key into the state it should have,
from what the store holds then. A key is never worked on twice at once; a failure is tried again with growing pauses; a
result may ask to be called again after some seconds. Nothing polls.

Controllers read the store directly (a dictionary lookup) and write through the registry, as any other client would.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from trainmaster.cluster.registry.kinds import Kind, Kinds
from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.cluster.storage.store import ALL, Change, Entry, Expired, Store

K = TypeVar("K", bound=Hashable)

Source = Callable[[Change], Iterable[K]]
"""Which keys a change concerns. It may also keep an index: it sees every change, in order, in the loop's own task."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 30.0

_log = logging.getLogger(__name__)


class Registry(Protocol):
    """The part of the registry that controllers use."""

    store: Store
    kinds: Kinds

    def get(self, kind: Kind, namespace: str, name: str) -> Entry: ...
    async def create(self, kind: Kind, namespace: str, obj: dict[str, Any]) -> dict[str, Any]: ...
    async def update(
        self, kind: Kind, namespace: str, name: str, obj: dict[str, Any], *, subresource: str = ""
    ) -> tuple[dict[str, Any], bool]: ...
    async def delete(self, kind: Kind, namespace: str, name: str, options: dict[str, Any]) -> dict[str, Any]: ...


class Loop(Generic[K]):
    """Follows the sources (by store prefix) and reconciles what they mark, until cancelled."""

    def __init__(
        self,
        name: str,
        store: Store,
        sources: Mapping[str, Source[K]],
        reconcile: Callable[[K], Awaitable[float | None]],
        *,
        reset: Callable[[], None] = lambda: None,
        workers: int = 4,
    ) -> None:
        self._name = name
        self._store = store
        self._sources = sources
        self._reconcile = reconcile
        self._reset = reset
        self._workers = workers
        self._queue: asyncio.Queue[K] = asyncio.Queue()
        self._queued: set[K] = set()
        self._active: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for prefix in self._sources:
                    group.create_task(self._follow(prefix), name=f"{self._name}-follow{prefix or '-all'}")
                for number in range(self._workers):
                    group.create_task(self._work(), name=f"{self._name}-worker-{number}")
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    def mark(self, key: K) -> None:
        """Have it reconciled soon; now if a worker is free."""
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        if key not in self._queued:
            self._queued.add(key)
            if key not in self._active:
                self._queue.put_nowait(key)

    async def _follow(self, prefix: str) -> None:
        while True:
            self._reset()
            after = self._store.revision
            for change in _present(self._store, prefix):
                self._take(prefix, change)
            try:
                async for change in self._store.watch(prefix, after):
                    self._take(prefix, change)
                return  # the store has closed
            except Expired:
                _log.warning("changes were missed, looking at everything again", extra=_fields(loop=self._name))

    def _take(self, prefix: str, change: Change) -> None:
        for key in self._sources[prefix](change):
            self.mark(key)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            self._queued.discard(key)
            self._active.add(key)
            try:
                pause = await self._attempt(key)
            finally:
                self._active.discard(key)
            if key in self._queued:
                self._queue.put_nowait(key)
            elif pause is not None:
                self._timers[key] = asyncio.get_running_loop().call_later(max(pause, 0.0), self.mark, key)

    async def _attempt(self, key: K) -> float | None:
        try:
            pause = await self._reconcile(key)
        except ApiError as error:
            # Somebody else was faster; what is there now is read again.
            if error.status not in (404, 409):
                _log.warning("not done yet", extra=_fields(loop=self._name, key=str(key), error=error.message))
        except Exception:
            _log.exception("not done yet", extra=_fields(loop=self._name, key=str(key)))
        else:
            self._failures.pop(key, None)
            return pause
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        return min(_FIRST_PAUSE * 2.0 ** (failures - 1), _LONGEST_PAUSE)


def _present(store: Store, prefix: str) -> Iterator[Change]:
    """What is there already, told as if it had just been added."""
    for each in store.prefixes() if prefix == ALL else [prefix]:
        for entry in store.list(each):
            yield Change("ADDED", each, entry, None)


def _fields(**fields: object) -> dict[str, object]:
    return {"fields": fields}


class Objects:
    """The objects of one kind. What it returns is the store's own: copy before changing."""

    def __init__(self, registry: Registry, kind: Kind) -> None:
        self._registry = registry
        self._store = registry.store
        self.kind = kind

    @classmethod
    def of(cls, registry: Registry, group: str, version: str, plural: str) -> Objects:
        kind = registry.kinds.lookup(group, version, plural)
        if kind is None:
            raise LookupError(f"{group}/{version} {plural} is not served")
        return cls(registry, kind)

    def get(self, key: str) -> dict[str, Any] | None:
        """By `namespace/name`, or by name where there are no namespaces."""
        entry = self._store.get(self.kind.prefix, key)
        return entry.value if entry else None

    def list(self, namespace: str = "") -> Iterator[dict[str, Any]]:
        return (entry.value for entry in self._store.list(self.kind.prefix, namespace))

    async def create(self, obj: dict[str, Any]) -> dict[str, Any]:
        return await self._registry.create(self.kind, obj["metadata"].get("namespace", ""), obj)

    async def update(self, obj: dict[str, Any], subresource: str = "") -> dict[str, Any]:
        """Only if nobody changed it meanwhile: the object carries the resourceVersion it was made from."""
        metadata = obj["metadata"]
        updated, _ = await self._registry.update(
            self.kind, metadata.get("namespace", ""), metadata["name"], obj, subresource=subresource
        )
        return updated

    async def delete(self, obj: Mapping[str, Any], *, policy: str = "Background", grace: int | None = None) -> None:
        """This very object, not a namesake that came after it. One that is gone already is fine."""
        metadata = obj["metadata"]
        options: dict[str, Any] = {"propagationPolicy": policy, "preconditions": {"uid": metadata["uid"]}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            await self._registry.delete(self.kind, metadata.get("namespace", ""), metadata["name"], options)
        except ApiError as error:
            if error.status != 404:
                raise


def key_of(obj: Mapping[str, Any]) -> str:
    """`namespace/name`, or the bare name of a cluster-wide object."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def with_metadata(obj: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """A copy with these metadata fields set; None removes one."""
    metadata = {**obj["metadata"], **fields}
    return {**obj, "metadata": {name: value for name, value in metadata.items() if value is not None}}


def without_finalizer(obj: Mapping[str, Any], finalizer: str) -> dict[str, Any]:
    kept = [each for each in obj["metadata"].get("finalizers") or () if each != finalizer]
    return with_metadata(obj, finalizers=kept or None)


def has_finalizer(obj: Mapping[str, Any], finalizer: str) -> bool:
    return finalizer in (obj["metadata"].get("finalizers") or ())


def is_terminating(obj: Mapping[str, Any]) -> bool:
    return obj["metadata"].get("deletionTimestamp") is not None
