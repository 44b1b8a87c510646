"""Which resource an object of some apiVersion and kind is stored under: asked of the server, remembered."""

from __future__ import annotations

from trainmaster.cli import kinds
from trainmaster.kube import discovery
from trainmaster.kube.client import Client
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
        meant = kinds.meant(api_version, kind)
        question = f"did you mean {meant}?" if meant else "is it spelt right, and its CRD installed?"
        raise UnknownKind(f"the cluster serves no {api_version} {kind}; {question}")

    async def listed(self, api_version: str) -> list[Resource]:
        if api_version not in self._lists:
            self._lists[api_version] = await discovery.resources(self._client, api_version)
        return self._lists[api_version]
