"""What the API server holds, seen without the operator's machinery; and a node that runs whatever pods there are.

    async with mirrored(client, resources) as mirror:
        mirror.track("job")
        await mirror.until("job", lambda: mirror.get(PODS, "job-worker-0") is not None, "the pod")

The node has no kubelet: pods stay unscheduled, and their statuses are written as a kubelet would report them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from trainmaster.kube.client import Client
from trainmaster.kube.errors import AlreadyExists, Conflict, Forbidden, KubeError, NotFound, ServerError, Unreachable
from trainmaster.objects.resource import CONFIG_MAPS, PODS, Resource
from trainmaster.testing.patience import PATIENCE

WATCH_SECONDS = 300
PAUSE = 0.2

Json = dict[str, Any]


class Mirror:
    """One namespace. Lists, then watches; lists anew whenever a watch breaks.

    Objects belong to the job whose name theirs begins with, of those that are tracked: who waits for a job is woken by
    what happens to that one, and need not look at all the others.
    """

    def __init__(self, client: Client, resources: Iterable[Resource], namespace: str = "default") -> None:
        self.client = client
        self._namespace = namespace
        self._held: dict[Resource, dict[str, Json]] = {resource: {} for resource in resources}
        self._own: dict[str, dict[Resource, dict[str, Json]]] = {}
        self._jobs: dict[str, asyncio.Condition] = {}
        self._handlers: list[Callable[[Resource, Json], None]] = []

    @property
    def resources(self) -> list[Resource]:
        return list(self._held)

    def track(self, job: str) -> None:
        """Before it is submitted."""
        self._jobs.setdefault(job, asyncio.Condition())
        self._own.setdefault(job, {})

    def subscribe(self, handler: Callable[[Resource, Json], None]) -> None:
        """Told of every object that is there, whenever it changes."""
        self._handlers.append(handler)

    def get(self, resource: Resource, name: str) -> Json | None:
        return self._held[resource].get(name)

    def named(self, resource: Resource, job: str) -> dict[str, Json]:
        """The job's own objects, by what their names have beyond its name."""
        held = self._held[resource]
        return {
            name.removeprefix(job): held[name] for name in sorted(held) if name == job or name.startswith(f"{job}-")
        }

    async def until(self, job: str, check: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE), self._jobs[job]:
                await self._jobs[job].wait_for(check)
        except TimeoutError:
            raise AssertionError(f"{job}: waited {PATIENCE:g} s for {what}") from None

    async def follow(self, resource: Resource) -> None:
        while True:
            try:
                await self._follow_once(resource)
            except KubeError:
                await asyncio.sleep(PAUSE)  # the server is away; how it comes back is not ours to know

    async def _follow_once(self, resource: Resource) -> None:
        page = await self.client.list(resource, self._namespace)
        listed = {item["metadata"]["name"]: item for item in page.items}
        gone = [item for name, item in self._held[resource].items() if name not in listed]
        for item in gone:
            await self._take(resource, "DELETED", item)
        for item in listed.values():
            await self._take(resource, "ADDED", item)
        events = self.client.watch(
            resource, self._namespace, resource_version=page.resource_version, timeout_seconds=WATCH_SECONDS
        )
        async with contextlib.aclosing(events):
            async for event in events:
                if event.object is not None:
                    await self._take(resource, event.type, event.object)

    async def _take(self, resource: Resource, type: str, item: Json) -> None:
        name = item["metadata"]["name"]
        parts = name.split("-")
        jobs = {"-".join(parts[:count]) for count in range(1, len(parts) + 1)} & self._jobs.keys()
        for held in (self._held[resource], *(self._own[job].setdefault(resource, {}) for job in jobs)):
            if type == "DELETED":
                held.pop(name, None)
            else:
                held[name] = item
        if type != "DELETED":
            for handler in self._handlers:
                handler(resource, item)
        for job in jobs:
            async with self._jobs[job]:
                self._jobs[job].notify_all()


