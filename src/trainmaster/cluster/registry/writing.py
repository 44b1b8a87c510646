"""Creates and updates: from a request's object to a stored one.

Order, as on a real API server: types, namespace, defaults, admission, metadata, rules, field ownership, store. A
write that somebody else overtook begins again from the new state, unless the client named the state it meant.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from uuid import uuid4

from trainmaster.cluster.registry import managed_fields, subresources
from trainmaster.cluster.registry.addresses import Addresses
from trainmaster.cluster.registry.admission import Policies, Policy
from trainmaster.cluster.registry.conversion import shown_as, stored_from
from trainmaster.cluster.registry.decoding import decoded
from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.kinds_builtin import BUILTIN
from trainmaster.cluster.registry.status_error import (
    ApiError,
    Cause,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    invalid_value,
    not_found,
    shown,
)
from trainmaster.cluster.registry.validation import check_metadata, check_metadata_update, check_own_finalizers
from trainmaster.cluster.storage.store import Entry, Exists, Stale, Store
from trainmaster.objects import timestamp
from trainmaster.objects.meta import mutable

Object: TypeAlias = dict[str, Any]
Change: TypeAlias = Callable[[Object], Object]
"""From a private copy of the current object, as its kind shows it, to the wanted one."""

NAMESPACES = next(kind for kind in BUILTIN if kind.prefix == "/namespaces")
PODS = next(kind for kind in BUILTIN if kind.prefix == "/pods")

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_PREFIX = 58
_KEPT_METADATA = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


class Writer:
    """Also the `World` that admission looks at."""

    def __init__(self, store: Store, policies: Policies, now: Callable[[], float]) -> None:
        self.store = store
        self.policies = policies
        self.now = now
        self.addresses = Addresses()

    def find(self, prefix: str, key: str) -> Mapping[str, Any] | None:
        entry = self.store.get(prefix, key)
        return entry.value if entry is not None else None

    def find_all(self, prefix: str) -> list[Mapping[str, Any]]:
        return [entry.value for entry in self.store.list(prefix)]

    async def create(
        self,
        kind: Kind,
        namespace: str,
        given: Mapping[str, Any],
        *,
        dry_run: bool = False,
        manager: str = "",
        ownership: list[Object] | None = None,
    ) -> Object:
        """`ownership` is the managedFields of an object that an apply creates."""
        obj = decoded(kind, given)
        self._settle_namespace(kind, namespace, obj)
        if obj["metadata"].get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        while True:
            prepared = self.prepared(kind, obj, manager)
            if ownership:
                prepared["metadata"]["managedFields"] = ownership
            name = prepared["metadata"]["name"]
            try:
                return await self._store_new(kind, namespace, name, prepared, dry_run=dry_run)
            except Exists:
                if obj["metadata"].get("name"):
                    raise self._taken(kind, namespace, name) from None

    def prepared(self, kind: Kind, obj: Object, manager: str) -> Object:
        """A new object, ready to be stored."""
        policy = self.policies.of(kind)
        made = obj if obj["metadata"].get("name") else mutable(obj)
        metadata = made["metadata"]
        _name(metadata)
        policy.defaults(made)
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"):
            metadata.pop(key, None)
        metadata["uid"] = str(uuid4())
        metadata["creationTimestamp"] = timestamp.render(self.now())
        if policy.has_generation:
            metadata["generation"] = 1
        managed_fields.track_created(kind, made, manager, now=self.now())
        policy.create(made, self)
        causes = _check_metadata(kind, metadata, policy)
        if causes := [*causes, *policy.check(made)]:
            raise invalid(kind, metadata.get("name") or "", causes)
        return made

    async def _store_new(self, kind: Kind, namespace: str, name: str, obj: Object, *, dry_run: bool) -> Object:
        policy, key = self.policies.of(kind), kind.key(namespace, name)
        if self.store.get(kind.prefix, key) is not None:
            raise Exists(key)
        policy.reserve(obj, self)
        if dry_run:
            policy.undo(obj, self)
            return obj
        try:
            entry = await self.store.put(kind.prefix, key, stored_from(kind, obj), expect=None)
        except BaseException:
            policy.undo(obj, self)
            raise
        return _shown(kind, entry)

    async def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        given: Mapping[str, Any],
        *,
        subresource: str = "",
        dry_run: bool = False,
        manager: str = "",
    ) -> tuple[Object, bool]:
        if subresource == "scale":
            return await self.modify(
                kind,
                namespace,
                name,
                lambda old: subresources.rescaled(kind, old, given),
                dry_run=dry_run,
                manager=manager,
            )
        obj = decoded(kind, given)
        check_name(name, obj)
        check_same_namespace(kind, namespace, obj)
        if kind.create_on_update and not subresource and self.store.get(kind.prefix, kind.key(namespace, name)) is None:
            return await self.create(kind, namespace, {**obj, "metadata": _unversioned(obj)}, manager=manager), True

        def replaced(old: Object) -> Object:
            _check_conditional(kind, name, obj)
            _check_uid(kind, name, obj["metadata"].get("uid"), old["metadata"]["uid"])
            return mutable(obj)

        return await self.modify(
            kind, namespace, name, replaced, subresource=subresource, dry_run=dry_run, manager=manager
        )

    async def modify(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        change: Change,
        *,
        subresource: str = "",
        dry_run: bool = False,
        manager: str = "",
        tracks: bool = True,
    ) -> tuple[Object, bool]:
        """Changes an object that exists, from whatever state it is in by then. The flag is always False."""
        while True:
            entry = self.existing(kind, namespace, name)
            old = _shown(kind, entry)
            wanted = change(mutable(old))
            new = self._revised(kind, name, wanted, old, subresource)
            if tracks:
                managed_fields.track(kind, new, old, manager, now=self.now(), subresource=subresource)
            if _is_same(new, old) or dry_run:
                return (old if not dry_run else new), False
            try:
                return await self._store_changed(kind, entry, new), False
            except Stale as stale:
                if stale.current is None:
                    raise not_found(kind, name) from None

    def _taken(self, kind: Kind, namespace: str, name: str) -> ApiError:
        refusal = already_exists(kind, name)
        held = self.find(kind.prefix, kind.key(namespace, name))
        if held is not None and held["metadata"].get("deletionTimestamp"):
            refusal.message = f"object is being deleted: {refusal.message}"
        return refusal

    def existing(self, kind: Kind, namespace: str, name: str) -> Entry:
        entry = self.store.get(kind.prefix, kind.key(namespace, name))
        if entry is None:
            raise not_found(kind, name)
        return entry

    async def _store_changed(self, kind: Kind, entry: Entry, new: Object) -> Object:
        stored = stored_from(kind, new)
        if is_over(new):
            gone = await self.store.remove(kind.prefix, entry.key, expect=entry.revision, final=stored)
            self.policies.of(kind).undo(gone.value, self)
            return _shown(kind, gone)
        return _shown(kind, await self.store.put(kind.prefix, entry.key, stored, expect=entry.revision))

    def _revised(self, kind: Kind, name: str, new: Object, old: Object, subresource: str) -> Object:
        """The wanted object with all that a client cannot change put back, checked."""
        policy = self.policies.of(kind)
        _check_identity(kind, name, new["metadata"], old["metadata"])
        _keep_metadata(new["metadata"], old["metadata"])
        if subresource == "status":
            new = subresources.with_status(kind, new, old)
        elif subresource == "finalize":
            new = subresources.finalized(new, old)
        else:
            self._revise_main(kind, policy, new, old)
        causes = _check_metadata(kind, new["metadata"], policy)
        causes += check_metadata_update(new["metadata"], old["metadata"])
        if not subresource:
            causes += [*_new_causes(policy, new, old), *policy.check_update(new, old)]
        elif kind.custom:
            policy.defaults(new)
            causes += _new_causes(policy, new, old)
        if causes:
            raise invalid(kind, name, causes)
        return new

    def _revise_main(self, kind: Kind, policy: Policy, new: Object, old: Object) -> None:
        policy.defaults(new)
        if kind.status:
            subresources.without_status_change(new, old)
        policy.update(new, old, self)
        if policy.has_generation and _content(new, kind) != _content(old, kind):
            new["metadata"]["generation"] = (old["metadata"].get("generation") or 0) + 1

    def _settle_namespace(self, kind: Kind, namespace: str, obj: Object) -> None:
        check_namespace(kind, namespace, obj)
        if not kind.namespaced:
            return
        found = self.find(NAMESPACES.prefix, namespace)
        if found is None:
            raise not_found(NAMESPACES, namespace)
        if found["metadata"].get("deletionTimestamp"):
            name = obj["metadata"].get("name") or ""
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = Cause("NamespaceTerminating", "metadata.namespace", f"namespace {namespace} is being terminated")
            raise forbidden(kind, name, why, [cause])


def check_namespace(kind: Kind, namespace: str, obj: Object) -> None:
    metadata = obj["metadata"]
    if not kind.namespaced:
        return
    if metadata.get("namespace") not in (None, "", namespace):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    metadata["namespace"] = namespace


def check_same_namespace(kind: Kind, namespace: str, obj: Object) -> None:
    """As `check_namespace`, in the words used for an object that exists."""
    given = obj["metadata"].get("namespace")
    if kind.namespaced and given not in (None, "", namespace):
        message = f"the namespace of the object ({given}) does not match the namespace on the request ({namespace})"
        raise bad_request(message)
    check_namespace(kind, namespace, obj)


def check_name(name: str, obj: Mapping[str, Any]) -> None:
    given = obj["metadata"].get("name")
    if not given:
        message = f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        raise bad_request(message)
    if given != name:
        raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def is_over(obj: Mapping[str, Any]) -> bool:
    """Being deleted, and nothing holds it any more."""
    metadata = obj["metadata"]
    if (
        not metadata.get("deletionTimestamp")
        or metadata.get("finalizers")
        or metadata.get("deletionGracePeriodSeconds")
    ):
        return False
    return obj.get("kind") != "Namespace" or not (obj.get("spec") or {}).get("finalizers")


def _new_causes(policy: Policy, new: Object, old: Mapping[str, Any]) -> list[Cause]:
    """What was stored before a rule existed may stay as it is, or its finalizers could never be removed, nor could its
    controller say in its status what is wrong with it. Of custom resources too, as on Kubernetes since 1.30."""
    causes = policy.check(new)
    known = set(policy.check(old)) if causes else ()
    return [cause for cause in causes if cause not in known]


def _check_metadata(kind: Kind, metadata: Mapping[str, Any], policy: Policy) -> list[Cause]:
    causes = check_metadata(metadata, policy.name_rule, namespaced=kind.namespaced)
    if metadata.get("finalizers") and not kind.custom and kind.group != "apiextensions.k8s.io":
        causes += check_own_finalizers(metadata["finalizers"])
    return causes


def _shown(kind: Kind, entry: Entry) -> Object:
    return entry.value if kind.is_storage_version else shown_as(kind, entry.value)


def _name(metadata: Object) -> None:
    prefix = metadata.get("generateName")
    if prefix and not metadata.get("name"):
        suffix = "".join(secrets.choice(_SUFFIX) for _ in range(5))
        metadata["name"] = f"{prefix[:_LONGEST_PREFIX]}{suffix}"


def _unversioned(obj: Mapping[str, Any]) -> Object:
    return {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}


def _check_conditional(kind: Kind, name: str, obj: Mapping[str, Any]) -> None:
    if not kind.unconditional_update and not obj["metadata"].get("resourceVersion"):
        named = Kind(kind.group, kind.version, kind.plural, kind.plural)
        detail = "Invalid value: 0x0: must be specified for an update"
        raise invalid(named, name, [Cause("FieldValueInvalid", "metadata.resourceVersion", detail)])


def _check_identity(kind: Kind, name: str, new: Mapping[str, Any], old: Mapping[str, Any]) -> None:
    revision, uid = new.get("resourceVersion"), new.get("uid")
    if revision and not str(revision).isdigit():
        raise invalid(kind, name, [Cause("FieldValueInvalid", "metadata.resourceVersion", _bad_revision(revision))])
    if uid and uid != old["uid"]:
        raise invalid(kind, name, [invalid_value("metadata.uid", uid, "field is immutable")] * 2)
    if revision and revision != "0" and revision != old["resourceVersion"]:
        raise conflict(kind, name)


def _check_uid(kind: Kind, name: str, wanted: str | None, held: str) -> None:
    """Whoever replaces an object means the one it read, not one of the same name that came later."""
    if wanted and wanted != held:
        raise conflict(kind, name, f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {held}")


def _bad_revision(revision: Any) -> str:
    return f'Invalid value: {shown(revision)}: strconv.ParseUint: parsing "{revision}": invalid syntax'


def _keep_metadata(new: Object, old: Mapping[str, Any]) -> None:
    """What only the server sets."""
    new["resourceVersion"], new["uid"] = old["resourceVersion"], old["uid"]
    for key in _KEPT_METADATA:
        new.pop(key, None)
        if key in old:
            new[key] = old[key]
    new.pop("selfLink", None)
    if "managedFields" in old:
        new.setdefault("managedFields", old["managedFields"])
    for key in ("labels", "annotations", "finalizers", "ownerReferences"):
        if key in new and not new[key]:
            del new[key]


def _content(obj: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    """What a change of which makes a new generation."""
    ignored = ("metadata", "status") if kind.status or not kind.custom else ("metadata",)
    return {key: value for key, value in obj.items() if key not in ignored}


def _is_same(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    return new == old
