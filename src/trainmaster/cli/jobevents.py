"""Warnings of Kubernetes about jobs that are followed, their pods and their PodGroups: why they do not get on.

They are decoration. Jobs are followed without them where they may not be read, and the user is told so once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from trainmaster.cli import podgroups
from trainmaster.cli.connection import in_words
from trainmaster.cli.watching import DOCUMENTS, Outage, watched
from trainmaster.kube.client import Client
from trainmaster.kube.errors import ApiError
from trainmaster.kube.watch import Changed, Listed, Selection
from trainmaster.objects.resource import EVENTS

if TYPE_CHECKING:  # which imports this
    from trainmaster.cli.follow import JobRef, Progress, Screen

WAITING = "FailedScheduling"
"""Why pods are not placed; schedulers say of a PodGroup that it is Unschedulable."""

FEW = 20
"""Jobs that are named one by one to select what belongs to them. More would make requests too long, or too many."""

_NUMBER = re.compile(r"\d+")

ABOUT_PODS, ABOUT_OTHERS = "involvedObject.kind=Pod", "involvedObject.kind!=Pod"
"""Field selectors of events. Those of pods cannot be selected by job: a field selector knows no prefix and no list."""


def about(jobs: Sequence[JobRef]) -> Iterator[str]:
    """Field selectors of events about jobs of one namespace, and about their PodGroups, which bear their names."""
    if len(jobs) <= FEW:
        yield from (f"involvedObject.name={job.name}" for job in jobs)
    else:
        yield ABOUT_OTHERS


class JobEvents:
    def __init__(self, client: Client, outage: Outage, screen: Screen, progress: Progress) -> None:
        self._client, self._outage, self._screen, self._progress = client, outage, screen, progress
        self._by_uid = {job.uid: job for job in progress.jobs}
        self._warned: set[str] = set()
        self._is_refused = False

    async def watch(self, namespace: str, fields: str) -> None:
        """Until cancelled, or refused."""
        selection = Selection(EVENTS, namespace, fields=f"{fields},type=Warning")
        try:
            async with aclosing(watched(self._client, selection, self._outage, DOCUMENTS)) as messages:
                async for message in messages:
                    match message:
                        case Listed(events):
                            for event in events:
                                await self._hear(namespace, event)
                        case Changed("ADDED" | "MODIFIED", event):
                            await self._hear(namespace, event)
        except ApiError as error:
            if not self._is_refused:
                self._screen.notice(
                    f"warnings about the jobs are not shown because events cannot be read: {in_words(error)}"
                )
            self._is_refused = True

    async def _hear(self, namespace: str, event: Mapping[str, Any]) -> None:
        regarding, reason = event.get("involvedObject", {}), event.get("reason", "")
        whose, job = regarding.get("uid"), self._job_of(namespace, regarding)
        if job is None and (job := await self._job_of_group(namespace, regarding)) is not None:
            reason = WAITING
        if job is not None and reason == WAITING:
            whose = job.uid  # a gang waits for one reason, which is told of it and of each of its pods
        # A back-off that grows from 10 to 20 seconds is the same news.
        message = _NUMBER.sub("", str(event.get("message")))
        key = f"{whose} {reason} {message}"
        if job is None or key in self._warned:
            return
        self._warned.add(key)
        self._screen.warning(job, reason, event.get("message", ""))

    def _job_of(self, namespace: str, regarding: Mapping[str, Any]) -> JobRef | None:
        if regarding.get("uid") in self._by_uid:
            return self._by_uid[str(regarding["uid"])]
        rank = self._progress.ranks.get(f"{namespace}/{regarding.get('name')}")
        return rank.job if rank is not None else None

    async def _job_of_group(self, namespace: str, regarding: Mapping[str, Any]) -> JobRef | None:
        if regarding.get("kind") != podgroups.KIND:
            return None
        for job in self._progress.jobs:
            if (job.namespace, job.name) == (namespace, regarding.get("name")) and not self._progress.is_over(job):
                return job if await podgroups.is_about(self._client, namespace, regarding, job.uid) else None
        return None
