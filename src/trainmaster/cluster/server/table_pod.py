"""The cells of a pod: ready count, the one word that says how it fares, restarts, and where it runs.

The word comes from many fields; what is most in the way wins: deletion over init containers, those over containers,
those over the phase. It is what people read first, so it follows kubectl to the letter.
"""

from __future__ import annotations

from typing import Any

from trainmaster.cluster.server import age
from trainmaster.objects import timestamp
from trainmaster.objects.meta import Json


def cells(pod: Json, now: float) -> list[Any]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    ready, total = _ready(spec, status)
    gates = spec.get("readinessGates") or []
    return [
        pod["metadata"].get("name", ""),
        f"{ready}/{total}",
        _reason(pod, spec, status),
        _restarts(spec, status, now),
        age.since(pod["metadata"].get("creationTimestamp"), now),
        status.get("podIP") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        _gates(gates, status) if gates else "<none>",
    ]


def _sidecars(spec: Json) -> set[str]:
    """Init containers that go on running beside the others; they count as containers."""
    return {c.get("name", "") for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"}


def _counted(spec: Json, status: Json) -> list[Json]:
    sidecars = _sidecars(spec)
    init = [s for s in status.get("initContainerStatuses") or () if s.get("name") in sidecars]
    return init + list(status.get("containerStatuses") or ())


def _ready(spec: Json, status: Json) -> tuple[int, int]:
    total = len(spec.get("containers") or ()) + len(_sidecars(spec))
    ready = [s for s in _counted(spec, status) if s.get("ready") and (s.get("state") or {}).get("running") is not None]
    return len(ready), total


def _reason(pod: Json, spec: Json, status: Json) -> str:
    reason = status.get("reason") or status.get("phase") or "Unknown"
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    initializing = _init_reason(spec, status)
    reason = reason if initializing is None else initializing
    if initializing is None or _is_true("Initialized", status):
        reason = _container_reason(status, reason)
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return str(reason)


def _init_reason(spec: Json, status: Json) -> str | None:
    """`Init:…` of the first init container that is neither through nor running beside; None if there is none.

    After the start that may also be a sidecar which has ended with the pod: then the containers have the last word."""
    sidecars = _sidecars(spec)
    total = len(spec.get("initContainers") or ())
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        state = container.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting") or {}
        if ended is not None and ended.get("exitCode", 0) == 0:
            continue
        if container.get("name") in sidecars and container.get("started"):
            continue
        if ended is not None:
            return f"Init:{_ending(ended)}"
        if waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{total}"
    return None


def _container_reason(status: Json, reason: str) -> str:
    running = False
    for container in reversed(status.get("containerStatuses") or ()):
        state = container.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif ended is not None:
            reason = _ending(ended)
        elif container.get("ready") and state.get("running") is not None:
            running = True
    if reason == "Completed" and running:
        return "Running" if _is_true("Ready", status) else "NotReady"
    return reason


def _ending(ended: Json) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"


def _is_true(condition: str, status: Json) -> bool:
    return any(c.get("type") == condition and c.get("status") == "True" for c in status.get("conditions") or ())


def _restarts(spec: Json, status: Json, now: float) -> str:
    """`3 (2m ago)`: of the init containers while one of them is in the way, else of the containers."""
    statuses = _counted(spec, status)
    if _init_reason(spec, status) is not None and not _is_true("Initialized", status):
        statuses = list(status.get("initContainerStatuses") or ())
    count = sum(s.get("restartCount") or 0 for s in statuses)
    ends = [((s.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for s in statuses]
    moments = [moment for moment in map(timestamp.parse, ends) if moment is not None]
    return f"{count} ({age.human(now - max(moments))} ago)" if count and moments else str(count)


def _gates(gates: list[Json], status: Json) -> str:
    true = {c.get("type") for c in status.get("conditions") or () if c.get("status") == "True"}
    return f"{sum(gate.get('conditionType') in true for gate in gates)}/{len(gates)}"
