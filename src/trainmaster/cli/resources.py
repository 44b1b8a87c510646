"""Which resource an object of some apiVersion and kind is stored under: asked of the server, remembered."""

from __future__ import annotations

import msgspec

from trainmaster.kube.client import Client
from trainmaster.kube.errors import NotFound
from trainmaster.objects.resource import Resource


class UnknownKind(Exception):
    """The cluster does not serve such objects."""


class Resources:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._lists: dict[str, list[Resource]] = {}

    async def of(self, api_version: str, kind: str) -> Resource:
        for resource in await self.listed(api_version):
            if resource.kind == kind:
                return resource
        raise UnknownKind(f"the cluster serves no {api_version} {kind}; is it spelt right, and its CRD installed?")

    async def listed(self, api_version: str) -> list[Resource]:
        """Everything in one group and version, subresources left out."""
        if api_version not in self._lists:
            self._lists[api_version] = await self._ask(api_version)
        return self._lists[api_version]

    async def _ask(self, api_version: str) -> list[Resource]:
        group, _, version = api_version.rpartition("/")
        path = f"/apis/{api_version}" if group else f"/api/{api_version}"
        try:
            answer = msgspec.json.decode(await self._client.request("GET", path))
        except NotFound:
            return []
        return [
            Resource(group, version, entry["name"], entry["kind"], entry["namespaced"])
            for entry in answer.get("resources", ())
            if "/" not in entry["name"]
        ]
