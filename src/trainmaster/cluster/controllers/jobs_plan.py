"""What a batch/v1 Job wants next, from the Job, its pods and the time. Pure; `jobs` carries it out.

Pods are counted the way Kubernetes does since 1.26, so that a deleted pod or a crash at any moment counts nothing twice
and forgets nothing: a pod carries a finalizer until it has been counted. A pass notes ended pods by uid in
`status.uncountedTerminatedPods`; their finalizers are taken off; the next pass, seeing them off, adds them to the
numbers. A Job finishes only when nothing is left to count. Pods that the controller itself deletes are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from trainmaster.cluster.controllers.control import has_finalizer, is_terminating
from trainmaster.objects import timestamp
from trainmaster.objects.number import number_of

Json: TypeAlias = Mapping[str, Any]

TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"

_HIGHEST_INDEX = 2**31 - 1
_FIRST_BACKOFF, _LONGEST_BACKOFF = 10.0, 600.0


@dataclass(frozen=True, slots=True)
class Plan:
    """In this order: write the status, take finalizers off, delete, create; look again after `wake` seconds."""

    status: Json
    release: tuple[Json, ...] = ()
    delete: tuple[Json, ...] = ()
    create: tuple[int | None, ...] = ()
    """A completion index per pod, None where the Job has none."""
    expire: bool = False
    """Its time after finishing is over: delete the Job itself."""
    wake: float | None = None


@dataclass(slots=True)
class _Count:
    """A Job's pods, sorted out."""

    pods: Sequence[Json]
    active: list[Json] = field(default_factory=list)
    terminating: list[Json] = field(default_factory=list)
    succeeded: int = 0
    failed: int = 0
    completed: set[int] = field(default_factory=set)
    noted: dict[str, list[str]] = field(default_factory=dict)
    release: list[Json] = field(default_factory=list)


def plan(job: Json, pods: Sequence[Json], now: float) -> Plan:
    """`pods` are those this very Job controls."""
    status = dict(job.get("status") or {})
    if is_terminating(job):
        return Plan(status=status, release=tuple(pod for pod in pods if has_finalizer(pod, TRACKING)))
    if finished_at(job) is not None:
        return _after_finish(job, status, pods, now)
    count = _counted(job, pods)
    status = _status(job, status, count, now)
    verdict = _verdict(job, count, status, now)
    if verdict is not None:
        return _finish(status, count, verdict, now)
    return _manage(job, status, count, now)


def is_condition(job: Json, type_: str) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(each["type"] == type_ and each["status"] == "True" for each in conditions)


def finished_at(job: Json) -> float | None:
    """When it completed or failed for good."""
    for each in (job.get("status") or {}).get("conditions") or ():
        if each["type"] in ("Complete", "Failed") and each["status"] == "True":
            return timestamp.parse(each.get("lastTransitionTime")) or 0.0
    return None


def _after_finish(job: Json, status: Json, pods: Sequence[Json], now: float) -> Plan:
    """What still runs was to be stopped with the Job, but changed at that moment."""
    running = tuple(pod for pod in pods if _phase(pod) not in ("Succeeded", "Failed") and not is_terminating(pod))
    ended = tuple(pod for pod in pods if pod not in running and has_finalizer(pod, TRACKING))
    ttl = job["spec"].get("ttlSecondsAfterFinished")
    if ttl is None:
        return Plan(status=status, release=ended, delete=running)
    remaining = (finished_at(job) or 0.0) + ttl - now
    wake = remaining if remaining > 0 else None
    return Plan(status=status, release=ended, delete=running, expire=remaining <= 0, wake=wake)


def _counted(job: Json, pods: Sequence[Json]) -> _Count:
    status = job.get("status") or {}
    before = status.get("uncountedTerminatedPods") or {}
    count = _Count(pods, succeeded=status.get("succeeded", 0), failed=status.get("failed", 0))
    held = {pod["metadata"]["uid"] for pod in pods if has_finalizer(pod, TRACKING)}
    noted = {name: list(before.get(name) or ()) for name in ("succeeded", "failed")}
    count.succeeded += sum(uid not in held for uid in noted["succeeded"])
    count.failed += sum(uid not in held for uid in noted["failed"])
    count.noted = {name: [uid for uid in uids if uid in held] for name, uids in noted.items()}
    count.completed = parse_indexes(status.get("completedIndexes", ""))
    for pod in pods:
        _sort(job, pod, count)
    return count


