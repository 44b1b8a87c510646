"""Pods by the controller that owns them, for controllers of one kind.

Fed by the controller's loop, and told of a pod by whoever created it: the loop hears of it a moment later, and a pass
in between would create it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainmaster.cluster.controllers.control import Objects, key_of
from trainmaster.cluster.storage.store import Change


class OwnedPods:
    """Of owners of one kind, by the owner's `namespace/name`; whether the uid fits is for the caller to check."""

    def __init__(self, pods: Objects, group: str, kind: str) -> None:
        self._pods = pods
        self._group = group
        self._kind = kind
        self._by_owner: dict[str, set[str]] = {}

    def changed(self, change: Change) -> Iterator[str]:
        """A loop's source: the owners this pod has or had."""
        for entry in (change.entry, change.previous):
            owner = self._owner(entry.value) if entry is not None else None
            if owner is not None:
                self._by_owner.setdefault(owner, set()).add(change.entry.key)
                yield owner

    def add(self, owner: str, pod: Mapping[str, Any]) -> None:
        self._by_owner.setdefault(owner, set()).add(key_of(pod))

    def pods(self, owner: str) -> list[dict[str, Any]]:
        """Those that are there now, by name; what has gone or changed hands is forgotten on the way."""
        keys = self._by_owner.get(owner, set())
        found = {key: self._pods.get(key) for key in sorted(keys)}
        present = {key: pod for key, pod in found.items() if pod is not None and self._owner(pod) == owner}
        if present:
            self._by_owner[owner] = set(present)
        else:
            self._by_owner.pop(owner, None)
        return list(present.values())

    def owner_uid(self, pod: Mapping[str, Any]) -> str:
        reference = self._reference(pod)
        return str(reference.get("uid", "")) if reference else ""

    def _owner(self, pod: Mapping[str, Any]) -> str | None:
        reference = self._reference(pod)
        return f"{pod['metadata']['namespace']}/{reference['name']}" if reference else None

    def _reference(self, pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
        for reference in pod["metadata"].get("ownerReferences") or ():
            group = str(reference.get("apiVersion", "")).rpartition("/")[0]
            if reference.get("controller") and (group, reference.get("kind")) == (self._group, self._kind):
                return dict(reference)
        return None


def controller_reference(owner: Mapping[str, Any]) -> dict[str, Any]:
    """For the metadata of a pod: this one manages it, and waits for it when deleted in the foreground."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
