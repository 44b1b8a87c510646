"""This machine as Nodes: what it has, what it is called, and that it lives.

`machine()` measures, honouring the limits of the cgroup and the CPUs this process may use. With several simulated nodes
the machine is divided among them, never multiplied: a scheduler that sees each resource twice would start twice the
processes. Overrides say otherwise on purpose. GPUs are dealt out by number; the annotation `trainmaster.dev/gpus` tells
the kubelet which ones a node has. Where a node is to offer more than there are, they are shared and named repeatedly;
where there are none at all, those that ask for some get none.

A Node is written once at the start; the heartbeat is its Lease, and nodes of an earlier run that no longer exist go.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import cycle, islice
from pathlib import Path
from typing import Any, TypeAlias

from trainmaster.cluster.controllers.control import Loop, Objects, Registry
from trainmaster.cluster.storage.store import Change
from trainmaster.objects import quantity, timestamp

Json: TypeAlias = Mapping[str, Any]

GPUS = "trainmaster.dev/gpus"
DECLARED = "trainmaster.dev/declared-labels"
"""Annotation: the labels that a configuration gave the node, and that go when it no longer does."""

MANAGED = "trainmaster.dev/machine"
LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
RENEW_SECONDS = 10.0
PODS_PER_NODE = 1000

_MEMORY = re.compile(r"^MemTotal:\s+(\d+) kB", re.MULTILINE)
_SYSTEM = re.compile(r'^PRETTY_NAME="?([^"\n]+)', re.MULTILINE)
_STRANGE = re.compile(r"[^a-z0-9-]+")
_GPU = "nvidia.com/gpu"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}
_HEALTHY = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is to share, in cores, bytes and device numbers."""

    cpu: Fraction
    memory: int
    storage: int
    gpus: tuple[int, ...] = ()


def machine(root: Path = Path("/"), disk: Path = Path("/")) -> Machine:
    """This one. `root` is where /proc, /sys and /dev are; `disk` is where pods will write."""
    return Machine(
        cpu=_cpus(root),
        memory=_memory(root),
        storage=shutil.disk_usage(disk).total,
        gpus=_gpus(root),
    )


def _cpus(root: Path) -> Fraction:
    available = Fraction(len(os.sched_getaffinity(0)))
    quota, _, period = _text(root / "sys/fs/cgroup/cpu.max").partition(" ")
    if quota.isdigit() and period.strip().isdigit():
        return min(available, Fraction(int(quota), int(period)))
    return available


def _memory(root: Path) -> int:
    found = _MEMORY.search(_text(root / "proc/meminfo"))
    total = int(found[1]) * 1024 if found else 0
    limit = _text(root / "sys/fs/cgroup/memory.max")
    return min(total, int(limit)) if limit.isdigit() else total


def _gpus(root: Path) -> tuple[int, ...]:
    """Only devices that can be opened count: a driver without device files serves nobody."""
    try:
        known = len(list((root / "proc/driver/nvidia/gpus").iterdir()))
    except OSError:
        return ()
    return tuple(number for number in range(known) if (root / f"dev/nvidia{number}").exists())


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def shares(whole: Machine, count: int) -> list[Machine]:
    """The machine in `count` parts: what cannot be divided evenly goes to the first ones."""
    cores = int(whole.cpu * 1000)
    return [
        Machine(
            cpu=Fraction(_part(cores, count, index), 1000),
            memory=_part(whole.memory // 1024, count, index) * 1024,
            storage=_part(whole.storage // 1024, count, index) * 1024,
            gpus=whole.gpus[index::count],
        )
        for index in range(count)
    ]


def _part(whole: int, count: int, index: int) -> int:
    return whole // count + (1 if index < whole % count else 0)


def names(count: int, host: str) -> list[str]:
    """One node is called as the machine is; several are numbered."""
    base = _STRANGE.sub("-", host.split(".")[0].lower()).strip("-") or "local"
    return [base] if count == 1 else [f"{base}-{index}" for index in range(count)]


def capacity_of(share: Machine, override: Mapping[str, str]) -> dict[str, str]:
    """As Node.status.capacity has it. An override replaces or adds a resource of every node."""
    capacity = {
        "cpu": quantity.render(share.cpu),
        "memory": f"{share.memory // 1024}Ki",
        "ephemeral-storage": f"{share.storage // 1024}Ki",
        "pods": str(PODS_PER_NODE),
    }
    if share.gpus:
        capacity[_GPU] = str(len(share.gpus))
    return {**capacity, **override}


def devices_of(share: Machine, override: Mapping[str, str]) -> list[str]:
    """A GPU for each that the node offers, by number; several of them may be the same."""
    offered = int(quantity.parse(override.get(_GPU, len(share.gpus))))
    return [str(number) for number in islice(cycle(share.gpus), offered)]


def node(
    name: str,
    share: Machine,
    override: Mapping[str, str],
    version: str,
    now: float,
    declared: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """`declared` are labels that it has beside those of every node."""
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": _architecture(),
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": _architecture(),
        MANAGED: "true",
    }
    if share.gpus:
        labels["nvidia.com/gpu.present"] = "true"
    annotations = {GPUS: ",".join(devices_of(share, override)), DECLARED: ",".join(declared or ())}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**labels, **(declared or {})},
            "annotations": {key: text for key, text in annotations.items() if text},
        },
        "spec": {"podCIDR": "10.244.0.0/16"},
        "status": _status(name, capacity_of(share, override), version, timestamp.render(now)),
    }


