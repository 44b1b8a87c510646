"""Deployments and ReplicaSets: as many pods as asked for, of the current template. `replicas` decides; this does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from trainmaster.cluster.controllers.control import Loop, Objects, Registry, is_terminating, key_of
from trainmaster.cluster.controllers.owned import OwnedPods, controller_reference
from trainmaster.cluster.controllers.recorder import Recorder
from trainmaster.cluster.controllers.replicas import HASH, Plan, hash_of, plan_deployment, plan_replica_set
from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.cluster.storage.store import Change

Json: TypeAlias = Mapping[str, Any]
Planner: TypeAlias = Callable[[Json, Sequence[Json], float], Plan]


def pod_for(owner: Json) -> dict[str, Any]:
    """Of a Deployment `<name>-<hash>-xxxxx`, of a ReplicaSet `<name>-xxxxx`."""
    template, metadata = owner["spec"]["template"], owner["metadata"]
    inner = template.get("metadata") or {}
    labels, prefix = dict(inner.get("labels") or {}), metadata["name"]
    if owner["kind"] == "Deployment":
        labels[HASH] = hash_of(template)
        prefix = f"{prefix}-{labels[HASH]}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{prefix}-",
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": dict(inner.get("annotations") or {}),
            "ownerReferences": [controller_reference(owner)],
        },
        "spec": template["spec"],
    }


class ReplicaKeeper:
    """Of one kind; `deployments` and `replica_sets` make the two there are."""

    def __init__(self, registry: Registry, plural: str, kind: str, plan: Planner, *, now: Callable[[], float]) -> None:
        self._plan = plan
        self._now = now
        self._owners = Objects.of(registry, "apps", "v1", plural)
        self._pods = Objects.of(registry, "", "v1", "pods")
        self._owned = OwnedPods(self._pods, "apps", kind)
        self._recorder = Recorder(registry, f"{kind.lower()}-controller", now=now)
        sources = {self._owners.kind.prefix: self._owner_changed, self._pods.kind.prefix: self._owned.changed}
        self._loop: Loop[str] = Loop(plural, registry.store, sources, self._reconcile)

    async def run(self) -> None:
        await self._loop.run()

    def _owner_changed(self, change: Change) -> Iterator[str]:
        yield change.entry.key

    async def _reconcile(self, key: str) -> float | None:
        owner = self._owners.get(key)
        if owner is None or is_terminating(owner):
            return None
        uid = owner["metadata"]["uid"]
        pods = [pod for pod in self._owned.pods(key) if self._owned.owner_uid(pod) == uid]
        decided = self._plan(owner, pods, self._now())
        if dict(decided.status) != {name: (owner.get("status") or {}).get(name) for name in decided.status}:
            owner = await self._owners.update({**owner, "status": dict(decided.status)}, subresource="status")
        for pod in decided.delete:
            await self._pods.delete(pod)
        for _ in range(decided.create):
            await self._create(owner)
        return decided.wake

    async def _create(self, owner: Json) -> None:
        try:
            pod = await self._pods.create(pod_for(owner))
        except ApiError as error:
            await self._recorder.record(owner, "FailedCreate", f"Error creating: {error.message}", warning=True)
            raise
        self._owned.add(key_of(owner), pod)
        await self._recorder.record(owner, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")


def deployments(registry: Registry, *, now: Callable[[], float]) -> ReplicaKeeper:
    return ReplicaKeeper(registry, "deployments", "Deployment", plan_deployment, now=now)


def replica_sets(registry: Registry, *, now: Callable[[], float]) -> ReplicaKeeper:
    return ReplicaKeeper(registry, "replicasets", "ReplicaSet", plan_replica_set, now=now)
