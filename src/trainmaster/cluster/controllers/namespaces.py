"""Namespaces get what every pod expects to find in them, and are emptied when they are deleted.

An active namespace has the ServiceAccount `default` and the ConfigMap `kube-root-ca.crt`, also after somebody deleted
them. A terminating one is kept by its spec finalizer `kubernetes`; all it contains is deleted in the background, and
once the last object is gone (pods take their time, other finalizers too) the finalizer is taken off. Until then its
conditions say what remains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from trainmaster.cluster.controllers.control import Loop, Objects, Registry, is_terminating
from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.cluster.storage.store import ALL, Change
from trainmaster.objects import timestamp

FINALIZER = "kubernetes"
ROOT_CA = "kube-root-ca.crt"

_PREFIX = "/namespaces"
_SUPPLIED = {("/serviceaccounts", "default"), ("/configmaps", ROOT_CA)}


def supplies(name: str, ca: str) -> list[tuple[str, dict[str, Any]]]:
    """What a namespace must have: plural and object."""
    return [
        ("serviceaccounts", {"metadata": {"name": "default", "namespace": name}}),
        ("configmaps", {"metadata": {"name": ROOT_CA, "namespace": name}, "data": {"ca.crt": ca}}),
    ]


def conditions_of(contents: Iterable[tuple[str, Mapping[str, Any]]], now: float) -> list[dict[str, Any]]:
    """Why a namespace is still there, from the resources (`pods`, `pytorchjobs.kubeflow.org`) it still has."""
    listed = list(contents)
    resources = Counter(resource for resource, _ in listed)
    finalizers = Counter(each for _, obj in listed for each in obj["metadata"].get("finalizers") or ())
    remaining = ", ".join(f"{resource} has {count} resource instances" for resource, count in sorted(resources.items()))
    blocking = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
    return [
        _condition(
            "NamespaceContentRemaining",
            f"Some resources are remaining: {remaining}" if resources else "",
            "SomeResourcesRemain" if resources else "ContentRemoved",
            "All content successfully removed",
            now,
        ),
        _condition(
            "NamespaceFinalizersRemaining",
            f"Some content in the namespace has finalizers remaining: {blocking}" if finalizers else "",
            "SomeFinalizersRemain" if finalizers else "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
            now,
        ),
    ]


def _condition(type_: str, problem: str, reason: str, otherwise: str, now: float) -> dict[str, Any]:
    return {
        "type": type_,
        "status": "True" if problem else "False",
        "lastTransitionTime": timestamp.render(now),
        "reason": reason,
        "message": problem or otherwise,
    }


def with_conditions(namespace: Mapping[str, Any], conditions: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The namespace with these conditions beside its others; None if it says so already, times apart."""
    status = namespace.get("status") or {}
    before = status.get("conditions") or []
    types = {condition["type"] for condition in conditions}
    if {_words(each) for each in before if each["type"] in types} == {_words(each) for each in conditions}:
        return None
    kept = [each for each in before if each["type"] not in types]
    return {**namespace, "status": {**status, "conditions": [*kept, *conditions]}}


def _words(condition: Mapping[str, Any]) -> tuple[object, ...]:
    return tuple(condition.get(name) for name in ("type", "status", "reason", "message"))


class NamespaceKeeper:
    """`ca` is the certificate, in PEM, by which pods may trust the API server."""

    def __init__(self, registry: Registry, *, ca: str, now: Callable[[], float]) -> None:
        self._registry = registry
        self._ca = ca
        self._now = now
        self._namespaces = Objects.of(registry, "", "v1", "namespaces")
        self._loop: Loop[str] = Loop("namespaces", registry.store, {ALL: self._concerned}, self._reconcile)

    async def run(self) -> None:
        await self._loop.run()

    def _concerned(self, change: Change) -> Iterator[str]:
        if change.prefix == _PREFIX:
            if change.type != "DELETED":
                yield change.entry.key
            return
        name, _, inner = change.entry.key.rpartition("/")
        namespace = self._namespaces.get(name) if name and change.type != "MODIFIED" else None
        if namespace is None:
            return
        is_missed = change.type == "DELETED" and (change.prefix, inner) in _SUPPLIED
        if is_missed or is_terminating(namespace):
            yield name

    async def _reconcile(self, name: str) -> None:
        namespace = self._namespaces.get(name)
        if namespace is None:
            return
        if is_terminating(namespace):
            await self._empty(namespace)
        else:
            await self._supply(name)

    async def _supply(self, name: str) -> None:
        for plural, obj in supplies(name, self._ca):
            objects = Objects.of(self._registry, "", "v1", plural)
            there = objects.get(f"{name}/{obj['metadata']['name']}")
            if there is None:
                await _create(objects, obj)
            elif "data" in obj and there.get("data") != obj["data"]:
                await objects.update({**there, "data": obj["data"]})

    async def _empty(self, namespace: Mapping[str, Any]) -> None:
        name = namespace["metadata"]["name"]
        for objects, obj in list(self._contents(name)):
            if not is_terminating(obj):
                await objects.delete(obj)
        remaining = [(_resource(objects), obj) for objects, obj in self._contents(name)]
        current = self._namespaces.get(name)
        if current is None:
            return
        changed = with_conditions(current, conditions_of(remaining, self._now()))
        if changed is not None and remaining:
            await self._namespaces.update(changed, subresource="status")
        elif not remaining:
            await self._finalize(current)

    async def _finalize(self, namespace: Mapping[str, Any]) -> None:
        kept = [each for each in namespace.get("spec", {}).get("finalizers") or () if each != FINALIZER]
        spec = {**namespace.get("spec", {}), "finalizers": kept}
        await self._namespaces.update({**namespace, "spec": spec}, subresource="finalize")

    def _contents(self, name: str) -> Iterator[tuple[Objects, dict[str, Any]]]:
        """Everything inside, pods last: what makes new pods is gone before they are."""
        kinds = {kind.prefix: kind for kind in reversed(list(self._registry.kinds)) if kind.namespaced}
        for prefix in sorted(kinds, key=lambda prefix: (prefix == "/pods", prefix)):
            objects = Objects(self._registry, kinds[prefix])
            for obj in objects.list(name):
                yield objects, obj


async def _create(objects: Objects, obj: dict[str, Any]) -> None:
    try:
        await objects.create(obj)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


def _resource(objects: Objects) -> str:
    kind = objects.kind
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural
