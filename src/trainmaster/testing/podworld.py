"""A small world for the kubelet: objects in memory in place of an API server, and builders of pods for it."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from trainmaster.cluster.kubelet import logfiles
from trainmaster.cluster.kubelet.images import Images
from trainmaster.cluster.kubelet.kubelet import Kubelet
from trainmaster.cluster.kubelet.kubelet_api import Seen, Timing
from trainmaster.cluster.kubelet.logfiles import Selection, follow
from trainmaster.cluster.kubelet.sandbox import Kind, Sandbox, open_sandbox
from trainmaster.objects.meta import Json, mutable
from trainmaster.testing.patience import PATIENCE

NODE = "here"
_uids = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Told:
    """An event."""

    kind: str
    reason: str
    message: str
    container: str


@dataclass(slots=True)
class PodWorld:
    """The kubelet's API: `add` and `remove` are what users do, `until` waits for what the kubelet does."""

    objects: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    events: list[Told] = field(default_factory=list)
    writes: int = 0
    failures: int = 0
    """So many writes of status fail from now on."""
    is_deaf: bool = False
    """Watchers are not told what happens now."""
    _queues: dict[str, list[asyncio.Queue[Seen | None]]] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, kind: str, manifest: Json) -> dict[str, Any]:
        """Creates or replaces."""
        made = mutable(manifest)
        metadata = made.setdefault("metadata", {})
        metadata.setdefault("namespace", "default" if kind not in ("Node", "PersistentVolume") else "")
        metadata.setdefault("uid", f"uid-{next(_uids)}")
        key = (kind, metadata["namespace"], metadata["name"])
        self.tell(kind, Seen("MODIFIED" if key in self.objects else "ADDED", made))
        self.objects[key] = made
        return made

    def remove(self, kind: str, name: str, namespace: str = "default") -> None:
        gone = self.objects.pop((kind, namespace, name), None)
        if gone is not None:
            self.tell(kind, Seen("DELETED", gone))

    def delete_pod(self, name: str, grace: float = 30) -> None:
        """As a user would: the kubelet does the rest."""
        pod = mutable(self.pod(name))
        pod["metadata"] |= {"deletionTimestamp": "2024-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace}
        self.add("Pod", pod)

    def pod(self, name: str) -> dict[str, Any]:
        return self.objects["Pod", "default", name]

    def has_pod(self, name: str) -> bool:
        return ("Pod", "default", name) in self.objects

    def phase(self, name: str) -> str:
        return str((self.pod(name).get("status") or {}).get("phase", "Pending")) if self.has_pod(name) else ""

    def state(self, name: str, container: str = "main") -> dict[str, Any]:
        return self.status(name, container).get("state", {})  # type: ignore[no-any-return]  # JSON

    def status(self, name: str, container: str = "main") -> dict[str, Any]:
        """The status of one container."""
        status = self.pod(name).get("status") or {} if self.has_pod(name) else {}
        for key in ("containerStatuses", "initContainerStatuses"):
            for found in status.get(key) or ():
                if found["name"] == container:
                    return found  # type: ignore[no-any-return]  # JSON
        return {}

    def reasons(self) -> list[str]:
        return [event.reason for event in self.events]

    async def until(self, holds: Callable[[], object], seconds: float = PATIENCE) -> None:
        async with asyncio.timeout(seconds):
            while not holds():
                await self._changed.wait()

    async def finished(self, name: str) -> str:
        await self.until(lambda: self.phase(name) in ("Succeeded", "Failed"))
        return self.phase(name)

    async def watch(self, kind: str) -> AsyncIterator[Seen]:
        queue: asyncio.Queue[Seen | None] = asyncio.Queue()
        for (held, _, _), found in list(self.objects.items()):
            if held == kind:
                queue.put_nowait(Seen("ADDED", found))
        queue.put_nowait(Seen("SYNCED", {}))
        self._queues.setdefault(kind, []).append(queue)
        while (seen := await queue.get()) is not None:
            yield seen
        self._queues[kind].remove(queue)

    def end_watches(self) -> None:
        """As a server does to watchers that fell behind."""
        for queues in self._queues.values():
            for queue in queues:
                queue.put_nowait(None)

    async def get(self, kind: str, namespace: str, name: str) -> Json | None:
        return self.objects.get((kind, namespace, name))

    async def update_status(self, pod: Json, status: Json) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the store is busy")
        held = self.objects.get(_key(pod))
        if held is not None and held["metadata"]["uid"] == pod["metadata"]["uid"]:
            self.writes += 1
            self.add("Pod", {**held, "status": status})

    async def delete(self, pod: Json) -> None:
        self.remove("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])

    async def event(
        self, pod: Json, kind: Literal["Normal", "Warning"], reason: str, message: str, container: str = ""
    ) -> None:
        self.events.append(Told(kind, reason, message, container))
        self._wake()

    def tell(self, kind: str, seen: Seen) -> None:
        """Tells the watchers, whether it happened or not."""
        for queue in self._queues.get(kind, ()) if not self.is_deaf else ():
            queue.put_nowait(seen)
        asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _key(pod: Json) -> tuple[str, str, str]:
    return "Pod", pod["metadata"]["namespace"], pod["metadata"]["name"]


def a_pod(name: str, *command: str, containers: list[Json] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod of one container `main`, bound to our node, never restarted; keyword arguments go into its spec."""
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {
            "nodeName": NODE,
            "restartPolicy": "Never",
            "containers": containers or [a_container(*command)],
            **spec,
        },
    }


def a_container(*command: str, name: str = "main", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "test", "command": list(command), **fields}


def script(text: str) -> tuple[str, str, str]:
    """A command that runs a few lines of Python."""
    return sys.executable, "-c", text


def leap(seconds: float) -> None:
    """Make everything due that was to happen within so many seconds, on a loop in real time.

    A limit that a test is to reach can so be long enough that no slow machine reaches it too early."""
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds  # type: ignore[method-assign]  # of this loop alone


@dataclass(frozen=True, slots=True)
class Lab:
    """A kubelet at work on a world."""

    world: PodWorld
    kubelet: Kubelet
    sandbox: Sandbox
    root: Path

    def log(self, pod: str, container: str = "main", attempt: int = 0) -> str:
        uid = self.world.pod(pod)["metadata"]["uid"]
        path = self.root / "pods" / uid / container / f"{attempt}.log"
        return logfiles.read(path, Selection()).decode()

    async def until_logged(self, pod: str, text: str, container: str = "main") -> None:
        """Returns when the pod's running container has written this."""
        await self.world.until(lambda: "running" in self.world.state(pod, container))
        uid = self.world.pod(pod)["metadata"]["uid"]
        path, seen = self.root / "pods" / uid / container / "0.log", b""
        async with (
            asyncio.timeout(PATIENCE),
            aclosing(follow(path, Selection(), self.kubelet.house.logs, bool)) as growing,
        ):
            async for part in growing:
                seen += part
                if text.encode() in seen:
                    return

    async def ran(self, pod: Json) -> str:
        """The log of a pod's main container, once the pod has finished."""
        name = self.world.add("Pod", pod)["metadata"]["name"]
        await self.world.finished(name)
        return self.log(name)


@asynccontextmanager
async def a_lab(
    root: Path,
    *,
    kind: Kind = "auto",
    images: Images | None = None,
    timing: Timing | None = None,
    processes: int | None = None,
) -> AsyncIterator[Lab]:
    """A world, its kubelet and its sandbox, all of which end with the block."""
    world, sandbox = PodWorld(), await open_sandbox(kind, root)
    try:
        async with running(world, root, sandbox, images=images, timing=timing, processes=processes) as kubelet:
            yield Lab(world, kubelet, sandbox, root)
    finally:
        await sandbox.close()


@asynccontextmanager
async def running(
    world: PodWorld,
    root: Path,
    sandbox: Sandbox,
    *,
    images: Images | None = None,
    timing: Timing | None = None,
    processes: int | None = None,
) -> AsyncIterator[Kubelet]:
    """A kubelet at work; the sandbox stays open."""
    quick = timing or Timing(back_off=0.05, back_off_max=0.2, retry=0.05, coalesce=0.001)
    kubelet = Kubelet(
        world,
        nodes=[NODE],
        root=root,
        images=images or Images(),
        sandbox=sandbox,
        timing=quick,
        processes=processes,
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(kubelet.run(), name="kubelet")
        try:
            yield kubelet
        finally:
            task.cancel()
