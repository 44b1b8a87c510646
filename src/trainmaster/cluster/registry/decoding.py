"""Requests' objects, checked for kind and version and brought into shape: the first thing that happens to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.cluster.registry import definitions
from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.schema import Shape
from trainmaster.cluster.registry.schema_values import Mismatch, conform
from trainmaster.cluster.registry.status_error import ApiError, bad_request, invalid, invalid_value
from trainmaster.objects.meta import encode, mutable


def decoded(kind: Kind, given: Any) -> dict[str, Any]:
    """A copy of the caller's object that has only fields of its kind, with the right types; ApiError otherwise."""
    if not isinstance(given, Mapping):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind.kind}): not an object")
    obj = copied(given)
    _check_type(kind, obj)
    obj["apiVersion"], obj["kind"] = kind.api_version, kind.kind
    try:
        return _conformed(kind, obj)
    except Mismatch as mismatch:
        raise unreadable(kind, str(mismatch)) from None


def copied(given: Mapping[str, Any]) -> dict[str, Any]:
    """A private copy; what JSON cannot carry through this server is the client's mistake."""
    try:
        return mutable(given)
    except (OverflowError, RecursionError, TypeError, ValueError) as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from None


def part_of(shape: Shape, given: Any, name: str) -> dict[str, Any]:
    """An object that is no kind of its own (options, bindings, evictions), with only the fields it can have."""
    if not isinstance(given, Mapping):
        raise bad_request(f"the object provided is unrecognized (must be of type {name}): not an object")
    try:
        made: dict[str, Any] = conform(shape, copied(given))
    except Mismatch as mismatch:
        raise bad_request(f'{name} in version "v1" cannot be handled as a {name}: {mismatch}') from None
    return made


def _conformed(kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
    if kind.custom:
        metadata = obj.get("metadata")
        if not isinstance(metadata, dict):
            metadata = (
                {} if metadata is None else conform(definitions.metadata_shape(), metadata, "metadata", "ObjectMeta")
            )
        obj["metadata"] = _conformed_metadata(metadata)
        return obj
    validator = definitions.validator(kind.group, kind.version, kind.kind)
    if validator is not None and not validator.is_valid(obj):
        obj = conform(kind.shape, obj)
    obj.setdefault("metadata", {})
    return obj


_OBJECT_META = ("", "v1", "Pod")


def _conformed_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Custom resources keep what their schema says, but their metadata is everybody's."""
    validator = definitions.validator(*_OBJECT_META)
    if validator is not None and validator.is_valid({"metadata": metadata}):
        return metadata
    made: dict[str, Any] = conform(definitions.metadata_shape(), metadata, "metadata", "ObjectMeta")
    return made


def _check_type(kind: Kind, obj: Mapping[str, Any]) -> None:
    version, name = obj.get("apiVersion"), obj.get("kind")
    if kind.custom:
        _check_custom_type(kind, obj)
    elif name not in (None, "", kind.kind):
        same = f"converting ({kind.version}.{name}) to ({kind.group or 'core'}.{kind.kind}): unknown conversion"
        raise bad_request(f'{name} in version "{version or kind.version}" cannot be handled as a {kind.kind}: {same}')
    elif version not in (None, "", kind.api_version):
        why = (
            f'no kind "{kind.kind}" is registered for version "{version}" in scheme "pkg/api/legacyscheme/scheme.go:30"'
        )
        raise bad_request(
            f'{kind.kind} in version "{str(version).rpartition("/")[2]}" cannot be handled as a {kind.kind}: {why}'
        )


def _check_custom_type(kind: Kind, obj: Mapping[str, Any]) -> None:
    version, name = obj.get("apiVersion"), obj.get("kind")
    for key, value in (("apiVersion", version), ("Kind", name)):
        if not value:
            raise unreadable(kind, f"unmarshalerDecoder: Object '{key}' is missing in '{encode(obj).decode()}'")
    if version != kind.api_version:
        what = f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
        raise bad_request(what)
    if name != kind.kind:
        wrong = Kind(kind.group, kind.version, kind.plural, str(name))
        metadata = obj.get("metadata")
        title = metadata.get("name") if isinstance(metadata, Mapping) else ""
        raise invalid(wrong, str(title or ""), [invalid_value("kind", name, f"must be {kind.kind}")])


def unreadable(kind: Kind, why: str) -> ApiError:
    return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')
