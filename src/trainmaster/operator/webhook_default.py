"""The defaults that are stored with a job: those its schema declares, and no others. Pure.

All other defaults are filled in on reading, by us as by training-operator: `kubectl get -o yaml` shows what the user
wrote. An API server that has our CRDs fills in the schema's defaults by itself before it asks; the patch is then empty.
It is for clusters that keep older CRDs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from trainmaster.api import schema
from trainmaster.api.framework import Framework
from trainmaster.objects.meta import Json


def patch_of(framework: Framework, raw: Json) -> tuple[Json, ...]:
    """A JSON patch."""
    return tuple(_missing(_defaulted(framework), raw.get("spec"), "/spec"))


@cache
def _defaulted(framework: Framework) -> Json:
    return _pruned(schema.spec_schema(framework))


def _pruned(node: Json) -> Json:
    """The schema without all that leads to no default, which is nearly everything."""
    fields = {name: _pruned(inner) for name, inner in node.get("properties", {}).items()}
    kept = {name: inner for name, inner in fields.items() if inner}
    more: dict[str, Any] = {"properties": kept} if kept else {}
    for key in ("additionalProperties", "items"):
        if isinstance(node.get(key), Mapping) and (inner := _pruned(node[key])):
            more[key] = inner
    return {**more, **({"default": node["default"]} if "default" in node else {})}


def _missing(node: Json, value: object, path: str) -> Iterator[Json]:
    if isinstance(value, Mapping):
        yield from _missing_fields(node, value, path)
    elif isinstance(value, list) and "items" in node:
        for index, item in enumerate(value):
            yield from _missing(node["items"], item, f"{path}/{index}")


def _missing_fields(node: Json, value: Json, path: str) -> Iterator[Json]:
    fields: Json = node.get("properties", {})
    for name, inner in fields.items():
        place = f"{path}/{_escaped(name)}"
        if value.get(name) is not None:
            yield from _missing(inner, value[name], place)
        elif "default" in inner:
            yield {"op": "add", "path": place, "value": inner["default"]}
    if "additionalProperties" in node:
        for name in value.keys() - fields.keys():
            yield from _missing(node["additionalProperties"], value[name], f"{path}/{_escaped(name)}")


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
