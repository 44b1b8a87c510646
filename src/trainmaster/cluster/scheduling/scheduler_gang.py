"""PodGroups of three makers: what they demand, which pods are theirs, and what their status says.

Volcano and kube-batch find their pods by annotation, scheduler-plugins by label. A Volcano or kube-batch group is first
admitted (`Inqueue`) when its `minResources` would fit, because operators wait for that before they make pods; it
never goes back to `Pending`. `scheduler_plan` decides about pods, this file about groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trainmaster.cluster.scheduling.scheduler_pod import Amounts, Pod, amounts_of, mapping, mappings
from trainmaster.objects import timestamp
from trainmaster.objects.meta import Json

VOLCANO = "scheduling.volcano.sh"
KUBE_BATCH = "scheduling.incubator.k8s.io"
PLUGINS = "scheduling.x-k8s.io"

_WAITING_PHASES = ("", "Pending")


class GroupKey(NamedTuple):
    api_group: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Group:
    key: GroupKey
    uid: str
    created: str
    min_member: int
    min_tasks: Mapping[str, int]
    min_resources: Amounts
    queue: str
    priority_class: str
    timeout: float | None
    is_terminating: bool
    status: Json

    @property
    def phase(self) -> str:
        return str(self.status.get("phase") or "")

    @property
    def is_admitted(self) -> bool:
        """scheduler-plugins has no admission: its groups only ever wait for room."""
        return self.key.api_group == PLUGINS or self.phase not in _WAITING_PHASES

    def __str__(self) -> str:
        return f"group {self.key.name}"


@dataclass(slots=True)
class Tally:
    """The members of a group, by how far they are."""

    waiting: list[Pod] = field(default_factory=list)
    bound: list[Pod] = field(default_factory=list)
    leaving: int = 0
    succeeded: int = 0
    failed: int = 0
    held_tasks: dict[str, int] = field(default_factory=dict)

    @property
    def held(self) -> int:
        """Members that have their place, or need none any more."""
        return len(self.bound) + self.succeeded

    @property
    def running(self) -> int:
        return sum(pod.phase == "Running" for pod in self.bound)

    @property
    def total(self) -> int:
        return len(self.waiting) + self.held + self.failed + self.leaving

    def add(self, pod: Pod) -> None:
        if pod.phase == "Failed":
            self.failed += 1
            return
        if pod.phase == "Succeeded":
            self.succeeded += 1
        elif pod.node and pod.is_terminating:
            self.leaving += 1  # its place is not free yet, and it will not be there for the others
            return
        elif pod.node:
            self.bound.append(pod)
        elif pod.is_waiting:
            self.waiting.append(pod)
            return
        else:
            return
        self.held_tasks[pod.task] = self.held_tasks.get(pod.task, 0) + 1


def tally_of(members: Iterable[Pod]) -> Tally:
    tally = Tally()
    for pod in members:
        tally.add(pod)
    return tally


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a pass found out about a group; `why` is empty when nothing is in its way."""

    is_admitted: bool = False
    placed: int = 0
    why: str = ""


def group_of(obj: Json, api_group: str) -> Group:
    metadata, spec = obj["metadata"], mapping(obj, "spec")
    tasks, timeout = mapping(spec, "minTaskMember"), spec.get("scheduleTimeoutSeconds")
    return Group(
        key=GroupKey(api_group, str(metadata.get("namespace", "")), str(metadata["name"])),
        uid=str(metadata.get("uid", "")),
        created=str(metadata.get("creationTimestamp") or ""),
        min_member=_whole(spec.get("minMember")) or 1,
        min_tasks={str(task): _whole(count) for task, count in tasks.items()},
        min_resources=amounts_of(mapping(spec, "minResources")),
        queue=str(spec.get("queue") or "default"),
        priority_class=str(spec.get("priorityClassName") or ""),
        timeout=float(timeout) if isinstance(timeout, int) and timeout > 0 else None,
        is_terminating=metadata.get("deletionTimestamp") is not None,
        status=mapping(obj, "status"),
    )


def key_of(pod: Pod, groups: Mapping[GroupKey, Group]) -> GroupKey | None:
    """The group a pod says it is in, whether or not that exists; None for a pod on its own."""
    if pod.group_annotation:
        ours, theirs = (KUBE_BATCH, VOLCANO) if pod.scheduler == "kube-batch" else (VOLCANO, KUBE_BATCH)
        other = GroupKey(theirs, pod.namespace, pod.group_annotation)
        return other if other in groups else GroupKey(ours, pod.namespace, pod.group_annotation)
    return GroupKey(PLUGINS, pod.namespace, pod.group_label) if pod.group_label else None


