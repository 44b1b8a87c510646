"""Whose turn it is.

Higher priority goes first. Within one priority: first groups of which some members run already and others are missing
(one was lost, or we were killed half-way), because those that run may only be waiting for them; then what has waited
for longer than PATIENCE, by age; then queue by queue, each time the one that has the least of the cluster for its
weight (Volcano's proportion), and by age within a queue; last of all what a group wants beyond its minimum.

Shares are looked at anew after each placement, so two queues that fill an empty cluster alternate. PATIENCE is what
keeps a queue of many small jobs from starving a large one in a queue that already has more than its share.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from trainmaster.cluster.scheduling.scheduler_gang import Group
from trainmaster.cluster.scheduling.scheduler_pod import Amounts, Pod, amounts_of, mapping
from trainmaster.objects import timestamp
from trainmaster.objects.meta import Json

PATIENCE = 600.0
DEFAULT = "default"

_BEGUN, _OLD, _YOUNG, _EXTRA = range(4)


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue that nobody made counts as one of weight 1 without limits: manifests come from clusters that have it."""

    name: str
    weight: int = 1
    capability: Amounts = field(default_factory=dict)
    is_closed: bool = False


@dataclass(frozen=True, slots=True)
class Unit:
    """What is placed together or not at all: a pod, or `needed` of a group's pods that wait.

    With a group and no pods it is the group itself, which asks for admission.
    """

    name: str
    priority: int
    created: str
    queue: str
    pods: tuple[Pod, ...] = ()
    needed: int = 1
    group: Group | None = None
    is_begun: bool = False
    is_extra: bool = False


def queue_of(obj: Json) -> Queue:
    spec, status = mapping(obj, "spec"), mapping(obj, "status")
    weight = spec.get("weight")
    return Queue(
        name=str(obj["metadata"]["name"]),
        weight=weight if isinstance(weight, int) and weight > 0 else 1,
        capability=amounts_of(mapping(spec, "capability")),
        is_closed="Closed" in (spec.get("state"), status.get("state")),
    )


def in_order(units: Iterable[Unit], share: Callable[[str], float], now: float) -> Iterator[Unit]:
    """One unit after the other; `share` is asked again each time, as the caller has placed the last one by then."""
    limit = timestamp.render(now - PATIENCE) if now > PATIENCE else ""
    ranked = sorted(units, key=lambda unit: (*_band(unit, limit), unit.created, unit.name))
    for (_, turn), band in groupby(ranked, key=lambda unit: _band(unit, limit)):
        in_turn = list(band)
        yield from in_turn if turn in (_BEGUN, _OLD) else _by_share(in_turn, share)


def share_of(used: Amounts, total: Amounts, weight: int) -> float:
    """The largest part of any resource that a queue has, for its weight."""
    parts = (amount / total[name] for name, amount in used.items() if total.get(name))
    return max(parts, default=0.0) / weight


def _band(unit: Unit, limit: str) -> tuple[int, int]:
    if unit.is_extra:
        turn = _EXTRA
    elif unit.is_begun:
        turn = _BEGUN
    else:
        turn = _OLD if unit.created < limit else _YOUNG
    return (-unit.priority, turn)


def _by_share(units: Iterable[Unit], share: Callable[[str], float]) -> Iterator[Unit]:
    lanes: Mapping[str, deque[Unit]] = _lanes(units)
    while waiting := [name for name, lane in lanes.items() if lane]:
        if len(waiting) == 1:
            yield from lanes[waiting[0]]
            return
        first = min(waiting, key=lambda name: (share(name), lanes[name][0].created, lanes[name][0].name))
        yield lanes[first].popleft()


def _lanes(units: Iterable[Unit]) -> dict[str, deque[Unit]]:
    lanes: dict[str, deque[Unit]] = {}
    for unit in units:
        lanes.setdefault(unit.queue, deque()).append(unit)
    return lanes
