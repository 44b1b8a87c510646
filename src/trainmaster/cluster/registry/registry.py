"""The semantics of the Kubernetes API, without HTTP: what create, update, patch, delete, list and watch mean.

Everybody who changes the cluster comes through here: the HTTP server for clients, the scheduler and controllers
directly. Reads hand out the store's own entries and never copy; writes check, prepare and then store, and begin
again when somebody else was faster. Preparation is in `writing`, deletion in `deletion`, pages and watches in
`paging` and `watching`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainmaster.cluster.registry import selectors
from trainmaster.cluster.registry.admission import Policies
from trainmaster.cluster.registry.admission_table import BUILTIN_POLICIES
from trainmaster.cluster.registry.binding import bind
from trainmaster.cluster.registry.bootstrap import bootstrap, ensure_account
from trainmaster.cluster.registry.conversion import entry_as
from trainmaster.cluster.registry.definition_registry import Definitions
from trainmaster.cluster.registry.deletion import Deleter
from trainmaster.cluster.registry.eviction import Evictions
from trainmaster.cluster.registry.kinds import Kind, Kinds
from trainmaster.cluster.registry.kinds_builtin import BUILTIN
from trainmaster.cluster.registry.paging import Listing, Pages, read_token
from trainmaster.cluster.registry.patching import Patcher
from trainmaster.cluster.registry.status_error import not_found
from trainmaster.cluster.registry.watching import WatchStream
from trainmaster.cluster.registry.writing import Writer
from trainmaster.cluster.storage.store import Entry, Store

__all__ = ["Listing", "Registry", "WatchStream"]


class Registry:
    """One per cluster, over one store. Methods raise ApiError; their dicts are the caller's to read, not to change."""

    def __init__(self, store: Store, *, now: Callable[[], float]) -> None:
        self.store = store
        self.now = now
        self.kinds = Kinds(BUILTIN)
        self._pages = Pages()
        self._writer = Writer(store, Policies(BUILTIN_POLICIES), now)
        self._deleter = Deleter(self._writer)
        self._patcher = Patcher(self._writer)
        self._definitions = Definitions(self.kinds, self._writer, self._deleter)

    async def start(self) -> None:
        """Makes an empty store a cluster, and a used one known again: namespaces, accounts, kinds, addresses."""
        if (events := self.kinds.lookup("", "v1", "events")) is not None:
            self.store.cold.add(events.prefix)
        self._writer.addresses.load(entry.value for entry in self.store.list("/services"))
        self._definitions.load()
        await bootstrap(self)

    def get(self, kind: Kind, namespace: str, name: str) -> Entry:
        entry = self.store.get(kind.prefix, kind.key(namespace, name))
        if entry is None:
            raise not_found(kind, name)
        return entry_as(kind, entry)

    def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        continue_: str = "",
    ) -> Listing:
        """Sorted by key. Selectors filter before pages are cut."""
        matches = selectors.matcher(kind, labels, fields)
        entries: list[Entry] = self.store.list(kind.prefix, namespace if kind.namespaced else "")
        if matches is not None:
            entries = [entry for entry in entries if matches(entry.value)]
        if not kind.is_storage_version:
            entries = [entry_as(kind, entry) for entry in entries]
        scope = (f"{kind.prefix}@{kind.version}", namespace, f"{labels}|{fields}" if matches else "")
        if continue_:
            return self._pages.further(scope, read_token(continue_), entries, self.store.revision, limit)
        return self._pages.first(scope, entries, self.store.revision, limit)

    def watch(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        after: int | None,
        labels: str = "",
        fields: str = "",
        name: str = "",
    ) -> WatchStream:
        """Changes later than revision `after`; with None, first everything there is, as ADDED. Close it when done."""
        if name:
            fields = f"{fields},metadata.name={name}" if fields else f"metadata.name={name}"
        return WatchStream(self.store, kind, namespace, after, selectors.matcher(kind, labels, fields))

    async def create(
        self, kind: Kind, namespace: str, obj: Mapping[str, Any], *, dry_run: bool = False, manager: str = ""
    ) -> dict[str, Any]:
        self._definitions.check_accepting(kind)
        created = await self._writer.create(kind, namespace, obj, dry_run=dry_run, manager=manager)
        if not dry_run:
            await self._created(kind, created)
        return created

    async def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        obj: Mapping[str, Any],
        *,
        subresource: str = "",
        dry_run: bool = False,
        manager: str = "",
    ) -> tuple[dict[str, Any], bool]:
        """A PUT. The flag says that the object did not exist and was created, where its kind allows that."""
        result = await self._writer.update(
            kind, namespace, name, obj, subresource=subresource, dry_run=dry_run, manager=manager
        )
        await self._written(kind, result, dry_run=dry_run)
        return result

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: bytes,
        content_type: str,
        *,
        subresource: str = "",
        dry_run: bool = False,
        manager: str = "",
        force: bool = False,
    ) -> tuple[dict[str, Any], bool]:
        """Any of the four patch types. Only apply creates; `force` lets it take fields from other managers."""
        result = await self._patcher.patch(
            kind,
            namespace,
            name,
            patch,
            content_type,
            subresource=subresource,
            dry_run=dry_run,
            manager=manager,
            force=force,
        )
        await self._written(kind, result, dry_run=dry_run)
        return result

    async def delete(
        self, kind: Kind, namespace: str, name: str, options: Mapping[str, Any] | None = None, *, dry_run: bool = False
    ) -> dict[str, Any]:
        """The object if it still ends or its kind answers so, else a Status."""
        deleted, answer = await self._deleter.delete(kind, namespace, name, options or {}, dry_run=dry_run)
        if not dry_run:
            await self._definitions.deleted(kind, deleted)
        return answer

    async def delete_collection(
        self,
        kind: Kind,
        namespace: str = "",
        options: Mapping[str, Any] | None = None,
        *,
        labels: str = "",
        fields: str = "",
        dry_run: bool = False,
    ) -> Listing:
        """Deletes what a list with these selectors shows; returns that list."""
        listing = self.list(kind, namespace, labels=labels, fields=fields)
        for entry in listing.items:
            await self._deleter.delete_if_there(kind, entry, options or {}, dry_run=dry_run)
        if not dry_run and kind.custom:
            await self._definitions.emptied(kind)
        return listing

    async def bind(
        self, namespace: str, name: str, binding: Mapping[str, Any], *, dry_run: bool = False
    ) -> dict[str, Any]:
        """pods/binding: puts a pod on a node."""
        return await bind(self._writer, namespace, name, binding, dry_run=dry_run)

    async def evict(
        self, namespace: str, name: str, eviction: Mapping[str, Any], *, dry_run: bool = False
    ) -> dict[str, Any]:
        """pods/eviction: a deletion that disruption budgets may refuse (429)."""
        return await Evictions(self.store, self._deleter).evict(namespace, name, eviction, dry_run=dry_run)

    async def _created(self, kind: Kind, obj: Mapping[str, Any]) -> None:
        if kind.prefix == "/namespaces":
            await ensure_account(self, obj["metadata"]["name"])
        await self._definitions.written(kind, obj)

    async def _written(self, kind: Kind, result: tuple[dict[str, Any], bool], *, dry_run: bool) -> None:
        obj, is_new = result
        if dry_run:
            return
        if is_new:
            await self._created(kind, obj)
        else:
            await self._definitions.written(kind, obj)
