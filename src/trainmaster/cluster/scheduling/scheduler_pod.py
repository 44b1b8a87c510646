"""Pods and nodes as the scheduler reads them: parsed once per stored version, then only compared and added.

Amounts are whole billionths of a unit. That is the finest Kubernetes keeps (it rounds up what is finer), so sums and
comparisons are exact and still plain integer arithmetic: a pass over 1,000 pods makes some 100,000 of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from trainmaster.objects import quantity
from trainmaster.objects.meta import Json, encode

Amounts: TypeAlias = Mapping[str, int]
HostPort: TypeAlias = tuple[str, str, int]

NANO = 10**9
PODS = "pods"
GROUP_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
TASK_ANNOTATION = "volcano.sh/task-spec"

_BYTES = frozenset(("memory", "ephemeral-storage"))
_BINARY = tuple((name, 1024**power) for power, name in ((5, "Pi"), (4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")))


@dataclass(frozen=True, slots=True)
class Pod:
    """`need` includes one of `pods`, the slots a node has. `shape` is equal for pods that fit the same nodes,
    as long as nobody's affinity looks at their labels."""

    key: str
    uid: str
    namespace: str
    name: str
    created: str
    labels: Mapping[str, str]
    node: str
    phase: str
    is_terminating: bool
    is_gated: bool
    priority: int
    scheduler: str
    group_annotation: str
    group_label: str
    task: str
    need: Amounts
    ports: frozenset[HostPort]
    claims: tuple[str, ...]
    selector: Mapping[str, str]
    tolerations: tuple[Json, ...]
    affinity: Mapping[str, Json]
    spread: tuple[Json, ...]
    shape: bytes

    @property
    def is_finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def is_waiting(self) -> bool:
        """Whether the scheduler has something to do for it."""
        return not (self.node or self.is_finished or self.is_terminating or self.is_gated)

    @property
    def holds_room(self) -> bool:
        return bool(self.node) and not self.is_finished


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    labels: Mapping[str, str]
    taints: tuple[Json, ...]
    is_cordoned: bool
    is_ready: bool
    allocatable: Amounts


def pod_of(obj: Json) -> Pod:
    metadata, spec, status = obj["metadata"], mapping(obj, "spec"), mapping(obj, "status")
    annotations, labels = mapping(metadata, "annotations"), mapping(metadata, "labels")
    namespace, name = str(metadata.get("namespace", "")), str(metadata["name"])
    need, affinity = need_of(spec), mapping(spec, "affinity")
    selector, tolerations = mapping(spec, "nodeSelector"), tuple(mappings(spec, "tolerations"))
    ports, claims = host_ports_of(spec), _claims_of(spec, name)
    spread = tuple(mappings(spec, "topologySpreadConstraints"))
    return Pod(
        key=f"{namespace}/{name}",
        uid=str(metadata.get("uid", "")),
        namespace=namespace,
        name=name,
        created=str(metadata.get("creationTimestamp") or ""),
        labels=labels,
        node=str(spec.get("nodeName") or ""),
        phase=str(status.get("phase") or "Pending"),
        is_terminating=metadata.get("deletionTimestamp") is not None,
        is_gated=bool(spec.get("schedulingGates")),
        priority=spec.get("priority") or 0,
        scheduler=str(spec.get("schedulerName") or ""),
        group_annotation=next((annotations[key] for key in GROUP_ANNOTATIONS if annotations.get(key)), ""),
        group_label=labels.get(GROUP_LABEL) or "",
        task=annotations.get(TASK_ANNOTATION) or "",
        need=need,
        ports=ports,
        claims=claims,
        selector=selector,
        tolerations=tolerations,
        affinity=affinity,
        spread=spread,
        shape=encode([namespace, need, selector, tolerations, affinity, spread, sorted(ports), claims]),
    )


def node_of(obj: Json) -> Node:
    spec, status = mapping(obj, "spec"), mapping(obj, "status")
    ready = next((c for c in mappings(status, "conditions") if c.get("type") == "Ready"), {"status": "True"})
    return Node(
        name=str(obj["metadata"]["name"]),
        labels=mapping(obj["metadata"], "labels"),
        taints=tuple(mappings(spec, "taints")),
        is_cordoned=bool(spec.get("unschedulable")),
        is_ready=ready.get("status") == "True",
        allocatable=amounts_of(mapping(status, "allocatable") or mapping(status, "capacity")),
    )


