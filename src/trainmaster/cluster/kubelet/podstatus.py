"""A pod's status from what its containers do: phase, conditions, container statuses. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainmaster.objects import timestamp
from trainmaster.objects.meta import Json

_OWN = ("phase", "reason", "message", "conditions", "startTime", "hostIP", "hostIPs", "podIP", "podIPs")
_CONDITIONS = ("Initialized", "Ready", "ContainersReady")
_STATUSES = ("containerStatuses", "initContainerStatuses")


@dataclass(slots=True)
class Record:
    """One container as its status shows it."""

    name: str
    image: str
    state: Json = field(default_factory=lambda: {"waiting": {"reason": "ContainerCreating"}})
    last_state: Json = field(default_factory=dict)
    restart_count: int = 0
    is_ready: bool = False
    has_started: bool = False
    container_id: str = ""
    is_sidecar: bool = False

    @property
    def terminated(self) -> Json | None:
        ended: Json | None = self.state.get("terminated")
        return ended

    @property
    def is_running(self) -> bool:
        return "running" in self.state

    @property
    def has_succeeded(self) -> bool:
        return self.terminated is not None and self.terminated.get("exitCode") == 0

    @property
    def is_past_init(self) -> bool:
        return self.has_started if self.is_sidecar else self.has_succeeded

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "state": self.state,
            "lastState": self.last_state,
            "ready": self.is_ready,
            "restartCount": self.restart_count,
            "image": self.image,
            "imageID": "",
            **({"containerID": self.container_id} if self.container_id else {}),
            "started": self.has_started and self.is_running,
        }


@dataclass(slots=True)
class View:
    """All that the kubelet knows of a pod it runs."""

    containers: list[Record]
    init: list[Record]
    started_at: float
    ip: str = ""
    host_ip: str = ""
    reason: str = ""  # why the whole pod was ended: DeadlineExceeded, Evicted
    message: str = ""
    is_over: bool = False  # nothing of it will be started again


def view_of(pod: Json, now: float) -> View:
    """The pod as it was last reported, or as it looks before anything has happened."""
    spec, status = pod["spec"], pod.get("status") or {}
    known = {s["name"]: s for key in _STATUSES for s in status.get(key) or ()}
    waiting = "PodInitializing" if spec.get("initContainers") else "ContainerCreating"
    return View(
        [_record(c, known, waiting) for c in spec["containers"]],
        [_record(c, known, "PodInitializing") for c in spec.get("initContainers") or ()],
        timestamp.parse(status.get("startTime")) or now,
    )


def _record(container: Json, known: dict[str, Json], waiting: str) -> Record:
    record = Record(container["name"], container.get("image", ""), {"waiting": {"reason": waiting}})
    record.is_sidecar = container.get("restartPolicy") == "Always"
    if found := known.get(record.name):
        record.state = found.get("state") or record.state
        record.last_state = found.get("lastState") or {}
        record.restart_count = int(found.get("restartCount") or 0)
        record.container_id = str(found.get("containerID") or "")
    return record


def phase_of(pod: Json, view: View) -> str:
    """A pod is not over while anything of it runs, whatever has been decided about it."""
    phase = _phase(pod, view)
    is_running = any(record.is_running for record in (*view.containers, *view.init))
    return "Running" if is_running and phase in ("Succeeded", "Failed") else phase


def _phase(pod: Json, view: View) -> str:
    if view.reason:
        return "Failed"
    policy = "Never" if view.is_over else pod["spec"].get("restartPolicy", "Always")
    if any(not record.is_past_init for record in view.init):
        return "Failed" if _has_failed_init(view, policy) else "Pending"
    if any("waiting" in record.state and not record.last_state for record in view.containers):
        return "Failed" if view.is_over else "Pending"
    if policy == "Always" or any(record.is_running for record in view.containers):
        return "Running"
    if all(record.has_succeeded for record in view.containers):
        return "Succeeded"
    return "Failed" if policy == "Never" else "Running"


def _has_failed_init(view: View, policy: str) -> bool:
    failed = any(record.terminated is not None and not record.has_succeeded for record in view.init)
    return view.is_over or (policy == "Never" and failed)


def status_of(pod: Json, view: View, now: float, written: Json | None = None) -> dict[str, Any]:
    """The whole status; what others wrote there, such as the scheduler's condition, is kept.

    `written` is what we wrote last, of which the pod as seen may not know yet.
    """
    before: Json = pod.get("status") or {}
    kept = {key: value for key, value in before.items() if key not in (*_OWN, *_STATUSES)}
    phase = phase_of(pod, view)
    status: dict[str, Any] = {**kept, "phase": phase, "startTime": timestamp.render(view.started_at)}
    status["conditions"] = _conditions(pod, view, phase, timestamp.render(now), written or {})
    status |= {key: value for key, value in (("reason", view.reason), ("message", view.message)) if value}
    if view.ip:
        status |= {"hostIP": view.host_ip, "podIP": view.ip, "podIPs": [{"ip": view.ip}]}
    status["containerStatuses"] = [record.to_json() for record in view.containers]
    if view.init:
        # One that has done its work is ready: that is how its pod's readers tell it from one that was given up.
        inits = ({**record.to_json(), "ready": record.is_ready or record.has_succeeded} for record in view.init)
        status["initContainerStatuses"] = list(inits)
    return status


def _conditions(pod: Json, view: View, phase: str, now: str, written: Json) -> list[Json]:
    before = {c["type"]: c for c in (pod.get("status") or {}).get("conditions") or ()}
    before |= {c["type"]: c for c in written.get("conditions") or () if c["type"] in _CONDITIONS}
    conditions = dict(before)
    for name, (is_true, reason, message) in _own_conditions(pod, view, phase, before):
        held = before.get(name, {})
        value = "True" if is_true else "False"
        since = held.get("lastTransitionTime", now) if held.get("status") == value else now
        condition = {"type": name, "status": value, "lastProbeTime": None, "lastTransitionTime": since}
        conditions[name] = condition | {k: v for k, v in (("reason", reason), ("message", message)) if v}
    return list(conditions.values())


_Verdict = tuple[bool, str, str]


def _own_conditions(pod: Json, view: View, phase: str, before: dict[str, Json]) -> Iterator[tuple[str, _Verdict]]:
    yield "Initialized", _initialized(view, phase)
    ready = _containers_ready(view, phase)
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or ()]
    closed = [gate for gate in gates if before.get(gate, {}).get("status") != "True"]
    if ready[0] and closed:
        yield "Ready", (False, "ReadinessGatesNotReady", f"corresponding condition of pod readiness gate {closed[0]!r}")
    else:
        yield "Ready", ready
    yield "ContainersReady", ready


def _initialized(view: View, phase: str) -> _Verdict:
    if phase == "Succeeded":
        return True, "PodCompleted", ""
    incomplete = [record.name for record in view.init if not record.is_past_init]
    if not incomplete:
        return True, "", ""
    return False, "ContainersNotInitialized", f"containers with incomplete status: {_listed(incomplete)}"


def _containers_ready(view: View, phase: str) -> _Verdict:
    if phase == "Succeeded":
        return False, "PodCompleted", ""
    if phase == "Failed":
        return False, "PodFailed", ""
    sidecars = [record for record in view.init if record.is_sidecar]
    unready = [record.name for record in (*view.containers, *sidecars) if not record.is_ready]
    if not unready:
        return True, "", ""
    return False, "ContainersNotReady", f"containers with unready status: {_listed(unready)}"


def _listed(names: Sequence[str]) -> str:
    return f"[{' '.join(names)}]"
