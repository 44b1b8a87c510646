"""backoffLimit: how many restarts a job may have, in place by the kubelet and as new pods by us, together."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.engine.observed import Observed
from trainmaster.engine.restarts import Failure, Verdict

MESSAGE = "Job {name} has failed because it has reached the specified backoff limit"


def is_past(observed: Observed, failures: Sequence[Failure]) -> bool:
    limit = observed.job.policy.backoff_limit
    if limit is None:
        return False
    in_place = _restarts_in_place(observed)
    restarts = in_place + sum(observed.job.status.attempts.values())
    if in_place and restarts >= limit:
        return True
    # A pod that somebody else deletes while it runs has not failed by itself, and costs no restart.
    new = sum(failure.verdict is Verdict.REPLACE and not failure.is_counted for failure in failures)
    return new > 0 and restarts + new > limit


def _restarts_in_place(observed: Observed) -> int:
    return sum(
        pod.restart_count
        for (role, index), pod in observed.pod_at.items()
        if pod.status.phase == "Running"
        and observed.is_wanted((role, index))
        and observed.job.replicas[role].restart_policy != "Never"
    )
