"""Follows jobs to their end, on any cluster: their conditions, their pods, and what every rank prints.

Reads the API like any other client: watches of jobs and pods, and one log stream per container that ever starts.
What is seen becomes `Sighting`s for a `Screen`; how they look is the screen's business.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from trainmaster.api import reading
from trainmaster.api.status import Condition, JobStatus, status_of
from trainmaster.engine.cleanup import LEISURE
from trainmaster.engine.labels import JOB_UID
from trainmaster.kube.client import Client
from trainmaster.kube.errors import ApiError, Gone, KubeError, NotFound
from trainmaster.objects.meta import Object
from trainmaster.objects.pod import ContainerStatus, Pod
from trainmaster.objects.resource import EVENTS, PODS, Resource

WATCH_SECONDS = 300
PATIENCE = 0.5
"""Seconds before a watch that failed is begun again."""


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

    def is_over(self, job: JobRef) -> bool:
        return job in self.gone or self.jobs[job].is_finished

    @property
    def all_over(self) -> bool:
        return all(self.is_over(job) for job in self.jobs)


class Screen(Protocol):
    def line(self, rank: Rank, container: str, text: str) -> None: ...
    def condition(self, job: JobRef, condition: Condition) -> None: ...
    def warning(self, job: JobRef, reason: str, message: str) -> None: ...
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
    ) -> None:
        """`wants` says whose logs are read, by rank and container; `log` are parameters such as `tailLines`."""
        self._client = client
        self._screen = screen
        self._wants = wants
        self._log = tuple(log)
        self.progress = Progress(jobs={job: JobStatus() for job in jobs})
        self._by_uid = {job.uid: job for job in self.progress.jobs}
        self._streams: set[tuple[str, str, int]] = set()
        self._reading: set[asyncio.Task[None]] = set()
        self._at_leisure: set[JobRef] = set()
        self._over = asyncio.Event()
        self._moved = asyncio.Event()

    async def follow(self) -> Progress:
        """Returns when every job has ended and everything they printed has been shown."""
        async with asyncio.TaskGroup() as group:
            watches = [group.create_task(self._watch_job(job), name=f"watch {job}") for job in self.progress.jobs]
            for namespace in sorted({job.namespace for job in self.progress.jobs}):
                watches.append(group.create_task(self._watch_pods(namespace, group), name=f"pods of {namespace}"))
                watches.append(group.create_task(self._watch_events(namespace), name=f"events of {namespace}"))
            await self._over.wait()
            await self._catch_up(group)
            await self._drain()
            for watch in watches:
                watch.cancel()
            for log in self._reading:
                log.cancel()
        return self.progress

    async def _catch_up(self, group: asyncio.TaskGroup) -> None:
        """The end of a job may be heard of before the last pods were: they are looked for once more."""
        for namespace in sorted({job.namespace for job in self.progress.jobs}):
            try:
                page = await self._client.list(PODS, namespace, type=Pod)
            except KubeError:
                continue
            for pod in page.items:
                self._see_pod(namespace, pod, group)

    async def _drain(self, seconds: float = 2.0) -> None:
        """Logs of containers that have ended are read to their end. Ranks that may end by themselves are waited for as
        long as the operator does, other survivors not for long."""
        clock = asyncio.get_running_loop().time
        latest = clock() + LEISURE
        while self._reading:
            done, _ = await asyncio.wait(self._reading, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
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
        async for kind, stored in self._watched(job.resource, job.namespace, Object, f"metadata.name={job.name}"):
            if stored.metadata.uid != job.uid:
                continue
            if kind == "DELETED":
                self.progress.gone.add(job)
            else:
                self._see_status(job, stored)
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
        if not reading.is_cleaning_told(stored.at("spec")):
            self._at_leisure.add(job)

    async def _watch_pods(self, namespace: str, group: asyncio.TaskGroup) -> None:
        async for kind, pod in self._watched(PODS, namespace, Pod):
            if kind != "DELETED":
                self._see_pod(namespace, pod, group)

    def _see_pod(self, namespace: str, pod: Pod, group: asyncio.TaskGroup) -> None:
        owner = pod.metadata.controller
        uid = pod.metadata.annotations.get(JOB_UID) or (owner.uid if owner is not None else "")
        job = self._by_uid.get(uid)
        if job is None:
            return
        self.progress.ranks[f"{namespace}/{pod.name}"] = Rank(job, pod)
        self._screen.changed(self.progress)
        self._moved.set()
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
            self._read_log(Rank(job, pod), status, group)

    def _read_log(self, rank: Rank, status: ContainerStatus, group: asyncio.TaskGroup) -> None:
        """One stream for every time a container was started."""
        if status.state.running is None and status.state.terminated is None:
            return
        key = (rank.pod.metadata.uid, status.name, status.restart_count)
        if key not in self._streams and self._wants(rank, status.name):
            self._streams.add(key)
            task = group.create_task(self._show_log(rank, status.name), name=f"log of {rank.pod.name}")
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)

    async def _show_log(self, rank: Rank, container: str) -> None:
        meta = rank.pod.metadata
        path = PODS.path(meta.namespace, meta.name, "log")
        try:
            response = await self._client.open(path, (("container", container), ("follow", "true"), *self._log))
            async with response, aclosing(response.lines()) as lines:
                async for line in lines:
                    self._screen.line(rank, container, line.decode(errors="replace").rstrip("\r"))
        except KubeError as error:
            if not isinstance(error, NotFound):
                self._screen.warning(rank.job, "LogLost", f"the log of {meta.name} broke off: {error}")

    async def _watch_events(self, namespace: str) -> None:
        """Warnings about the jobs and their pods: why they do not get on."""
        told: set[str] = set()
        async for kind, event in self._watched(EVENTS, namespace, dict[str, Any]):
            regarding = event.get("involvedObject", {})
            # A back-off that grows from 10 to 20 seconds is the same news.
            message = re.sub(r"\d+", "", str(event.get("message")))
            key = f"{regarding.get('uid')} {event.get('reason')} {message}"
            job = self._job_of(namespace, regarding)
            if kind == "DELETED" or event.get("type") != "Warning" or job is None or key in told:
                continue
            told.add(key)
            self._screen.warning(job, event.get("reason", ""), event.get("message", ""))

    def _job_of(self, namespace: str, regarding: Mapping[str, Any]) -> JobRef | None:
        if regarding.get("uid") in self._by_uid:
            return self._by_uid[str(regarding["uid"])]
        rank = self.progress.ranks.get(f"{namespace}/{regarding.get('name')}")
        return rank.job if rank is not None else None

    async def _watched(
        self, resource: Resource, namespace: str, type: Any, field_selector: str = ""
    ) -> AsyncIterator[tuple[str, Any]]:
        """What is there, then what happens to it, for ever; a watch that breaks is begun anew."""
        while True:
            try:
                page = await self._client.list(resource, namespace, field_selector=field_selector, type=type)
                for item in page.items:
                    yield "ADDED", item
                version = page.resource_version
                while True:
                    async with aclosing(
                        self._client.watch(
                            resource,
                            namespace,
                            resource_version=version,
                            timeout_seconds=WATCH_SECONDS,
                            field_selector=field_selector,
                            type=type,
                        )
                    ) as events:
                        async for event in events:
                            version = event.resource_version or version
                            if event.object is not None:
                                yield event.type, event.object
            except Gone:
                continue
            except ApiError as error:
                if error.status in (401, 403):
                    raise
                await asyncio.sleep(PATIENCE)
            except KubeError:
                await asyncio.sleep(PATIENCE)
