"""ttlSecondsAfterFinished: how long a finished job is kept."""

from __future__ import annotations

from trainmaster.api.job import Job
from trainmaster.api.status import JobStatus
from trainmaster.objects import timestamp


def remaining(job: Job, status: JobStatus, now: float) -> float | None:
    """Seconds until the job is to be deleted; None when it is kept for good."""
    ended = timestamp.parse(status.completion_time)
    if job.policy.ttl_seconds_after_finished is None or ended is None:
        return None
    return max(0.0, ended + job.policy.ttl_seconds_after_finished - now)
