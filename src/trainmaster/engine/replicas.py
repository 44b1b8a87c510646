"""Pods for the slots there should be: missing ones made, failed ones removed so that they can be made again,
out-of-range ones removed for good."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trainmaster.engine.actions import Create, Delete, Stage
from trainmaster.engine.observed import Observed
from trainmaster.engine.pods import PodRecipe
from trainmaster.engine.restarts import Failure, Verdict
from trainmaster.objects.resource import PODS


def plan_creation(observed: Observed, attempts: Mapping[str, int]) -> Iterator[Create]:
    for member in observed.job.members():
        slot = (member.role, member.index)
        is_done = member.index in observed.counts[member.role].succeeded
        if slot in observed.pod_at or is_done or observed.framework.role(member.role).delegated:
            continue
        if observed.framework.may_start(member.role, observed.job, observed.counts):
            recipe = PodRecipe(observed.framework, member, attempts.get(member.slot, 0))
            yield Create(PODS, recipe, Stage.PODS)


def plan_scale_down(observed: Observed) -> Iterator[Delete]:
    for slot, pod in observed.pod_at.items():
        if not observed.is_wanted(slot) and not pod.metadata.is_terminating:
            yield Delete(PODS, pod.metadata)


def due(failures: Sequence[Failure], now: float) -> list[Failure]:
    """Failures whose pods are to be replaced now."""
    return [f for f in failures if f.verdict is Verdict.REPLACE and f.delay(now) == 0]


def plan_replacement(failures: Sequence[Failure]) -> Iterator[Delete]:
    for failure in failures:
        if not failure.pod.metadata.is_terminating:
            yield Delete(PODS, failure.pod.metadata)


def with_attempts(attempts: Mapping[str, int], failures: Sequence[Failure]) -> dict[str, int]:
    """The attempts after these pods were given up; those already counted are not counted again."""
    counted = {f"{f.slot[0].lower()}-{f.slot[1]}": f.attempt + 1 for f in failures if not f.is_counted}
    return {**attempts, **counted}
