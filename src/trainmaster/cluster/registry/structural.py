"""Whether the schema of a CustomResourceDefinition is structural, and what else the API server refuses in one.

Every node that says what is inside also says what it is; lists say what they hold; defaults are valid themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainmaster.cluster.registry import patterns, schema_check
from trainmaster.cluster.registry.pattern_classes import BadPattern
from trainmaster.cluster.registry.schema import shape_of_structural
from trainmaster.cluster.registry.schema_values import prune
from trainmaster.cluster.registry.status_error import Cause, forbidden_field, invalid_value, required, unsupported
from trainmaster.objects.meta import mutable

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_QUADRATIC = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"


def check_root(schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    kind = schema.get("type")
    if not kind:
        yield required(f"{path}.type", "must not be empty at the root")
    elif kind != "object":
        yield invalid_value(f"{path}.type", kind, "must be object at the root")
    yield from _inside(schema, path)


def _inside(schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    for inner, at in _parts(schema, path):
        if isinstance(inner, list):
            yield forbidden_field(at, "items must be a schema object and not an array")
        elif not isinstance(inner, Mapping):
            yield invalid_value(at, inner, "must be a schema")
        elif "$ref" in inner:
            yield forbidden_field(f"{at}.$ref", "$ref is not supported")
        else:
            yield from _type(inner, at, "array items" if at == f"{path}.items" else "object fields")
            yield from _node(inner, at)
            yield from _inside(inner, at)


def _parts(schema: Mapping[str, Any], path: str) -> Iterator[tuple[Any, str]]:
    for name, inner in (schema.get("properties") or {}).items():
        yield inner, f"{path}.properties[{name}]"
    if "items" in schema:
        yield schema["items"], f"{path}.items"
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield schema["additionalProperties"], f"{path}.additionalProperties"


def _type(schema: Mapping[str, Any], at: str, role: str) -> Iterator[Cause]:
    kind = schema.get("type")
    is_open = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string")
    if kind is None and not is_open:
        yield required(f"{at}.type", f"must not be empty for specified {role}")
    elif kind is not None and kind not in _TYPES:
        yield unsupported(f"{at}.type", kind, _TYPES)


def _node(schema: Mapping[str, Any], at: str) -> Iterator[Cause]:
    if schema.get("type") == "array" and "items" not in schema:
        yield required(f"{at}.items", "must be specified")
    if schema.get("uniqueItems"):
        yield forbidden_field(f"{at}.uniqueItems", _QUADRATIC)
    if schema.get("x-kubernetes-list-type") == "map" and not schema.get("x-kubernetes-list-map-keys"):
        detail = "must not be empty if x-kubernetes-list-type is map"
        yield required(f"{at}.x-kubernetes-list-map-keys", detail)
    yield from _pattern(schema.get("pattern"), at)
    if schema.get("default") is not None and schema.get("type") in _TYPES:
        yield from _default(schema, at)


def _pattern(pattern: object, at: str) -> Iterator[Cause]:
    try:
        patterns.check(str(pattern or ""))
    except BadPattern as error:
        detail = f"must be a valid regular expression, but isn't: error parsing regexp: {error}"
        yield invalid_value(f"{at}.pattern", pattern, detail)


def _default(schema: Mapping[str, Any], at: str) -> Iterator[Cause]:
    value = schema["default"]
    complaints = list(schema_check.complaints(schema, value, ""))
    yield from (Cause(cause.reason, f"{at}.default", cause.detail) for cause in complaints)
    if isinstance(value, dict) and not complaints:
        kept = mutable({"x": value})
        prune(shape_of_structural({"type": "object", "properties": {"x": schema}}), kept)
        if kept["x"] != value:
            yield invalid_value(f"{at}.default", value, "must not have unknown fields")


def check_columns(columns: list[Mapping[str, Any]], path: str) -> Iterator[Cause]:
    known = ("boolean", "date", "integer", "number", "string")
    for index, column in enumerate(columns):
        at, kind = f"{path}[{index}]", column.get("type") or ""
        if not column.get("name"):
            yield required(f"{at}.name")
        if not kind:
            yield required(f"{at}.type", f"must be one of {','.join(known)}")
        elif kind not in known:
            yield invalid_value(f"{at}.type", kind, f"must be one of {','.join(known)}")
        if not column.get("jsonPath"):
            yield required(f"{at}.JSONPath")


def check_scale(scale: Mapping[str, Any] | None, path: str) -> Iterator[Cause]:
    for key in ("specReplicasPath", "statusReplicasPath") if scale is not None else ():
        place = (scale or {}).get(key) or ""
        start = ".spec." if key == "specReplicasPath" else ".status."
        if not place:
            yield required(f"{path}.{key}")
        elif not place.startswith(start):
            yield invalid_value(f"{path}.{key}", place, f"should be a json path under {start[:-1]}")
