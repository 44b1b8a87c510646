"""In which form the answer is wanted, and what the body of a request says.

Answers are JSON whatever the client prefers, which every client takes; `as=Table` and `as=PartialObjectMetadata` choose
what the JSON is about. Bodies may be JSON, YAML or, from Go clients, protobuf.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from trainmaster.cluster.registry.status_error import ApiError, bad_request
from trainmaster.cluster.server import protobuf
from trainmaster.objects import yamldocument

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
MAX_BODY = 3 * 1024 * 1024
_TAKEN = frozenset({JSON, YAML, PROTOBUF, "application/*", "*/*", ""})
_TABLES = frozenset({"v1", "v1beta1"})


class Form(NamedTuple):
    """`kind` is empty for the object itself, else Table, PartialObjectMetadata or APIGroupDiscoveryList."""

    kind: str = ""
    version: str = "v1"
    is_yaml: bool = False


PLAIN = Form()


@lru_cache(maxsize=256)
def form_of(accept: str) -> Form | None:
    """The first form in an Accept header that can be served; None if there is none, which is a 406."""
    if not accept:
        return PLAIN
    for clause in accept.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        options = dict(part.split("=", 1) for part in parameters if "=" in part)
        if media in _TAKEN and (form := _form(options, is_yaml=media == YAML)) is not None:
            return form
    return None


def _form(options: dict[str, str], *, is_yaml: bool) -> Form | None:
    kind, group, version = options.get("as", ""), options.get("g", ""), options.get("v", "")
    if not kind:
        return Form(is_yaml=True) if is_yaml else PLAIN
    if kind == "APIGroupDiscoveryList":
        known = group == "apidiscovery.k8s.io" and version in ("v2", "v2beta1")
        return Form(kind, version) if known else None
    known = group == "meta.k8s.io" and version in _TABLES
    if known and kind in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList"):
        return Form(kind.removesuffix("List"), version, is_yaml)
    return None


def not_acceptable(media: str = f"{JSON}, {YAML}, {PROTOBUF}") -> ApiError:
    return ApiError(406, "NotAcceptable", f"only the following media types are accepted: {media}", {})


async def read(request: web.BaseRequest) -> bytes:
    """The whole body, unpacked; 413 when it is larger than the API server takes."""
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        message = f"Request entity too large: limit is {MAX_BODY}"
        raise ApiError(413, "RequestEntityTooLarge", message, {}) from None
    except web.RequestPayloadError as error:
        raise bad_request(f"the body could not be read: {' '.join(str(error).split())}") from None


async def read_object(request: web.BaseRequest, expected: str) -> dict[str, Any]:
    """The object in the body; `expected` is the kind that a refusal names."""
    media = request.content_type if "Content-Type" in request.headers else JSON
    if media not in (JSON, YAML, "application/x-yaml", PROTOBUF):
        raise _unknown_media()
    body = await read(request)
    try:
        value = decode(body, media)
    except ValueError as error:
        why = f"couldn't get version/kind; json parse error: {error}"
        raise bad_request(_unrecognized(expected, why, body)) from None
    if not isinstance(value, dict):
        why = f"couldn't get version/kind; json parse error: cannot unmarshal {_json_type(value)} into an object"
        raise bad_request(_unrecognized(expected, why, body))
    return value


def decode(body: bytes, media: str = JSON) -> Any:
    """JSON values only; ValueError says what is wrong with the text."""
    if media == JSON and not body.strip():
        raise ValueError("unexpected end of JSON input")
    try:
        if media == PROTOBUF:
            return protobuf.decode(body)
        return _encodable(msgspec.json.decode(body) if media == JSON else yamldocument.document(body))
    except RecursionError:
        raise ValueError("exceeded max depth") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError, OverflowError) as error:
        raise ValueError(str(error)) from None


def _encodable(value: Any) -> Any:
    """The value as it is, unless it has a number that cannot be written again. Trying costs less than searching."""
    try:
        msgspec.json.encode(value)
    except OverflowError:
        return _narrowed(value)
    return value


def _narrowed(value: Any) -> Any:
    """Integers beyond 64 bits become floats, as in the real server."""
    if isinstance(value, dict):
        return {key: _narrowed(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_narrowed(each) for each in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float(value)
    return value


def _unknown_media() -> ApiError:
    what = "the body of the request was in an unknown format"
    accepted = f"{JSON}, {YAML}, {PROTOBUF}"
    return ApiError(415, "UnsupportedMediaType", f"{what} - accepted media types include: {accepted}")


def _unrecognized(expected: str, why: str, body: bytes) -> str:
    return f"the object provided is unrecognized (must be of type {expected}): {why} ({_summary(body)})"


def _summary(body: bytes, limit: int = 30) -> str:
    if not body:
        return "<empty>"
    start = body[:limit]
    text = start.decode(errors="replace") if body.startswith(b"{") else start.hex()
    return text if len(body) <= limit else f"{text} ..."


def _json_type(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    return {list: "array", str: "string", int: "number", float: "number"}.get(type(value), "null")