def need_of(spec: Json) -> dict[str, int]:
    """What a pod takes from its node: its containers together, or its largest init container, and its overhead.

    An init container with restartPolicy Always keeps running beside everything that starts after it.
    """
    beside: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in mappings(spec, "initContainers"):
        asked = _requests_of(container)
        if container.get("restartPolicy") == "Always":
            beside = plus(beside, asked)
            asked = {}
        peak = _larger(peak, plus(beside, asked))
    running = plus(beside, *(_requests_of(container) for container in mappings(spec, "containers")))
    need = {**_larger(peak, running), **_requests_of(spec)}  # requests of the whole pod replace the sums
    return {**plus(need, amounts_of(mapping(spec, "overhead"))), PODS: NANO}


def host_ports_of(spec: Json) -> frozenset[HostPort]:
    """Ports taken on the node itself; with hostNetwork every container port is one."""
    is_host = bool(spec.get("hostNetwork"))
    ports = [port for container in mappings(spec, "containers") for port in mappings(container, "ports")]
    numbered = ((port, port.get("hostPort") or (port.get("containerPort") if is_host else 0)) for port in ports)
    return frozenset(
        (str(port.get("hostIP") or "0.0.0.0"), str(port.get("protocol") or "TCP"), int(number))
        for port, number in numbered
        if number
    )


def amounts_of(resources: Json) -> dict[str, int]:
    return {name: amount for name, text in resources.items() if (amount := _nano(str(text)))}


def plus(*parts: Amounts) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def total_of(pods: Iterable[Pod]) -> dict[str, int]:
    return plus(*(pod.need for pod in pods))


def show(name: str, amount: int, *, up: bool = False) -> str:
    """`1.5`, `3Gi`: two decimals at most, rounded down, or up for what is asked, so that too little looks it."""
    unit, suffix = 1, ""
    if name in _BYTES:
        suffix, unit = next(((suffix, unit) for suffix, unit in _BINARY if abs(amount) >= unit * NANO), ("", 1))
    step = unit * NANO // 100
    hundredths = -(-amount // step) if up else amount // step
    return f"{hundredths / 100:.2f}".rstrip("0").rstrip(".") + suffix


def show_needs(need: Amounts) -> str:
    """`6 cpu, 3Gi, 2 nvidia.com/gpu`; cpu and memory first, slots of pods not at all."""
    ranked = sorted((name for name in need if name != PODS), key=lambda name: (name != "cpu", name != "memory", name))
    return ", ".join(
        show(name, need[name], up=True) + ("" if name == "memory" else f" {name}") for name in ranked if need[name]
    )


@lru_cache(maxsize=4096)
def _nano(text: str) -> int:
    """Zero for what is no quantity: the API server has refused it where it matters."""
    try:
        value = quantity.parse(text)
    except ValueError:
        return 0
    return -(-value.numerator * NANO // value.denominator)


def _requests_of(container: Json) -> dict[str, int]:
    """Requests, and limits where a resource has no request, as Kubernetes defaults them."""
    resources = mapping(container, "resources")
    return amounts_of({**mapping(resources, "limits"), **mapping(resources, "requests")})


def _larger(a: Amounts, b: Amounts) -> dict[str, int]:
    return {name: max(a.get(name, 0), b.get(name, 0)) for name in (*a, *b)}


def _claims_of(spec: Json, pod: str) -> tuple[str, ...]:
    claims = []
    for volume in mappings(spec, "volumes"):
        claim = volume.get("persistentVolumeClaim")
        if isinstance(claim, Mapping) and claim.get("claimName"):
            claims.append(str(claim["claimName"]))
        elif volume.get("ephemeral"):
            claims.append(f"{pod}-{volume.get('name')}")
    return tuple(claims)


def mapping(obj: Json, name: str) -> Mapping[str, Any]:
    """The field as far as it is a mapping: custom kinds may hold anything."""
    value = obj.get(name)
    return value if isinstance(value, Mapping) else {}


def mappings(obj: Json, name: str) -> list[Json]:
    value = obj.get(name)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
