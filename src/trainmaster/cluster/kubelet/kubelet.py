"""Runs the pods bound to its nodes as processes of this machine: the watch on pods and services, and a worker per pod.

`podworker` has a pod's life, `container` a container's, `sandbox` where they run. What the API server asks about
running containers is answered by `runtime`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path

from trainmaster.cluster.kubelet.beneath import step
from trainmaster.cluster.kubelet.cluster_ips import ClusterIPs
from trainmaster.cluster.kubelet.ending import Ending, end_all
from trainmaster.cluster.kubelet.helper_keeper import HelperKeeper
from trainmaster.cluster.kubelet.hosts import Hosts
from trainmaster.cluster.kubelet.images import Images
from trainmaster.cluster.kubelet.kubelet_api import PodApi, Reporter, Seen, Timing, follow
from trainmaster.cluster.kubelet.log_keeper import LogKeeper
from trainmaster.cluster.kubelet.logfiles import LogWatch
from trainmaster.cluster.kubelet.podscene import House
from trainmaster.cluster.kubelet.podworker import PodWorker
from trainmaster.cluster.kubelet.sandbox import Sandbox
from trainmaster.cluster.kubelet.toolbox import Toolbox
from trainmaster.objects.meta import Json

log = logging.getLogger(__name__)

__all__ = ("Kubelet", "PodApi", "Seen", "Timing")


async def _no_door() -> None:
    return


def _no_token(_namespace: str, _account: str) -> str:
    return "not-a-token"


class Kubelet:
    """Of one node, or of several simulated ones: they are the same machine. The sandbox is the caller's to close."""

    def __init__(
        self,
        api: PodApi,
        *,
        nodes: Collection[str],
        root: Path,
        images: Images,
        sandbox: Sandbox,
        now: Callable[[], float] = time.time,
        timing: Timing | None = None,
        names: Mapping[str, str] | None = None,
        workdir: str = "/",
        token: Callable[[str, str], str] = _no_token,
        tools: Toolbox | None = None,
        stand_ins: Mapping[str, Path] | None = None,
        processes: int | None = None,
        reopen: Callable[[], Awaitable[None]] = _no_door,
    ) -> None:
        """`names` are host names that pods know beside pods and services; `token` makes service account tokens;
        `stand_ins` are directories for volumes that lie elsewhere; `processes` is how many a container may have;
        `reopen` is called when the network of pods is a new one."""
        self._api = Reporter(api)
        self._nodes = frozenset(nodes)
        self._root, self._images, self._sandbox = root, images, sandbox
        self._now, self._timing = now, timing or Timing()
        self._names, self._workdir, self._token, self._tools = names, workdir, token, tools
        self._stand_ins, self._processes, self._reopen = stand_ins or {}, processes, reopen
        self._workers: dict[str, PodWorker] = {}
        self._done: set[str] = set()
        """Pods we have removed but not seen go: a change that comes late must not start them again."""
        self._logs = LogKeeper(root / "pods", self._timing.log_retention, now)
        self._house: House | None = None
        self._is_ending = False

    @property
    def house(self) -> House:
        if self._house is None:
            raise RuntimeError("the kubelet is not running")
        return self._house

    def worker(self, namespace: str, name: str) -> PodWorker | None:
        """Of the pod with that name, the one seen last."""
        for worker in reversed(self._workers.values()):
            metadata = worker.scene.pod["metadata"]
            if (metadata["namespace"], metadata["name"]) == (namespace, name):
                return worker
        return None

    async def run(self) -> None:
        """Until cancelled. Containers are not ended by that but by `end`, or by closing the sandbox, which nothing
        outlives."""
        hosts, logs = Hosts(self._root / "hosts", self._names), LogWatch()
        addresses = ClusterIPs(self._sandbox, self._warn)
        self._house = House(
            api=self._api,
            sandbox=self._sandbox,
            images=self._images,
            root=self._root,
            now=self._now,
            timing=self._timing,
            hosts=hosts,
            logs=logs,
            workdir=self._workdir,
            token=self._token,
            addresses=addresses,
            tools=self._tools,
            stand_ins=self._stand_ins,
            processes=self._processes,
        )
        services_known = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_services(services_known), name="kubelet services")
                group.create_task(addresses.run(), name="kubelet addresses")
                group.create_task(self._helper_keeper().run(), name="kubelet helper")
                for kind in ("ConfigMap", "Secret"):
                    group.create_task(self._follow_files(kind), name=f"kubelet {kind}")
                await services_known.wait()  # a container must see the services that were there before it
                await self._follow_pods(group)
        finally:
            for worker in self._workers.values():
                worker.is_over.set()
            hosts.close()
            logs.close()

    def _helper_keeper(self) -> HelperKeeper:
        return HelperKeeper(
            self._sandbox, self._timing, self._root, lose=self._lose, renew=self._renew, tell=self._tell
        )

    def _lose(self) -> None:
        for worker in tuple(self._workers.values()):
            worker.lose_sandbox()

    async def _renew(self) -> None:
        self.house.addresses.begin_again()
        await self._reopen()

    async def _tell(self, reason: str, message: str) -> None:
        for name in sorted(self._nodes):
            if (node := await self._api.get("Node", "", name)) is not None:
                await self._warn(node, reason, message)

    async def end(self, ending: Ending) -> None:
        """Ends all containers, while it runs, and lets nobody know; no other is started."""
        self._is_ending = True
        self._api.silence()
        await end_all(lambda: tuple(self._workers.values()), ending)

    async def _follow_services(self, known: asyncio.Event) -> None:
        hosts, addresses = self.house.hosts, self.house.addresses
        async for seen in follow(self._api, "Service"):
            if seen.type == "SYNCED":
                known.set()
            elif seen.type == "DELETED":
                hosts.remove_service(seen.object)
                addresses.remove_service(seen.object)
            else:
                hosts.set_service(seen.object)
                addresses.set_service(seen.object)

    async def _follow_files(self, kind: str) -> None:
        """Mounted config maps and secrets follow their objects."""
        async for seen in follow(self._api, kind):
            metadata = seen.object.get("metadata") or {}
            for worker in self._workers.values() if metadata else ():
                if worker.scene.pod["metadata"]["namespace"] == metadata["namespace"]:
                    worker.notice_file(kind, metadata["name"])

    async def _warn(self, about: Json, reason: str, message: str) -> None:
        """An event must not keep anything from working."""
        try:
            await self._api.event(about, "Warning", reason, message)
        except Exception:
            log.exception("event not recorded")

    async def _follow_pods(self, group: asyncio.TaskGroup) -> None:
        is_first = True
        async for seen in follow(self._api, "Pod"):
            if seen.type != "SYNCED":
                self._on_pod(seen, group)
            elif is_first:
                is_first = False
                group.create_task(self._logs.run(), name="kubelet logs")
                group.create_task(self._sweep(), name="kubelet sweep")

    def _on_pod(self, seen: Seen, group: asyncio.TaskGroup) -> None:
        pod, uid = seen.object, seen.object["metadata"]["uid"]
        worker = self._workers.get(uid)
        if seen.type == "DELETED":
            self.house.hosts.forget_pod(pod)
            self._done.discard(uid)
            if worker is not None:
                worker.forget()
            return
        self.house.hosts.see_pod(pod)
        self.house.addresses.see(pod)
        if worker is not None:
            worker.update(pod)
        elif pod["spec"].get("nodeName") in self._nodes and uid not in self._done and not self._is_ending:
            self._workers[uid] = PodWorker(self.house, pod)
            group.create_task(self._work(uid), name=f"pod {pod['metadata']['name']}")

    async def _work(self, uid: str) -> None:
        """A worker that fails is replaced: the pod must not be left to itself."""
        house, pause = self.house, self._timing.retry
        while not await self._has_finished(worker := self._workers[uid], pause):
            await self._sleep(worker, pause)
            pause = min(2 * pause, self._timing.back_off_max)
            if worker.is_gone or self._is_ending:
                break
            self._workers[uid] = PodWorker(house, worker.scene.pod)
        del self._workers[uid]
        if not worker.is_gone:
            self._done.add(uid)
        await self._logs.keep(step(uid))

    async def _has_finished(self, worker: PodWorker, pause: float) -> bool:
        try:
            await worker.run()
        except Exception as error:
            log.exception("worker of pod %s failed", worker.scene.pod["metadata"]["name"])
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            reason = f"{type(error).__name__}: {error}"
            await worker.scene.event("Warning", "FailedSync", f"Error syncing pod, next try in {pause:g}s: {reason}")
            return False
        return True

    async def _sleep(self, worker: PodWorker, pause: float) -> None:
        """A pod that is to end does not wait for the end of its back-off."""
        stop = worker.scene.stop
        await (asyncio.sleep(self._timing.retry) if stop.is_ordered else stop.sleep(pause))

    async def _sweep(self) -> None:
        """Logs of pods that went while we were not there."""
        await self._logs.find(self._workers.__contains__)
