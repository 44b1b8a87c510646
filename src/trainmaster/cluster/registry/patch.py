"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386). Strategic merge and apply are next door.

Both take a document that may be changed and return the result. What does not fit is an ApiError with the status that
the real server gives it: 400 for a malformed patch, 422 for one that does not fit this object.
"""

from __future__ import annotations

from typing import Any

import msgspec

from trainmaster.cluster.registry.status_error import ApiError, bad_request, invalid_patch
from trainmaster.objects.meta import encode, mutable
from trainmaster.objects.number import number_of

JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

_SORTED = msgspec.json.Encoder(order="sorted")
_MAX_OPERATIONS = 10_000
_MAX_COPIED = 3 << 20
"""Bytes that all `copy` operations of a patch may add: as much as a request may hold. Each could double the object."""


def decode(patch: bytes) -> Any:
    try:
        return msgspec.json.decode(patch)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"error decoding patch: {error}") from None


def merge(document: Any, patch: Any) -> Any:
    """Null removes a key; an object merges into an object; anything else replaces."""
    if not isinstance(patch, dict):
        return patch
    target = document if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = merge(target.get(key), value)
    return target


def apply_json(document: Any, operations: Any) -> Any:
    if not isinstance(operations, list):
        kind = "object" if isinstance(operations, dict) else "value"
        raise bad_request(f"json: cannot unmarshal {kind} into Go value of type jsonpatch.Patch")
    if len(operations) > _MAX_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, got {len(operations)}"
        raise ApiError(413, "RequestEntityTooLarge", message, {})
    try:
        return _applied(document, operations)
    except RecursionError:  # a document that moves and copies have nested into itself, again and again
        raise invalid_patch() from None


def _applied(document: Any, operations: list[Any]) -> Any:
    copied = 0
    for operation in operations:
        if not isinstance(operation, dict):
            raise bad_request("json: cannot unmarshal value into Go value of type jsonpatch.Operation")
        if operation.get("op") == "copy":
            copied += len(encode(_get(document, _steps(operation.get("from")))))
            _check_copied(copied)
        document = _apply_one(document, operation)
    return document


def _check_copied(size: int) -> None:
    if size > _MAX_COPIED:
        raise ApiError(
            422,
            "Invalid",
            f"Unable to complete the copy, the accumulated size increase of copy is {size}, "
            f"exceeding the limit {_MAX_COPIED}",
            {},
        )


def _apply_one(document: Any, operation: dict[str, Any]) -> Any:
    name, path = operation.get("op"), _steps(operation.get("path"))
    if name == "add":
        return _add(document, path, _value(operation))
    if name == "remove":
        return _remove(document, path)
    if name == "replace":
        _get(document, path)
        return _add(document, path, _value(operation), is_replacement=True)
    if name == "test":
        if not _is_same(_get(document, path), _value(operation)):
            raise invalid_patch()
        return document
    if name == "copy":
        found = _get(document, _steps(operation.get("from")))
        return _add(document, path, mutable({"": found})[""])
    if name == "move":
        source = _steps(operation.get("from"))
        found = _get(document, source)
        return _add(_remove(document, source), path, found)
    raise invalid_patch()


def _is_same(one: Any, other: Any) -> bool:
    """As JSON: there 1 and true are two things, and the order of keys is nothing."""
    return bool(_SORTED.encode(one) == _SORTED.encode(other))


def _value(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise invalid_patch()
    return operation["value"]


def _steps(pointer: Any) -> list[str]:
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise invalid_patch()
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _get(document: Any, steps: list[str]) -> Any:
    for step in steps:
        if isinstance(document, dict) and step in document:
            document = document[step]
        elif isinstance(document, list):
            document = document[_index(step, len(document))]
        else:
            raise invalid_patch()
    return document


def _index(step: str, length: int) -> int:
    index = number_of(step, length - 1)
    if index is None or step != str(index):
        raise invalid_patch()
    return index


def _add(document: Any, steps: list[str], value: Any, *, is_replacement: bool = False) -> Any:
    if not steps:
        return value
    parent, last = _get(document, steps[:-1]), steps[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list) and is_replacement:
        parent[_index(last, len(parent))] = value
    elif isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else _index(last, len(parent) + 1), value)
    else:
        raise invalid_patch()
    return document


def _remove(document: Any, steps: list[str]) -> Any:
    if not steps:
        raise invalid_patch()
    parent, last = _get(document, steps[:-1]), steps[-1]
    if isinstance(parent, dict) and last in parent:
        del parent[last]
    elif isinstance(parent, list):
        del parent[_index(last, len(parent))]
    else:
        raise invalid_patch()
    return document
