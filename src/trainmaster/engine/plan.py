"""From what was observed to a plan. Pure: the same observation at the same time gives the same plan.

A job is rejected, managed elsewhere, going away, finished, suspended, or active; each has its own function here, and
each policy its own file beside this one. The order of decisions for an active job: success, limits (deadline,
backoff), failure, work. Success goes first: a replica that dies after the job is done changes nothing any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from trainmaster.api.framework import Count, Framework, Messages
from trainmaster.api.job import Job
from trainmaster.api.problem import Problem, shortened
from trainmaster.api.status import Condition, JobStatus, ReplicaStatus, with_condition
from trainmaster.engine import (
    backoff,
    companions,
    deadline,
    delegates,
    diagnosis,
    gang,
    pods,
    replicas,
    restarts,
    services,
    suspend,
    ttl,
)
from trainmaster.engine import status as statuses
from trainmaster.engine.actions import Action, Claim, Create, Delete, Event, Mark, Patch
from trainmaster.engine.cleanup import leisure, plan_cleanup
from trainmaster.engine.observed import Observed
from trainmaster.engine.restarts import Failure
from trainmaster.objects import timestamp
from trainmaster.objects.resource import PODS

_LONGEST_REASON = 16_000
"""Of a message in the status. Names that somebody else chose may have any length."""


@dataclass(frozen=True, slots=True)
class Plan:
    status: JobStatus
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    marks: tuple[Mark, ...] = ()
    claims: tuple[Claim, ...] = ()
    """Where pods are to be made: what must not be another's."""

    wake_after: float | None = None
    """Seconds until the job must be looked at again even if nothing happens to it."""


def plan(observed: Observed, now: float) -> Plan:
    job = observed.job
    if job.meta.is_terminating:
        return _leaving(observed)
    if job.status.is_finished:
        return _told(observed, _finished(observed, now))
    if job.policy.suspend:
        return _told(observed, _suspended(observed, now))
    return _told(observed, _active(observed, now))


def plan_rejected(framework: Framework, job: Job, problems: Sequence[Problem], now: float, *, has_pods: bool) -> Plan:
    """A job that cannot be read. If it could once, or already runs, an edit broke it: what it has is worth more than
    the edit, so it is left alone and the user is told. Otherwise it has failed before it began."""
    if job.meta.is_terminating:
        return Plan(job.status, tuple(_released(framework, job)))
    left = ttl.remaining(job, job.status, now)
    if job.status.is_finished:
        return _expired(job) if left == 0 and not framework.outlives_ttl else Plan(job.status, wake_after=left)
    reason, message = _rejection(framework, job, "; ".join(shortened([*map(str, problems)])))
    event = Event("Warning", reason, message, repeat=False)
    if has_pods or job.status.is_true("Created"):
        return Plan(job.status, events=(event,))
    status = with_condition(statuses.created(job, Messages(), now), "Failed", True, reason, message, now)
    status = statuses.ended(msgspec.structs.replace(status, report=dict(framework.report(job, status, {}))), now)
    marks = tuple(_marks(_changed(job.status, status)))
    return Plan(status, events=(event,), marks=marks, wake_after=ttl.remaining(job, status, now))


def plan_refused(observed: Observed, name: str, why: str, now: float) -> Plan | None:
    """The API server takes no pod of a role's template, of which `name` was one: a mistake that we did not find.

    None where the role has had pods: an edit broke it, and what runs is worth more than the edit."""
    job, slot = observed.job, observed.slot_of(name)
    if slot is None or observed.counts[slot[0]] != Count() or job.status.attempts:
        return None
    if job.status.replica_statuses.get(slot[0], ReplicaStatus()).has_any or job.status.is_finished:
        return None
    reason, message = _rejection(observed.framework, job, f"the API server refuses its pods: {why}")
    status = statuses.created(job, observed.framework.messages(job), now)
    return _told(observed, _ended(observed, statuses.failed_because(job, status, message, now, reason), now))


def _rejection(framework: Framework, job: Job, why: str) -> tuple[str, str]:
    told = why if len(why) <= _LONGEST_REASON else f"{why[:_LONGEST_REASON]}…"
    return f"{job.kind}{framework.rejected}", f"{job.kind} failed validation because {told}"


def _expired(job: Job) -> Plan:
    return Plan(job.status, (Delete(job.resource, job.meta),), marks=("deleted",))


