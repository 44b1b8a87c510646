"""Which of the resources we know this API server serves."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from trainmaster.kube.client import Client
from trainmaster.kube.errors import NotFound
from trainmaster.objects.resource import Resource


async def served(client: Client, resources: Iterable[Resource]) -> frozenset[Resource]:
    wanted = tuple(resources)
    plurals: dict[tuple[str, str], set[str]] = {}
    for group, version in sorted({(resource.group, resource.version) for resource in wanted}):
        plurals[group, version] = await _plurals(client, group, version)
    return frozenset(r for r in wanted if r.plural in plurals[r.group, r.version])


async def _plurals(client: Client, group: str, version: str) -> set[str]:
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        listed = msgspec.json.decode(await client.request("GET", path))
    except NotFound:
        return set()
    return {str(entry.get("name", "")) for entry in listed.get("resources", ())}
