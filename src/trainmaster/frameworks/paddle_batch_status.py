"""How a paddle-operator job stands, in the words of that operator: phase, mode, and `running/replicas` by role."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from trainmaster.api import schema
from trainmaster.api import status as statuses
from trainmaster.api.job import Job
from trainmaster.api.status import JobStatus
from trainmaster.frameworks.paddle_batch_pod import COORDINATOR
from trainmaster.objects.meta import Json
from trainmaster.objects.pod import Pod

COUNTERS = ("pending", "starting", "running", "failed", "succeeded")
MAX_REFERENCES = 1000
"""Of one role: the status of a job of ten thousand pods must still fit into an object."""

ALL_REFERENCES = 3 * MAX_REFERENCES
"""Of all tasks together; each has at least one."""

_ROLE = schema.record(
    {
        **{name: schema.told(schema.COUNTER, f"Pods that are {name}.") for name in COUNTERS},
        "ready": schema.told(schema.STRING, "Pods that run, of how many there should be."),
        "refs": schema.told(schema.array(schema.ANYTHING), "The pods, at most a thousand."),
    }
)
_PHASES = "Pending, Starting, Running, Completed, Failed or Terminating."
FIELDS: Json = {
    "phase": schema.told(schema.STRING, _PHASES),
    "mode": schema.told(schema.STRING, "PS, Collective or Single."),
    **{role: schema.told(_ROLE, f"How the {role} replicas stand.") for role in ("ps", "worker", "heter")},
    "tasks": schema.told(schema.mapping(_ROLE), "How the tasks stand, by name."),
}

ENDS = {"Completed": True, "Failed": False}
"""Phases that a job never leaves, and whether it has succeeded."""

Tallies = Mapping[str, Counter[str]]


def inherited(status: JobStatus, kind: str) -> JobStatus:
    """paddle-operator wrote phases and no conditions. The phase is left out, to be told anew with the condition."""
    succeeded = ENDS.get(str(status.report.get("phase")))
    if succeeded is None or status.is_finished:
        return status
    told = {field: value for field, value in status.report.items() if field != "phase"}
    return statuses.inherited(structs.replace(status, report=told), kind, succeeded=succeeded)


def tallies(job: Job) -> Tallies:
    """How many pods of each role stand how."""
    found: dict[str, Counter[str]] = {role: Counter() for role in job.replicas}
    for (role, _), pod in job.seen.pods.items():
        found[role][standing(pod)] += 1
    return found


def standing(pod: Pod) -> str:
    status = pod.status
    match status.phase:
        case "Pending":
            return "starting" if _is_coordinating(pod) else "pending"
        case "Running":
            return "running" if _is_up(pod) else "starting"
        case "Failed" if pod.metadata.is_terminating:
            return "leaving"  # by whoever deletes it; it is made again, and the job has not failed
        case "Failed" | "Succeeded":
            return status.phase.lower()
    return "unknown"


def _is_coordinating(pod: Pod) -> bool:
    inits = pod.status.init_container_statuses
    return any(init.name == COORDINATOR and init.state.running is not None for init in inits)


def _is_up(pod: Pod) -> bool:
    containers = pod.status.container_statuses
    return all(init.ready for init in pod.status.init_container_statuses) and all(
        container.ready and container.state.running is not None for container in containers
    )


def has_failed(job: Job) -> bool:
    return any(tally["failed"] for tally in job.once(tallies).values())


def is_running(job: Job) -> bool:
    found = job.once(tallies)
    return job.world > 0 and all(found[role]["running"] == replica.replicas for role, replica in job.replicas.items())


def report(job: Job, status: JobStatus, mode: str) -> dict[str, Any]:
    """Of the job as a whole."""
    return {"phase": _phase(job, status, job.once(tallies)), **({"mode": mode} if mode else {})}


def roles(job: Job) -> dict[str, Json]:
    """How each role stands. Apart from the rest: a task may have any name, `phase` too."""
    pods: dict[str, list[Pod]] = {role: [] for role in job.replicas}
    for slot in sorted(job.seen.pods):
        pods[slot[0]].append(job.seen.pods[slot])
    most = max(1, min(MAX_REFERENCES, ALL_REFERENCES // max(1, len(job.replicas))))
    return {role: _role(job, role, pods[role], most) for role in job.replicas}


def _role(job: Job, role: str, pods: Sequence[Pod], most: int) -> Json:
    tally = job.once(tallies)[role]
    stands: dict[str, Any] = {name: tally[name] for name in COUNTERS if tally[name]}
    stands["ready"] = f"{tally['running']}/{job.count(role)}"
    if pods:
        stands["refs"] = [_reference(pod) for pod in pods[:most]]
    return stands


def _reference(pod: Pod) -> Json:
    """Without the version, or every change of a pod would be one of its job."""
    meta = pod.metadata
    return {"apiVersion": "v1", "kind": "Pod", "namespace": meta.namespace, "name": meta.name, "uid": meta.uid}


def _phase(job: Job, status: JobStatus, found: Tallies) -> str:
    if job.meta.is_terminating:
        return "Terminating"
    if status.is_true("Failed"):
        return "Failed"
    if status.is_true("Succeeded"):
        return "Completed"
    if any(tally["starting"] for tally in found.values()):
        return "Starting"
    if status.is_true("Suspended") or any(tally["pending"] for tally in found.values()):
        return "Pending"
    return "Running" if is_running(job) else str(job.status.report.get("phase") or "Pending")
