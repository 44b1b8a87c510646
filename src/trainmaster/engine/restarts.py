"""What becomes of a failed replica: replaced, waited for, or the end of the job.

The kubelet restarts containers in place; this is about pods that failed as a whole. How often a slot's pod was
replaced is counted in the job's status before the pod goes, so a restarted operator counts on, and counts no
failure twice: a pod carries the number of its own attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from trainmaster.engine.observed import Observed, Slot
from trainmaster.engine.pods import attempt_of
from trainmaster.objects import timestamp
from trainmaster.objects.pod import Pod

RETRYABLE_2021 = (130, 137, 138, 143)
LONGEST_DELAY = 300.0


class Verdict(Enum):
    REPLACE = "replace"
    LEAVING = "leaving"  # somebody is already deleting it; its slot is filled again once it is gone
    FATAL = "fatal"
    FATAL_EXIT_CODE = "fatal exit code"


@dataclass(frozen=True, slots=True)
class Failure:
    slot: Slot
    pod: Pod
    verdict: Verdict
    attempt: int
    is_counted: bool
    """Whether the status already counts the replacement of this very pod."""

    @property
    def is_fatal(self) -> bool:
        return self.verdict in (Verdict.FATAL, Verdict.FATAL_EXIT_CODE)

    def delay(self, now: float) -> float:
        """Seconds until the pod may be replaced: the first time at once, then ever slower, so that a job which
        cannot start does not storm the cluster."""
        pause = 0.0 if self.attempt == 0 else min(2.0 ** min(self.attempt, 30), LONGEST_DELAY)
        return self._left(pause, now)

    def grace(self, observed: Observed, now: float) -> float:
        """Seconds for which it is not yet believed to be the end of the job."""
        given = observed.framework.grace(observed.job, self.slot[0], observed.counts) if self.is_fatal else 0.0
        return self._left(given, now)

    def _left(self, seconds: float, now: float) -> float:
        """Of so many seconds from the pod's end on."""
        ended = _end_of(self.pod)
        return max(0.0, min(ended + seconds - now, seconds)) if ended else 0.0


def _end_of(pod: Pod) -> float:
    """Where no container tells, as of a pod that its node turned away or evicted, it ended no earlier than it began."""
    ends = (status.state.terminated for status in pod.status.container_statuses)
    told = [timestamp.parse(end.finished_at) or 0.0 for end in ends if end is not None]
    return max(told, default=0.0) or timestamp.parse(pod.metadata.creation_timestamp) or 0.0


def is_retryable(exit_code: int, *, compat_2021: bool) -> bool:
    return exit_code in RETRYABLE_2021 if compat_2021 else exit_code >= 128


def failures_of(observed: Observed) -> tuple[Failure, ...]:
    """Failed replicas that the job cannot do without, in role and index order."""
    roles = [role for role in observed.job.replicas if not observed.framework.role(role).delegated]
    found = [_failure(observed, (role, index)) for role in roles for index in sorted(observed.counts[role].failed)]
    tolerated = {role for role in roles if _is_tolerated(observed, role, found)}
    return tuple(f for f in found if not (f.is_fatal and f.slot[0] in tolerated))


def _is_tolerated(observed: Observed, role: str, found: Sequence[Failure]) -> bool:
    """While another of the role is left. Those who decide must not all be gone, or nobody ever would."""
    if not observed.framework.tolerates_failure(observed.job, role):
        return False
    lost = {failure.slot[1] for failure in found if failure.slot[0] == role and failure.is_fatal}
    is_left = len(lost | observed.counts[role].succeeded) < observed.job.count(role)
    return is_left or role != observed.framework.deciding(observed.job)


def _failure(observed: Observed, slot: Slot) -> Failure:
    pod = observed.pod_at[slot]
    attempt = attempt_of(pod.metadata.annotations)
    counted = observed.job.status.attempts.get(f"{slot[0].lower()}-{slot[1]}", 0) > attempt
    verdict = _verdict(observed, slot[0], pod)
    is_spared = verdict is not Verdict.FATAL or observed.framework.replaces_deleted
    if is_spared and pod.metadata.is_terminating and not counted:
        verdict = Verdict.LEAVING  # somebody else deletes it, whatever it makes of its last seconds
    return Failure(slot, pod, verdict, attempt, counted)


def _verdict(observed: Observed, role: str, pod: Pod) -> Verdict:
    policy = observed.job.replicas[role].restart_policy
    compat = observed.job.settings.compat_2021
    if policy == "Never":
        return Verdict.FATAL
    if pod.status.phase != "Failed":
        return Verdict.LEAVING
    if policy == "ExitCode":
        code = pod.exit_code(observed.container_names(role))
        # No code means that the pod was lost with its node or evicted: not the program's fault.
        retryable = code is None or is_retryable(code, compat_2021=compat or observed.framework.exit_codes_2021)
        return Verdict.REPLACE if retryable else Verdict.FATAL_EXIT_CODE
    return Verdict.REPLACE if observed.framework.replaces_failed(observed.job) else Verdict.FATAL
