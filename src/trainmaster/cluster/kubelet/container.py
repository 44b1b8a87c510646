"""One container through all its attempts: configured, started, probed, stopped in time, restarted with pauses."""

from __future__ import annotations

import asyncio
import signal
from typing import Literal

from trainmaster.cluster.kubelet import logfiles, recipe
from trainmaster.cluster.kubelet.container_keeper import Keeper
from trainmaster.cluster.kubelet.environment import MissingReference
from trainmaster.cluster.kubelet.images import ImageError
from trainmaster.cluster.kubelet.launcher import ContainerConfig, Process
from trainmaster.cluster.kubelet.podscene import Scene
from trainmaster.cluster.kubelet.podstatus import Record
from trainmaster.cluster.kubelet.stopping import Stop
from trainmaster.cluster.kubelet.volume_files import VolumeError
from trainmaster.cluster.kubelet.zygote import HelperError, HelperGone
from trainmaster.objects import timestamp
from trainmaster.objects.meta import Json

Policy = Literal["Always", "OnFailure", "Never"]

_NOT_STARTED = 128
_LOST = 128 + signal.SIGKILL
_WITH_CLUSTER = "The container was running when the cluster was stopped"
_WITH_HELPER = "The container ended with the helper process that starts containers"


def is_restarted(policy: Policy, record: Record) -> bool:
    """Whether a container in this state is to be started, or started again."""
    if record.terminated is None:
        return True
    return policy == "Always" or (policy == "OnFailure" and not record.has_succeeded)


