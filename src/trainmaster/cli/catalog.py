"""Everything the cluster serves, found by any of the names people use: asked of the server once, in two requests.

New servers tell all at once (aggregated discovery); of older ones each group is asked for itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from trainmaster import frameworks
from trainmaster.api.framework import Framework
from trainmaster.kube.client import Client
from trainmaster.kube.errors import ApiError, NotFound
from trainmaster.objects.resource import Resource

ACCEPT = ",".join(
    [f"application/json;g=apidiscovery.k8s.io;v={v};as=APIGroupDiscoveryList" for v in ("v2", "v2beta1")]
    + ["application/json"]
)
AT_ONCE = 10
"""Groups asked for at the same time."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A resource and its names."""

    resource: Resource
    singular: str = ""
    short_names: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """`pytorchjob.kubeflow.org`, as it is printed before a name."""
        return ".".join(part for part in (self.resource.kind.lower(), self.resource.group) if part)

    @property
    def framework(self) -> Framework | None:
        """What runs objects of this kind, if they are training jobs."""
        return _frameworks().get((self.resource.group, self.resource.kind))

    def is_called(self, name: str) -> bool:
        resource = self.resource
        names = {resource.plural, self.singular or resource.kind.lower(), resource.kind.lower(), *self.short_names}
        bare, _, rest = name.lower().partition(".")
        group = rest.removeprefix(f"{resource.version}.") if rest != resource.version else resource.group
        return bare in names and (not rest or resource.group == group)


def _frameworks() -> dict[tuple[str, str], Framework]:
    return {(r.group, r.kind): framework for framework in frameworks.registered() for r in framework.served}


class Catalog:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._entries: tuple[Entry, ...] | None = None

    async def find(self, name: str) -> Entry | None:
        """By plural, singular, kind in any case or short name, with `.group` or `.version.group` if need be."""
        found = [entry for entry in await self.entries() if entry.is_called(name)]
        order = {key: number for number, key in enumerate(_frameworks())}
        return min(found, key=lambda entry: _precedence(entry, order), default=None)

    async def jobs(self) -> list[Entry]:
        """The kinds of training jobs that are installed, each in one version, in the order of the frameworks."""
        order = {key: number for number, key in enumerate(_frameworks())}
        first = {(e.resource.group, e.resource.kind): e for e in reversed(await self.entries())}
        return [first[key] for key in sorted(order.keys() & first.keys(), key=order.__getitem__)]

    async def entries(self) -> tuple[Entry, ...]:
        """Preferred versions before others, the core group first."""
        if self._entries is None:
            self._entries = (*await self._core(), *await self._groups())
        return self._entries

    async def _core(self) -> list[Entry]:
        answer = await self._ask("/api")
        if answer.get("kind") == "APIGroupDiscoveryList":
            return list(_aggregated(answer))
        return list(_listed("", "v1", await self._ask("/api/v1")))

    async def _groups(self) -> list[Entry]:
        answer = await self._ask("/apis")
        if answer.get("kind") == "APIGroupDiscoveryList":
            return list(_aggregated(answer))
        slots = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            asked = [
                group.create_task(self._group(slots, name, version), name=f"discover {name}/{version}")
                for name, version in _versions(answer)
            ]
        return [entry for task in asked for entry in task.result()]

    async def _group(self, slots: asyncio.Semaphore, name: str, version: str) -> list[Entry]:
        async with slots:
            try:
                return list(_listed(name, version, await self._ask(f"/apis/{name}/{version}")))
            except ApiError:  # served by another server, which is down: the rest is of use still
                return []

    async def _ask(self, path: str) -> Mapping[str, Any]:
        try:
            answer: Mapping[str, Any] = msgspec.json.decode(await self._client.request("GET", path, accept=ACCEPT))
        except NotFound:
            return {}
        return answer


def _precedence(entry: Entry, order: Mapping[tuple[str, str], int]) -> int:
    """Of kinds with the same name: Kubernetes' core, then our own in their order, then strangers."""
    key = entry.resource.group, entry.resource.kind
    return order.get(key, len(order)) if entry.resource.group else -1


def _versions(answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for group in answer.get("groups") or ():
        preferred = (group.get("preferredVersion") or {}).get("version")
        names = [version["version"] for version in group.get("versions") or ()]
        yield from ((group["name"], name) for name in sorted(names, key=lambda name: name != preferred))


def _aggregated(answer: Mapping[str, Any]) -> Iterator[Entry]:
    for group in answer.get("items") or ():
        name = (group.get("metadata") or {}).get("name", "")
        for version in group.get("versions") or ():
            for item in version.get("resources") or ():
                kind = (item.get("responseKind") or {}).get("kind", "")
                namespaced = item.get("scope") == "Namespaced"
                under = tuple(each["subresource"] for each in item.get("subresources") or ())
                resource = Resource(name, version["version"], item["resource"], kind, namespaced)
                yield _entry(resource, item, item.get("singularResource", ""), under)


def _listed(group: str, version: str, answer: Mapping[str, Any]) -> Iterable[Entry]:
    found: dict[str, Entry] = {}
    for item in answer.get("resources") or ():
        name, _, under = item["name"].partition("/")
        if under and name in found:
            found[name] = replace(found[name], subresources=(*found[name].subresources, under))
        elif not under:
            resource = Resource(group, version, name, item["kind"], item["namespaced"])
            found[name] = _entry(resource, item, item.get("singularName", ""), ())
    return found.values()


def _entry(resource: Resource, item: Mapping[str, Any], singular: str, under: tuple[str, ...]) -> Entry:
    return Entry(resource, singular, tuple(item.get("shortNames") or ()), tuple(item.get("verbs") or ()), under)
