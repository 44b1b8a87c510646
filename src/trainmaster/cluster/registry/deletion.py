"""Deletion: at once, after a grace period, or once every finalizer is gone.

Who waits for what: pods for their kubelet (grace), namespaces for their contents, anything for its finalizers, two of
which are set here for the garbage collector (`foregroundDeletion`, `orphan`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.cluster.registry import definitions
from trainmaster.cluster.registry.conversion import shown_as
from trainmaster.cluster.registry.decoding import part_of
from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.pod_update import grace_of
from trainmaster.cluster.registry.status_error import (
    ApiError,
    conflict,
    forbidden,
    invalid,
    invalid_value,
    not_found,
    unsupported,
)
from trainmaster.cluster.registry.writing import Object, Writer, is_over
from trainmaster.cluster.storage.store import Entry, Missing, Stale
from trainmaster.objects import timestamp

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
_FINALIZERS = {"Foreground": FOREGROUND, "Orphan": ORPHAN}
_UNGRACED = frozenset({"/namespaces", "apiextensions.k8s.io/customresourcedefinitions"})
_IMMORTAL = frozenset({"default", "kube-system", "kube-public"})
_OPTIONS = Kind("meta.k8s.io", "v1", "deleteoptions", "DeleteOptions")


class Deleter:
    """Decides with the pure functions below, and stores."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def delete(
        self, kind: Kind, namespace: str, name: str, options: Mapping[str, Any], *, dry_run: bool = False
    ) -> tuple[Object, Object]:
        """The object as it was left, and what to answer."""
        options = checked_options(options)
        store = self._writer.store
        while True:
            entry = store.get(kind.prefix, kind.key(namespace, name))
            if entry is None:
                raise not_found(kind, name)
            _check_preconditions(kind, entry, options)
            _check_namespace_deletion(kind, entry.value)
            left = ending(kind, entry.value, options, self._writer.now())
            if dry_run:
                return left, _answer(kind, left, is_gone=is_over(left))
            try:
                return await self._settle(kind, entry, left)
            except (Stale, Missing):
                continue

    async def delete_if_there(
        self, kind: Kind, entry: Entry, options: Mapping[str, Any], *, dry_run: bool = False
    ) -> None:
        metadata = entry.value["metadata"]
        try:
            await self.delete(kind, metadata.get("namespace") or "", metadata["name"], options, dry_run=dry_run)
        except ApiError as error:
            if error.status != 404:
                raise

    async def _settle(self, kind: Kind, entry: Entry, left: Object) -> tuple[Object, Object]:
        store = self._writer.store
        if is_over(left):
            gone = await store.remove(kind.prefix, entry.key, expect=entry.revision, final=_last_state(left, entry))
            self._writer.policies.of(kind).undo(gone.value, self._writer)
            return gone.value, _answer(kind, gone.value, is_gone=True)
        if left == entry.value:
            return entry.value, _answer(kind, entry.value, is_gone=False)
        changed = await store.put(kind.prefix, entry.key, left, expect=entry.revision)
        return changed.value, _answer(kind, changed.value, is_gone=False)


def checked_options(given: Mapping[str, Any]) -> Mapping[str, Any]:
    if not given:
        return {}
    options = part_of(definitions.delete_options_shape(), given, "DeleteOptions")
    policy = options.get("propagationPolicy")
    if policy is not None and options.get("orphanDependents") is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        raise invalid(_OPTIONS, "", [invalid_value("propagationPolicy", policy, why)])
    if policy is not None and policy not in ("Foreground", "Background", "Orphan"):
        known = ("Foreground", "Background", "Orphan", "nil")
        raise invalid(_OPTIONS, "", [unsupported("propagationPolicy", policy, known)])
    return options


