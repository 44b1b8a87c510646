"""A `FakeApi` that a command line can work with: group discovery, server-side apply and scale on top of it.

    api = FakeApi(resources)
    client = Client(Discovering(api, short_names={"pods": ["po"]}))

An apply is a create or a merge patch, without field ownership. `openapi` are documents by path, such as `v3/api/v1`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from trainmaster.kube.transport import Request, Response
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import Resource
from trainmaster.testing.fakeapi import FakeApi
from trainmaster.testing.fakeapi_server import json_answer

_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"


class Discovering:
    def __init__(
        self,
        api: FakeApi,
        *,
        short_names: Mapping[str, Sequence[str]] | None = None,
        scaled: Mapping[str, str] | None = None,
        openapi: Mapping[str, Json] | None = None,
    ) -> None:
        """`scaled` says by plural where replicas are: `spec.replicas`."""
        self._api = api
        self._short_names = short_names or {}
        self._scaled = scaled or {}
        self._openapi = openapi or {}

    async def send(self, request: Request) -> Response:
        path = request.path
        if path == "/api":
            return json_answer(200, {"kind": "APIVersions", "versions": ["v1"]})
        if path == "/apis":
            return json_answer(200, {"kind": "APIGroupList", "groups": self._groups()})
        if path.startswith("/openapi/"):
            document = self._openapi.get(path.removeprefix("/openapi/"))
            return json_answer(200, document) if document is not None else json_answer(404, {"reason": "NotFound"})
        if self._is_discovery(path):
            return await self._resource_list(request)
        if path.endswith("/scale"):
            return await self._scale(request)
        if request.headers.get("Content-Type") == _APPLY:
            return await self._apply(request)
        return await self._api.send(request)

    async def close(self) -> None:
        await self._api.close()

    def _groups(self) -> list[dict[str, Any]]:
        versions: dict[str, list[str]] = {}
        for resource in sorted(self._api.resources):
            if resource.group and resource.version not in versions.setdefault(resource.group, []):
                versions[resource.group].append(resource.version)
        return [
            {
                "name": group,
                "versions": [{"groupVersion": f"{group}/{name}", "version": name} for name in names],
                "preferredVersion": {"version": names[0]},
            }
            for group, names in versions.items()
        ]

    def _is_discovery(self, path: str) -> bool:
        known = {f"apis/{r.api_version}" if r.group else f"api/{r.version}" for r in self._api.resources}
        return path.strip("/") in known

    async def _resource_list(self, request: Request) -> Response:
        listed = msgspec.json.decode(await (await self._api.send(request)).read())
        resources = []
        for one in listed["resources"]:
            resources.append({**one, "shortNames": list(self._short_names.get(one["name"], ()))})
            if one["name"] in self._scaled:
                resources.append({**one, "name": f"{one['name']}/scale", "kind": "Scale"})
        return json_answer(200, {**listed, "resources": resources})

    async def _apply(self, request: Request) -> Response:
        response = await self._api.send(replace(request, headers={**request.headers, "Content-Type": _MERGE}))
        if response.status != 404:
            return response
        return await self._api.send(replace(request, method="POST", path=request.path.rpartition("/")[0], headers={}))

    async def _scale(self, request: Request) -> Response:
        plural, _, _ = request.path.removesuffix("/scale").rpartition("/")
        steps = self._scaled[plural.rpartition("/")[2]].split(".")
        path = request.path.removesuffix("/scale")
        if request.method != "PATCH":
            item = msgspec.json.decode(await (await self._api.send(replace(request, path=path))).read())
            for step in steps:
                item = item[step]
            return json_answer(200, {"kind": "Scale", "spec": {"replicas": item}})
        body: Any = msgspec.json.decode(request.body)["spec"]["replicas"]
        for step in reversed(steps):
            body = {step: body}
        return await self._api.send(replace(request, path=path, body=msgspec.json.encode(body)))


NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
