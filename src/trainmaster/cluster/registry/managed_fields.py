"""Who wrote which field: the bookkeeping behind server-side apply, kept on every write that names its writer.

A plain write owns what it changed and takes it from whoever had it. An apply owns what it listed. Internal writers
name themselves not at all and leave ownership as it is, except that fields they removed belong to nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from trainmaster.cluster.registry import fieldset
from trainmaster.cluster.registry.fieldset import FieldSet
from trainmaster.cluster.registry.kinds import Kind
from trainmaster.objects import timestamp

Entry: TypeAlias = dict[str, Any]

_SERVERS_OWN = frozenset(
    {
        *("name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation"),
        *("managedFields", "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"),
    }
)
_MAX_UPDATE_MANAGERS = 10


def ownable(obj: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an object whose fields have owners."""
    made = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _SERVERS_OWN}
    return {**made, "metadata": metadata} if metadata else made


def track_created(kind: Kind, new: dict[str, Any], manager: str, *, now: float) -> None:
    """Records a create; called before admission, because what the server adds is nobody's."""
    metadata = new["metadata"]
    metadata.pop("managedFields", None)
    if manager:
        owned = ownable(new)
        if kind.status:
            owned.pop("status", None)
        written = fieldset.of_value(kind.shape, owned, is_new=True)
        if rooted := _rooted(kind, written):
            metadata["managedFields"] = [_entry(kind, manager, "Update", rooted, now, "")]


def track(
    kind: Kind, new: dict[str, Any], old: Mapping[str, Any], manager: str, *, now: float, subresource: str = ""
) -> None:
    """Records a plain write in the new object's managedFields."""
    metadata = new["metadata"]
    entries: list[Entry] = _kept_entries(metadata, old)
    if not entries and not manager:
        return
    written, gone = fieldset.changed(kind.shape, ownable(new), ownable(old))
    if written or gone:
        entries = _after_write(kind, entries, manager, written, gone, now, subresource)
    metadata.pop("managedFields", None)
    if entries:
        metadata["managedFields"] = entries


def _kept_entries(metadata: Mapping[str, Any], old: Mapping[str, Any]) -> list[Entry]:
    """A client may clear the list (`[]` or `[{}]`), but not invent ownership."""
    given = metadata.get("managedFields")
    if given in ([], [{}]):
        return []
    return list(old["metadata"].get("managedFields") or ())


def _rooted(kind: Kind, written: FieldSet) -> FieldSet:
    """Kubernetes' own kinds always have spec, status and metadata; only what is in them was added."""
    if kind.custom:
        return {name: _without_self(below) if name == "f:metadata" else below for name, below in written.items()}
    return {name: _without_self(below) if name in _ROOTS else below for name, below in written.items()}


_ROOTS = frozenset({"f:spec", "f:status", "f:metadata"})


def _without_self(fields: FieldSet) -> FieldSet:
    return {name: below for name, below in fields.items() if name != fieldset.SELF}


def _after_write(
    kind: Kind, entries: list[Entry], manager: str, written: FieldSet, gone: FieldSet, now: float, subresource: str
) -> list[Entry]:
    written = _rooted(kind, written)
    made: list[Entry] = []
    mine: FieldSet = written
    for entry in entries:
        fields = fieldset.difference(entry.get("fieldsV1") or {}, gone) if gone else entry.get("fieldsV1") or {}
        if manager and is_by(entry, kind, manager, "Update", subresource):
            mine = fieldset.union(fields, written)
        else:
            fields = fieldset.difference(fields, written) if manager else fields
            if fields:
                made.append({**entry, "fieldsV1": fields})
    if manager and mine:
        made.append(_entry(kind, manager, "Update", mine, now, subresource))
    return _sorted(made)


def is_by(entry: Entry, kind: Kind, manager: str, operation: str, subresource: str = "") -> bool:
    return (
        entry.get("manager") == manager
        and entry.get("operation") == operation
        and entry.get("apiVersion") == kind.api_version
        and (entry.get("subresource") or "") == subresource
    )


def applied(kind: Kind, manager: str, fields: FieldSet, now: float, subresource: str = "") -> Entry:
    return _entry(kind, manager, "Apply", fields, now, subresource)


def arranged(entries: list[Entry]) -> list[Entry]:
    return _sorted([entry for entry in entries if entry.get("fieldsV1")])


def _entry(kind: Kind, manager: str, operation: str, fields: FieldSet, now: float, subresource: str) -> Entry:
    entry: Entry = {
        "manager": manager,
        "operation": operation,
        "apiVersion": kind.api_version,
        "time": timestamp.render(now),
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return {**entry, "subresource": subresource} if subresource else entry


def _sorted(entries: list[Entry]) -> list[Entry]:
    """Appliers first, then writers from the oldest; of many writers, the oldest are folded into one."""
    made = sorted(entries, key=lambda each: (each["operation"], each.get("time") or "", each["manager"]))
    writers = [entry for entry in made if entry["operation"] == "Update"]
    if len(writers) <= _MAX_UPDATE_MANAGERS:
        return made
    old = writers[: len(writers) - _MAX_UPDATE_MANAGERS + 1]
    folded: FieldSet = {}
    for entry in old:
        folded = fieldset.union(folded, entry.get("fieldsV1") or {})
    kept = [entry for entry in made if not any(entry is each for each in old)]
    return [*kept[:0], {**old[-1], "manager": "ancient-changes", "fieldsV1": folded}, *kept]