def _check_preconditions(kind: Kind, entry: Entry, options: Mapping[str, Any]) -> None:
    wanted = options.get("preconditions") or {}
    metadata = entry.value["metadata"]
    name = metadata["name"]
    if (uid := wanted.get("uid")) is not None and uid != metadata["uid"]:
        why = f"the UID in the precondition ({uid}) does not match the UID in record ({metadata['uid']})."
        raise conflict(kind, name, f"{why} The object might have been deleted and then recreated", called=kind.kind)
    revision = wanted.get("resourceVersion")
    if revision is not None and revision != metadata["resourceVersion"]:
        held = metadata["resourceVersion"]
        why = f"the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record"
        raise conflict(kind, name, f"{why} ({held}). The object might have been modified", called=kind.kind)


def _check_namespace_deletion(kind: Kind, obj: Mapping[str, Any]) -> None:
    if kind.prefix != "/namespaces":
        return
    name = obj["metadata"]["name"]
    if name in _IMMORTAL:
        raise forbidden(kind, name, "this namespace may not be deleted")


def ending(kind: Kind, obj: Mapping[str, Any], options: Mapping[str, Any], now: float) -> Object:
    """The object once its deletion has been asked for; `is_over` tells whether anything still holds it."""
    metadata = dict(obj["metadata"])
    _set_finalizers(metadata, _propagation(kind, options))
    asked = options.get("gracePeriodSeconds")
    grace = grace_of(obj, asked) if kind.prefix == "/pods" else 0
    if "deletionTimestamp" not in metadata:
        metadata["deletionTimestamp"] = timestamp.render(now + grace)
        if kind.prefix in _UNGRACED:
            return _ending_ungraced(kind, obj, metadata)
        metadata["deletionGracePeriodSeconds"] = grace
        if "generation" in metadata:
            metadata["generation"] += 1
    elif grace < (metadata.get("deletionGracePeriodSeconds") or 0) and (asked is not None or not grace):
        metadata["deletionTimestamp"] = timestamp.render(now + grace)
        metadata["deletionGracePeriodSeconds"] = grace
    return {**obj, "metadata": metadata}


def _ending_ungraced(kind: Kind, obj: Mapping[str, Any], metadata: Object) -> Object:
    """Namespaces and definitions only end once what is in them has: they count no seconds and no generations."""
    if kind.prefix != "/namespaces":
        return {**obj, "metadata": metadata}
    return {**obj, "metadata": metadata, "status": {**(obj.get("status") or {}), "phase": "Terminating"}}


def _propagation(kind: Kind, options: Mapping[str, Any]) -> str | None:
    """What becomes of dependents. Only batch Jobs leave theirs behind by default, as they always have."""
    policy: str | None = options.get("propagationPolicy")
    if policy is None and options.get("orphanDependents") is not None:
        return "Orphan" if options["orphanDependents"] else "Background"
    return "Orphan" if policy is None and kind.prefix == "batch/jobs" else policy


def _set_finalizers(metadata: Object, policy: str | None) -> None:
    if policy is None:
        return
    kept = [name for name in metadata.get("finalizers") or () if name not in (FOREGROUND, ORPHAN)]
    if policy in _FINALIZERS:
        kept.append(_FINALIZERS[policy])
    metadata.pop("finalizers", None)
    if kept:
        metadata["finalizers"] = kept


def _last_state(left: Object, entry: Entry) -> Object:
    """Watchers of a deletion see the last stored state; only a pod's shortened grace is worth telling."""
    return (
        left
        if left["metadata"].get("deletionGracePeriodSeconds") is not None and left["kind"] == "Pod"
        else entry.value
    )


def _answer(kind: Kind, obj: Object, *, is_gone: bool) -> Object:
    if not is_gone or kind.returns_deleted:
        return obj if kind.is_storage_version else shown_as(kind, obj)
    metadata = obj["metadata"]
    details = {"name": metadata["name"], **({"group": kind.group} if kind.group else {})}
    details |= {"kind": kind.plural, "uid": metadata["uid"]}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
