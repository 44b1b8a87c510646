"""Which pods a Deployment or ReplicaSet should have. Pure; `workloads` carries it out.

A Deployment keeps its pods itself, without ReplicaSets in between: pods carry the hash of the template they were made
from (`pod-template-hash`), and those of an older template are replaced within maxSurge and maxUnavailable, or all at
once with strategy Recreate. There is no history to roll back to: apply the earlier manifest instead.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from trainmaster.cluster.controllers.control import is_terminating
from trainmaster.objects import timestamp

Json: TypeAlias = Mapping[str, Any]

HASH = "pod-template-hash"


@dataclass(frozen=True, slots=True)
class Plan:
    status: Json
    delete: tuple[Json, ...] = ()
    create: int = 0
    wake: float | None = None


def hash_of(template: Json) -> str:
    """Ten characters that differ for different templates, of those that may stand in a label."""
    digest = hashlib.sha256(msgspec.json.encode(template, order="deterministic")).digest()
    return "".join("bcdfghjklmnpqrstvwxz2456789"[byte % 27] for byte in digest[:10])


def is_over(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_ready(pod: Json) -> bool:
    return _ready_since(pod) is not None


def _ready_since(pod: Json) -> float | None:
    for each in (pod.get("status") or {}).get("conditions") or ():
        if each.get("type") == "Ready" and each.get("status") == "True":
            return timestamp.parse(each.get("lastTransitionTime")) or 0.0
    return None


def available_in(pod: Json, seconds: float, now: float) -> float | None:
    """Seconds until it has been ready for long enough, 0 if it has; None if it is not ready."""
    since = _ready_since(pod)
    return None if since is None else max(0.0, since + seconds - now) if seconds else 0.0


def plan_deployment(deployment: Json, pods: Sequence[Json], now: float) -> Plan:
    spec = deployment["spec"]
    current = hash_of(spec["template"])
    held = [pod for pod in pods if not is_terminating(pod)]
    alive = [pod for pod in held if not is_over(pod)]
    is_new = {pod["metadata"]["uid"]: spec.get("paused") or _hash(pod) == current for pod in alive}
    new = [pod for pod in alive if is_new[pod["metadata"]["uid"]]]
    old = [pod for pod in alive if not is_new[pod["metadata"]["uid"]]]
    waits, available = _availability(alive, spec.get("minReadySeconds") or 0, now)
    wanted = spec.get("replicas", 1)
    if (spec.get("strategy") or {}).get("type") == "Recreate":
        ending = [pod for pod in pods if is_terminating(pod) and _hash(pod) != current]
        create = 0 if old or ending else max(0, wanted - len(new))
        replaced: list[Json] = old
    else:
        surge, missing = _bounds(spec, wanted)
        create = max(0, min(wanted - len(new), wanted + surge - len(alive)))
        replaced = _replaceable(new, old, available, wanted - missing)
    surplus = _least_useful(new)[: max(0, len(new) - wanted)]
    finished = [pod for pod in held if is_over(pod)]
    status = _deployment_status(deployment, new, alive, available, now)
    return Plan(status, (*finished, *surplus, *replaced), create, min(waits, default=None))


def plan_replica_set(replica_set: Json, pods: Sequence[Json], now: float) -> Plan:
    spec = replica_set["spec"]
    held = [pod for pod in pods if not is_terminating(pod)]
    alive = [pod for pod in held if not is_over(pod)]
    waits, available = _availability(alive, spec.get("minReadySeconds") or 0, now)
    wanted = spec.get("replicas", 1)
    labels = spec["template"].get("metadata", {}).get("labels", {}).items()
    status = {
        "replicas": len(alive),
        "fullyLabeledReplicas": sum(labels <= pod["metadata"].get("labels", {}).items() for pod in alive),
        "readyReplicas": sum(is_ready(pod) for pod in alive),
        "availableReplicas": len(available),
        "observedGeneration": replica_set["metadata"].get("generation", 1),
    }
    finished = [pod for pod in held if is_over(pod)]
    surplus = _least_useful(alive)[: max(0, len(alive) - wanted)]
    return Plan(status, (*finished, *surplus), max(0, wanted - len(alive)), min(waits, default=None))


def _hash(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get(HASH, ""))


def _availability(pods: Iterable[Json], seconds: float, now: float) -> tuple[list[float], set[str]]:
    """How long to wait for those that will be available, and the uids of those that are."""
    found = {pod["metadata"]["uid"]: available_in(pod, seconds, now) for pod in pods}
    return [wait for wait in found.values() if wait], {uid for uid, wait in found.items() if wait == 0}


def _bounds(spec: Json, wanted: int) -> tuple[int, int]:
    """How many pods there may be too many, and too few, while replacing."""
    rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
    surge = _share(rolling.get("maxSurge", "25%"), wanted, up=True)
    missing = _share(rolling.get("maxUnavailable", "25%"), wanted, up=False)
    return surge, missing if surge or missing else 1


def _share(value: object, whole: int, *, up: bool) -> int:
    if isinstance(value, str) and value.endswith("%"):
        part = int(value[:-1]) * whole / 100
        return math.ceil(part) if up else math.floor(part)
    return int(str(value))


def _replaceable(new: list[Json], old: list[Json], available: set[str], least: int) -> list[Json]:
    """Old pods that can go now: broken ones first, good ones only while enough others serve."""
    unready = [pod for pod in new if pod["metadata"]["uid"] not in available]
    budget = max(0, len(new) + len(old) - least - len(unready))
    broken = [pod for pod in old if pod["metadata"]["uid"] not in available][:budget]
    good = [pod for pod in old if pod["metadata"]["uid"] in available]
    return broken + good[: budget - len(broken)]


def _least_useful(pods: list[Json]) -> list[Json]:
    def usefulness(pod: Json) -> tuple[bool, bool, float]:
        created = timestamp.parse(pod["metadata"].get("creationTimestamp")) or 0.0
        return bool((pod.get("spec") or {}).get("nodeName")), is_ready(pod), -created

    return sorted(pods, key=usefulness)


def _deployment_status(
    deployment: Json, new: list[Json], alive: list[Json], available: set[str], now: float
) -> dict[str, Any]:
    spec, before = deployment["spec"], deployment.get("status") or {}
    wanted = spec.get("replicas", 1)
    enough = len(available) >= wanted - _bounds(spec, wanted)[1]
    done = len(new) == len(alive) == wanted and len(available) == wanted
    conditions = [
        _condition("Available", enough, *_AVAILABLE[enough], before, now),
        _condition("Progressing", True, *_PROGRESSING[done], before, now),
    ]
    return {
        "observedGeneration": deployment["metadata"].get("generation", 1),
        "replicas": len(alive),
        "updatedReplicas": len(new),
        "readyReplicas": sum(is_ready(pod) for pod in alive),
        "availableReplicas": len(available),
        "unavailableReplicas": max(0, max(wanted, len(alive)) - len(available)),
        "conditions": conditions,
    }


_AVAILABLE = {
    True: ("MinimumReplicasAvailable", "Deployment has minimum availability."),
    False: ("MinimumReplicasUnavailable", "Deployment does not have minimum availability."),
}
_PROGRESSING = {
    True: ("NewReplicaSetAvailable", "All pods are of the current template and available."),
    False: ("ReplicaSetUpdated", "Pods are being replaced."),
}


def _condition(type_: str, value: bool, reason: str, message: str, before: Json, now: float) -> dict[str, Any]:
    """Times stay as they were while nothing changes, so that a status without news is not written."""
    made = {"type": type_, "status": str(value), "reason": reason, "message": message}
    known: Json = next((each for each in before.get("conditions") or () if each["type"] == type_), {})
    moment = timestamp.render(now)
    if all(known.get(name) == text for name, text in made.items()):
        return dict(known)
    since = known.get("lastTransitionTime") if known.get("status") == made["status"] else None
    return {**made, "lastUpdateTime": moment, "lastTransitionTime": since or moment}
