"""Follows jobs to their end, on any cluster: their conditions, their pods, and what every rank prints.

Reads the API like any other client: watches of jobs and pods, and one log stream per container that ever starts.
What is seen becomes `Sighting`s for a `Screen`; how they look is the screen's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol, TypeAlias, TypeVar

from msgspec.structs import replace

from trainmaster.api import reading
from trainmaster.api.status import Condition, JobStatus, status_of
from trainmaster.cli.jobevents import ABOUT_PODS, FEW, JobEvents, about
from trainmaster.cli.ranklog import FOLLOW, PREVIOUS, Attempt, RankLog
from trainmaster.cli.watching import Outage, watched
from trainmaster.engine.cleanup import LEISURE
from trainmaster.engine.labels import JOB_NAME, JOB_UID
from trainmaster.kube.client import Client
from trainmaster.kube.errors import KubeError, NotFound
from trainmaster.kube.watch import Changed, Form, Listed, Objects, Selection, pages
from trainmaster.objects.meta import Object
from trainmaster.objects.names import MAX_LABEL
from trainmaster.objects.pod import ContainerStatus, Pod
from trainmaster.objects.resource import PODS, Resource

T = TypeVar("T")

PODS_AS_SEEN = Objects(Pod)


@dataclass(frozen=True, slots=True)
class JobRef:
    resource: Resource
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.name}"


@dataclass
class Rank:
    """A pod of a job, as last seen."""

    job: JobRef
    pod: Pod

    @property
    def title(self) -> str:
        """`worker-1` of job `ddp` whose pod is `ddp-worker-1`."""
        return self.pod.name.removeprefix(f"{self.job.name}-")


@dataclass
class Progress:
    """Everything seen so far."""

    jobs: dict[JobRef, JobStatus] = field(default_factory=dict)
    ranks: dict[str, Rank] = field(default_factory=dict)
    """By pod name within the job's namespace; a replaced pod takes its predecessor's place."""

    gone: set[JobRef] = field(default_factory=set)
    ended: dict[JobRef, float] = field(default_factory=dict)
    """When each was first seen to be over, by the clock of the event loop."""

    lost: set[tuple[JobRef, str]] = field(default_factory=set)
    """Ranks, by their titles, not all of whose lines could be shown."""

    specs: dict[JobRef, Any] = field(default_factory=dict)
    """What each asks for, as last seen."""

    def is_over(self, job: JobRef) -> bool:
        return job in self.gone or self.jobs[job].is_finished

    @property
    def all_over(self) -> bool:
        return all(self.is_over(job) for job in self.jobs)


Kept: TypeAlias = Callable[[str, str, int], Sequence[str] | None]
"""What a container printed in one attempt, by the UID of its pod, its name and the number of the attempt. For clusters
whose logs outlive their pods; None where there is no such log."""


class Screen(Protocol):
    def line(self, rank: Rank, container: str, text: str) -> None: ...
    def silence(self, rank: Rank, container: str) -> None: ...
    def condition(self, job: JobRef, condition: Condition) -> None: ...
    def warning(self, job: JobRef, reason: str, message: str) -> None: ...
    def notice(self, message: str) -> None: ...
    def changed(self, progress: Progress) -> None: ...


class Follower:
    def __init__(
        self,
        client: Client,
        jobs: Iterable[JobRef],
        screen: Screen,
        *,
        wants: Callable[[Rank, str], bool] = lambda rank, container: True,
        log: Iterable[tuple[str, str]] = (),
        kept: Kept | None = None,
    ) -> None:
        """`wants` says whose logs are read, by rank and container; `log` are parameters such as `tailLines`."""
        self._client = client
        self._screen = screen
        self.progress = Progress(jobs={job: JobStatus() for job in jobs})
        self._outage = Outage(screen.notice)
        self._logs = _Logs(client, screen, self.progress, wants, tuple(log), kept, lambda: self._outage.is_on)
        self._by_uid = {job.uid: job for job in self.progress.jobs}
        self._at_leisure: set[JobRef] = set()
        self._over = asyncio.Event()
        self._moved = asyncio.Event()
        self._events = JobEvents(client, self._outage, screen, self.progress)
        self._watches: set[asyncio.Task[None]] = set()
        self._hears_of_pods: set[str] = set()

    async def follow(self) -> Progress:
        """Returns when every job has ended and everything they printed has been shown."""
        async with asyncio.TaskGroup() as group:
            for job in self.progress.jobs:
                self._watches.add(group.create_task(self._watch_job(job), name=f"watch {job}"))
            for namespace, jobs in self._by_namespace().items():
                self._watches.add(group.create_task(self._watch_pods(namespace, group), name=f"pods of {namespace}"))
                for fields in about(jobs):
                    self._hear_events(namespace, fields, group)
            await self._over.wait()
            await self._catch_up(group)
            await self._drain()
            for watch in (*self._watches, *self._logs.reading):
                watch.cancel()
        return self.progress

    def _by_namespace(self) -> dict[str, list[JobRef]]:
        jobs = sorted(self.progress.jobs, key=lambda job: job.namespace)
        return {namespace: list(group) for namespace, group in groupby(jobs, key=lambda job: job.namespace)}

    async def _catch_up(self, group: asyncio.TaskGroup) -> None:
        """The end of a job may be heard of before the last pods were: they are looked for once more."""
        for namespace in self._by_namespace():
            with suppress(KubeError):
                async with aclosing(pages(self._client, self._pods_of(namespace))) as contents:
                    async for _, content in contents:
                        pods, _ = PODS_AS_SEEN.page(content)
                        for pod in pods:
                            self._see_pod(namespace, pod, group)

    async def _drain(self, seconds: float = 2.0) -> None:
        """Logs of containers that have ended are read to their end. Ranks that may end by themselves are waited for as
        long as the operator does, other survivors not for long."""
        clock = asyncio.get_running_loop().time
        latest = clock() + LEISURE
        while reading := self._logs.reading:
            done, _ = await asyncio.wait(reading, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not done and (clock() >= latest or not self._are_ending()):
                return
        with suppress(TimeoutError):  # what has said its last word has yet to be seen to have ended
            async with asyncio.timeout(seconds):
                while self._are_ending():
                    self._moved.clear()
                    await self._moved.wait()

    def _are_ending(self) -> bool:
        return any(map(self._is_ending, self.progress.ranks.values()))

    def _is_ending(self, rank: Rank) -> bool:
        is_at_work = rank.pod.status.phase == "Running" and not rank.pod.metadata.is_terminating
        return is_at_work and rank.job in self._at_leisure and self.progress.jobs[rank.job].is_true("Succeeded")

    async def _watch_job(self, job: JobRef) -> None:
        selection = Selection(job.resource, job.namespace, job.name)
        async with aclosing(self._watched(selection, Objects(Object))) as messages:
            async for message in messages:
                match message:
                    case Listed(items, _, unread):
                        self._see_job(job, next(iter(items), None), is_unread=bool(unread))
                    case Changed("DELETED", stored):
                        self._see_job(job, None, is_unread=stored.metadata.uid != job.uid)
                    case Changed(_, stored):
                        self._see_job(job, stored)

    def _see_job(self, job: JobRef, stored: Object | None, *, is_unread: bool = False) -> None:
        """None: it is not there. An object of another uid has taken its place."""
        if stored is not None and stored.metadata.uid == job.uid:
            self._see_status(job, stored)
        elif not is_unread:
            self.progress.gone.add(job)
        if self.progress.is_over(job):
            self.progress.ended.setdefault(job, asyncio.get_running_loop().time())
        self._screen.changed(self.progress)
        if self.progress.all_over:
            self._over.set()

    def _see_status(self, job: JobRef, stored: Object) -> None:
        status = status_of(stored.at("status"))
        known = self.progress.jobs[job].conditions
        for condition in status.conditions:
            if condition not in known and condition.status == "True":
                self._screen.condition(job, condition)
        self.progress.jobs[job] = status
        self.progress.specs[job] = stored.at("spec")
        if not reading.is_cleaning_told(self.progress.specs[job]):
            self._at_leisure.add(job)

    async def _watch_pods(self, namespace: str, group: asyncio.TaskGroup) -> None:
        async with aclosing(self._watched(self._pods_of(namespace), PODS_AS_SEEN)) as messages:
            async for message in messages:
                match message:
                    case Listed(pods):
                        for pod in pods:
                            self._see_pod(namespace, pod, group)
                    case Changed("ADDED" | "MODIFIED", pod):
                        self._see_pod(namespace, pod, group)

    def _pods_of(self, namespace: str) -> Selection:
        """Those of the jobs that are followed there, by their label. What it cannot name has no pods."""
        names = [job.name for job in self._by_namespace()[namespace]]
        is_nameable = len(names) <= FEW and all(len(name) <= MAX_LABEL for name in names)
        return Selection(PODS, namespace, labels=f"{JOB_NAME} in ({','.join(names)})" if is_nameable else JOB_NAME)

    def _see_pod(self, namespace: str, pod: Pod, group: asyncio.TaskGroup) -> None:
        owner = pod.metadata.controller
        uid = pod.metadata.annotations.get(JOB_UID) or (owner.uid if owner is not None else "")
        job = self._by_uid.get(uid)
        if job is None:
            return
        self.progress.ranks[f"{namespace}/{pod.name}"] = Rank(job, pod)
        self._screen.changed(self.progress)
        self._moved.set()
        self._logs.see(Rank(job, pod), group)
        if namespace not in self._hears_of_pods:  # before there is a pod, nothing is said about any
            self._hears_of_pods.add(namespace)
            self._hear_events(namespace, ABOUT_PODS, group)

    def _hear_events(self, namespace: str, fields: str, group: asyncio.TaskGroup) -> None:
        work = self._events.watch(namespace, fields)
        self._watches.add(group.create_task(work, name=f"events of {namespace}: {fields}"))

    def _watched(self, selection: Selection, form: Form[T]) -> AsyncGenerator[Listed[T] | Changed[T], None]:
        return watched(self._client, selection, self._outage, form)


class _Logs:
    """Shows what every container prints, attempt by attempt."""

    def __init__(
        self,
        client: Client,
        screen: Screen,
        progress: Progress,
        wants: Callable[[Rank, str], bool],
        log: tuple[tuple[str, str], ...],
        kept: Kept | None,
        is_away: Callable[[], bool],
    ) -> None:
        self._client, self._screen, self._progress = client, screen, progress
        self._wants, self._log, self._kept, self._is_away = wants, log, kept, is_away
        self._streams: set[tuple[str, str, int]] = set()
        self._known: set[str] = set()
        self.reading: set[asyncio.Task[None]] = set()

    def see(self, rank: Rank, group: asyncio.TaskGroup) -> None:
        for status in (*rank.pod.status.init_container_statuses, *rank.pod.status.container_statuses):
            self._read(rank, status, group)
        self._known.add(rank.pod.metadata.uid)

    def _read(self, rank: Rank, status: ContainerStatus, group: asyncio.TaskGroup) -> None:
        """One stream for every time a container was started."""
        waiting = status.state.waiting
        # An attempt may be over so soon that nothing is seen of it but the wait for the next.
        has_run = status.restart_count > 0 and waiting is not None and waiting.reason == "CrashLoopBackOff"
        if status.state.running is None and status.state.terminated is None and not has_run:
            return
        key = (rank.pod.metadata.uid, status.name, status.restart_count)
        if key not in self._streams and self._wants(rank, status.name):
            missed = list(self._missed(rank, status))
            self._streams.update({key, *((*key[:2], attempt) for attempt in missed)})
            task = group.create_task(self._show_logs(rank, status, missed), name=f"log of {rank.pod.name}")
            self.reading.add(task)
            task.add_done_callback(self.reading.discard)

    def _missed(self, rank: Rank, status: ContainerStatus) -> Iterator[int]:
        """Attempts that were over before they were heard of. What a pod did before it was seen is not asked for."""
        uid = rank.pod.metadata.uid
        for attempt in range(status.restart_count if uid in self._known else 0):
            if (uid, status.name, attempt) not in self._streams:
                yield attempt

    async def _show_logs(self, rank: Rank, status: ContainerStatus, missed: Sequence[int]) -> None:
        for attempt in missed:
            before = _at_attempt(rank, status.name, attempt)
            # While a container waits to be started again, its previous attempt is the one that its own log is of.
            is_previous = attempt == status.restart_count - 1 and status.state.waiting is None
            if not await self._show_kept(before, status.name, attempt) and is_previous:
                await self._show_log(before, status.name, attempt, PREVIOUS)
        await self._show_log(rank, status.name, status.restart_count, FOLLOW)

    async def _show_log(self, rank: Rank, container: str, attempt: int, which: tuple[str, str]) -> None:
        shown = 0
        try:
            async with aclosing(self._lines(rank, container, attempt, which)) as lines:
                async for line in lines:
                    self._screen.line(rank, container, line)
                    shown += 1
            self._screen.silence(rank, container)
        except KubeError as error:
            if not await self._show_kept(rank, container, attempt, shown):
                self._lose(rank, error)

    async def _lines(
        self, rank: Rank, container: str, attempt: int, which: tuple[str, str]
    ) -> AsyncGenerator[str, None]:
        if self._kept is None and which == FOLLOW:
            following = RankLog(self._client, Attempt(rank.pod, container, attempt), self._log, self._is_away)
            async with aclosing(following.lines()) as followed:
                async for text in followed:
                    yield text
            return
        meta = rank.pod.metadata
        path, params = PODS.path(meta.namespace, meta.name, "log"), (("container", container), which, *self._log)
        response = await self._client.open(path, params)
        async with response, aclosing(response.lines()) as lines:
            # By the time we ask, the container may have been started again: the answer is then of a later attempt.
            if await self._kept_lines(rank, container, attempt + 1) is not None:
                kept = await self._kept_lines(rank, container, attempt)
                if kept is not None:
                    for text in kept:
                        yield text
                    return
            async for line in lines:
                yield line.decode(errors="replace").rstrip("\r")

    async def _show_kept(self, rank: Rank, container: str, attempt: int, shown: int = 0) -> bool:
        """Whether there is such a log; without the lines that have been shown."""
        lines = await self._kept_lines(rank, container, attempt)
        if lines is None:
            return False
        for line in lines[shown:]:
            self._screen.line(rank, container, line)
        self._screen.silence(rank, container)
        return True

    async def _kept_lines(self, rank: Rank, container: str, attempt: int) -> Sequence[str] | None:
        if self._kept is None:
            return None
        return await asyncio.to_thread(self._kept, rank.pod.metadata.uid, container, attempt)

    def _lose(self, rank: Rank, error: KubeError) -> None:
        name = rank.pod.name
        self._progress.lost.add((rank.job, rank.title))
        message = f"the log of {name} broke off: {error}"
        if isinstance(error, NotFound):
            message = f"what {name} printed is lost: it was deleted before its log could be read"
        self._screen.warning(rank.job, "LogLost", message)


def _at_attempt(rank: Rank, container: str, attempt: int) -> Rank:
    """As it was when the container had been restarted so often."""
    status = rank.pod.status
    ordinary, init = (
        tuple(replace(one, restart_count=attempt) if one.name == container else one for one in statuses)
        for statuses in (status.container_statuses, status.init_container_statuses)
    )
    earlier = replace(status, container_statuses=ordinary, init_container_statuses=init)
    return Rank(rank.job, replace(rank.pod, status=earlier))