def _status(name: str, capacity: dict[str, str], version: str, moment: str) -> dict[str, Any]:
    return {
        "capacity": capacity,
        "allocatable": dict(capacity),
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
        "conditions": [
            {
                "type": type_,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": moment,
                "lastTransitionTime": moment,
            }
            for type_, status, reason, message in _HEALTHY
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
        "nodeInfo": {
            "architecture": _architecture(),
            "bootID": _text(Path("/proc/sys/kernel/random/boot_id")),
            "containerRuntimeVersion": "process://1",
            "kernelVersion": platform.release(),
            "kubeProxyVersion": version,
            "kubeletVersion": version,
            "machineID": _text(Path("/etc/machine-id")),
            "operatingSystem": "linux",
            "osImage": _os_image(),
            "systemUUID": "",
        },
    }


def _architecture() -> str:
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def _os_image() -> str:
    found = _SYSTEM.search(_text(Path("/etc/os-release")))
    return found[1] if found else "Linux"


def lease(name: str, uid: str, now: float) -> dict[str, Any]:
    """The heartbeat; it belongs to its node and goes with it."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": _micro(now)},
    }


def _micro(now: float) -> str:
    """RFC 3339 with microseconds, as Lease times are."""
    return timestamp.render(now).replace("Z", f".{int(now % 1 * 1_000_000):06d}Z")


class NodeKeeper:
    """Registers `count` nodes of this machine and keeps their leases fresh. `override` and `labels` are per node."""

    def __init__(
        self,
        registry: Registry,
        *,
        now: Callable[[], float],
        whole: Machine | None = None,
        count: int = 1,
        host: str = "",
        override: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        version: str = "v1.32.0",
    ) -> None:
        self._nodes = Objects.of(registry, "", "v1", "nodes")
        self._leases = Objects.of(registry, "coordination.k8s.io", "v1", "leases")
        self._namespaces = Objects.of(registry, "", "v1", "namespaces")
        self._loop: Loop[str] = Loop("nodes", registry.store, {"/nodes": self._changed}, self._renew)
        self._now = now
        self._override = override or {}
        self._labels = labels or {}
        self._version = version
        self._shares = shares(whole or machine(), count)
        self.names = names(count, host or socket.gethostname())

    async def register(self) -> None:
        """Once, before anything is scheduled: the nodes are there and ready when this returns."""
        for stale in [each for each in self._nodes.list() if _is_ours(each)]:
            if stale["metadata"]["name"] not in self.names:
                await self._nodes.delete(stale)
        if self._namespaces.get(LEASE_NAMESPACE) is None:
            await self._namespaces.create({"metadata": {"name": LEASE_NAMESPACE}})
        for name, share in zip(self.names, self._shares, strict=True):
            await self._register(node(name, share, self._override, self._version, self._now(), self._labels))

    async def run(self) -> None:
        """Registers if nobody has, then renews until cancelled."""
        await self.register()
        for name in self.names:
            self._loop.mark(name)
        await self._loop.run()

    def _changed(self, change: Change) -> Iterator[str]:
        """One of ours that somebody deleted comes back: the machine is still here."""
        if change.type == "DELETED" and change.entry.key in self.names:
            yield change.entry.key

    async def _register(self, wanted: dict[str, Any]) -> None:
        """What a user added to a known node stays: labels, taints, a cordon."""
        current = self._nodes.get(wanted["metadata"]["name"])
        if current is None:
            current = await self._nodes.create(wanted)
        else:
            current = await self._nodes.update({**current, "metadata": _brought_up_to_date(current, wanted)})
        await self._nodes.update({**current, "status": wanted["status"]}, subresource="status")

    async def _renew(self, name: str) -> float:
        owner = self._nodes.get(name)
        if owner is None:
            await self.register()
            return 0.0
        current = self._leases.get(f"{LEASE_NAMESPACE}/{name}")
        fresh = lease(name, owner["metadata"]["uid"], self._now())
        if current is None:
            await self._leases.create(fresh)
        else:
            await self._leases.update({**fresh, "metadata": {**current["metadata"], **fresh["metadata"]}})
        return RENEW_SECONDS


def _brought_up_to_date(current: Json, wanted: Json) -> dict[str, Any]:
    """Its metadata: as wanted, with what others wrote and without what an earlier configuration did."""
    metadata, ours = current["metadata"], wanted["metadata"]
    labels, notes = (metadata.get(field) or {} for field in ("labels", "annotations"))
    outdated = str(notes.get(DECLARED, "")).split(",")
    return {
        **metadata,
        "labels": {name: text for name, text in labels.items() if name not in outdated} | ours["labels"],
        "annotations": {name: text for name, text in notes.items() if name not in (GPUS, DECLARED)}
        | ours["annotations"],
    }


def _is_ours(each: Json) -> bool:
    return (each["metadata"].get("labels") or {}).get(MANAGED) == "true"
