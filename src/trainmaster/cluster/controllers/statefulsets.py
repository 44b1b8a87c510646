"""StatefulSets: pods with a number, a name and volumes of their own.

Pods are `<name>-0`, `<name>-1`… With OrderedReady one is made when all before it are ready, and the last one goes
first; with Parallel nobody waits. Pods of an older template are replaced from the last to the partition, one at a time,
unless the strategy is OnDelete. Claims made from volumeClaimTemplates stay when pods go. `plan` is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from trainmaster.cluster.controllers.control import Loop, Objects, Registry, is_terminating, key_of
from trainmaster.cluster.controllers.owned import OwnedPods, controller_reference
from trainmaster.cluster.controllers.recorder import Recorder
from trainmaster.cluster.controllers.replicas import hash_of, is_over, is_ready
from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.cluster.storage.store import Change

Json: TypeAlias = Mapping[str, Any]

REVISION = "controller-revision-hash"
POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"


@dataclass(frozen=True, slots=True)
class Plan:
    status: Json
    delete: tuple[Json, ...] = ()
    create: tuple[int, ...] = ()


def revision_of(stateful_set: Json) -> str:
    return f"{stateful_set['metadata']['name']}-{hash_of(stateful_set['spec']['template'])}"


def ordinal_of(pod: Json, name: str) -> int | None:
    prefix, _, number = str(pod["metadata"]["name"]).rpartition("-")
    return int(number) if prefix == name and number.isdigit() else None


def plan(stateful_set: Json, pods: Sequence[Json]) -> Plan:
    spec, name = stateful_set["spec"], stateful_set["metadata"]["name"]
    first = (spec.get("ordinals") or {}).get("start", 0)
    wanted = range(first, first + spec.get("replicas", 1))
    held = {ordinal: pod for pod in pods if (ordinal := ordinal_of(pod, name)) is not None}
    status = _status(stateful_set, list(held.values()))
    one_by_one = spec.get("podManagementPolicy", "OrderedReady") != "Parallel"
    # A pod that ended, or that is on its way out, still has the name: the next one has to wait for it.
    over = [pod for pod in held.values() if is_over(pod) and not is_terminating(pod)]
    missing = [ordinal for ordinal in wanted if ordinal not in held]
    surplus = [held[ordinal] for ordinal in sorted(held, reverse=True) if ordinal not in wanted]
    if not one_by_one:
        delete = [pod for pod in (*over, *surplus) if not is_terminating(pod)]
        return Plan(status, (*delete, *_outdated(stateful_set, held, wanted, missing)), tuple(missing))
    if over:
        return Plan(status, tuple(over))
    blocked = _first_unready(held, wanted)
    if missing and (blocked is None or missing[0] < blocked):
        return Plan(status, create=(missing[0],))
    if blocked is not None and not _is_stuck_and_outdated(stateful_set, held[blocked], blocked):
        return Plan(status)
    if surplus:
        return Plan(status, () if is_terminating(surplus[0]) else (surplus[0],))
    return Plan(status, _outdated(stateful_set, held, wanted, missing))


def _first_unready(held: Mapping[int, Json], wanted: range) -> int | None:
    unready = (n for n in wanted if n in held and (is_terminating(held[n]) or not is_ready(held[n])))
    return next(unready, None)


def _is_stuck_and_outdated(stateful_set: Json, pod: Json, ordinal: int) -> bool:
    """A broken pod of an older template must not keep its own repair from being rolled out."""
    return not is_terminating(pod) and _is_outdated(stateful_set, pod, ordinal)


def _is_outdated(stateful_set: Json, pod: Json, ordinal: int) -> bool:
    strategy = stateful_set["spec"].get("updateStrategy") or {}
    partition = (strategy.get("rollingUpdate") or {}).get("partition") or 0
    if strategy.get("type") == "OnDelete" or ordinal < partition:
        return False
    return (pod["metadata"].get("labels") or {}).get(REVISION) != revision_of(stateful_set)


def _outdated(stateful_set: Json, held: Mapping[int, Json], wanted: range, missing: Sequence[int]) -> tuple[Json, ...]:
    """The next pod to replace, if all that were replaced before are ready again."""
    if missing:
        return ()
    for ordinal in reversed(wanted):
        pod = held[ordinal]
        if is_terminating(pod):
            return ()
        if _is_outdated(stateful_set, pod, ordinal):
            return (pod,)
        if not is_ready(pod):
            return ()
    return ()


def _status(stateful_set: Json, pods: list[Json]) -> dict[str, Any]:
    revision = revision_of(stateful_set)
    alive = [pod for pod in pods if not is_terminating(pod)]
    updated = sum((pod["metadata"].get("labels") or {}).get(REVISION) == revision for pod in alive)
    ready = sum(is_ready(pod) for pod in alive)
    is_done = updated == len(alive) == stateful_set["spec"].get("replicas", 1)
    before = (stateful_set.get("status") or {}).get("currentRevision", revision)
    current = revision if is_done or not before else before
    return {
        "observedGeneration": stateful_set["metadata"].get("generation", 1),
        "replicas": len(pods),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "currentReplicas": updated if current == revision else len(alive) - updated,
        "updatedReplicas": updated,
        "currentRevision": current,
        "updateRevision": revision,
        "collisionCount": 0,
    }


def pod_for(stateful_set: Json, ordinal: int) -> dict[str, Any]:
    spec, metadata = stateful_set["spec"], stateful_set["metadata"]
    template, name = spec["template"], f"{metadata['name']}-{ordinal}"
    inner = template.get("metadata") or {}
    labels = {REVISION: revision_of(stateful_set), POD_NAME: name, POD_INDEX: str(ordinal)}
    claims = {each["metadata"]["name"]: f"{each['metadata']['name']}-{name}" for each in _claim_templates(spec)}
    volumes = [each for each in template["spec"].get("volumes") or () if each["name"] not in claims]
    volumes += [{"name": volume, "persistentVolumeClaim": {"claimName": claim}} for volume, claim in claims.items()]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": {**(inner.get("labels") or {}), **labels},
            "annotations": dict(inner.get("annotations") or {}),
            "ownerReferences": [controller_reference(stateful_set)],
        },
        "spec": {
            **template["spec"],
            "hostname": name,
            **({"subdomain": spec["serviceName"]} if spec.get("serviceName") else {}),
            **({"volumes": volumes} if volumes else {}),
        },
    }


def claims_for(stateful_set: Json, ordinal: int) -> list[dict[str, Any]]:
    metadata = stateful_set["metadata"]
    labels = (stateful_set["spec"].get("selector") or {}).get("matchLabels") or {}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": f"{each['metadata']['name']}-{metadata['name']}-{ordinal}",
                "namespace": metadata["namespace"],
                "labels": {**(each["metadata"].get("labels") or {}), **labels},
                "annotations": dict(each["metadata"].get("annotations") or {}),
            },
            "spec": each.get("spec") or {},
        }
        for each in _claim_templates(stateful_set["spec"])
    ]


def _claim_templates(spec: Json) -> list[Json]:
    return list(spec.get("volumeClaimTemplates") or ())


class StatefulSetKeeper:
    def __init__(self, registry: Registry, *, now: Callable[[], float]) -> None:
        self._sets = Objects.of(registry, "apps", "v1", "statefulsets")
        self._pods = Objects.of(registry, "", "v1", "pods")
        self._claims = Objects.of(registry, "", "v1", "persistentvolumeclaims")
        self._owned = OwnedPods(self._pods, "apps", "StatefulSet")
        self._recorder = Recorder(registry, "statefulset-controller", now=now)
        sources = {self._sets.kind.prefix: self._set_changed, self._pods.kind.prefix: self._owned.changed}
        self._loop: Loop[str] = Loop("statefulsets", registry.store, sources, self._reconcile)

    async def run(self) -> None:
        await self._loop.run()

    def _set_changed(self, change: Change) -> Iterator[str]:
        yield change.entry.key

    async def _reconcile(self, key: str) -> None:
        stateful_set = self._sets.get(key)
        if stateful_set is None or is_terminating(stateful_set):
            return
        uid = stateful_set["metadata"]["uid"]
        decided = plan(stateful_set, [pod for pod in self._owned.pods(key) if self._owned.owner_uid(pod) == uid])
        if decided.status != stateful_set.get("status"):
            changed = {**stateful_set, "status": dict(decided.status)}
            stateful_set = await self._sets.update(changed, subresource="status")
        for pod in decided.delete:
            await self._pods.delete(pod)
        for ordinal in decided.create:
            await self._create(stateful_set, ordinal)

    async def _create(self, stateful_set: Json, ordinal: int) -> None:
        name = f"{stateful_set['metadata']['name']}-{ordinal}"
        try:
            for claim in claims_for(stateful_set, ordinal):
                if self._claims.get(key_of(claim)) is None:
                    await self._claims.create(claim)
            pod = await self._pods.create(pod_for(stateful_set, ordinal))
        except ApiError as error:
            message = f"create Pod {name} in StatefulSet failed: {error.message}"
            await self._recorder.record(stateful_set, "FailedCreate", message, warning=True)
            raise
        self._owned.add(key_of(stateful_set), pod)
        message = f"create Pod {name} in StatefulSet {stateful_set['metadata']['name']} successful"
        await self._recorder.record(stateful_set, "SuccessfulCreate", message)
