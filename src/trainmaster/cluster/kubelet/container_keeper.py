"""Looks after a running container: hooks, probes, and its end in time."""

from __future__ import annotations

import asyncio
import functools
import signal

from trainmaster.cluster.kubelet import probes
from trainmaster.cluster.kubelet.container_target import ContainerTarget
from trainmaster.cluster.kubelet.launcher import Process
from trainmaster.cluster.kubelet.podscene import Scene
from trainmaster.cluster.kubelet.podstatus import Record
from trainmaster.cluster.kubelet.stopping import Stop
from trainmaster.objects.meta import Json


class Keeper:
    """Of one attempt."""

    def __init__(
        self, scene: Scene, container: Json, record: Record, process: Process, is_under_way: asyncio.Event
    ) -> None:
        self._scene = scene
        self._container = container
        self._record = record
        self._process = process
        self._is_under_way = is_under_way
        self._target = ContainerTarget(scene, container, process)

    async def end(self, stop: Stop) -> None:
        """The preStop hook and SIGTERM within the grace period, then SIGKILL for all that is left."""
        handler = (self._container.get("lifecycle") or {}).get("preStop")
        if stop.seconds_left > 0:
            if handler:
                await self._pre_stop(handler, stop)
            await self._process.signal(signal.SIGTERM)
            await stop.due()
        await self._process.kill()

    async def _pre_stop(self, handler: Json, stop: Stop) -> None:
        try:
            async with asyncio.timeout(stop.seconds_left):
                failure = await self._target.hook(handler)
        except TimeoutError:
            failure = "the grace period ended before it did"
        if failure:
            await self._scene.event("Warning", "FailedPreStopHook", f"PreStopHook failed: {failure}", self._record.name)

    async def watch(self) -> None:
        if handler := (self._container.get("lifecycle") or {}).get("postStart"):
            failure = await self._target.hook(handler)
            if failure:
                await self._put_down("FailedPostStartHook", f"PostStartHook failed: {failure}", None)
                return
        if probe := self._container.get("startupProbe"):
            await probes.repeat(probe, self._target, functools.partial(self._on_startup, probe))
            if not self._record.has_started:
                return
        async with asyncio.TaskGroup() as group:
            if probe := self._container.get("readinessProbe"):
                group.create_task(probes.repeat(probe, self._target, self._on_readiness), name="readiness")
            if liveness := self._container.get("livenessProbe"):
                tell = functools.partial(self._on_liveness, liveness)
                group.create_task(probes.repeat(liveness, self._target, tell), name="liveness")

    async def _on_startup(self, probe: Json, is_good: bool, why: str) -> bool:
        if is_good:
            self._record.has_started = True
            self._is_under_way.set()
            self._record.is_ready = not self._container.get("readinessProbe")
            self._scene.changed()
        else:
            await self._put_down("Unhealthy", f"Startup probe failed: {why}", probe)
        return False

    async def _on_liveness(self, probe: Json, is_good: bool, why: str) -> bool:
        if not is_good:
            await self._put_down("Unhealthy", f"Liveness probe failed: {why}", probe)
        return is_good

    async def _on_readiness(self, is_good: bool, why: str) -> bool:
        if is_good != self._record.is_ready:
            self._record.is_ready = is_good
            self._scene.changed()
        if not is_good:
            await self._scene.event_once("Unhealthy", f"Readiness probe failed: {why}", self._record.name)
        return True

    async def _put_down(self, reason: str, message: str, probe: Json | None) -> None:
        """Ends this attempt, with the grace period it is due; whether another follows is for the restart policy."""
        await self._scene.event("Warning", reason, message, self._record.name)
        stop = Stop()
        own = (probe or {}).get("terminationGracePeriodSeconds")
        stop.order(self._scene.grace if own is None else float(own))
        await self.end(stop)