def _sort(job: Json, pod: Json, count: _Count) -> None:
    end = _end_of(job, pod)
    if end == "succeeded" and (index := index_of(pod)) is not None:
        count.completed.add(index)
    if end and has_finalizer(pod, TRACKING):
        uid = pod["metadata"]["uid"]
        if uid not in count.noted["succeeded"] and uid not in count.noted["failed"]:
            count.noted[end].append(uid)
        count.release.append(pod)
    if _phase(pod) in ("Succeeded", "Failed"):
        return
    if is_terminating(pod):
        count.terminating.append(pod)
    else:
        count.active.append(pod)


def _end_of(job: Json, pod: Json) -> str:
    """`succeeded`, `failed`, or nothing yet. A pod being deleted has failed, unless the Job waits for its end."""
    phase = _phase(pod)
    if phase == "Succeeded":
        return "succeeded"
    waits = job["spec"].get("podReplacementPolicy") == "Failed"
    return "failed" if phase == "Failed" or (is_terminating(pod) and not waits) else ""


def _phase(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def _status(job: Json, status: dict[str, Any], count: _Count, now: float) -> dict[str, Any]:
    suspended = bool(job["spec"].get("suspend"))
    ready = sum(1 for pod in count.active if _is_ready(pod))
    numbers = {"active": len(count.active), "ready": ready, "terminating": len(count.terminating)}
    numbers |= {"succeeded": count.succeeded, "failed": count.failed}
    if job["spec"].get("completionMode") == "Indexed":
        numbers["succeeded"] = len(count.completed)
        status["completedIndexes"] = render_indexes(count.completed)
    status |= numbers
    status["uncountedTerminatedPods"] = {name: uids for name, uids in count.noted.items() if uids}
    if suspended and not is_condition(job, "Suspended"):
        status["conditions"] = _with(status, "Suspended", "True", "JobSuspended", "Job suspended", now)
    if not suspended and is_condition(job, "Suspended"):
        status["conditions"] = _with(status, "Suspended", "False", "JobResumed", "Job resumed", now)
    if suspended:
        status.pop("startTime", None)
    else:
        status.setdefault("startTime", timestamp.render(now))
    return status


def _with(status: Json, type_: str, value: str, reason: str, message: str, now: float) -> list[dict[str, Any]]:
    moment = timestamp.render(now)
    condition = {"type": type_, "status": value, "lastProbeTime": moment, "lastTransitionTime": moment}
    condition |= {"reason": reason, "message": message}
    return [*(each for each in status.get("conditions") or () if each["type"] != type_), condition]


def _verdict(job: Json, count: _Count, status: Json, now: float) -> tuple[str, str, str] | None:
    """Condition, reason and message, if the Job is over."""
    spec = job["spec"]
    failed = count.failed + len(count.noted["failed"])
    limit = spec.get("backoffLimit", 6)
    if failed > limit or _restarts_exceed(job, count.active, limit):
        return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    deadline = _deadline(job, status)
    if deadline is not None and now >= deadline:
        return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
    if spec.get("suspend"):
        return None
    succeeded, completions = _succeeded(job, count), spec.get("completions")
    if succeeded >= completions if completions is not None else succeeded and not count.active:
        return "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
    return None


def _succeeded(job: Json, count: _Count) -> int:
    if job["spec"].get("completionMode") == "Indexed":
        return len(count.completed)
    return count.succeeded + len(count.noted["succeeded"])


def _restarts_exceed(job: Json, active: Iterable[Json], limit: int) -> bool:
    """With restartPolicy OnFailure the kubelet restarts in place, and those restarts count."""
    if job["spec"]["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    statuses = [
        each
        for pod in active
        for name in ("initContainerStatuses", "containerStatuses")
        for each in (pod.get("status") or {}).get(name) or ()
    ]
    restarts = sum(int(each.get("restartCount", 0)) for each in statuses)
    return restarts > 0 if limit == 0 else restarts >= limit


def _deadline(job: Json, status: Json) -> float | None:
    seconds, start = job["spec"].get("activeDeadlineSeconds"), timestamp.parse(status.get("startTime"))
    return None if seconds is None or start is None else start + seconds


def _finish(status: dict[str, Any], count: _Count, verdict: tuple[str, str, str], now: float) -> Plan:
    """Stops what still runs; says so in the status once every pod has been counted."""
    type_, reason, message = verdict
    release, delete = tuple(count.release), tuple(count.active)
    if release or any(count.noted.values()):
        return Plan(status={**status, "active": 0, "ready": 0}, release=release, delete=delete)
    status |= {"active": 0, "ready": 0, "conditions": _with(status, type_, "True", reason, message, now)}
    if type_ == "Complete":
        status["completionTime"] = timestamp.render(now)
    return Plan(status=status, delete=delete)


def _manage(job: Json, status: dict[str, Any], count: _Count, now: float) -> Plan:
    release = tuple(count.release)
    if job["spec"].get("suspend"):
        return Plan(status={**status, "active": 0, "ready": 0}, release=release, delete=tuple(count.active))
    wanted = _wanted(job, count)
    deadline = _deadline(job, status)
    wake = None if deadline is None else deadline - now
    surplus = len(count.active) - wanted
    if surplus > 0:
        return Plan(status=status, release=release, delete=_least_useful(count.active)[:surplus], wake=wake)
    pause = _backoff(count.pods, now) if surplus < 0 else 0.0
    if pause > 0:
        return Plan(status=status, release=release, wake=pause if wake is None else min(pause, wake))
    create = _indexes(job, count, -surplus)
    status["active"] = len(count.active) + len(create)
    return Plan(status=status, release=release, create=create, wake=wake)


def _wanted(job: Json, count: _Count) -> int:
    spec = job["spec"]
    parallelism, completions = spec.get("parallelism", 1), spec.get("completions")
    succeeded = _succeeded(job, count)
    if completions is None:
        wanted = len(count.active) if succeeded else parallelism
    else:
        wanted = min(parallelism, completions - succeeded)
    stopping = len(count.terminating) if spec.get("podReplacementPolicy") == "Failed" else 0
    return max(0, int(wanted) - stopping)


def _indexes(job: Json, count: _Count, number: int) -> tuple[int | None, ...]:
    if job["spec"].get("completionMode") != "Indexed":
        return (None,) * number
    taken = count.completed | {index_of(pod) for pod in count.active}
    free = [index for index in range(job["spec"].get("completions") or 0) if index not in taken]
    return tuple(free[:number])


def _least_useful(active: list[Json]) -> tuple[Json, ...]:
    """First to go: not assigned, not running, not ready, youngest."""

    def usefulness(pod: Json) -> tuple[bool, bool, bool, float]:
        created = timestamp.parse(pod["metadata"].get("creationTimestamp")) or 0.0
        return bool(pod["spec"].get("nodeName")), _phase(pod) == "Running", _is_ready(pod), -created

    return tuple(sorted(active, key=usefulness))


def _is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _backoff(pods: Iterable[Json], now: float) -> float:
    """Seconds to wait before the next pod: 10, 20, 40… after each failure in a row, up to ten minutes."""
    ends = sorted((_ended_at(pod), _phase(pod)) for pod in pods if _phase(pod) in ("Succeeded", "Failed"))
    failures = 0
    for _, phase in reversed(ends):
        if phase != "Failed":
            break
        failures += 1
    if not failures:
        return 0.0
    return min(_FIRST_BACKOFF * 2.0 ** (failures - 1), _LONGEST_BACKOFF) - (now - ends[-1][0])


def _ended_at(pod: Json) -> float:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    ends = [((each.get("state") or {}).get("terminated") or {}).get("finishedAt") for each in statuses]
    known = [moment for end in ends if (moment := timestamp.parse(end)) is not None]
    return max(known, default=timestamp.parse(pod["metadata"].get("creationTimestamp")) or 0.0)


def index_of(pod: Json) -> int | None:
    text = (pod["metadata"].get("annotations") or {}).get(INDEX)
    return number_of(str(text), _HIGHEST_INDEX) if text is not None else None


def parse_indexes(text: str) -> set[int]:
    """`0-2,5` is {0, 1, 2, 5}."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def render_indexes(indexes: set[int]) -> str:
    """Three and more in a row are written as a range."""
    parts: list[list[int]] = []
    for index in sorted(indexes):
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(a) if a == b else f"{a},{b}" if b == a + 1 else f"{a}-{b}" for a, b in parts)
