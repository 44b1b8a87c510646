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
    restarts = in_place + _replaced(observed)
    if in_place and restarts >= limit:
        return True
    # A pod that somebody else deletes while it runs has not failed by itself, and costs no restart.
    counts = observed.framework.counts_restarts
    new = sum(f.verdict is Verdict.REPLACE and not f.is_counted and counts(f.slot[0]) for f in failures)
    return new > 0 and restarts + new > limit


def _replaced(observed: Observed) -> int:
    stems = tuple(f"{role.lower()}-" for role in observed.job.replicas if observed.framework.counts_restarts(role))
    return sum(count for slot, count in observed.job.status.attempts.items() if slot.startswith(stems))


def _restarts_in_place(observed: Observed) -> int:
    return sum(
        pod.restart_count
        for (role, index), pod in observed.pod_at.items()
        if pod.status.phase == "Running"
        and observed.is_wanted((role, index))
        and observed.job.replicas[role].restart_policy != "Never"
        and observed.framework.counts_restarts(role)
    )
