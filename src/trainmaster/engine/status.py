"""The status that follows from what was observed: tallies of replicas, and the condition the job is in."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trainmaster.api.job import Job
from trainmaster.api.status import ConditionType, JobStatus, ReplicaStatus, with_condition
from trainmaster.engine import labels
from trainmaster.engine.observed import Observed
from trainmaster.engine.restarts import Failure, Verdict
from trainmaster.objects import selector, timestamp


def created(job: Job, now: float) -> JobStatus:
    if job.status.condition("Created") is not None:
        return job.status
    return with_condition(
        job.status, "Created", True, f"{job.kind}Created", f"{job.kind} {job.name} is created.", now
    )  # fmt: skip


def started(status: JobStatus, now: float) -> JobStatus:
    if status.start_time is not None:
        return status
    return msgspec.structs.replace(status, start_time=timestamp.render(now))


def tallied(observed: Observed, status: JobStatus) -> JobStatus:
    """Counts by role, and which replicas are done for good."""
    counts = observed.counts
    statuses = {
        role: ReplicaStatus(
            active=len(count.active),
            succeeded=len(count.succeeded),
            failed=len(count.failed),
            selector=_selector(observed, role),
        )
        for role, count in counts.items()
    }
    completed = {role: tuple(sorted(count.succeeded)) for role, count in counts.items() if count.succeeded}
    return msgspec.structs.replace(status, replica_statuses=statuses, completed=completed)


def _selector(observed: Observed, role: str) -> str:
    if not observed.framework.scalable_role:
        return ""
    return selector.render(labels.role_labels(observed.framework, observed.job, role))


def running(observed: Observed, status: JobStatus, now: float) -> JobStatus:
    """Running as soon as one replica of the deciding role is."""
    role = observed.framework.deciding(observed.job)
    if role is None or not observed.counts[role].active:
        return status
    return _told(observed, status, "Running", now)


def restarting(observed: Observed, status: JobStatus, failures: Sequence[Failure], now: float) -> JobStatus:
    first = failures[0]
    role = first.slot[0]
    if first.verdict is Verdict.LEAVING:
        return _told(observed, status, "Restarting", now, role, len(observed.counts[role].failed))
    message = f"job {observed.job.name} is restarting because {role} replica(s) failed."
    return with_condition(status, "Restarting", True, f"{observed.job.kind}Restarting", message, now)


def succeeded(observed: Observed, status: JobStatus, now: float) -> JobStatus:
    """What still ran when the job was decided has done its part: it counts as succeeded."""
    status = _ran(observed, status, now)
    status = _told(observed, status, "Succeeded", now)
    finished = {
        role: msgspec.structs.replace(held, active=0, succeeded=held.succeeded + held.active)
        for role, held in status.replica_statuses.items()
    }
    return ended(msgspec.structs.replace(status, replica_statuses=finished), now)


def failed(observed: Observed, status: JobStatus, failure: Failure, now: float) -> JobStatus:
    status = _ran(observed, status, now)
    role = failure.slot[0]
    if failure.verdict is Verdict.FATAL_EXIT_CODE:
        message = f'job "{observed.job.name}" is failing because "{role}" replica(s) failed.'
        return failed_because(observed.job, status, message, now)
    count = len(observed.counts[role].failed)
    return ended(_told(observed, status, "Failed", now, role, count), now)


def failed_because(job: Job, status: JobStatus, message: str, now: float) -> JobStatus:
    return ended(with_condition(status, "Failed", True, f"{job.kind}Failed", message, now), now)


def ended(status: JobStatus, now: float) -> JobStatus:
    if status.completion_time is not None:
        return status
    return msgspec.structs.replace(status, completion_time=timestamp.render(now))


def _ran(observed: Observed, status: JobStatus, now: float) -> JobStatus:
    never = status.condition("Running") is None
    return _told(observed, status, "Running", now) if never and observed.framework.always_ran else status


def _told(
    observed: Observed, status: JobStatus, condition: ConditionType, now: float, role: str = "", count: int = 0
) -> JobStatus:
    """A condition with the text that this kind has for it."""
    job, messages = observed.job, observed.framework.messages(observed.job)
    text = getattr(messages, condition.lower())
    message = text.format(kind=job.kind, namespace=job.namespace, name=job.name, role=role, count=count)
    return with_condition(status, condition, True, f"{job.kind}{condition}", message, now)
