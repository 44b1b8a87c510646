"""Pods whose node is gone: after an `up` with fewer nodes, under another host name, or bound to one that never was.

No kubelet has them, so nobody would ever say that they ended, nor let go of them when they are deleted. What has not
ended is failed, so that whoever owns it makes another; what is being deleted is removed. What has ended stays as it is.

`fate_of` is pure. Time enters because a pod may come before its node: one that was bound just now is given a moment,
unless that was before the cluster started. The nodes of this machine always count as there, also in the moment in which
one that somebody deleted is registered anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from trainmaster.cluster.controllers.control import Loop, Objects, Registry, is_terminating, key_of
from trainmaster.cluster.controllers.recorder import Recorder
from trainmaster.cluster.storage.store import Change
from trainmaster.objects import timestamp

Json: TypeAlias = Mapping[str, Any]

REASON = "NodeLost"
PATIENCE = 3.0
"""Seconds in which the node of a newly bound pod may still appear."""

_OVER = ("Succeeded", "Failed")


class Verdict(Enum):
    KEEP = "keep"
    FAIL = "fail"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Fate:
    verdict: Verdict
    look_again: float | None = None
    """In so many seconds, though nothing may have changed by then."""


_KEPT = Fate(Verdict.KEEP)


def node_of(pod: Json) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def fate_of(pod: Json, nodes: Collection[str], now: float, started: float) -> Fate:
    """`nodes` are the names of all that exist; `started` is when the cluster did."""
    if not node_of(pod) or node_of(pod) in nodes:
        return _KEPT
    if is_terminating(pod):
        return Fate(Verdict.REMOVE)
    if (pod.get("status") or {}).get("phase") in _OVER:
        return _KEPT
    bound = _bound_at(pod)
    left = bound + PATIENCE - now if bound >= int(started) else 0.0  # timestamps have whole seconds
    return Fate(Verdict.KEEP, min(left, PATIENCE)) if left > 0 else Fate(Verdict.FAIL)


def _bound_at(pod: Json) -> float:
    """One that named its node itself was bound when it was made."""
    made = timestamp.parse(pod["metadata"].get("creationTimestamp")) or 0.0
    conditions = (pod.get("status") or {}).get("conditions") or ()
    scheduled = (c.get("lastTransitionTime") for c in conditions if c.get("type") == "PodScheduled")
    return max([made, *(timestamp.parse(moment) or 0.0 for moment in scheduled)])


def failed_status(pod: Json, now: float) -> dict[str, Any]:
    """Containers that had ended keep their codes; of the others nobody knows how they ended, so nothing is claimed."""
    status, moment = dict(pod.get("status") or {}), timestamp.render(now)
    for key in ("containerStatuses", "initContainerStatuses"):
        if key in status:
            status[key] = [each for each in status[key] or () if "terminated" in (each.get("state") or {})]
    changed = {"Ready": "False", "ContainersReady": "False", "DisruptionTarget": "True"}
    conditions = [each for each in status.get("conditions") or () if each.get("type") not in changed]
    conditions += [
        {"type": type_, "status": value, "reason": REASON, "lastTransitionTime": moment}
        for type_, value in changed.items()
    ]
    return {**status, "phase": "Failed", "reason": REASON, "message": _message(pod), "conditions": conditions}


def _message(pod: Json) -> str:
    where = f"spec.nodeName: {node_of(pod)!r} is not a node of this cluster: nothing runs this pod"
    return f"{where}. Its owner makes another; one that has no owner is to be deleted and created again"


class LostPodKeeper:
    """`own` are the nodes of this machine."""

    def __init__(self, registry: Registry, *, own: Collection[str], now: Callable[[], float]) -> None:
        self._pods = Objects.of(registry, "", "v1", "pods")
        self._nodes = Objects.of(registry, "", "v1", "nodes")
        self._recorder = Recorder(registry, "pod-garbage-collector", now=now)
        self._own = frozenset(own)
        self._now, self._started = now, now()
        sources = {self._pods.kind.prefix: self._pod_changed, self._nodes.kind.prefix: self._node_changed}
        self._loop: Loop[str] = Loop("lost-pods", registry.store, sources, self._reconcile)

    async def run(self) -> None:
        await self._loop.run()

    def _pod_changed(self, change: Change) -> Iterator[str]:
        if change.type != "DELETED" and not self._has_node(change.entry.value):
            yield change.entry.key

    def _node_changed(self, change: Change) -> Iterator[str]:
        if change.type == "DELETED":
            yield from (key_of(pod) for pod in self._pods.list() if node_of(pod) == change.entry.key)

    def _has_node(self, pod: Json) -> bool:
        name = node_of(pod)
        return not name or name in self._own or self._nodes.get(name) is not None

    async def _reconcile(self, key: str) -> float | None:
        pod = self._pods.get(key)
        if pod is None:
            return None
        present = {node_of(pod)} if self._has_node(pod) else set()
        fate = fate_of(pod, present, self._now(), self._started)
        if fate.verdict is Verdict.FAIL:
            # It carries the resourceVersion that was judged: a namesake, or a later word on this one, refuses it.
            await self._pods.update({**pod, "status": failed_status(pod, self._now())}, subresource="status")
            await self._recorder.record(pod, REASON, _message(pod), warning=True)
        elif fate.verdict is Verdict.REMOVE:
            await self._pods.delete(pod, grace=0)
        return fate.look_again
