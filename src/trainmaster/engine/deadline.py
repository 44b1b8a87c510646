"""activeDeadlineSeconds: how long a job may be active, from its (last) start."""

from __future__ import annotations

from trainmaster.api.job import Job
from trainmaster.api.status import JobStatus
from trainmaster.objects import timestamp

MESSAGE = "Job {name} has failed because it was active longer than specified deadline"


def remaining(job: Job, status: JobStatus, now: float) -> float | None:
    """Seconds left, zero when it has passed; None without a deadline or before the start."""
    started = timestamp.parse(status.start_time)
    if job.policy.active_deadline_seconds is None or started is None:
        return None
    return max(0.0, started + job.policy.active_deadline_seconds - now)
