"""Request bodies in Kubernetes' protobuf, read into the JSON they stand for.

Go clients send built-in kinds this way and do not fall back to JSON, so kubectl's `create` commands and every Go
controller need it. Answers stay JSON, which those clients take. `data/wire.json.gz` (tools/kubernetes_wire.py) says
which number is which field; numbers it does not know are skipped, as protobuf wants it.
"""

from __future__ import annotations

import base64
import gzip
import struct
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from trainmaster.objects import timestamp

MAGIC = b"k8s\x00"
_FILE = Path(__file__).parent.parent / "data" / "wire.json.gz"
_META = "apimachinery.pkg.apis.meta.v1"
_CRD = "apiextensions-apiserver.pkg.apis.apiextensions.v1"
_EVERYWHERE = frozenset({"DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions"})
"""Kinds that belong to no group: clients send them under the group they are talking to."""

_DEEPEST = 200
Field = tuple[str, str, str]
Value = int | bytes


def decode(body: bytes) -> dict[str, Any]:
    """The object in an envelope (magic, then `runtime.Unknown`); ValueError says what is wrong with the bytes."""
    if not body.startswith(MAGIC):
        raise ValueError("the bytes do not begin with the mark of Kubernetes' protobuf")
    envelope = dict(_fields(body[len(MAGIC) :]))
    kind = dict(_fields(_message(envelope.get(1, b""))))
    version, name = _text(kind.get(1, b"")), _text(kind.get(2, b""))
    message = _message_name(version, name)
    if message not in _messages():
        raise ValueError(f'no kind "{name}" is known in version "{version}" in protobuf')
    return {"apiVersion": version, "kind": name, **_decode(message, _message(envelope.get(2, b"")), 0)}


def _message_name(version: str, kind: str) -> str:
    if kind in _EVERYWHERE:
        return f"{_META}.{kind}"
    group, _, bare = version.rpartition("/")
    if group == "apiextensions.k8s.io":
        return f"apiextensions-apiserver.pkg.apis.apiextensions.{bare}.{kind}"
    return f"api.{group.partition('.')[0] or 'core'}.{bare}.{kind}"


@cache
def _messages() -> dict[str, dict[int, Field]]:
    return msgspec.json.decode(gzip.decompress(_FILE.read_bytes()), type=dict[str, dict[int, Field]])


def _decode(message: str, data: bytes, depth: int) -> dict[str, Any]:
    if depth > _DEEPEST:
        raise ValueError("exceeded max depth")
    known = _messages()[message]
    made: dict[str, Any] = {}
    for number, value in _fields(data):
        if number in known:
            _place(made, known[number], value, depth)
    return made


def _place(made: dict[str, Any], field: Field, value: Value, depth: int) -> None:
    """Puts one field where JSON has it, unless it says nothing that its absence would not."""
    name, kind, flags = field
    if "m" in flags:
        pair = dict(_fields(_message(value)))
        made.setdefault(name, {})[_text(pair.get(1, b""))] = _value(kind, pair.get(2, b""), depth)
    elif "r" in flags:
        made.setdefault(name, []).append(_value(kind, value, depth))
    elif "i" in flags:
        made.update(_value(kind, value, depth))
    else:
        read = _value(kind, value, depth)
        if read is not None and (read or "z" not in flags or isinstance(read, dict)):
            made[name] = read


