"""Server-side apply: a client states the fields it has an opinion on, and the server works out what that changes.

What others own and want otherwise is a conflict, unless forced. What this client stated last time and no longer
states goes away, unless somebody else states it too. `merged` and `without` are pure; `Applier` reads, decides and
writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from trainmaster.cluster.registry import fieldset, managed_fields
from trainmaster.cluster.registry.decoding import decoded
from trainmaster.cluster.registry.fieldset import FieldSet, element_of, is_granular_list, is_granular_map
from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.schema import ANY, Shape
from trainmaster.cluster.registry.status_error import ApiError, bad_request, invalid, not_found, required
from trainmaster.cluster.registry.writing import Object, Writer, check_name, check_same_namespace
from trainmaster.objects import yamldocument
from trainmaster.objects.meta import mutable

_PATCH_OPTIONS = Kind("meta.k8s.io", "v1", "patchoptions", "PatchOptions")


def read_yaml(body: bytes) -> Object:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            found = yamldocument.document(body)
        except yamldocument.BadYaml as error:
            raise bad_request(f"error decoding YAML: error converting YAML to JSON: yaml: {error}") from None
    if not isinstance(found, dict):
        raise bad_request(
            "error decoding YAML: json: cannot unmarshal value into Go value of type map[string]interface {}"
        )
    return found


class Applier:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def apply(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: bytes,
        *,
        subresource: str = "",
        dry_run: bool = False,
        manager: str = "",
        force: bool = False,
    ) -> tuple[Object, bool]:
        if not manager:
            raise invalid(_PATCH_OPTIONS, "", [required("fieldManager", "is required for apply patch")])
        wanted = _stated(kind, namespace, name, read_yaml(body))
        key = kind.key(namespace, name)
        while True:
            if self._writer.store.get(kind.prefix, key) is None:
                if subresource:
                    raise not_found(kind, name)
                try:
                    return await self._create(kind, namespace, wanted, manager, dry_run=dry_run), True
                except ApiError as error:
                    if error.reason != "AlreadyExists":
                        raise
            else:
                return await self._merge(
                    kind, namespace, name, wanted, manager, subresource=subresource, dry_run=dry_run, force=force
                )

    async def _create(self, kind: Kind, namespace: str, wanted: Object, manager: str, *, dry_run: bool) -> Object:
        stated = _fields_of(kind, wanted)
        entry = managed_fields.applied(kind, manager, stated, self._writer.now())
        given = {**wanted, "metadata": {k: v for k, v in wanted["metadata"].items() if k != "resourceVersion"}}
        return await self._writer.create(kind, namespace, given, dry_run=dry_run, ownership=[entry])

    async def _merge(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        wanted: Object,
        manager: str,
        *,
        subresource: str,
        dry_run: bool,
        force: bool,
    ) -> tuple[Object, bool]:
        now = self._writer.now()

        def change(live: Object) -> Object:
            made = applied_to(kind, live, wanted, manager, now, subresource=subresource, force=force)
            result = decoded(kind, made)
            result["metadata"]["managedFields"] = made["metadata"].get("managedFields") or []
            return result

        return await self._writer.modify(
            kind, namespace, name, change, subresource=subresource, dry_run=dry_run, tracks=False
        )


def _stated(kind: Kind, namespace: str, name: str, given: Object) -> Object:
    version = given.get("apiVersion") or ""
    if version != kind.api_version:
        text = f"Specified patch version: {version}, expected: {kind.api_version}"
        raise bad_request(f"Incorrect version specified in apply patch. {text}")
    _check_declared(kind.shape, given, "")
    wanted = decoded(kind, given)
    check_name(name, wanted)
    check_same_namespace(kind, namespace, wanted)
    if wanted["metadata"].get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    wanted["metadata"].pop("managedFields", None)
    return wanted


def _check_declared(shape: Shape, value: Any, path: str) -> None:
    """Elsewhere unknown fields are dropped in silence; who applies would believe to own them."""
    if isinstance(value, dict):
        for key, item in value.items():
            child = shape.child(key)
            if child is None and not shape.open and shape.type in ("object", "map"):
                raise bad_request(f"failed to create typed patch object: {path}.{key}: field not declared in schema")
            _check_declared(child or ANY, item, f"{path}.{key}")
    elif isinstance(value, list) and shape.items is not None:
        for index, item in enumerate(value):
            _check_declared(shape.items, item, f"{path}[{index}]")


def _fields_of(kind: Kind, wanted: Mapping[str, Any]) -> FieldSet:
    return fieldset.of_value(kind.shape, managed_fields.ownable(wanted), is_new=False)


def applied_to(
    kind: Kind, live: Object, wanted: Object, manager: str, now: float, *, subresource: str = "", force: bool = False
) -> Object:
    """The live object after this client's statement; ApiError 409 if others have other opinions."""
    entries = live["metadata"].get("managedFields") or []
    stated = _fields_of(kind, wanted)
    result: Object = merged(kind.shape, mutable(live), wanted)
    written, _ = fieldset.changed(kind.shape, managed_fields.ownable(result), managed_fields.ownable(live))
    mine = [entry for entry in entries if managed_fields.is_by(entry, kind, manager, "Apply", subresource)]
    others = [entry for entry in entries if not any(entry is each for each in mine)]
    conflicts = [(entry, fieldset.intersection(entry.get("fieldsV1") or {}, written)) for entry in others]
    conflicts = [(entry, fields) for entry, fields in conflicts if fields]
    if conflicts and not force:
        raise _conflict(conflicts)
    others = [
        {**entry, "fieldsV1": fieldset.difference(entry.get("fieldsV1") or {}, written)} if conflicts else entry
        for entry in others
    ]
    held = stated
    for entry in others:
        held = fieldset.union(held, entry.get("fieldsV1") or {})
    if mine:
        dropped = fieldset.difference(mine[0].get("fieldsV1") or {}, held)
        result = without(kind.shape, result, dropped, held)
    owned = managed_fields.ownable(result)
    others = [{**e, "fieldsV1": fieldset.existing(kind.shape, e.get("fieldsV1") or {}, owned)} for e in others]
    unchanged = mine and mine[0].get("fieldsV1") == stated
    own = mine[0] if unchanged else managed_fields.applied(kind, manager, stated, now, subresource)
    result["metadata"]["managedFields"] = managed_fields.arranged([*others, own])
    return result


