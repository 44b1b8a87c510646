"""Seats for a team: so many of these pods, all at once or none.

Which pods go where best is a hard puzzle in general. Tried are the pods by seniority, then the largest first (which
finds a place for all when that is tight), then the smallest first (which finds a place for most when not all are
needed). With pods that are all alike, or on one node, the answer is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from trainmaster.cluster.scheduling import scheduler_affinity as affinity
from trainmaster.cluster.scheduling import scheduler_fit as fit
from trainmaster.cluster.scheduling.scheduler_fit import Room
from trainmaster.cluster.scheduling.scheduler_ledger import Ledger
from trainmaster.cluster.scheduling.scheduler_pod import Amounts, Pod


@dataclass(frozen=True, slots=True)
class Team:
    """`tasks` are how many of those needed must be of which task."""

    pods: tuple[Pod, ...]
    needed: int
    tasks: dict[str, int]
    queue: str

    def alone(self) -> Team:
        """The team if it had only nodes to deal with, and nobody else's pods."""
        return replace(self, pods=tuple(map(_alone, self.pods)))


@dataclass(slots=True)
class Trial:
    """`seats` is empty when it did not work; then `why` is what the first pod without a seat was told."""

    seats: list[tuple[Pod, Room]] = field(default_factory=list)
    fitting: int = 0
    why: str = ""


def seat(team: Team, ledger: Ledger) -> Trial:
    """Books the seats in the ledger, or leaves it as it was."""
    first: Trial | None = None
    for order in _orders(team, ledger):
        trial = _try(replace(team, pods=order), ledger)
        if trial.seats:
            return trial
        first = first or trial
    return first or Trial()


def least(pods: Sequence[Pod], count: int) -> dict[str, int]:
    """What any `count` of the pods need at least, resource by resource."""
    names = dict.fromkeys(name for pod in pods for name in pod.need)
    if count == len(pods):
        return {name: sum(pod.need.get(name, 0) for pod in pods) for name in names}
    return {name: sum(sorted(pod.need.get(name, 0) for pod in pods)[:count]) for name in names}


def _try(team: Team, ledger: Ledger) -> Trial:
    trial, wanted, refused = Trial(), dict(team.tasks), set[bytes]()
    for pod in _turns(team, trial, wanted):
        if pod.shape in refused:
            continue
        room = ledger.choose(pod)
        if room is None:
            trial.why = trial.why or f"{fit.explain(ledger.refusals(pod))} (requested by {pod.name})"
            if not affinity.is_social(pod):
                refused.add(pod.shape)
            continue
        ledger.place(pod, room, team.queue)
        trial.seats.append((pod, room))
        wanted[pod.task] = wanted.get(pod.task, 0) - 1
    if len(trial.seats) >= team.needed and all(count <= 0 for count in wanted.values()):
        return trial
    for pod, room in trial.seats:
        ledger.unplace(pod, room, team.queue)
    return Trial(fitting=len(trial.seats), why=trial.why)


def _turns(team: Team, trial: Trial, wanted: dict[str, int]) -> Iterator[Pod]:
    """First those that a task's minimum asks for, then others until there are enough. Looks at the trial as it goes."""
    if wanted:
        for pod in team.pods:
            if wanted.get(pod.task, 0) > 0:
                yield pod
    seated = {pod.key for pod, _ in trial.seats}
    for pod in team.pods:
        if len(trial.seats) >= team.needed:
            return
        if pod.key not in seated:
            yield pod


def _orders(team: Team, ledger: Ledger) -> Iterator[tuple[Pod, ...]]:
    yield team.pods
    if all(pod.shape == team.pods[0].shape for pod in team.pods):
        return
    size = {pod.key: _size(pod, ledger.total) for pod in team.pods}
    yield tuple(sorted(team.pods, key=lambda pod: -size[pod.key]))
    if team.needed < len(team.pods):
        yield tuple(sorted(team.pods, key=lambda pod: size[pod.key]))


def _size(pod: Pod, total: Amounts) -> float:
    return max((amount / total[name] for name, amount in pod.need.items() if total.get(name)), default=0.0)


def _alone(pod: Pod) -> Pod:
    if not pod.ports and not affinity.is_social(pod):
        return pod
    only_nodes = {kind: terms for kind, terms in pod.affinity.items() if kind == "nodeAffinity"}
    return replace(pod, affinity=only_nodes, spread=(), ports=frozenset())
