"""A structural schema as rows of a table: field, type, default, meaning."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from tools.reference_text import code
from trainmaster.api.schema import POD_TEMPLATE
from trainmaster.objects.meta import Json

UNBOUNDED = (2**31 - 1, 2**53)
"""Largest numbers of their types: a bound that says nothing."""


class Field(NamedTuple):
    path: str
    type: str
    default: str
    meaning: str


def fields(path: str, schema: Json, required: Collection[str] = (), left_out: Collection[str] = ()) -> Iterator[Field]:
    """Every field below, depth first. Pod templates are Kubernetes' own and are not opened."""
    for name, one in schema.get("properties", {}).items():
        if f"{path}.{name}" in left_out:
            continue
        yield from _field(f"{path}.{name}", one, is_required=name in schema.get("required", required))


def _field(path: str, schema: Json, *, is_required: bool) -> Iterator[Field]:
    default = "required" if is_required else code(_shown(schema["default"])) if "default" in schema else ""
    yield Field(path, type_of(schema), default, schema.get("description", ""))
    if is_template(schema):
        return
    match schema:
        case {"additionalProperties": Mapping() as inner}:
            yield from fields(f"{path}.NAME", inner)
        case {"items": Mapping() as inner}:
            yield from fields(f"{path}[]", inner)
        case _:
            yield from fields(path, schema)


def is_template(schema: Json) -> bool:
    return bool(schema.get("properties") == POD_TEMPLATE["properties"])


def type_of(schema: Json) -> str:
    if is_template(schema):
        return "pod template"
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    match schema:
        case {"enum": options}:
            return " or ".join(code(option) for option in options)
        case {"type": "array", "items": items}:
            return f"list of {type_of(items)}"
        case {"type": "object", "additionalProperties": values}:
            return f"map of {type_of(values)}"
        case {"type": "integer", **more}:
            return "integer" + _bounds(more)
        case {"format": "date-time"}:
            return "time"
    return str(schema.get("type", "object"))


def _bounds(facts: Mapping[str, Any]) -> str:
    low, high = facts.get("minimum"), facts.get("maximum")
    if high is not None and high not in UNBOUNDED:
        return f", {low} to {high}"
    return f", at least {low}" if low is not None else ""


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
