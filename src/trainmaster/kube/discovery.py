"""What an API server serves, asked of it group by group."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from trainmaster.kube.client import Client
from trainmaster.kube.errors import NotFound
from trainmaster.objects.resource import Resource


async def resources(client: Client, api_version: str) -> list[Resource]:
    """Everything in one group and version, subresources left out; nothing where it is not served."""
    group, _, version = api_version.rpartition("/")
    path = f"/apis/{api_version}" if group else f"/api/{api_version}"
    try:
        answer = msgspec.json.decode(await client.request("GET", path))
    except NotFound:
        return []
    return [
        Resource(group, version, entry["name"], entry["kind"], entry["namespaced"])
        for entry in answer.get("resources") or ()
        if "/" not in entry["name"]
    ]


async def served(client: Client, wanted: Iterable[Resource]) -> frozenset[Resource]:
    """Those of them that there are."""
    asked = tuple(wanted)
    found = {
        (resource.api_version, resource.plural)
        for api_version in sorted({resource.api_version for resource in asked})
        for resource in await resources(client, api_version)
    }
    return frozenset(one for one in asked if (one.api_version, one.plural) in found)
