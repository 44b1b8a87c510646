"""What is there and then what happens to it, for as long as one listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec

from trainmaster.kube import errors
from trainmaster.kube.client import Client
from trainmaster.kube.errors import ApiError, Gone, KubeError
from trainmaster.objects.resource import Resource

WATCH_SECONDS = 300
PATIENCE = 1.0
"""Seconds before a watch that broke is begun again."""

JSON = "application/json"
TABLE = f"application/json;as=Table;v=v1;g=meta.k8s.io,{JSON}"


@dataclass(frozen=True, slots=True)
class Selection:
    """Objects of one kind, by name or by selectors."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    labels: str = ""
    fields: str = ""

    @property
    def params(self) -> tuple[tuple[str, str], ...]:
        fields = ",".join(term for term in (f"metadata.name={self.name}" if self.name else "", self.fields) if term)
        given = (("labelSelector", self.labels), ("fieldSelector", fields))
        return tuple((key, value) for key, value in given if value)

    @property
    def path(self) -> str:
        return self.resource.path(self.namespace)


async def listed(client: Client, selection: Selection, accept: str = JSON) -> dict[str, Any]:
    """A List, or a Table where that is asked for and the server makes them."""
    answer = await client.request("GET", selection.path, params=selection.params, accept=accept)
    made: dict[str, Any] = msgspec.json.decode(answer)
    return made


async def changes(
    client: Client, selection: Selection, version: str, accept: str = JSON
) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
    """Events after that version, for ever; Gone when the server no longer knows what came after it."""
    while True:
        try:
            async with aclosing(_stream(client, selection, version, accept)) as events:
                async for kind, body in events:
                    version = _version_of(body) or version
                    yield kind, body
        except ApiError as error:
            if error.status < 500:
                raise
            await asyncio.sleep(PATIENCE)
        except KubeError:
            await asyncio.sleep(PATIENCE)


async def watched(client: Client, selection: Selection) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
    """All objects as ADDED, then LISTED, then their changes; after a gap in history all of it again."""
    while True:
        page = await listed(client, selection)
        for item in page.get("items") or ():
            yield "ADDED", item
        yield "LISTED", {}
        try:
            async with aclosing(changes(client, selection, page["metadata"]["resourceVersion"])) as events:
                async for kind, item in events:
                    yield kind, item
        except Gone:
            continue


async def _stream(
    client: Client, selection: Selection, version: str, accept: str
) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
    more = (("watch", "true"), ("resourceVersion", version), ("timeoutSeconds", str(WATCH_SECONDS)))
    response = await client.open(selection.path, (*selection.params, *more), accept=accept)
    async with response, aclosing(response.lines()) as lines:
        async for line in lines:
            if not line.strip():
                continue
            event = msgspec.json.decode(line)
            if event["type"] == "ERROR":
                raise errors.of(event["object"].get("code", 500), msgspec.json.encode(event["object"]))
            yield event["type"], event["object"]


def _version_of(body: dict[str, Any]) -> str:
    """Of an object, or of the one row of a Table."""
    metadata = body.get("metadata") or {}
    if version := metadata.get("resourceVersion"):
        return str(version)
    for row in body.get("rows") or ():
        return str(((row.get("object") or {}).get("metadata") or {}).get("resourceVersion", ""))
    return ""