def missing(group: Group, tally: Tally) -> int:
    """How many more members must get a place at once, minima of tasks included."""
    return max(group.min_member - tally.held, sum(short_tasks(group, tally).values()), 0)


def is_complete(group: Group, tally: Tally) -> bool:
    """Whether enough pods exist, of each task too."""
    if tally.held + len(tally.waiting) < group.min_member:
        return False
    existing = dict(tally.held_tasks)
    for pod in tally.waiting:
        existing[pod.task] = existing.get(pod.task, 0) + 1
    return all(existing.get(task, 0) >= count for task, count in group.min_tasks.items())


def short_tasks(group: Group, tally: Tally) -> dict[str, int]:
    """How many more members of which task must be among those placed."""
    lacks = {task: count - tally.held_tasks.get(task, 0) for task, count in group.min_tasks.items()}
    return {task: count for task, count in lacks.items() if count > 0}


def status_of(group: Group, tally: Tally, outlook: Outlook, now: float) -> Json:
    """The status the group should have; equal to what it has when there is nothing to write."""
    counts = {"running": tally.running, "succeeded": tally.succeeded, "failed": tally.failed}
    kept = {name: value for name, value in group.status.items() if name not in counts}
    status: dict[str, Any] = {**kept, **{name: count for name, count in counts.items() if count}}
    if group.key.api_group == PLUGINS:
        status["phase"] = _plugins_phase(group, tally)
        if is_complete(group, tally) and not status.get("scheduleStartTime"):
            status["scheduleStartTime"] = timestamp.render(now)
        return status
    status["phase"] = _phase(group, tally, outlook)
    conditions = _conditions(group, tally, outlook, now)
    return {**status, "conditions": conditions} if conditions else status


def deadline_of(group: Group, tally: Tally) -> float | None:
    """When a scheduler-plugins group will have waited for too long; None when it does not wait or may wait for ever."""
    started = timestamp.parse(str(group.status.get("scheduleStartTime") or ""))
    if group.timeout is None or started is None or missing(group, tally) == 0:
        return None
    return started + group.timeout


def _phase(group: Group, tally: Tally, outlook: Outlook) -> str:
    alive = len(tally.bound) + tally.leaving + outlook.placed
    if tally.total and not alive and not tally.waiting:
        return "Completed" if group.key.api_group == VOLCANO else "Running"
    if tally.held + outlook.placed >= group.min_member and alive:
        return "Running"
    if alive and group.phase == "Running":
        return "Running"  # a member was lost and is being replaced; operators must not be held up
    if tally.waiting and group.is_admitted:
        return "Inqueue"
    if group.is_admitted:
        return group.phase
    return "Inqueue" if outlook.is_admitted else "Pending"


def _plugins_phase(group: Group, tally: Tally) -> str:
    """As its own controller steps: Scheduling once enough pods exist, then what became of them."""
    if tally.succeeded >= group.min_member > 0:
        return "Finished"
    if tally.failed and tally.failed + tally.running + tally.succeeded >= group.min_member:
        return "Failed"
    if tally.running and tally.running + tally.succeeded >= group.min_member:
        return "Running"
    if tally.total and tally.total >= group.min_member:
        return "Scheduling"
    return "Pending"


def _conditions(group: Group, tally: Tally, outlook: Outlook, now: float) -> list[Json]:
    is_placed = bool(tally.bound or outlook.placed) and tally.held + outlook.placed >= group.min_member
    before = {str(condition.get("type")): condition for condition in mappings(group.status, "conditions")}
    if is_placed:
        ready = _condition(before, "Scheduled", "True", "EnoughPods", "all pods it needs have a node", now)
        gone = {**before["Unschedulable"], "status": "False"} if "Unschedulable" in before else None
        return _merged(before, ready, gone)
    if outlook.why:
        return _merged(before, _condition(before, "Unschedulable", "True", "NotEnoughResources", outlook.why, now))
    return list(before.values())


def _condition(before: Mapping[str, Json], type_: str, status: str, reason: str, message: str, now: float) -> Json:
    held = before.get(type_) or {}
    is_same = held.get("status") == status and held.get("lastTransitionTime")
    moment = held["lastTransitionTime"] if is_same else timestamp.render(now)
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": moment}


def _merged(before: Mapping[str, Json], *changed: Json | None) -> list[Json]:
    return list({**before, **{str(one["type"]): one for one in changed if one}}.values())


def _whole(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
