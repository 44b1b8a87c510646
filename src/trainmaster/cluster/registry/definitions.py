"""Kubernetes' own kinds: their shapes, and a fast test that an object has nothing but known fields of the right
types.

`data/definitions.json.gz` holds the Kubernetes API definitions (Apache-2.0), extracted at development time from
PyPI's kubernetes-validate by tools/kubernetes_definitions.py. Read at first use, 5 ms; shapes and validators are
built per kind.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import jsonschema_rs
import msgspec

from trainmaster.cluster.registry import quantities
from trainmaster.cluster.registry.schema import ANY, Shape, shape_collections, type_of

_FILE = Path(__file__).parent.parent / "data" / "definitions.json.gz"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_TIME = "io.k8s.apimachinery.pkg.apis.meta.v1.Time"
_MICRO_TIME = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"
_SCALARS = {_QUANTITY: "quantity", _TIME: "time", _MICRO_TIME: "micro-time"}
_CANONICAL = {
    "quantity": quantities.CANONICAL,
    "time": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$",
    "micro-time": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z$",
    "bytes": r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
}
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
_REFERENCE = "#/definitions/"
_EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
_SCHEMA = f"{_EXTENSIONS}.JSONSchemaProps"
_SCHEMA_OR = {f"{_SCHEMA}OrArray": "array", f"{_SCHEMA}OrBool": "boolean", f"{_SCHEMA}OrStringArray": "array"}
"""A schema, or something that is none; the definitions leave open what."""
_OPEN_TYPES = frozenset(
    {
        "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
        "io.k8s.apimachinery.pkg.runtime.RawExtension",
        f"{_EXTENSIONS}.JSON",
    }
)
_OPEN_SCHEMA: dict[str, Any] = {}


class Validator(Protocol):
    def is_valid(self, instance: object) -> bool: ...


@cache
def load() -> dict[str, Any]:
    """All definitions by their full names, as OpenAPI v2 would list them."""
    found: dict[str, Any] = msgspec.json.decode(gzip.decompress(_FILE.read_bytes()))
    return found


@cache
def _names() -> dict[tuple[str, str, str], str]:
    return {
        (entry["group"], entry["version"], entry["kind"]): name
        for name, definition in load().items()
        for entry in definition.get("x-kubernetes-group-version-kind") or ()
    }


def shape(group: str, version: str, kind: str) -> Shape:
    name = _names().get((group, version, kind))
    return _shape_named(name) if name else ANY


def delete_options_shape() -> Shape:
    return _shape_named(_DELETE_OPTIONS)


def metadata_shape() -> Shape:
    return _shape_named(_META)


_shapes: dict[str, Shape] = {}


def _shape_named(name: str) -> Shape:
    if name in _shapes:
        return _shapes[name]
    made = _shapes[name] = Shape(name=_go_name(name))
    if name in _SCALARS:
        made.type = _SCALARS[name]
    elif name in _OPEN_TYPES:
        made.open = True
    elif name in _SCHEMA_OR:
        made.type = "schema"
        made.fields = _shape_named(_SCHEMA).fields
    else:
        definition = load()[name]
        made.type = type_of(definition)
        made.always = frozenset(definition.get("required") or ())
        shape_collections(made, definition, _shape)
    return made


def _shape(schema: Mapping[str, Any]) -> Shape:
    reference = schema.get("$ref")
    if not reference:
        made = Shape(type=type_of(schema))
        shape_collections(made, schema, _shape)
        return made
    target = _shape_named(reference.removeprefix(_REFERENCE))
    if not any(key.startswith("x-kubernetes-") for key in schema):
        return target
    made = Shape(type=target.type, open=target.open, name=target.name)
    made.fields, made.values, made.items, made.atomic = target.fields, target.values, target.items, target.atomic
    made.always = target.always
    made.strategies = tuple(filter(None, (schema.get("x-kubernetes-patch-strategy") or "").split(",")))
    return made


def _go_name(name: str) -> str:
    version, kind = name.split(".")[-2:]
    return f"{version}.{kind}"


@cache
def validator(group: str, version: str, kind: str) -> Validator | None:
    """Accepts exactly the objects that need no pruning, no dropped nulls and no complaint about types."""
    name = _names().get((group, version, kind))
    if name is None:
        return None
    document = {"$ref": f"{_REFERENCE}{name}", "definitions": _strict_definitions(name)}
    return jsonschema_rs.Draft7Validator(document)


def _strict_definitions(root: str) -> dict[str, Any]:
    """The definitions that a kind reaches: handing over all 486 would cost 30 ms per kind."""
    found: dict[str, Any] = {}
    pending = [root]
    while pending:
        name = pending.pop()
        if name not in found:
            found[name] = _strict_named(name, pending)
    return found


def _strict_named(name: str, pending: list[str]) -> Any:
    if name in _SCALARS:
        return {"type": "string", "pattern": _CANONICAL[_SCALARS[name]]}
    if name in _OPEN_TYPES:
        return _OPEN_SCHEMA
    if name in _SCHEMA_OR:
        pending.append(_SCHEMA)
        return {"anyOf": [{"type": _SCHEMA_OR[name]}, {"$ref": f"{_REFERENCE}{_SCHEMA}"}]}
    return _strict(load()[name], pending)


def _strict(schema: Mapping[str, Any], pending: list[str]) -> dict[str, Any]:
    if "$ref" in schema:
        pending.append(schema["$ref"].removeprefix(_REFERENCE))
        return {"$ref": schema["$ref"]}
    kind = type_of(schema)
    if kind == "int-or-string":
        return {"type": ["integer", "string"]}
    if kind == "bytes":
        return {"type": "string", "pattern": _CANONICAL["bytes"]}
    made: dict[str, Any] = {"type": schema["type"]} if "type" in schema else {}
    if "properties" in schema:
        made["properties"] = {name: _strict(value, pending) for name, value in schema["properties"].items()}
        made["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            made[key] = _strict(schema[key], pending)
    if schema.get("format") == "int32":
        made |= {"minimum": -(2**31), "maximum": 2**31 - 1}
    return made
