"""The status that follows from what was observed: tallies of replicas, and the condition the job is in."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trainmaster.api.framework import Count, Messages
from trainmaster.api.job import Job
from trainmaster.api.status import ConditionType, JobStatus, ReplicaStatus, with_condition
from trainmaster.engine import labels
from trainmaster.engine.observed import Observed
from trainmaster.engine.restarts import Failure, Verdict
from trainmaster.objects import selector, timestamp


def created(job: Job, messages: Messages, now: float) -> JobStatus:
    # Of a job that cannot be read any more, only its status still knows.
    status = msgspec.structs.replace(job.status, authored_version=job.version or job.status.authored_version)
    if status.condition("Created") is not None:
        return status
    return with_condition(status, "Created", True, f"{job.kind}Created", messages.text("created", job), now)


def started(observed: Observed, status: JobStatus, now: float, *, is_running: bool = False) -> JobStatus:
    is_early = observed.framework.starts_when_running and not is_running
    if status.start_time is not None or is_early:
        return status
    return msgspec.structs.replace(status, start_time=timestamp.render(now))


def tallied(observed: Observed, status: JobStatus) -> JobStatus:
    """Counts by role, and which replicas are done for good."""
    counts = observed.counts
    statuses = {
        role: ReplicaStatus(
            active=len(count.active),
            succeeded=len(count.succeeded),
            failed=_failed(observed, role, count),
            selector=_selector(observed, role),
        )
        for role, count in counts.items()
    }
    completed = {role: tuple(sorted(count.succeeded)) for role, count in counts.items() if count.succeeded}
    return msgspec.structs.replace(status, replica_statuses=statuses, completed=completed)


def _failed(observed: Observed, role: str, count: Count) -> int:
    delegate = observed.job.seen.delegates.get(role)
    if delegate is not None:
        return delegate.failed
    framework, attempts = observed.framework, observed.job.status.attempts
    is_kept = framework.tallies_attempts and framework.counts_restarts(role)
    slots = (f"{role.lower()}-{index}" for index in range(observed.job.count(role)))
    return len(count.failed) + (sum(attempts.get(slot, 0) for slot in slots) if is_kept else 0)


def _selector(observed: Observed, role: str) -> str:
    if not observed.framework.scalable_role:
        return ""
    return selector.render(labels.role_labels(observed.framework, observed.job, role))


def running(observed: Observed, status: JobStatus, now: float) -> JobStatus:
    if not observed.framework.is_running(observed.job, observed.counts):
        return status
    return started(observed, _told(observed, status, "Running", now), now, is_running=True)


def restarting(observed: Observed, status: JobStatus, failures: Sequence[Failure], now: float) -> JobStatus:
    first = failures[0]
    role = first.slot[0]
    if first.verdict is Verdict.LEAVING:
        return _told(observed, status, "Restarting", now, role, len(observed.counts[role].failed))
    count = len(observed.counts[role].failed)
    message = observed.framework.messages(observed.job).text("replacing", observed.job, role=role, count=count)
    return with_condition(status, "Restarting", True, f"{observed.job.kind}Restarting", message, now)


def succeeded(observed: Observed, status: JobStatus, now: float) -> JobStatus:
    """What still ran when the job was decided has done its part: it counts as succeeded."""
    status = never_ran(observed, _ran(observed, status, now), now)
    status = _told(observed, status, "Succeeded", now)
    finished = {
        role: msgspec.structs.replace(held, active=0, succeeded=held.succeeded + held.active)
        for role, held in status.replica_statuses.items()
    }
    return ended(msgspec.structs.replace(status, replica_statuses=finished), now)


def failed(observed: Observed, status: JobStatus, failure: Failure, now: float) -> JobStatus:
    status = never_ran(observed, _ran(observed, status, now), now)
    role = failure.slot[0]
    count = len(observed.counts[role].failed)
    if failure.verdict is Verdict.FATAL_EXIT_CODE:
        messages = observed.framework.messages(observed.job)
        message = messages.text("failing", observed.job, role=role, count=count)
        return failed_because(observed.job, status, message, now)
    return ended(_told(observed, status, "Failed", now, role, count), now)


def failed_because(job: Job, status: JobStatus, message: str, now: float, reason: str = "") -> JobStatus:
    reason = reason or f"{job.kind}Failed"
    return ended(with_condition(status, "Failed", True, reason, message, now), now)


def settled(observed: Observed, status: JobStatus, *, is_cleaned: bool) -> JobStatus:
    """The last tally: what goes with the job is not active any more; roles that do not outlast it are cleared."""
    forgets = observed.framework.forgets
    tallies = {
        role: ReplicaStatus() if forgets(observed.job, role)
        else msgspec.structs.replace(held, active=0) if is_cleaned
        else held
        for role, held in status.replica_statuses.items()
    }  # fmt: skip
    return msgspec.structs.replace(status, replica_statuses=tallies)


def ended(status: JobStatus, now: float) -> JobStatus:
    if status.completion_time is not None:
        return status
    return msgspec.structs.replace(status, completion_time=timestamp.render(now))


def _ran(observed: Observed, status: JobStatus, now: float) -> JobStatus:
    never = status.condition("Running") is None
    return _told(observed, status, "Running", now) if never and observed.framework.always_ran else status


def never_ran(observed: Observed, status: JobStatus, now: float) -> JobStatus:
    """For clients that wait for Running to say something. Said before the end is: what comes last is what users see."""
    messages = observed.framework.messages(observed.job)
    if not messages.never_ran or status.condition("Running") is not None:
        return status
    message = messages.text("never_ran", observed.job)
    return with_condition(status, "Running", False, f"{observed.job.kind}Running", message, now)


def _told(
    observed: Observed, status: JobStatus, condition: ConditionType, now: float, role: str = "", count: int = 0
) -> JobStatus:
    """A condition with the text that this kind has for it."""
    job, messages = observed.job, observed.framework.messages(observed.job)
    message = messages.text(condition.lower(), job, role=role, count=count)
    return with_condition(status, condition, True, f"{job.kind}{condition}", message, now)
