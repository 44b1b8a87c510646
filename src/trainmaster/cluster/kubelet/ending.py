"""How containers end with their cluster: told to, as when their pods are deleted, waited for, and killed if need be.

What ends then is not reported: the next cluster in the same place finds pods as if this one had crashed, and goes on
with them. Whoever cannot wait sets `hurry`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from trainmaster.cluster.kubelet.podworker import PodWorker

_QUIET = 1.0
"""Seconds in which most containers end: nobody needs to be told of those."""

_SLACK = 2.0
"""What a pod may take beyond its grace period, after which it is killed, before it is not waited for any more."""


def _nobody(_containers: int, _seconds: float) -> None:
    return


@dataclass(slots=True)
class Ending:
    limit: float = math.inf
    """Seconds that containers have at most, whatever their pods say; with 0 they are killed at once."""

    tell: Callable[[int, float], None] = _nobody
    """Called, if it takes long, with the number of containers that are left and the seconds that they have."""

    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    """Once set, nobody is waited for."""

    is_under_way: bool = False


async def end_all(workers: Callable[[], Iterable[PodWorker]], ending: Ending) -> None:
    """Returns when all have ended, their time is up, or it is in a hurry; the sandbox ends what is left."""
    ending.is_under_way = True
    if ending.limit <= 0 or ending.hurry.is_set():
        return
    for worker in workers():
        worker.end(ending.limit)
    async with asyncio.TaskGroup() as group:
        over = group.create_task(_all_over(workers), name="containers end")
        hurry = group.create_task(ending.hurry.wait(), name="hurry")
        telling = group.create_task(_tell(workers, ending), name="tell of the end")
        patience = _seconds_left(workers) + _SLACK
        await asyncio.wait((over, hurry), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        for task in (over, hurry, telling):
            task.cancel()


async def _all_over(workers: Callable[[], Iterable[PodWorker]]) -> None:
    while left := [worker for worker in workers() if not worker.is_over.is_set()]:
        await left[0].is_over.wait()


async def _tell(workers: Callable[[], Iterable[PodWorker]], ending: Ending) -> None:
    await asyncio.sleep(_QUIET)
    if containers := sum(worker.running for worker in workers()):
        ending.tell(containers, _seconds_left(workers))


def _seconds_left(workers: Callable[[], Iterable[PodWorker]]) -> float:
    left = (worker.scene.stop.seconds_left for worker in workers() if not worker.is_over.is_set())
    return max(left, default=0.0)