async def insist(work: Callable[[], Awaitable[object]]) -> None:
    """Tries until the server has answered. It may have done the work the first time, and its answer was lost."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await work()
            except (Unreachable, ServerError, Forbidden):  # one that has just started knows nobody's rights yet
                await asyncio.sleep(PAUSE)
            except (AlreadyExists, NotFound):
                return
            else:
                return


class Node:
    """Pods come to life by themselves, and end when they are told to."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._waiting: dict[str, Json] = {}
        self._addressed: set[str] = set()
        self._addresses = iter(range(1, 1 << 16))
        self._news = asyncio.Event()
        mirror.subscribe(self._hear)

    async def run(self) -> None:
        """Starts every pod once: its address at first, its containers when what they read is there."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._news.wait()
                self._news.clear()
                for pod, runs in self._due():
                    group.create_task(self._start(pod, runs), name=f"start {pod['metadata']['name']}")

    async def end(self, pod: Json, exit_code: int) -> None:
        state = {"terminated": {"exitCode": exit_code, "finishedAt": _now()}}
        body = _status(pod, "Failed" if exit_code else "Succeeded", state, is_ready=False)
        await self._report(pod, body)

    async def _report(self, pod: Json, body: Json) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        body["metadata"] = {"uid": pod["metadata"]["uid"]}
        with contextlib.suppress(Conflict):  # it is gone, and another has its name
            await insist(lambda: self._mirror.client.patch(PODS, name, body, namespace, "status"))

    def _hear(self, resource: Resource, item: Json) -> None:
        """Of a pod that waits to be started, or of what pods may wait for."""
        uid = item["metadata"]["uid"]
        if resource == CONFIG_MAPS and self._waiting:
            self._news.set()
        elif resource == PODS and item["status"].get("phase") == "Pending" and uid not in self._addressed:
            self._waiting[uid] = item
            self._news.set()

    def _due(self) -> list[tuple[Json, bool]]:
        due = []
        for uid, pod in list(self._waiting.items()):
            runs = self._is_startable(pod)
            if runs:
                del self._waiting[uid]
            if runs or uid not in self._addressed:
                due.append((pod, runs))
            self._addressed.add(uid)
        return due

    def _is_startable(self, pod: Json) -> bool:
        wanted = [
            source["configMapRef"]["name"]
            for container in pod["spec"]["containers"]
            for source in container.get("envFrom", ())
            if "configMapRef" in source
        ]
        return all(self._mirror.get(CONFIG_MAPS, name) is not None for name in wanted)

    async def _start(self, pod: Json, runs: bool) -> None:
        number = next(self._addresses)
        address = pod["status"].get("podIP") or f"10.{number >> 8}.{number & 255}.1"
        waiting: Json = {"status": {"phase": "Pending"}}
        body = _status(pod, "Running", {"running": {}}, is_ready=True) if runs else waiting
        body["status"] |= {"podIP": address, "podIPs": [{"ip": address}]}
        await self._report(pod, body)


def _status(pod: Json, phase: str, state: Json, *, is_ready: bool) -> Json:
    containers = [
        {
            "name": container["name"],
            "image": "x",
            "imageID": "",
            "ready": is_ready,
            "restartCount": 0,
            "state": state,
        }
        for container in pod["spec"]["containers"]
    ]
    conditions = [{"type": "Ready", "status": str(is_ready)}]
    return {"status": {"phase": phase, "containerStatuses": containers, "conditions": conditions}}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextlib.asynccontextmanager
async def mirrored(client: Client, resources: Iterable[Resource]) -> AsyncIterator[tuple[Mirror, Node]]:
    """A mirror that is kept true, and a node that is kept going, for as long as the body runs."""
    mirror = Mirror(client, resources)
    node = Node(mirror)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(mirror.follow(resource), name=resource.plural) for resource in mirror.resources]
        tasks.append(group.create_task(node.run(), name="node"))
        try:
            yield mirror, node
        finally:
            for task in tasks:
                task.cancel()
