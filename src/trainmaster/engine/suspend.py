"""suspend: everything that runs goes, what the job has achieved stays on record. Kueue relies on exactly this."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from trainmaster.api.framework import Messages
from trainmaster.api.job import Job
from trainmaster.api.status import JobStatus, with_condition
from trainmaster.engine import companions, delegates, gang
from trainmaster.engine.actions import Action, Delete
from trainmaster.engine.observed import Observed
from trainmaster.objects import timestamp
from trainmaster.objects.resource import PODS, SERVICES


def suspended(job: Job, messages: Messages, status: JobStatus, now: float) -> JobStatus:
    """Nothing is active any more; startTime stays as it was. Work done before counts for nothing after a resume,
    because ranks that come back meet only ranks that come back too."""
    reason = f"{job.kind}Suspended"
    if status.is_true("Running"):
        status = with_condition(status, "Running", False, reason, messages.text("stopped", job), now)
    status = with_condition(status, "Suspended", True, reason, messages.text("suspended", job), now)
    idle = {role: msgspec.structs.replace(held, active=0) for role, held in status.replica_statuses.items()}
    return msgspec.structs.replace(status, replica_statuses=idle, completed={})


def resumed(job: Job, messages: Messages, status: JobStatus, now: float, *, is_held: bool) -> JobStatus:
    """A job that is held has yet to start, as if it were new."""
    status = with_condition(status, "Suspended", False, f"{job.kind}Resumed", messages.text("resumed", job), now)
    return msgspec.structs.replace(status, start_time=None if is_held else timestamp.render(now))


def plan_suspension(observed: Observed) -> Iterator[Action]:
    for pod in observed.owned_pods:
        if not pod.metadata.is_terminating:
            yield Delete(PODS, pod.metadata)
    for service in observed.owned_services:
        is_a_replicas = observed.slot_of(service.metadata.name) is not None  # others are companions
        if is_a_replicas and not service.metadata.is_terminating:
            yield Delete(SERVICES, service.metadata)
    yield from delegates.plan_removal(observed, unfinished_only=False)
    yield from gang.plan_removal(observed)
    if observed.framework.prepares_suspended:
        yield from companions.plan_companions(observed, lasting_only=True)
    yield from companions.plan_narrowing(observed, lambda pod: False)
    yield from companions.plan_removals(observed, is_active=False)