def _value(kind: str, value: Value, depth: int) -> Any:
    read = _SCALARS.get(kind) or _SPECIAL.get(kind)
    if read is not None:
        return read(value)
    special = _NESTED.get(kind)
    if special is not None:
        return special(_message(value), depth + 1)
    return _decode(kind, _message(value), depth + 1)


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Number and undecoded value of each field, in the order they were sent."""
    position, end = 0, len(data)
    while position < end:
        mark, position = _varint(data, position)
        number, wire = mark >> 3, mark & 7
        if wire == 0:
            value, position = _varint(data, position)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(wire)
        if wire == 2:
            size, position = _varint(data, position)
        if size is None or position + size > end:
            raise ValueError("unexpected EOF")
        yield number, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise ValueError("unexpected EOF")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("integer overflow")


def _message(value: Value) -> bytes:
    if isinstance(value, int):
        raise ValueError("wrong wire type")
    return value


def _text(value: Value) -> str:
    return _message(value).decode()


def _integer(value: Value) -> int:
    if not isinstance(value, int):
        raise ValueError("wrong wire type")
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _bool(value: Value) -> bool:
    return bool(_integer(value))


def _double(value: Value) -> float:
    data = _message(value)
    if len(data) != 8:
        raise ValueError("wrong wire type")
    return float(struct.unpack("<d", data)[0])


def _base64(value: Value) -> str:
    return base64.b64encode(_message(value)).decode()


def _raw_json(value: Value) -> Any:
    """A message whose first field is JSON; nothing is null."""
    raw = _message(dict(_fields(_message(value))).get(1, b""))
    return msgspec.json.decode(raw) if raw else None


def _int_or_string(value: Value) -> int | str:
    parts = dict(_fields(_message(value)))
    return _text(parts.get(3, b"")) if parts.get(1) == 1 else _integer(parts.get(2, 0))


def _quantity(value: Value) -> str:
    return _text(dict(_fields(_message(value))).get(1, b"")) or "0"


def _moment(value: Value) -> tuple[int, int] | None:
    parts = dict(_fields(_message(value)))
    return (_integer(parts.get(1, 0)), _integer(parts.get(2, 0))) if parts else None


def _time(value: Value) -> str | None:
    moment = _moment(value)
    return timestamp.render(moment[0]) if moment else None


def _micro_time(value: Value) -> str | None:
    moment = _moment(value)
    return f"{timestamp.render(moment[0])[:-1]}.{moment[1] // 1000:06d}Z" if moment else None


def _duration(value: Value) -> str:
    nanoseconds = _integer(dict(_fields(_message(value))).get(1, 0))
    return f"{nanoseconds / 1e9:g}s"


def _strings(value: Value) -> list[str]:
    return [_text(item) for number, item in _fields(_message(value)) if number == 1]


_SCALARS: dict[str, Callable[[Value], Any]] = {
    "string": _text,
    "bool": _bool,
    "int32": _integer,
    "int64": _integer,
    "double": _double,
    "bytes": _base64,
}
_SPECIAL: dict[str, Callable[[Value], Any]] = {
    f"{_META}.Time": _time,
    f"{_META}.MicroTime": _micro_time,
    f"{_META}.Duration": _duration,
    f"{_META}.FieldsV1": _raw_json,
    f"{_META}.Verbs": _strings,
    f"{_CRD}.JSON": _raw_json,
    "apimachinery.pkg.api.resource.Quantity": _quantity,
    "apimachinery.pkg.runtime.RawExtension": _raw_json,
    "apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
    "api.authentication.v1.ExtraValue": _strings,
    "api.authorization.v1.ExtraValue": _strings,
    "api.certificates.v1.ExtraValue": _strings,
}


def _schema_or_array(data: bytes, depth: int) -> Any:
    parts = list(_fields(data))
    schemas = [_decode(f"{_CRD}.JSONSchemaProps", _message(value), depth) for _, value in parts]
    return schemas[0] if parts and parts[0][0] == 1 else schemas


def _schema_or_bool(data: bytes, depth: int) -> Any:
    parts = dict(_fields(data))
    schema = parts.get(2)
    return _bool(parts.get(1, 0)) if schema is None else _decode(f"{_CRD}.JSONSchemaProps", _message(schema), depth)


def _schema_or_strings(data: bytes, depth: int) -> Any:
    parts = list(_fields(data))
    if parts and parts[0][0] == 1:
        return _decode(f"{_CRD}.JSONSchemaProps", _message(parts[0][1]), depth)
    return [_text(value) for _, value in parts]


_NESTED: dict[str, Callable[[bytes, int], Any]] = {
    f"{_CRD}.JSONSchemaPropsOrArray": _schema_or_array,
    f"{_CRD}.JSONSchemaPropsOrBool": _schema_or_bool,
    f"{_CRD}.JSONSchemaPropsOrStringArray": _schema_or_strings,
}
