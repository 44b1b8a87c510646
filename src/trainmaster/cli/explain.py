"""`trainmaster explain`: what the fields of a kind are, from the server's own schema.

Of job kinds it also works without a cluster, or with one that publishes no schemas: from those that we install.
"""

from __future__ import annotations

import asyncio
import difflib
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from trainmaster import frameworks
from trainmaster.api import schema as ours
from trainmaster.cli.catalog import Catalog, Entry
from trainmaster.cli.connection import Choice, Failure, Misuse, NoCluster, config_of, tell
from trainmaster.cli.schemas import KEEPS, Schema, Schemas, UnknownField
from trainmaster.kube.client import Client
from trainmaster.kube.errors import KubeError, NotFound
from trainmaster.kube.transport import HttpTransport
from trainmaster.objects.resource import Resource

_WIDTH = 100
_DEEPEST = 10


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    path: str
    recursive: bool = False
    api_version: str = ""

    @property
    def kind(self) -> str:
        return self.path.split(".")[0]

    @property
    def steps(self) -> list[str]:
        return self.path.split(".")[1:]


@dataclass(frozen=True, slots=True)
class Subject:
    resource: Resource
    schemas: Schemas
    root: Schema


def run(choice: Choice, options: ExplainOptions) -> int:
    try:
        return explain(asyncio.run(_subject(choice, options)), options)
    except (Failure, KubeError, ExceptionGroup) as error:
        return tell("explain", error)


async def _subject(choice: Choice, options: ExplainOptions) -> Subject:
    """The cluster's word; where there is no cluster, ours."""
    try:
        client = Client(HttpTransport(config_of(choice)))
        try:
            return await published(client, options)
        finally:
            await client.close()
    except (Failure, KubeError) as error:
        known = installed(options)
        if known is None or isinstance(error, Misuse):
            raise
        # Who has no cluster expects no other answer.
        why = "" if isinstance(error, NoCluster) else f"warning: {error}\n"
        print(f"{why}what follows is what trainmaster installs", file=sys.stderr)
        return known


async def published(client: Client, options: ExplainOptions) -> Subject:
    entry = await _entry(Catalog(client), options)
    if entry is None:
        raise Misuse(f"{options.kind}: the cluster serves no such kind; trainmaster get KIND lists objects of one")
    resource = entry.resource
    root = f"apis/{resource.api_version}" if resource.group else f"api/{resource.version}"
    schemas = Schemas((await _document(client, f"/openapi/v3/{root}")).get("components", {}).get("schemas") or {})
    found = schemas.of_kind(resource.group, resource.version, resource.kind)
    if found is None and (known := installed(options)) is not None:
        return known
    if found is None:  # Kubernetes before 1.24
        schemas = Schemas((await _document(client, "/openapi/v2")).get("definitions") or {})
        found = schemas.of_kind(resource.group, resource.version, resource.kind)
    if found is None:
        raise Failure(f"the cluster publishes no schema of {resource.api_version} {resource.kind}")
    return Subject(resource, schemas, found)


async def _document(client: Client, path: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = msgspec.json.decode(await client.request("GET", path))
    except NotFound:
        return {}
    return document


async def _entry(catalog: Catalog, options: ExplainOptions) -> Entry | None:
    if not options.api_version:
        return await catalog.find(options.kind)
    named = [entry for entry in await catalog.entries() if entry.is_called(options.kind)]
    return next((entry for entry in named if entry.resource.api_version == options.api_version), None)


def installed(options: ExplainOptions) -> Subject | None:
    """From the schemas of our own CRDs."""
    for framework in frameworks.registered():
        for resource in framework.served:
            is_asked = options.api_version in ("", resource.api_version)
            if is_asked and Entry(resource).is_called(options.kind):
                return Subject(resource, Schemas(), ours.object_schema(framework))
    return None


def explain(subject: Subject, options: ExplainOptions) -> int:
    try:
        shown = subject.schemas.at(subject.root, options.steps)
    except UnknownField as error:
        raise Misuse(_unknown(options, error)) from error
    print("\n".join(_lines(subject, options, shown)))
    return 0


def _unknown(options: ExplainOptions, error: UnknownField) -> str:
    where = ".".join((options.kind, *error.path))
    close = difflib.get_close_matches(error.step, error.known, n=1, cutoff=0.5)
    if close:
        return f"{where} has no field {error.step}; did you mean {close[0]}?"
    if error.keeps:
        return f"{where}: {error.step} is not described, but fields that are not are kept as they are"
    return f"{where} has no field {error.step}; it has {', '.join(error.known) or 'none'}"


def _lines(subject: Subject, options: ExplainOptions, shown: Schema) -> Iterator[str]:
    resource, schemas = subject.resource, subject.schemas
    if resource.group:
        yield f"GROUP:      {resource.group}"
    yield f"KIND:       {resource.kind}"
    yield f"VERSION:    {resource.version}"
    yield ""
    if options.steps:
        yield f"FIELD: {options.steps[-1]} <{schemas.type_of(shown)}>"
        yield ""
    inner = schemas.element(shown)
    said = schemas.resolved(shown).get("description") or inner.get("description")
    yield "DESCRIPTION:"
    yield from _wrapped(said or "<empty>", 4)
    yield from (f"    {fact}" for fact in _facts(inner))
    fields = inner.get("properties") or {}
    if fields:
        yield ""
        yield "FIELDS:"
        yield from _fields(schemas, inner, 2, recursive=options.recursive)
    if inner.get(KEEPS):
        yield ""
        yield "Fields that are not listed here are kept as they are."


def _fields(schemas: Schemas, schema: Schema, indent: int, *, recursive: bool) -> Iterator[str]:
    required: Sequence[str] = schema.get("required") or ()
    for name, one in sorted((schema.get("properties") or {}).items()):
        mark = " -required-" if name in required else ""
        yield f"{' ' * indent}{name}\t<{schemas.type_of(one)}>{mark}"
        inner = schemas.element(one)
        if recursive:
            if indent < 2 * _DEEPEST:  # types may contain themselves
                yield from _fields(schemas, inner, indent + 2, recursive=True)
            continue
        if description := schemas.resolved(one).get("description"):
            yield from _wrapped(description, indent + 2)
        yield from (f"{' ' * (indent + 2)}{fact}" for fact in _facts(schemas.resolved(one)))


def _facts(schema: Schema) -> Iterator[str]:
    if schema.get("enum"):
        yield f"enum: {', '.join(map(str, schema['enum']))}"
    if "default" in schema:
        yield f"default: {msgspec.json.encode(schema['default']).decode()}"
    if "minimum" in schema:
        most = f", maximum: {schema['maximum']}" if "maximum" in schema else ""
        yield f"minimum: {schema['minimum']}{most}"


def _wrapped(text: str, indent: int) -> list[str]:
    pad = " " * indent
    lines = [textwrap.wrap(line, _WIDTH, initial_indent=pad, subsequent_indent=pad) for line in text.splitlines()]
    return [line for wrapped in lines for line in (wrapped or [""])]
