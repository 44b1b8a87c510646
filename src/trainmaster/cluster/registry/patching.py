"""A PATCH request: reads the patch, applies it to the object as it is by then, and writes the result like an update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainmaster.cluster.registry import patch, strategic, subresources
from trainmaster.cluster.registry.apply import Applier
from trainmaster.cluster.registry.decoding import decoded
from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.status_error import ApiError, bad_request, invalid_value, unsupported_media_type
from trainmaster.cluster.registry.status_error import invalid as invalid_object
from trainmaster.cluster.registry.writing import Change, Object, Writer, check_name, check_same_namespace
from trainmaster.objects import meta

_FOR_ALL = (patch.JSON, patch.MERGE, patch.APPLY)
_GO = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
_NOT_AN_OBJECT = Kind("", "", "", "")


class Patcher:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._applier = Applier(writer)

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: bytes,
        content_type: str,
        *,
        subresource: str = "",
        dry_run: bool = False,
        manager: str = "",
        force: bool = False,
    ) -> tuple[Object, bool]:
        media_type = content_type.partition(";")[0].strip().lower()
        if media_type == patch.APPLY and subresource != "scale":
            return await self._applier.apply(
                kind, namespace, name, body, subresource=subresource, dry_run=dry_run, manager=manager, force=force
            )
        transform = _transform(kind, media_type, body)
        change = _change(kind, namespace, name, transform, subresource)
        obj, is_new = await self._writer.modify(
            kind,
            namespace,
            name,
            change,
            subresource="" if subresource == "scale" else subresource,
            dry_run=dry_run,
            manager=manager,
        )
        return obj, is_new


def _transform(kind: Kind, media_type: str, body: bytes) -> Callable[[Object], Any]:
    """What the patch does to a document."""
    if media_type == patch.JSON:
        operations = patch.decode(body)
        return lambda document: patch.apply_json(document, operations)
    if media_type == patch.MERGE:
        merged = _object(patch.decode(body))
        return lambda document: patch.merge(document, merged)
    if media_type == patch.STRATEGIC and not kind.custom:
        strategic_patch = _mapping(patch.decode(body))
        return lambda document: strategic.merge(kind.shape, document, strategic_patch)
    if kind.custom:
        raise unsupported_media_type(_FOR_ALL)
    raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def _mapping(decoded_patch: Any) -> Object:
    if not isinstance(decoded_patch, dict):
        raise bad_request("json: cannot unmarshal array into Go value of type map[string]interface {}")
    return decoded_patch


def _object(decoded_patch: Any) -> Object:
    if not isinstance(decoded_patch, dict):
        shown = "[]" if isinstance(decoded_patch, list) else str(decoded_patch)
        detail = (
            f"couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type {_GO}"
        )
        raise invalid_object(_NOT_AN_OBJECT, "", [invalid_value("patch", shown, detail)])
    return decoded_patch


def _decoded(kind: Kind, patched: Object) -> Object:
    """A patch that leaves no such object is what is wrong, not the request that carried it."""
    try:
        return decoded(kind, patched)
    except ApiError as refusal:
        if refusal.status != 400:
            raise
        shown = meta.encode(patched).decode()
        raise invalid_object(_NOT_AN_OBJECT, "", [invalid_value("patch", shown, refusal.message)]) from None


def _change(kind: Kind, namespace: str, name: str, transform: Callable[[Object], Any], subresource: str) -> Change:
    def change(document: Object) -> Object:
        if subresource == "scale":
            return subresources.rescaled(kind, document, transform(subresources.scale_of(kind, document)))
        patched = transform(document)
        if not isinstance(patched, dict):
            raise bad_request("the patched object is not an object")
        patched = _decoded(kind, patched)
        check_name(name, patched)
        check_same_namespace(kind, namespace, patched)
        return patched

    return change
