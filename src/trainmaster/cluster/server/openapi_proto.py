"""The OpenAPI v2 document in protobuf: the only form in which kubectl takes it, for validation, explain and apply.

Written by hand from the field numbers of the gnostic `OpenAPIv2.proto`; the few messages we fill do not justify a
protobuf dependency. A message is bytes, put together from its fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

_TEXT = {"$ref": 1, "format": 2, "title": 3, "description": 4, "pattern": 13, "discriminator": 26}
_DOUBLE = {"multipleOf": 6, "maximum": 7, "minimum": 9}
_INTEGER = {"maxLength": 11, "minLength": 12, "maxItems": 14, "minItems": 15, "maxProperties": 17, "minProperties": 18}
_FLAG = {"exclusiveMaximum": 8, "exclusiveMinimum": 10, "uniqueItems": 16, "readOnly": 27}
_METHODS = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}


def document(spec: Mapping[str, Any]) -> bytes:
    """A whole swagger document, as far as `openapi` fills one."""
    info = _text(1, spec["info"]["title"]) + _text(2, spec["info"]["version"])
    paths = _joined(_bytes(2, _named(name, _path(item))) for name, item in spec["paths"].items())
    types = _joined(_bytes(1, _named(name, _schema(schema))) for name, schema in spec["definitions"].items())
    return _text(1, spec["swagger"]) + _bytes(2, info) + _bytes(8, paths) + _bytes(9, types)


def _path(item: Mapping[str, Any]) -> bytes:
    parts = [_bytes(number, _operation(item[name])) for name, number in _METHODS.items() if name in item]
    parts += [_bytes(9, _parameter(parameter)) for parameter in item.get("parameters", ())]
    return b"".join(parts)


def _operation(operation: Mapping[str, Any]) -> bytes:
    parts = [_text(3, operation.get("description", "")), _text(5, operation.get("operationId", ""))]
    parts += [_text(6, each) for each in operation.get("produces", ())]
    parts += [_text(7, each) for each in operation.get("consumes", ())]
    parts += [_bytes(8, _parameter(each)) for each in operation.get("parameters", ())]
    codes = operation.get("responses", {})
    parts.append(_bytes(9, _joined(_bytes(1, _named(code, _response(each))) for code, each in codes.items())))
    return b"".join(parts) + _extensions(13, operation)


def _response(response: Mapping[str, Any]) -> bytes:
    inner = _text(1, response.get("description", ""))
    if "schema" in response:
        inner += _bytes(2, _bytes(1, _schema(response["schema"])))
    return _bytes(1, inner)


def _parameter(parameter: Mapping[str, Any]) -> bytes:
    """Wrapped in `ParametersItem` and `Parameter`, then in body, query or path."""
    required = _flag(1, bool(parameter.get("required")))
    about = _text(3, parameter.get("description", "")) + _text(4, parameter["name"])
    place = parameter["in"]
    if place == "body":
        body = _text(1, parameter.get("description", "")) + _text(2, parameter["name"]) + _text(3, place)
        inner = _bytes(1, body + _flag(4, bool(parameter.get("required"))) + _bytes(5, _schema(parameter["schema"])))
    elif place == "path":
        inner = _bytes(2, _bytes(4, required + _text(2, place) + about + _text(5, parameter["type"])))
    else:
        inner = _bytes(2, _bytes(3, required + _text(2, place) + about + _text(6, parameter["type"])))
    return _bytes(1, inner)


def _schema(schema: Mapping[str, Any]) -> bytes:
    parts = [_text(number, schema[key]) for key, number in _TEXT.items() if key in schema]
    parts += [_double(number, schema[key]) for key, number in _DOUBLE.items() if key in schema]
    parts += [_integer(number, schema[key]) for key, number in _INTEGER.items() if key in schema]
    parts += [_flag(number, schema[key]) for key, number in _FLAG.items() if key in schema]
    parts += [_text(19, name) for name in schema.get("required", ())]
    parts += [_bytes(20, _any(value)) for value in schema.get("enum", ())]
    if "default" in schema:
        parts.append(_bytes(5, _any(schema["default"])))
    if "type" in schema:
        parts.append(_bytes(22, _text(1, schema["type"])))
    return b"".join(parts) + _collections(schema) + _extensions(31, schema)


def _collections(schema: Mapping[str, Any]) -> bytes:
    """What a schema holds inside: items, fields, other schemas."""
    parts = [_bytes(24, _schema(each)) for each in schema.get("allOf", ())]
    extra = schema.get("additionalProperties")
    if extra is not None:
        parts.append(_bytes(21, _flag(2, extra) if isinstance(extra, bool) else _bytes(1, _schema(extra))))
    if "items" in schema:
        parts.append(_bytes(23, _bytes(1, _schema(schema["items"]))))
    fields = schema.get("properties")
    if fields is not None:
        parts.append(_bytes(25, _joined(_bytes(1, _named(name, _schema(each))) for name, each in fields.items())))
    return b"".join(parts)


def _extensions(number: int, owner: Mapping[str, Any]) -> bytes:
    return _joined(_bytes(number, _named(key, _any(owner[key]))) for key in owner if key.startswith("x-"))


def _any(value: Any) -> bytes:
    """Arbitrary data is text in YAML, and JSON is YAML."""
    return _text(2, msgspec.json.encode(value).decode())


def _named(name: str, message: bytes) -> bytes:
    return _text(1, name) + _bytes(2, message)


def _joined(parts: Iterable[bytes]) -> bytes:
    return b"".join(parts)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bytes(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _text(number: int, content: str) -> bytes:
    return _bytes(number, content.encode()) if content else b""


def _integer(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(int(value))


def _flag(number: int, value: bool) -> bytes:
    return _varint(number << 3) + b"\x01" if value else b""


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)