class Runner:
    """Writes what happens into its record; the pod's worker makes a status of it."""

    def __init__(self, scene: Scene, container: Json, record: Record, policy: Policy) -> None:
        self.stop = Stop()
        self.record = record
        self.process: Process | None = None
        self.is_under_way = asyncio.Event()
        """Set when it has started, startup probe included, or will not."""
        self._scene = scene
        self._container = container
        self._policy = policy
        self._pause = 0.0
        self._is_again = False

    async def run(self) -> None:
        """Returns when the container has ended and will not be started again."""
        try:
            await self._run()
        finally:
            self.is_under_way.set()

    async def _run(self) -> None:
        self._lose(_WITH_CLUSTER)
        if self.record.terminated is not None:
            if not self._is_restarted():
                return
            await self._back_off(ran=0.0)
        while not self.stop.is_ordered:
            ran = await self._attempt()
            if ran is None or not self._is_restarted():
                break
            await self._back_off(ran)
        if "waiting" in self.record.state and self.record.last_state:
            self._set(self.record.last_state)

    def _lose(self, message: str) -> None:
        """A container that was running when the cluster or its helper ended does not run any more: nothing outlives
        them. How it ended is not known."""
        running = self.record.state.get("running")
        if running is None:
            return
        self.record.is_ready = False
        self._set(
            {
                "terminated": {
                    "exitCode": _LOST,
                    "reason": "ContainerStatusUnknown",
                    "message": message,
                    "startedAt": running.get("startedAt"),
                    "finishedAt": timestamp.render(self._scene.house.now()),
                }
            }
        )

    def _is_restarted(self) -> bool:
        return not self.stop.is_ordered and is_restarted(self._policy, self.record)

    async def _back_off(self, ran: float) -> None:
        """The first restart is immediate, each later one waits twice as long as the one before."""
        timing = self._scene.house.timing
        if ran >= timing.back_off_reset:
            self._pause = 0.0
        pause, self._pause = self._pause, min(max(timing.back_off, 2 * self._pause), timing.back_off_max)
        self.record.last_state = self.record.state
        self._is_again = True
        if not pause:
            return
        name, metadata = self.record.name, self._scene.pod["metadata"]
        whose = f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"
        message = f"back-off {pause:g}s restarting failed container={name} pod={whose}"
        self._set({"waiting": {"reason": "CrashLoopBackOff", "message": message}})
        text = f"Back-off restarting failed container {name} in pod {whose}"
        await self._scene.event("Warning", "BackOff", text, name)
        await self.stop.sleep(pause)

    async def _attempt(self) -> float | None:
        """How long it ran; None if it was told to stop, or lost its sandbox, before it could."""
        config = await self._configured()
        box = self._scene.box
        if config is None or box is None:
            return None
        began = self._scene.house.now()
        try:
            process = await self._scene.house.sandbox.start(box, config)
        except HelperGone:
            return None
        except HelperError as error:
            self._count()
            await self._cannot_start(error, began)
            return 0.0
        self.process = process
        self._count()
        try:
            self._begin(began)
            await self._scene.event("Normal", "Started", f"Started container {self.record.name}", self.record.name)
            code = await self._supervise(process)
            if process.was_lost():
                self._lose(_WITH_HELPER)
                return None
            self._end(code, "OOMKilled" if code and process.was_oom_killed() else "", began)
        finally:
            self.process = None
            process.close()
            self._scene.house.logs.wake(config.log)
        return self._scene.house.now() - began

    @property
    def _number(self) -> int:
        """Of the attempt that is running or about to be made."""
        return self.record.restart_count + self._is_again

    def _count(self) -> None:
        """Not before there is a new state: the old one with the new number would pass for an attempt of its own."""
        self.record.restart_count, self._is_again = self._number, False

    async def _configured(self) -> ContainerConfig | None:
        """Tries until it works: what a container refers to may come later than the container."""
        while not self.stop.is_ordered:
            try:
                return await recipe.configure(self._scene, self._container, self._number)
            except ImageError as error:
                await self._wait("ImageNotMapped", str(error))
                await self.stop.ordered()
            except (MissingReference, VolumeError, recipe.RootError) as error:
                await self._wait("CreateContainerConfigError", str(error))
                await self.stop.sleep(self._scene.house.timing.retry)
        return None

    async def _wait(self, reason: str, message: str) -> None:
        self._set({"waiting": {"reason": reason, "message": message}})
        await self._scene.event_once("Failed", f"Error: {message}", self.record.name)

    async def _cannot_start(self, error: HelperError, began: float) -> None:
        name = self.record.name
        if error.stage == "exec":
            reason, message = "StartError", f"cannot start the container's command: {error}"
        else:
            reason, message = "ContainerCannotRun", f"cannot set the container up: {error}"
        self._end(_NOT_STARTED, reason, began, message)
        await self._scene.event("Warning", "Failed", f"Error: {message}", name)

    def _begin(self, began: float) -> None:
        name, record = self.record.name, self.record
        record.container_id = f"trainmaster://{self._scene.uid}-{name}-{record.restart_count}"
        record.has_started = not self._container.get("startupProbe")
        record.is_ready = record.has_started and not self._container.get("readinessProbe")
        self._set({"running": {"startedAt": timestamp.render(began)}})

    def _end(self, code: int, reason: str, began: float, message: str = "") -> None:
        ended: dict[str, object] = {
            "exitCode": code,
            "reason": reason or ("Error" if code else "Completed"),
            "startedAt": timestamp.render(began),
            "finishedAt": timestamp.render(self._scene.house.now()),
            "containerID": self.record.container_id,
        }
        if message := message or self._last_words(code):
            ended["message"] = message
        self.record.is_ready = False
        self._set({"terminated": ended})

    def _last_words(self, code: int) -> str:
        name, attempt = self.record.name, self.record.restart_count
        message = recipe.termination_message(self._scene, name, attempt)
        if not message and code and self._container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            return logfiles.last_text(self._scene.log_path(name, attempt), lines=80, limit=2048)
        return message

    def _set(self, state: Json) -> None:
        self.record.state = state
        self._scene.end_turn()
        if self.record.is_running and self.record.has_started:
            self.is_under_way.set()
        self._scene.changed()

    async def _supervise(self, process: Process) -> int:
        """The exit code. Meanwhile it is probed, and stopped when the order comes."""
        keeper = Keeper(self._scene, self._container, self.record, process, self.is_under_way)
        async with asyncio.TaskGroup() as group:
            name = f"{self._scene.pod['metadata']['name']}/{self.record.name}"
            tasks = [
                group.create_task(self._stop_when_ordered(keeper), name=f"stop {name}"),
                group.create_task(keeper.watch(), name=f"watch {name}"),
            ]
            code = await process.wait()
            for task in tasks:
                task.cancel()
        return code

    async def _stop_when_ordered(self, keeper: Keeper) -> None:
        await self.stop.ordered()
        await keeper.end(self.stop)