def _leaving(observed: Observed) -> Plan:
    """A job that is being deleted: its objects go with it by themselves, and nothing of ours is to hold it."""
    job = observed.job
    releases = tuple(_released(observed.framework, job))
    report = observed.framework.report(job, job.status, observed.counts) if not releases else {}
    status = msgspec.structs.replace(job.status, report=dict(report)) if report else job.status
    return Plan(status, releases)


def _released(framework: Framework, job: Job) -> Iterator[Patch]:
    kept = [mark for mark in job.meta.finalizers if mark not in framework.finalizers]
    if len(kept) < len(job.meta.finalizers):
        body = {"metadata": {"resourceVersion": job.meta.resource_version, "finalizers": kept}}
        yield Patch(job.resource, job.meta, body)


def _finished(observed: Observed, now: float) -> Plan:
    job = observed.job
    status = job.status
    if status.completion_time is None:  # written by an operator that forgot it; without it a TTL never ends
        last = max((c.last_transition_time or "" for c in status.conditions), default="")
        status = msgspec.structs.replace(status, completion_time=last or timestamp.render(now))
    left = ttl.remaining(job, status, now)
    if left == 0 and not observed.framework.outlives_ttl:
        return replace(_expired(job), status=status)
    policy = observed.framework.cleaning(job, succeeded=status.is_true("Succeeded"))
    spared = leisure(observed, status, policy, now)
    expired = delegates.plan_removal(observed, unfinished_only=False) if left == 0 else ()
    cleanup = {
        (action.resource, action.name): action
        for action in (*plan_cleanup(observed, policy, at_leisure=spared is not None), *expired)
    }
    is_awaited = observed.jobs or not observed.framework.outlives_ttl
    return Plan(status, tuple(cleanup.values()), wake_after=_soonest(left or None if is_awaited else None, spared))


def _suspended(observed: Observed, now: float) -> Plan:
    job, messages = observed.job, observed.framework.messages(observed.job)
    status = suspend.suspended(job, messages, statuses.created(job, messages, now), now)
    return Plan(status, tuple(suspend.plan_suspension(observed)))


def _active(observed: Observed, now: float) -> Plan:
    job = observed.job
    messages = observed.framework.messages(job)
    status = statuses.created(job, messages, now)
    if status.is_true("Suspended"):
        if observed.owned_pods or observed.jobs:  # the old must be gone, or they would count as failures of the new run
            return Plan(status, tuple(suspend.plan_suspension(observed)))
        status = suspend.resumed(job, messages, status, now, is_held=gang.is_holding(observed))
    if gang.is_holding(observed) and not observed.owned_pods:
        return _held(observed, status, now)
    status = statuses.tallied(observed, statuses.started(observed, status, now))
    found = [(failure, failure.grace(observed, now)) for failure in restarts.failures_of(observed)]
    failures = [failure for failure, grace in found if not grace]
    outcome = _outcome(observed, status, failures, now)
    return outcome or _working(observed, status, failures, now, [grace for _, grace in found])


def _held(observed: Observed, status: JobStatus, now: float) -> Plan:
    """Waiting for the scheduler to admit the group. A job that has not started yet does so only then."""
    if status.last_reconcile_time is None:
        status = msgspec.structs.replace(status, last_reconcile_time=timestamp.render(now))
    held = Plan(status, tuple(gang.plan_group(observed)), wake_after=deadline.remaining(observed, status, now))
    return _outcome(observed, status, (), now) or held


def _outcome(observed: Observed, status: JobStatus, failures: Sequence[Failure], now: float) -> Plan | None:
    """The job's end, if this pass brings it."""
    job = observed.job
    if observed.framework.succeeded(job, observed.counts):
        return _ended(observed, statuses.succeeded(observed, statuses.running(observed, status, now), now), now)
    for is_past, message in (
        (deadline.remaining(observed, status, now) == 0, deadline.MESSAGE),
        (backoff.is_past(observed, failures), backoff.MESSAGE),
    ):
        if is_past:
            reason = observed.framework.limit_reason
            ended = statuses.failed_because(job, status, message.format(name=job.name), now, reason)
            return _ended(observed, ended, now, observed.framework.cleaning_at_limit(job))
    ending = observed.framework.ending(job, observed.counts)
    if ending is not None:
        unseen = statuses.never_ran(observed, status, now)
        return _ended(observed, statuses.failed_because(job, unseen, ending.message, now, ending.reason), now)
    fatal = next((failure for failure in failures if failure.is_fatal), None)
    if fatal is not None:
        return _ended(observed, statuses.failed(observed, statuses.running(observed, status, now), fatal, now), now)
    return None


