"""cleanPodPolicy: which pods, and which Services with them, go when a job has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trainmaster.api.status import JobStatus
from trainmaster.engine import companions, delegates, gang
from trainmaster.engine.actions import Action, Delete
from trainmaster.engine.observed import Observed
from trainmaster.objects import timestamp
from trainmaster.objects.pod import Pod
from trainmaster.objects.resource import PODS, SERVICES

LEISURE = 10.0
"""Seconds in which ranks of a job that has succeeded may end by themselves: so they keep their logs and exit codes."""


def leisure(observed: Observed, status: JobStatus, policy: str, now: float) -> float | None:
    """How many of them are left; None where that is none, or nobody needs them."""
    ended = timestamp.parse(status.completion_time)
    is_ours_to_choose = policy == "Running" and not observed.job.policy.is_cleaning_told
    if not is_ours_to_choose or not status.is_true("Succeeded") or ended is None:
        return None
    left = min(LEISURE, ended + LEISURE - now)
    return left if left > 0 and any(_is_ending(observed, pod) for pod in observed.owned_pods) else None


def _is_ending(observed: Observed, pod: Pod) -> bool:
    """Whether it trains and will be done in a moment, if the job is; what serves the others never is."""
    slot = observed.slot_of(pod.name)
    return pod.status.phase == "Running" and slot is not None and not observed.framework.role(slot[0]).serves


def plan_cleanup(observed: Observed, policy: str, *, at_leisure: bool = False) -> Iterator[Action]:
    """The end of a job: pods by policy; PodGroup and passing companions in any case."""
    is_doomed_by_policy = _doomed(policy)

    def is_doomed(pod: Pod) -> bool:
        return is_doomed_by_policy(pod) and not (at_leisure and _is_ending(observed, pod))

    yield from plan_deletion(observed, is_doomed)
    if policy != "None":
        yield from _plan_leftovers(observed)
        yield from delegates.plan_removal(observed, unfinished_only=True)
    yield from gang.plan_removal(observed)
    yield from companions.plan_narrowing(observed, lambda pod: not is_doomed(pod))
    yield from companions.plan_removals(observed, is_active=False)


def _plan_leftovers(observed: Observed) -> Iterator[Delete]:
    """Services whose pods are gone, say because their own deletion failed: no pod would bring it up again."""
    standing = {pod.name for pod in observed.owned_pods}
    for service in observed.owned_services:
        name = service.metadata.name
        is_left = observed.slot_of(name) is not None and name not in standing
        if is_left and not service.metadata.is_terminating:
            yield Delete(SERVICES, service.metadata)


def _doomed(policy: str) -> Callable[[Pod], bool]:
    match policy:
        case "None":
            return lambda pod: False
        case "Running":
            return lambda pod: pod.status.phase in ("Running", "Pending")
        case _:
            return lambda pod: True


def plan_deletion(observed: Observed, is_doomed: Callable[[Pod], bool]) -> Iterator[Delete]:
    """Pods, and the Services of the same names."""
    doomed = [pod for pod in observed.owned_pods if is_doomed(pod)]
    names = {pod.name for pod in doomed}
    for pod in doomed:
        if not pod.metadata.is_terminating:
            yield Delete(PODS, pod.metadata)
    for service in observed.owned_services:
        if service.metadata.name in names and not service.metadata.is_terminating:
            yield Delete(SERVICES, service.metadata)