def _conflict(conflicts: list[tuple[Mapping[str, Any], FieldSet]]) -> ApiError:
    named = sorted((_called(entry), list(fieldset.paths(fields))) for entry, fields in conflicts)
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": path}
        for who, listed in named
        for path in listed
    ]
    if len(causes) == 1:
        text = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        lines = [
            line for who, listed in named for line in (f"conflicts with {who}:", *(f"- {path}" for path in listed))
        ]
        text = f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines)
    return ApiError(409, "Conflict", text, {"causes": causes})


def _called(entry: Mapping[str, Any]) -> str:
    text = f'"{entry.get("manager")}"'
    if entry.get("subresource"):
        text += f' with subresource "{entry["subresource"]}"'
    return f"{text} using {entry.get('apiVersion')}" if entry.get("operation") == "Update" else text


def merged(shape: Shape, live: Any, wanted: Any) -> Any:
    """`wanted` laid over `live`: objects field by field, keyed lists item by item, the rest replaced."""
    if is_granular_map(shape, wanted) and isinstance(live, dict):
        for key, item in wanted.items():
            live[key] = merged(shape.child(key) or ANY, live[key], item) if key in live else item
        return live
    if is_granular_list(shape, wanted) and isinstance(live, list):
        positions = {element_of(shape, item): index for index, item in enumerate(live)}
        for item in wanted:
            index = positions.get(element_of(shape, item))
            if index is None:
                live.append(item)
            else:
                live[index] = merged(shape.items or ANY, live[index], item)
        return live
    return wanted


def without(shape: Shape, value: Any, fields: FieldSet, held: FieldSet) -> Any:
    """The value less these fields. A member goes with all that is in it, unless `held` has something in there."""
    if isinstance(value, dict):
        pairs = [(key, f"f:{key}", shape.child(key) or ANY, item) for key, item in value.items()]
        return {key: item for key, item in _reduced(pairs, fields, held) if item is not None}
    if is_granular_list(shape, value):
        pairs = [("", element_of(shape, item), shape.items or ANY, item) for item in value]
        return [item for _, item in _reduced(pairs, fields, held) if item is not None]
    return value


def _reduced(pairs: list[tuple[str, str, Shape, Any]], fields: FieldSet, held: FieldSet) -> Iterator[tuple[str, Any]]:
    """Each key with what is left of its value: None if nothing is."""
    for key, element, shape, item in pairs:
        below = fields.get(element)
        if below is None:
            yield key, item
        elif element not in held and (not below or fieldset.SELF in below):
            yield key, None
        else:
            rest = without(shape, item, below, held.get(element) or {})
            yield key, rest if rest or element in held else None
