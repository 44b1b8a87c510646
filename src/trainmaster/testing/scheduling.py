"""Nodes, pods, groups and queues for tests of the embedded scheduler, and books to try its passes on, serverless."""

from __future__ import annotations

from typing import Any

from trainmaster.cluster.scheduling.scheduler_gang import VOLCANO, GroupKey
from trainmaster.cluster.scheduling.scheduler_plan import Decisions, plan
from trainmaster.cluster.scheduling.scheduler_pod import Pod
from trainmaster.cluster.scheduling.scheduler_state import State
from trainmaster.objects import timestamp
from trainmaster.objects.meta import Json

NOW = 1704067200.0
HOSTNAME = "kubernetes.io/hostname"

Object = dict[str, Any]


def a_node(name: str = "node", *, labels: Json | None = None, ready: str = "True", **amounts: str) -> Object:
    """Amounts by name, with `gpu` for nvidia.com/gpu; 2 cpu, 4Gi and 110 pods unless told."""
    allocatable = {"cpu": "2", "memory": "4Gi", "pods": "110", **_amounts(amounts)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name, **(labels or {})}},
        "spec": {},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]},
    }


def tainted(node: Object, *taints: Json, cordoned: bool = False) -> Object:
    return {**node, "spec": {"taints": list(taints), "unschedulable": cordoned}}


def a_pod(
    name: str = "pod",
    *,
    namespace: str = "default",
    age: float = 0,
    group: str = "",
    label_group: str = "",
    task: str = "",
    labels: Json | None = None,
    phase: str = "Pending",
    spec: Json | None = None,
    **amounts: str,
) -> Object:
    """A pod of one container that requests these amounts, made `age` seconds ago; `spec` is laid over the rest."""
    annotations = {"scheduling.k8s.io/group-name": group, "volcano.sh/task-spec": task}
    pod_labels = {**(labels or {}), **({"scheduling.x-k8s.io/pod-group": label_group} if label_group else {})}
    container = {"name": "main", "image": "x", "resources": {"requests": _amounts(amounts)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "creationTimestamp": timestamp.render(NOW - age),
            "labels": pod_labels,
            "annotations": {key: value for key, value in annotations.items() if value},
        },
        "spec": {"containers": [container], **(spec or {})},
        "status": {"phase": phase},
    }


def a_group(
    name: str = "train",
    *,
    api_group: str = VOLCANO,
    age: float = 0,
    phase: str = "",
    status: Json | None = None,
    **spec: Any,
) -> Object:
    return {
        "apiVersion": f"{api_group}/{'v1beta1' if api_group == VOLCANO else 'v1alpha1'}",
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "creationTimestamp": timestamp.render(NOW - age),
        },
        "spec": spec,
        "status": {**({"phase": phase} if phase else {}), **(status or {})},
    }


def a_queue(name: str, *, weight: int = 1, **capability: str) -> Object:
    spec = {"weight": weight, "capability": _amounts(capability)}
    return {"apiVersion": f"{VOLCANO}/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


class Books:
    """What a scheduler would have seen; passes over it, and their bindings and statuses carried out at once."""

    def __init__(self, *objects: Object) -> None:
        self.now = NOW
        self.state = State()
        self.objects: dict[str, Object] = {}
        self._revision = 0
        self.add(*objects)

    def add(self, *objects: Object) -> Books:
        for obj in objects:
            self._revision += 1
            obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._revision)}}
            self.objects[f"{obj['kind']}/{obj['metadata']['name']}"] = obj
            self._see(obj)
        return self

    def drop_pod(self, name: str) -> None:
        del self.objects[f"Pod/{name}"]
        self.state.lose_pod(f"default/{name}")

    def end_pod(self, name: str, phase: str = "Succeeded") -> None:
        self.add({**self.objects[f"Pod/{name}"], "status": {"phase": phase}})

    def pod(self, name: str) -> Pod:
        return self.state.pods[f"default/{name}"]

    def phase(self, group: str = "train") -> str:
        return str((self.objects[f"PodGroup/{group}"].get("status") or {}).get("phase", ""))

    def plan(self) -> Decisions:
        return plan(self.state.snapshot(self.now))

    def step(self) -> Decisions:
        """One pass, carried out."""
        decisions = self.plan()
        for binding in decisions.bindings:
            pod = self.objects[f"Pod/{binding.pod.name}"]
            self.add({**pod, "spec": {**pod["spec"], "nodeName": binding.node}})
        for key, status in decisions.group_statuses.items():
            self.add({**self.objects[f"PodGroup/{key.name}"], "status": status})
        return decisions

    def settle(self) -> Decisions:
        """Passes until one has nothing to do; that one."""
        while (decisions := self.step()).bundles or decisions.group_statuses:
            pass
        return decisions

    def placed(self) -> dict[str, str]:
        return {pod.name: pod.node for pod in self.state.pods.values() if pod.node}

    def why(self, name: str) -> str:
        return self.plan().unschedulable.get(f"default/{name}", "")

    def _see(self, obj: Object) -> None:
        match obj["kind"]:
            case "Pod":
                self.state.see_pod(obj)
            case "Node":
                self.state.see_node(obj)
            case "PodGroup":
                self.state.see_group(obj, obj["apiVersion"].partition("/")[0], self.now)
            case "Queue":
                self.state.see_queue(obj)
            case "PriorityClass":
                self.state.see_priority(obj)
            case "PersistentVolumeClaim":
                self.state.see_claim(obj)
            case kind:
                raise ValueError(f"the scheduler does not look at {kind}")


def group_key(name: str = "train", api_group: str = VOLCANO) -> GroupKey:
    return GroupKey(api_group, "default", name)


def _amounts(amounts: Json) -> Object:
    return {"nvidia.com/gpu" if name == "gpu" else name: amount for name, amount in amounts.items()}
