"""activeDeadlineSeconds: how long a job may be active, from its (last) start."""

from __future__ import annotations

from trainmaster.api.status import JobStatus
from trainmaster.engine.observed import Observed
from trainmaster.objects import timestamp

MESSAGE = "Job {name} has failed because it was active longer than specified deadline"


def remaining(observed: Observed, status: JobStatus, now: float) -> float | None:
    """Seconds left, zero when it has passed; None without a deadline or before the start."""
    allowed = observed.job.policy.active_deadline_seconds
    if observed.job.seen.delegates:
        return None  # told to the Job that runs for us: from now on it counts, and ends, itself
    since = _first_seen(status) if observed.framework.deadline_while_waiting else timestamp.parse(status.start_time)
    return None if allowed is None or since is None else max(0.0, since + allowed - now)


def _first_seen(status: JobStatus) -> float | None:
    """When the job was first seen, here or by an older operator; or when it was resumed."""
    resumed, created = status.condition("Suspended"), status.condition("Created")
    if resumed is not None:
        return timestamp.parse(resumed.last_transition_time)
    seen = [status.start_time, created.last_transition_time if created is not None else None]
    return min((moment for text in seen if (moment := timestamp.parse(text)) is not None), default=None)
