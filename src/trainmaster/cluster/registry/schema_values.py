"""Objects brought into the shape of their kind: unknown fields dropped, defaults filled in, spellings normalized.

`conform` is for Kubernetes' own kinds, where the real server decodes into Go structs: unknown fields and nulls
vanish, and a value of the wrong type is a bad request. `prune` and `fill` are for custom resources, which keep what
their schema lists and are checked afterwards (`schema_check`).
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from trainmaster.cluster.registry.quantities import canonical
from trainmaster.cluster.registry.schema import MISSING, Shape
from trainmaster.objects import timestamp
from trainmaster.objects.meta import mutable

_JSON_NAMES = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}
_SCALARS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "int-or-string": (int, str),
}
_GO_TYPES = {
    "integer": "int32",
    "number": "float64",
    "boolean": "bool",
    "object": "struct",
    "map": "map",
    "list": "slice",
}


class Mismatch(ValueError):
    """A value that cannot be what its field is; the text is what Go's decoder would say."""


def conform(shape: Shape, value: Any, path: str = "", owner: str = "") -> Any:
    """A copy with nothing but known fields, or Mismatch."""
    kind = shape.type
    if shape.open or kind == "any":
        return value
    if kind == "object" or (kind == "schema" and isinstance(value, dict)):
        return _conform_object(shape, value, path, owner)
    if kind == "schema":
        return _expect(value, (list, bool), shape, path, owner)
    if kind == "map":
        inner = shape.values
        entries = _expect(value, dict, shape, path, owner).items()
        return {k: conform(inner, v, path, owner) if inner else v for k, v in entries if v is not None}
    if kind == "list":
        item = shape.items
        found = _expect(value, list, shape, path, owner)
        return [conform(item, v, path, owner) if item else v for v in found if v is not None]
    return _conform_scalar(shape, value, path, owner)


def _conform_object(shape: Shape, value: Any, path: str, owner: str) -> dict[str, Any]:
    fields = shape.fields
    found = _expect(value, dict, shape, path, owner)
    name = shape.name.rpartition(".")[2] or owner
    made = {}
    for key, item in found.items():
        child = fields.get(key)
        if child is not None and item is not None:
            made[key] = conform(child, item, f"{path}.{key}" if path else key, name)
    return made


def _conform_scalar(shape: Shape, value: Any, path: str, owner: str) -> Any:
    if shape.type == "quantity":
        return _quantity(value)
    if shape.type in ("time", "micro-time"):
        return _time(_expect(value, str, shape, path, owner), is_micro=shape.type == "micro-time")
    if shape.type == "bytes":
        return _bytes(_expect(value, str, shape, path, owner))
    if shape.type == "integer":
        return _integer(shape, value, path, owner)
    wanted = _SCALARS[shape.type]
    if isinstance(value, bool) and bool not in wanted:
        raise _mismatch(shape, value, path, owner)
    if not isinstance(value, wanted):
        raise _mismatch(shape, value, path, owner)
    return value


def _integer(shape: Shape, value: Any, path: str, owner: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _mismatch(shape, value, path, owner)
    limit = 2**63 if shape.is_long else 2**31
    if not -limit <= value < limit:
        go_type = "int64" if shape.is_long else "int32"
        raise Mismatch(f"json: cannot unmarshal number {value} into Go struct field {owner}.{path} of type {go_type}")
    return value


def _quantity(value: Any) -> str:
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    try:
        return canonical(text) if isinstance(text, str) else canonical("")
    except ValueError:
        form = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
        raise Mismatch(f"quantities must match the regular expression '{form}'") from None


def _time(text: str, *, is_micro: bool) -> str:
    seconds = timestamp.parse(text)
    if seconds is None or "T" not in text:
        form = "2006-01-02T15:04:05.000000Z07:00" if is_micro else "2006-01-02T15:04:05Z07:00"
        raise Mismatch(f'parsing time "{text}" as "{form}": cannot parse "{text}" as "2006"')
    whole = timestamp.render(seconds)
    return f"{whole[:-1]}.{round(seconds % 1 * 1_000_000) % 1_000_000:06d}Z" if is_micro else whole


def _bytes(text: str) -> str:
    joined = "".join(text.split())
    try:
        base64.b64decode(joined, validate=True)
    except (binascii.Error, ValueError):
        raise Mismatch("illegal base64 data at input byte 0") from None
    return joined


def _expect(value: Any, wanted: type | tuple[type, ...], shape: Shape, path: str, owner: str) -> Any:
    if not isinstance(value, wanted):
        raise _mismatch(shape, value, path, owner)
    return value


def _mismatch(shape: Shape, value: Any, path: str, owner: str) -> Mismatch:
    got = _JSON_NAMES.get(type(value), "null")
    go_type = shape.name or _GO_TYPES.get(shape.type, "string")
    where = f"Go struct field {owner}.{path}" if path else "Go value"
    return Mismatch(f"json: cannot unmarshal {got} into {where} of type {go_type}")


def prune(shape: Shape, value: Any) -> None:
    """Drops, in place, what a custom resource's schema does not list, and nulls that it does not allow."""
    if isinstance(value, list):
        if shape.items is not None:
            for item in value:
                prune(shape.items, item)
    elif isinstance(value, dict):
        for key in list(value):
            child = shape.child(key)
            if child is None:
                if not shape.open:
                    del value[key]
            elif value[key] is None and not child.nullable and child.type != "any":
                del value[key]
            else:
                prune(child, value[key])


def fill(shape: Shape, value: Any) -> None:
    """Defaults, in place: for absent fields, and for nulls where null is not allowed."""
    if not shape.has_defaults:
        return
    if isinstance(value, list):
        if shape.items is not None:
            for item in value:
                fill(shape.items, item)
    elif isinstance(value, dict):
        _fill_object(shape, value)


def _fill_object(shape: Shape, value: dict[str, Any]) -> None:
    for key, child in shape.fields.items():
        if child.default is not MISSING and (key not in value or (value[key] is None and not child.nullable)):
            value[key] = mutable({"": child.default})[""]
        if child.has_defaults and key in value:
            fill(child, value[key])
    if shape.values is not None and shape.values.has_defaults:
        for key, item in value.items():
            if key not in shape.fields:
                fill(shape.values, item)
