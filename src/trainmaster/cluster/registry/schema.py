"""The shape of objects: which fields a kind has, of which types, and how its lists are keyed.

One tree serves both sorts of kinds: those Kubernetes defines (`definitions`) and those that
CustomResourceDefinitions bring (`shape_of_structural`). Pruning, defaulting, patches and field ownership all walk
it, so they agree about what a list of containers is. Values are checked next door, in `schema_values` and
`schema_check`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

MISSING: Any = object()
"""No default; None would be a default of null."""


@dataclass(slots=True, eq=False)
class Shape:
    """One node of a schema. Filled after creation, because types such as JSONSchemaProps contain themselves."""

    type: str = (
        "any"  # object, map, list, string, integer, number, boolean, int-or-string, quantity, time, bytes, schema, any
    )
    fields: dict[str, Shape] = field(default_factory=dict)
    values: Shape | None = None
    items: Shape | None = None
    list_type: str = "atomic"
    keys: tuple[str, ...] = ()
    always: frozenset[str] = frozenset()  # fields that every object of this type has
    atomic: bool = False
    merge_key: str = ""
    strategies: tuple[str, ...] = ()
    open: bool = False
    embedded: bool = False
    nullable: bool = False
    default: Any = MISSING
    has_defaults: bool = False
    name: str = ""
    is_long: bool = True  # 64 bits, if an integer

    def child(self, key: str) -> Shape | None:
        """The shape under a key of an object or map; None where the schema says nothing."""
        return self.fields.get(key) or self.values


ANY = Shape(open=True)

_LIST_TYPES = frozenset({"set", "map"})
_SCALARS = frozenset({"string", "integer", "number", "boolean"})


def shape_of_structural(schema: Mapping[str, Any], metadata: Shape | None = None) -> Shape:
    """The shape that a CRD's `openAPIV3Schema` describes; `metadata` is what every object's metadata looks like."""
    shape = _structural(schema)
    for key in ("apiVersion", "kind"):
        shape.fields.setdefault(key, Shape(type="string"))
    shape.fields["metadata"] = metadata or ANY
    return shape


def _structural(schema: Mapping[str, Any]) -> Shape:
    shape = Shape(nullable=bool(schema.get("nullable")), default=schema.get("default", MISSING))
    shape.open = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    shape.embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    shape.type = type_of(schema)
    shape_collections(shape, schema, _structural)
    if shape.embedded:
        for key, kind in (("apiVersion", "string"), ("kind", "string"), ("metadata", "any")):
            shape.fields.setdefault(key, Shape(type=kind, open=kind == "any"))
    below = [*shape.fields.values(), *filter(None, (shape.items, shape.values))]
    shape.has_defaults = shape.default is not MISSING or any(child.has_defaults for child in below)
    return shape


def type_of(schema: Mapping[str, Any]) -> str:
    if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
        return "int-or-string"
    kind = schema.get("type")
    if kind == "string" and schema.get("format") == "byte":
        return "bytes"
    if kind == "array":
        return "list"
    if kind == "object" or (kind is None and ("properties" in schema or "additionalProperties" in schema)):
        return "map" if isinstance(schema.get("additionalProperties"), Mapping) else "object"
    return kind if kind in _SCALARS else "any"


def shape_collections(shape: Shape, schema: Mapping[str, Any], make: Callable[[Mapping[str, Any]], Shape]) -> None:
    """Fields, values, items and the keys of lists: spelled the same in CRDs and in Kubernetes' own definitions."""
    for name, value in (schema.get("properties") or {}).items():
        shape.fields[name] = make(value)
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping):
        shape.values = make(extra)
    elif extra is True:
        shape.open = True
    items = schema.get("items")
    if isinstance(items, Mapping):
        shape.items = make(items)
    shape.is_long = schema.get("format") != "int32"
    list_type = schema.get("x-kubernetes-list-type")
    shape.list_type = list_type if list_type in _LIST_TYPES else "atomic"
    shape.keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    shape.atomic = schema.get("x-kubernetes-map-type") == "atomic"
    shape.merge_key = schema.get("x-kubernetes-patch-merge-key") or ""
    shape.strategies = tuple(filter(None, (schema.get("x-kubernetes-patch-strategy") or "").split(",")))
