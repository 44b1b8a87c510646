"""The ranks of a job, read from its pods: where each stands, and how each came to grief."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.cli.connection import Session
from trainmaster.cli.targets import Found
from trainmaster.engine.labels import JOB_UID
from trainmaster.objects import timestamp
from trainmaster.objects.resource import PODS

JOB_NAME = "training.kubeflow.org/job-name"
JOB_ROLE = "training.kubeflow.org/job-role"
LEADERS = ("master", "launcher")
"""Values of the label on the pod whose log is read first."""

_ORDINARY = ("", "ContainerCreating", "PodInitializing")
_TOLD = (137, 143)
"""How programs end that are told to, and have nothing to say about it."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a container ended with another code than 0."""

    container: str
    exit_code: int
    reason: str
    message: str
    at: str
    was_restarted: bool
    """The container runs again, or is about to: its log is that of the previous attempt."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What a pod waits for, in Kubernetes' own words."""

    reason: str
    message: str
    container: str = ""


@dataclass(frozen=True, slots=True)
class RankView:
    title: str
    """`worker-1`"""
    pod: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def node(self) -> str:
        return str((self.pod.get("spec") or {}).get("nodeName") or "<none>")

    @property
    def phase(self) -> str:
        """The phase, or what keeps the pod from its next one."""
        if (obstacle := self.obstacle) is not None:
            return obstacle.reason
        phase = str(_status(self.pod).get("phase", "Pending"))
        if self.pod["metadata"].get("deletionTimestamp") and phase not in ("Succeeded", "Failed"):
            return "Terminating"
        return str(_status(self.pod).get("reason") or phase) if phase == "Failed" else phase

    @property
    def exit(self) -> str:
        ended = [one["state"]["terminated"] for one in self.containers if (one.get("state") or {}).get("terminated")]
        return str(max(int(one.get("exitCode", 0)) for one in ended)) if ended else ""

    @property
    def restarts(self) -> int:
        return sum(int(one.get("restartCount", 0)) for one in _statuses(self.pod))

    @property
    def is_leader(self) -> bool:
        return (self.pod["metadata"].get("labels") or {}).get(JOB_ROLE) in LEADERS

    @property
    def containers(self) -> list[Mapping[str, Any]]:
        return list(_status(self.pod).get("containerStatuses") or ())

    @property
    def ending(self) -> Ending | None:
        """The first bad end of one of its containers."""
        return min(_endings(self.pod), key=lambda ending: ending.at or "9", default=None)

    @property
    def told_at(self) -> str:
        """When somebody deleted it, and so told it to end; empty if nobody has."""
        metadata = self.pod["metadata"]
        due = timestamp.parse(metadata.get("deletionTimestamp"))
        return timestamp.render(due - (metadata.get("deletionGracePeriodSeconds") or 0)) if due is not None else ""

    @property
    def obstacle(self) -> Obstacle | None:
        for one in _statuses(self.pod):
            waiting = (one.get("state") or {}).get("waiting") or {}
            if waiting.get("reason", "") not in _ORDINARY:
                return Obstacle(waiting["reason"], waiting.get("message", ""), one.get("name", ""))
        for condition in _status(self.pod).get("conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return Obstacle(condition.get("reason") or "Unschedulable", condition.get("message", ""))
        return None


async def of(session: Session, job: Found) -> list[RankView]:
    """In natural order: worker-2 before worker-10."""
    page = await session.client.list(PODS, job.namespace, label_selector=f"{JOB_NAME}={job.name}")
    owned = [pod for pod in page.items if _is_owned(pod, job.uid)]
    ranks = [RankView(pod["metadata"]["name"].removeprefix(f"{job.name}-"), pod) for pod in owned]
    return sorted(ranks, key=lambda rank: natural(rank.title))


def natural(title: str) -> tuple[str, int]:
    role, _, index = title.rpartition("-")
    return (role, int(index)) if index.isdecimal() else (title, 0)


def first_to_fail(ranks: Iterable[RankView]) -> tuple[RankView, Ending] | None:
    """The others often fail only because one did: the earliest tells the cause. Whoever ended because it was told to,
    as the operator tells the ranks that are left over, has not failed."""
    ends = [(rank, ending) for rank in ranks for ending in _endings(rank.pod)]
    failed = [(rank, ending) for rank, ending in ends if not rank.told_at or ending.at <= rank.told_at]
    return min(failed, key=_earliness, default=None)


def _earliness(failure: tuple[RankView, Ending]) -> tuple[str, bool, bool]:
    """Times are whole seconds: in the one in which a rank was told to end, it may have failed before or ended after."""
    rank, ending = failure
    return ending.at or "9", ending.at == rank.told_at, ending.exit_code in _TOLD


def leader(ranks: Iterable[RankView]) -> RankView | None:
    """Whose log to read first: the one labelled so, else the first."""
    known = list(ranks)
    return next((rank for rank in known if rank.is_leader), known[0] if known else None)


def _is_owned(pod: Mapping[str, Any], uid: str) -> bool:
    """Controlled by the job, or made for it by a Kubernetes Job."""
    if (pod["metadata"].get("annotations") or {}).get(JOB_UID) == uid:
        return True
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == uid for owner in owners)


def _status(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    status: Mapping[str, Any] = pod.get("status") or {}
    return status


def _statuses(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    status = _status(pod)
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _endings(pod: Mapping[str, Any]) -> Iterator[Ending]:
    for one in _statuses(pod):
        for state, was_restarted in ((one.get("lastState"), True), (one.get("state"), False)):
            ended = (state or {}).get("terminated") or {}
            if ended.get("exitCode"):
                yield Ending(
                    container=one.get("name", ""),
                    exit_code=int(ended["exitCode"]),
                    reason=ended.get("reason", ""),
                    message=(ended.get("message") or "").strip(),
                    at=ended.get("finishedAt") or "",
                    was_restarted=was_restarted,
                )