def _ended(observed: Observed, status: JobStatus, now: float, policy: str = "") -> Plan:
    policy = policy or observed.framework.cleaning(observed.job, succeeded=status.is_true("Succeeded"))
    status = statuses.settled(observed, status, is_cleaned=policy != "None")
    spared = leisure(observed, status, policy, now)
    cleanup = tuple(plan_cleanup(observed, policy, at_leisure=spared is not None))
    return Plan(status, cleanup, wake_after=_soonest(ttl.remaining(observed.job, status, now), spared))


def _soonest(*waits: float | None) -> float | None:
    return min((wait for wait in waits if wait is not None), default=None)


def _working(
    observed: Observed, status: JobStatus, failures: Sequence[Failure], now: float, pauses: Sequence[float]
) -> Plan:
    due = replicas.due(failures, now)
    if failures:
        status = statuses.restarting(observed, status, failures, now)
        attempts = replicas.with_attempts(status.attempts, due)
        status = msgspec.structs.replace(status, attempts=attempts)
    else:
        status = statuses.running(observed, status, now)
    marks: list[Mark] = ["restarted" for failure in due if not failure.is_counted]
    waits = [deadline.remaining(observed, status, now), *pauses, *(f.delay(now) for f in failures)]
    actions = tuple(_work(observed, status, due))
    starts = any(isinstance(action, Create) and action.resource == PODS for action in actions)
    return Plan(
        status,
        actions,
        events=tuple(diagnosis.troubles((*observed.owned_pods, *observed.delegated_pods))),
        marks=tuple(marks),
        claims=tuple(companions.claims_of(observed)) if starts else (),
        wake_after=_soonest(*(wait or None for wait in waits)),
    )


def _work(observed: Observed, status: JobStatus, due: Sequence[Failure]) -> Iterator[Action]:
    yield from replicas.plan_scale_down(observed)
    yield from replicas.plan_replacement(due)
    yield from delegates.plan_replacement(observed)
    yield from gang.plan_group(observed)
    yield from companions.plan_removals(observed, is_active=True)
    yield from companions.plan_companions(observed)
    if not gang.is_holding(observed):
        yield from services.plan_services(observed)
        yield from replicas.plan_creation(observed, status.attempts)
        yield from delegates.plan_creation(observed)
    yield from pods.plan_annotations(observed)


def _told(observed: Observed, made: Plan) -> Plan:
    """The plan with what this kind reports, and the events and marks that follow from how the status changed."""
    report = observed.framework.report(observed.job, made.status, observed.counts)
    made = replace(made, status=msgspec.structs.replace(made.status, report=dict(report)))
    changed = _changed(observed.job.status, made.status)
    events = [*_first_words(observed, changed), *diagnosis.exits(observed, made.status), *made.events]
    announced = observed.framework.announced
    events += [event for condition in changed if (event := _event(condition, announced)) is not None]
    return replace(made, events=tuple(events), marks=(*made.marks, *_marks(changed)))


def _changed(old: JobStatus, new: JobStatus) -> list[Condition]:
    return [condition for condition in new.conditions if condition not in old.conditions]


def _first_words(observed: Observed, changed: Iterable[Condition]) -> Iterator[Event]:
    """Said once, when the job is first seen."""
    if any(condition.type == "Created" for condition in changed):
        for advice in (*observed.advice, *gang.advice_of(observed.job)):
            yield Event("Warning", advice.reason, advice.message)


def _event(condition: Condition, announced: Sequence[str]) -> Event | None:
    if condition.type in announced and condition.status == "True":
        return Event("Normal", condition.reason, condition.message)
    match condition.type, condition.status:
        case ("Succeeded", "True") | ("Suspended", _):
            return Event("Normal", condition.reason, condition.message)
        case ("Failed" | "Restarting", "True"):
            return Event("Warning", condition.reason, condition.message)
    return None


def _marks(changed: Iterable[Condition]) -> Iterator[Mark]:
    marks: dict[str, Mark] = {"Created": "created", "Succeeded": "successful", "Failed": "failed"}
    return (marks[condition.type] for condition in changed if condition.type in marks and condition.status == "True")
