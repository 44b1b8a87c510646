"""Carries out what `scheduler_plan` decided: bindings, conditions, group statuses, events. Decides nothing.

Everything is written concurrently, because the store commits together what comes together. Whoever was faster than us
(a pod deleted, a status changed) wins: its change is on its way to us, and the next pass looks again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any

from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.registry import Registry
from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.cluster.scheduling.scheduler_event import Events, Note
from trainmaster.cluster.scheduling.scheduler_gang import Group
from trainmaster.cluster.scheduling.scheduler_plan import Binding
from trainmaster.cluster.scheduling.scheduler_pod import Pod, mappings
from trainmaster.objects import timestamp
from trainmaster.objects.meta import Json

_log = logging.getLogger(__name__)

_WIDTH = 128
"""Writes under way at once: enough to fill a commit, not enough to keep others from theirs."""


_ATTEMPTS = 3


class Writer:
    def __init__(
        self, registry: Registry, events: Events, pods: Kind, *, now: Callable[[], float], names: Sequence[str]
    ) -> None:
        self._registry, self._events, self._pods = registry, events, pods
        self._now, self._names = now, names

    async def bind(self, bundles: Iterable[Collection[Binding]], on_bound: Callable[[Json], None]) -> bool:
        """Each bundle whole, as far as its pods still wait; whether all went well. `on_bound` gets the bound pods."""
        whole = [bundle for bundle in bundles if all(self._still_waits(binding.pod) for binding in bundle)]
        done = await _all(self._bind_one(binding, on_bound) for bundle in whole for binding in bundle)
        return all(done)

    async def explain(self, reasons: Iterable[tuple[Pod, str]]) -> None:
        await _all(self._explain_one(pod, why) for pod, why in reasons)

    async def update_groups(self, statuses: Iterable[tuple[Kind, Group, Json]]) -> None:
        await _all(self._update_group(kind, group, status) for kind, group, status in statuses)

    def warn(self, kind: Kind, group: Group, reason: str, message: str) -> None:
        regarding = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "namespace": group.key.namespace,
            "name": group.key.name,
            "uid": group.uid,
        }
        self._events.note(Note(regarding, "Warning", reason, message, self._names[0]))

    def _still_waits(self, pod: Pod) -> bool:
        current = self._current(self._pods, pod.namespace, pod.name)
        if current is None or current["metadata"].get("uid") != pod.uid:
            return False
        return not current["spec"].get("nodeName") and current["metadata"].get("deletionTimestamp") is None

    async def _bind_one(self, binding: Binding, on_bound: Callable[[Json], None]) -> bool:
        pod = binding.pod
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": binding.node},
        }
        try:
            await self._registry.bind(pod.namespace, pod.name, body)
        except ApiError as error:
            _log.info("pod not bound", extra={"fields": {"pod": pod.key, "node": binding.node, "error": error.message}})
            return False
        if (current := self._current(self._pods, pod.namespace, pod.name)) is not None:
            on_bound(current)
        self._note(pod, "Normal", "Scheduled", f"Successfully assigned {pod.key} to {binding.node}")
        return True

    async def _explain_one(self, pod: Pod, why: str) -> None:
        for _ in range(_ATTEMPTS):
            current = self._current(self._pods, pod.namespace, pod.name)
            if current is None or not self._still_waits(pod):
                return
            status = _with_condition(current.get("status") or {}, why, self._now())
            if status == current.get("status"):
                return
            if await self._put_status(self._pods, current, status):
                self._note(pod, "Warning", "FailedScheduling", why)
                return

    async def _update_group(self, kind: Kind, group: Group, status: Json) -> None:
        current = self._current(kind, group.key.namespace, group.key.name)
        if current is None or (current.get("status") or {}) != group.status:
            return
        is_written = await self._put_status(kind, current, status)
        why = _why_waiting(status)
        if is_written and why and why != _why_waiting(group.status):
            self.warn(kind, group, "Unschedulable", why)

    async def _put_status(self, kind: Kind, current: Json, status: Json) -> bool:
        body: dict[str, Any] = {**current, "status": status}
        metadata = current["metadata"]
        subresource = "status" if kind.status else ""
        try:
            await self._registry.update(
                kind, metadata["namespace"], metadata["name"], body, subresource=subresource, manager=self._names[0]
            )
        except ApiError as error:
            _log.debug("status not written", extra={"fields": {"name": metadata["name"], "error": error.message}})
            return False
        return True

    def _current(self, kind: Kind, namespace: str, name: str) -> Json | None:
        try:
            return self._registry.get(kind, namespace, name).value
        except ApiError:
            return None

    def _note(self, pod: Pod, type_: Any, reason: str, message: str) -> None:
        regarding = {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        component = pod.scheduler if pod.scheduler in self._names else self._names[0]
        self._events.note(Note(regarding, type_, reason, message, component))


def _why_waiting(status: Json) -> str:
    held = (one for one in mappings(status, "conditions") if one.get("type") == "Unschedulable")
    return next((str(one.get("message")) for one in held if one.get("status") == "True"), "")


def _with_condition(status: Json, why: str, now: float) -> Json:
    conditions = list(status.get("conditions") or ())
    held: Json = next((one for one in conditions if one.get("type") == "PodScheduled"), {})
    is_same = held.get("status") == "False" and held.get("lastTransitionTime")
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": held["lastTransitionTime"] if is_same else timestamp.render(now),
        "reason": "Unschedulable",
        "message": why,
    }
    kept = [one for one in conditions if one.get("type") != "PodScheduled"]
    return {**status, "conditions": [*kept, condition]}


async def _all(writes: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Their results, so many at a time."""
    gate = asyncio.Semaphore(_WIDTH)

    async def one(write: Coroutine[Any, Any, Any]) -> Any:
        async with gate:
            return await write

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(write), name="scheduler-write") for write in writes]
    return [task.result() for task in tasks]
