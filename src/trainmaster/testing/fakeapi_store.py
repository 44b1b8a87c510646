"""The objects behind `fakeapi`, and the rules by which the API server lets them change.

Stored objects are never changed in place: every write makes a new one and is kept in a history, from which watches
are fed. All versions come from one counter, as they do from etcd. Garbage is collected at once, in the course of the
delete that made it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from trainmaster.objects import timestamp
from trainmaster.objects.meta import mutable
from trainmaster.objects.resource import CONFIG_MAPS, EVENTS, LEASES, PODS, PRIORITY_CLASSES, SERVICES, Resource

Object: TypeAlias = dict[str, Any]

WITHOUT_STATUS = frozenset((CONFIG_MAPS, EVENTS, LEASES, PRIORITY_CLASSES))
_OURS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_GRACE = 30


@dataclass(eq=False)
class Refusal(Exception):
    """A no, as a Status object says it."""

    code: int
    reason: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)


class Place(NamedTuple):
    resource: Resource
    namespace: str
    name: str

    def __str__(self) -> str:
        group = f".{self.resource.group}" if self.resource.group else ""
        return f'{self.resource.plural}{group} "{self.name}"'


@dataclass(frozen=True, slots=True)
class Commit:
    version: int
    place: Place
    old: Object | None
    new: Object | None


class Store:
    def __init__(self, clock: Callable[[], float], *, graceful: bool) -> None:
        self._clock = clock
        self._graceful = graceful
        self._objects: dict[Place, Object] = {}
        self._uids = 0
        self._dead: set[str] = set()
        self.version = 0
        self.compacted = 0
        """History begins after this version."""
        self.history: list[Commit] = []
        self.listeners: list[Callable[[Commit], None]] = []

    def get(self, place: Place) -> Object:
        if place not in self._objects:
            raise Refusal(404, "NotFound", f"{place} not found", {"name": place.name, "kind": place.resource.plural})
        return self._objects[place]

    def all(self, resource: Resource, namespace: str = "") -> list[Object]:
        """In etcd's order: by namespace, then by name."""
        places = [place for place in self._objects if place.resource == resource]
        return [self._objects[place] for place in sorted(places) if namespace in ("", place.namespace)]

    def create(self, resource: Resource, namespace: str, body: Object) -> Object:
        new = self._prepared(resource, namespace, body)
        place = Place(resource, namespace, new["metadata"]["name"])
        if place in self._objects:
            raise Refusal(409, "AlreadyExists", f"{place} already exists", {"name": place.name})
        if resource not in WITHOUT_STATUS:
            new.pop("status", None)
        if resource == PODS:
            new["status"] = {"phase": "Pending"}
        if resource == SERVICES and "clusterIP" not in new.setdefault("spec", {}):
            new["spec"]["clusterIP"] = f"10.96.0.{self._uids}"
        stored = self._commit(place, new)
        owners = _owners(stored)
        if owners and owners <= self._dead:
            self.delete(place, {})  # whose owner is gone does not stay: the collector finds it
        return stored

    def put(self, place: Place, body: Object) -> Object:
        """As someone with all rights would: status and all, over whatever was there."""
        given = body["metadata"]
        old = self._objects.get(place)
        if old is not None and given.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            self.remove(place)
            old = None
        ours = (
            self._new_meta(place)
            if old is None
            else {key: old["metadata"][key] for key in _OURS if key in old["metadata"]}
        )
        new = {"apiVersion": place.resource.api_version, "kind": place.resource.kind, **mutable(body)}
        new["metadata"] = {**ours, **new["metadata"]}
        if place.resource.namespaced:
            new["metadata"]["namespace"] = place.namespace
        return self._commit(place, new)

    def update(self, place: Place, body: Object, subresource: str = "") -> Object:
        old = self.get(place)
        given = body.get("metadata") or {}
        version = given.get("resourceVersion", "")
        if given.get("name") != place.name:
            raise Refusal(400, "BadRequest", f"the name of the object does not match {place.name!r} in the URL")
        if not version and "." in place.resource.group and not place.resource.group.endswith(".k8s.io"):
            message = f"{place} is invalid: metadata.resourceVersion: must be specified for an update"
            raise Refusal(422, "Invalid", message)
        return self._replace(place, old, body, subresource)

    def patch(self, place: Place, patch: Object, subresource: str = "") -> Object:
        old = self.get(place)
        merged = merge(old, patch)
        merged["metadata"]["resourceVersion"] = (patch.get("metadata") or {}).get("resourceVersion", "")
        return self._replace(place, old, merged, subresource)

    def delete(self, place: Place, options: Object) -> Object:
        """The object where it is still there or was a pod; otherwise a Status."""
        old = self.get(place)
        _check(place, old, options.get("preconditions") or {})
        grace = self._grace(place, old, options.get("gracePeriodSeconds"))
        doomed = self._marked(old, grace)
        if grace or old["metadata"].get("finalizers"):
            return self._commit(place, doomed)
        self.remove(place, orphan=options.get("propagationPolicy") == "Orphan")
        if place.resource == PODS:
            return doomed
        details = {"name": place.name, "kind": place.resource.plural, "uid": old["metadata"]["uid"]}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    def finish(self, place: Place) -> None:
        """The kubelet's last word on a terminating pod."""
        old = self.get(place)
        if old["metadata"].get("finalizers"):
            self._commit(place, self._marked(old, 0))
        else:
            self.remove(place)

    def remove(self, place: Place, *, orphan: bool = False) -> None:
        uid = self.get(place)["metadata"]["uid"]
        self._commit(place, None)
        self._dead.add(uid)
        for dependent in self._dependents(uid):
            if dependent in self._objects:
                self._collect(dependent, uid, orphan=orphan)

    def compact(self) -> None:
        self.compacted = self.version
        self.history.clear()

    def _dependents(self, uid: str) -> list[Place]:
        return [place for place, item in self._objects.items() if uid in _owners(item)]

    def _collect(self, place: Place, uid: str, *, orphan: bool) -> None:
        """What becomes of an object whose owner is gone: without another one, it goes too."""
        item = self._objects[place]
        if orphan or not _owners(item) <= self._dead:
            others = [owner for owner in item["metadata"]["ownerReferences"] if owner["uid"] != uid]
            self._commit(place, merge(item, {"metadata": {"ownerReferences": others}}))
        elif not item["metadata"].get("deletionTimestamp"):
            self.delete(place, {})

    def _prepared(self, resource: Resource, namespace: str, body: Object) -> Object:
        new = mutable(body)
        given = new.get("metadata") or {}
        if given.get("namespace", namespace) != namespace:
            raise Refusal(400, "BadRequest", "the namespace of the object does not match the namespace on the request")
        if given.get("resourceVersion"):
            raise Refusal(500, "", "resourceVersion should not be set on objects to be created")
        name, prefix = given.get("name"), given.get("generateName")
        if not name and not prefix:
            message = f"{resource.kind} is invalid: metadata.name: name or generateName is required"
            raise Refusal(422, "Invalid", message)
        ours = self._new_meta(Place(resource, namespace, ""))
        new["metadata"] = {**given, **ours, "name": name or f"{prefix}{self._uids:05d}"}
        return {"apiVersion": resource.api_version, "kind": resource.kind, **new}

    def _new_meta(self, place: Place) -> Object:
        self._uids += 1
        meta = {"uid": f"uid-{self._uids}", "creationTimestamp": timestamp.render(self._clock()), "generation": 1}
        return {**meta, "namespace": place.namespace} if place.resource.namespaced else meta

    def _replace(self, place: Place, old: Object, body: Object, subresource: str) -> Object:
        given = body.get("metadata") or {}
        held = {"uid": given.get("uid"), "resourceVersion": given.get("resourceVersion")}
        _check(place, old, held)
        has_status = place.resource not in WITHOUT_STATUS
        if subresource == "status" and has_status:
            new = {**mutable(old), "status": mutable(body).get("status") or {}}
        elif subresource:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        else:
            new = self._with_our_fields(old, mutable(body), keep_status=has_status)
        if _content(new) == _content(old):
            return old  # nothing to write, as with etcd: no version, no event
        stored = self._commit(place, new)
        self._end_if_released(place, stored)
        return stored

    def _with_our_fields(self, old: Object, new: Object, *, keep_status: bool) -> Object:
        """What a writer of the object may not change stays."""
        for key in _OURS:
            new["metadata"].pop(key, None)
            if key in old["metadata"]:
                new["metadata"][key] = old["metadata"][key]
        if "namespace" in old["metadata"]:
            new["metadata"]["namespace"] = old["metadata"]["namespace"]
        if keep_status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        new = {"apiVersion": old["apiVersion"], "kind": old["kind"], **new}
        if _spec(new) != _spec(old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        return new

    def _end_if_released(self, place: Place, stored: Object) -> None:
        meta = stored["metadata"]
        is_over = meta.get("deletionTimestamp") and not meta.get("deletionGracePeriodSeconds")
        if is_over and not meta.get("finalizers"):
            self.remove(place)

    def _grace(self, place: Place, old: Object, asked: int | None) -> int:
        """Seconds until a pod's end; none for what no kubelet holds."""
        is_held = old.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        if place.resource != PODS or not self._graceful or not is_held:
            return 0
        wanted = old.get("spec", {}).get("terminationGracePeriodSeconds", _GRACE) if asked is None else asked
        return min(int(wanted), int(old["metadata"].get("deletionGracePeriodSeconds", wanted)))

    def _marked(self, old: Object, grace: int) -> Object:
        marked = mutable(old)
        meta = marked["metadata"]
        if "deletionTimestamp" not in meta:
            meta["generation"] = meta.get("generation", 0) + 1
        meta.setdefault("deletionTimestamp", timestamp.render(self._clock() + grace))
        meta["deletionGracePeriodSeconds"] = grace
        return marked

    def _commit(self, place: Place, new: Object | None) -> Object:
        old = self._objects.pop(place, None)
        if new is not None and old is not None and _content(new) == _content(old):
            self._objects[place] = old
            return old
        self.version += 1
        if new is not None:
            new["metadata"]["resourceVersion"] = str(self.version)
            self._objects[place] = new
        commit = Commit(self.version, place, old, new)
        self.history.append(commit)
        for listener in self.listeners:
            listener(commit)
        return new or {}


def merge(old: Object, patch: Mapping[str, Any]) -> Object:
    """A JSON merge patch (RFC 7386): null removes, objects merge, everything else replaces."""
    new = mutable(old)
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        elif isinstance(value, Mapping):
            held = new.get(key)
            new[key] = merge(held if isinstance(held, dict) else {}, value)
        else:
            new[key] = value
    return new


def _check(place: Place, old: Object, preconditions: Mapping[str, Any]) -> None:
    held = old["metadata"]
    uid, version = preconditions.get("uid"), preconditions.get("resourceVersion")
    if uid and uid != held["uid"]:
        said = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {held['uid']}"
    elif version and version != held["resourceVersion"]:
        said = "the object has been modified; please apply your changes to the latest version and try again"
    else:
        return
    message = f"Operation cannot be fulfilled on {place}: {said}"
    raise Refusal(409, "Conflict", message, {"name": place.name, "kind": place.resource.plural})


def _owners(item: Object) -> set[str]:
    return {owner["uid"] for owner in item["metadata"].get("ownerReferences") or ()}


def _content(item: Object) -> Object:
    return {**item, "metadata": {**item["metadata"], "resourceVersion": ""}}


def _spec(item: Object) -> Object:
    return {key: value for key, value in item.items() if key not in ("metadata", "status")}
