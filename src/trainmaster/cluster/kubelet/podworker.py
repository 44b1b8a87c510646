"""One pod from the moment it is bound to us until nothing of it is left: volumes, sandbox, containers, status."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
from collections.abc import Iterator
from typing import Any

from trainmaster.cluster.kubelet.container import Policy, Runner, is_restarted
from trainmaster.cluster.kubelet.gpus import NotEnoughGpus
from trainmaster.cluster.kubelet.hosts import hostname_of
from trainmaster.cluster.kubelet.podscene import House, Scene
from trainmaster.cluster.kubelet.podstatus import Record, phase_of, status_of, view_of
from trainmaster.cluster.kubelet.sandbox import PodConfig, Sandbox, SandboxError
from trainmaster.cluster.kubelet.volume_files import BadVolumeError, VolumeError
from trainmaster.cluster.kubelet.volumes import Volumes
from trainmaster.cluster.kubelet.zygote import HelperError
from trainmaster.objects.meta import Json

log = logging.getLogger(__name__)

_CHANGED = "Pod sandbox changed, it will be killed and re-created: the helper process that starts containers died"
_FIRST_PAUSE = 0.05
"""What every pod mounts of its namespace is made with the namespace, by somebody else: it may be a moment late."""


def _shortcomings(pod: Json, sandbox: Sandbox) -> Iterator[tuple[str, str]]:
    """What the pod asks for and this machine does not let us give."""
    spec = pod["spec"]
    containers = (*spec["containers"], *(spec.get("initContainers") or ()))
    # Init containers that operators add have limits that nobody wrote: they are not what the user asks for.
    limited = any((c.get("resources") or {}).get("limits", {}).keys() & {"memory", "cpu"} for c in spec["containers"])
    if limited and not sandbox.can_limit:
        yield "LimitsNotEnforced", "this user may not make control groups: memory and CPU limits are not enforced"
    contexts = [spec.get("securityContext") or {}, *(c.get("securityContext") or {} for c in containers)]
    if os.geteuid() != 0 and any(context.get("runAsUser") is not None for context in contexts):
        yield "RunAsUserIgnored", "only root can start containers as another user: runAsUser is ignored"
    if spec.get("hostNetwork") and sandbox.kind == "namespaces" and os.geteuid() != 0:
        yield "HostNetworkIgnored", "only root can join this machine's network: the pod gets its own"


def _told_of(pod: Json) -> tuple[Any, Any]:
    """What volumes of the downward API show, and the pod's user may change."""
    return pod["metadata"].get("labels"), pod["metadata"].get("annotations")


class PodWorker:
    """`run` it in a task; `update` it with every new state of its pod."""

    def __init__(self, house: House, pod: Json) -> None:
        directory = house.directory_of(pod["metadata"]["uid"]) / "volumes"
        is_mounted = house.sandbox.kind == "namespaces"
        volumes = Volumes(house.api, directory, house.token, is_mounted=is_mounted, stand_ins=house.stand_ins)
        self.scene = Scene(house, pod, {}, volumes, self._mark)
        self.runners: dict[str, Runner] = {}
        self._house = house
        self._view = view_of(pod, house.now())
        self._written: dict[str, Any] | None = None
        self._dirty = asyncio.Event()
        self._is_deleted = asyncio.Event()
        self._is_stale = asyncio.Event()
        self._is_gone = False
        self.is_over = asyncio.Event()
        """Nothing of the pod runs, nor will."""
        self._obey()

    @property
    def is_finished(self) -> bool:
        """As it was reported when this worker began: such a pod is only waited for."""
        return (self.scene.pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")

    @property
    def is_gone(self) -> bool:
        return self._is_gone

    @property
    def running(self) -> int:
        """How many containers there are now."""
        return sum(runner.process is not None for runner in self.runners.values())

    @property
    def phase(self) -> str:
        return phase_of(self.scene.pod, self._view)

    @property
    def records(self) -> dict[str, Record]:
        return {record.name: record for record in (*self._view.containers, *self._view.init)}

    def update(self, pod: Json) -> None:
        if _told_of(pod) != _told_of(self.scene.pod):
            self._is_stale.set()
        self.scene.pod = pod
        self._obey()

    def notice_file(self, kind: str, name: str) -> None:
        """A ConfigMap or Secret of the pod's namespace has changed."""
        if (kind, name) in self.scene.volumes.sources:
            self._is_stale.set()

    def forget(self) -> None:
        """The pod was removed from under us: end it without ceremony."""
        self._is_gone = True
        self._is_deleted.set()
        self._order_stop(0.0)

    def end(self, limit: float) -> None:
        """As if the pod were deleted, and with no more time than that."""
        self._order_stop(min(self.scene.grace, limit))

    def lose_sandbox(self) -> None:
        """The helper has died, and all containers with it: end what is left of this life. `_live` begins another."""
        if self._has_lost_sandbox:
            for runner in self.runners.values():
                runner.stop.order(0.0)

    @property
    def _has_lost_sandbox(self) -> bool:
        return self.scene.box is not None and self._house.sandbox.has_lost(self.scene.box)

    def _obey(self) -> None:
        if self.scene.pod["metadata"].get("deletionTimestamp"):
            self._is_deleted.set()
            self._order_stop(self.scene.grace)

    def _order_stop(self, grace: float) -> None:
        self.scene.stop.order(grace)
        for runner in self.runners.values():
            runner.stop.order(grace)

    def _mark(self) -> None:
        self._dirty.set()

    async def run(self) -> None:
        try:
            if not self.is_finished:
                await self._live()
        finally:
            self.is_over.set()
        await self._is_deleted.wait()
        if not self._is_gone:
            await self._house.api.delete(self.scene.pod)
        await self.scene.volumes.remove()

    async def _live(self) -> None:
        async with asyncio.TaskGroup() as group:
            name = self.scene.pod["metadata"]["name"]
            beside = [
                group.create_task(self._write_statuses(), name=f"status {name}"),
                group.create_task(self._keep_deadline(), name=f"deadline {name}"),
                group.create_task(self._refresh_volumes(), name=f"volumes {name}"),
            ]
            try:
                await self._run_containers()
                while self._is_to_begin_again():
                    await self._take_down()
                    await self.scene.event("Normal", "SandboxChanged", _CHANGED)
                    await self._run_containers()
            finally:
                for task in beside:
                    task.cancel()
                await self._take_down()
        self._view.is_over = True
        for record in (*self._view.containers, *self._view.init):
            record.is_ready = False
        await self._write_status()
        self._let_go()

    def _let_go(self) -> None:
        """A pod that has ended may stay for months: keep only what its logs and its removal need."""
        self.runners.clear()
        self.scene.volumes.let_go()
        self.scene.told.clear()
        self._written = None

    def _is_to_begin_again(self) -> bool:
        """Whether the sandbox is lost and something of the pod may still be started. As after a restart of the cluster,
        init containers are run again."""
        if not self._has_lost_sandbox or self.scene.stop.is_ordered:
            return False
        policy: Policy = self.scene.pod["spec"].get("restartPolicy") or "Always"
        return any(is_restarted(policy, record) for record in self._view.containers)

    async def _run_containers(self) -> None:
        self._mark()
        if not await self._admit() or not await self._prepare():
            return
        sidecars: list[Runner] = []
        async with asyncio.TaskGroup() as group:
            try:
                if await self._initialize(group, sidecars):
                    await self._run_main()
            finally:
                for runner in sidecars:
                    runner.stop.order(self.scene.grace)

    async def _admit(self) -> bool:
        """A pod that cannot run here at all fails at once."""
        house, pod = self._house, self.scene.pod
        node = await house.api.get("Node", "", pod["spec"].get("nodeName", ""))
        self.scene.node = node or {}
        for reason, message in _shortcomings(pod, house.sandbox):
            if reason not in house.told:
                house.told.add(reason)
                await self.scene.event("Warning", reason, message)
        try:
            house.gpus.take(pod, self.scene.node)
        except NotEnoughGpus as error:
            self._fail("UnexpectedAdmissionError", str(error))
            return False
        return True

    def _fail(self, reason: str, message: str) -> None:
        self._view.reason, self._view.message = reason, message
        self._mark()

    async def _prepare(self) -> bool:
        """Volumes and sandbox, tried until they are there or the pod is to end."""
        scene, house = self.scene, self._house
        pause = longest = min(_FIRST_PAUSE, house.timing.retry)
        while not scene.stop.is_ordered:
            try:
                await scene.volumes.prepare(scene.pod, scene.node, house.sandbox.host_ip)
                if not await scene.take_turn():
                    return False
                scene.box = await house.sandbox.create(self._pod_config())
            except VolumeError as error:
                longest = house.timing.back_off_max if isinstance(error, BadVolumeError) else house.timing.retry
                await scene.event_once("FailedMount", f"MountVolume.SetUp failed: {error}")
            except SandboxError as error:
                longest = house.timing.retry
                await scene.event_once("FailedCreatePodSandBox", f"Failed to create pod sandbox: {error}")
            else:
                self._view.ip, self._view.host_ip = scene.box.ip, house.sandbox.host_ip
                house.hosts.add_pod(scene.pod, house.sandbox.name_address(scene.box))
                house.addresses.enter(scene.pod, scene.box)
                self._is_stale.set()  # of volumes that show the pod's address
                return True
            scene.end_turn()
            await scene.stop.sleep(pause)
            pause = min(2 * pause, longest)
        return False

    def _pod_config(self) -> PodConfig:
        pod = self.scene.pod
        spec, metadata = pod["spec"], pod["metadata"]
        ports = [port for c in spec["containers"] for port in c.get("ports") or ()]
        return PodConfig(
            uid=metadata["uid"],
            namespace=metadata["namespace"],
            name=metadata["name"],
            hostname=hostname_of(pod),
            hosts=self._house.hosts.file_of(pod),
            host_network=bool(spec.get("hostNetwork")),
            ports=tuple(port["containerPort"] for port in ports),
            neighbours=functools.partial(self._house.hosts.neighbours, metadata["namespace"]),
            memory_volumes=self.scene.volumes.memory,
            scratch=self.scene.volumes.scratch(),
            tools=self._house.tools.directory_of(pod) if self._house.tools is not None else None,
        )

    async def _initialize(self, group: asyncio.TaskGroup, sidecars: list[Runner]) -> bool:
        """Init containers one after the other; sidecars stay. Whether the pod's own containers may start."""
        policy: Policy = "Never" if self.scene.pod["spec"].get("restartPolicy") == "Never" else "OnFailure"
        for container, record in zip(self.scene.pod["spec"].get("initContainers") or (), self._view.init, strict=True):
            if not record.is_sidecar:
                record.state = {"waiting": {"reason": "PodInitializing"}} if record.has_succeeded else record.state
                await self._runner(container, record, policy).run()
                if not record.has_succeeded:
                    return False
                continue
            runner = self._runner(container, record, "Always")
            sidecars.append(runner)
            group.create_task(runner.run(), name=f"sidecar {record.name}")
            await runner.is_under_way.wait()
        return not self.scene.stop.is_ordered and not self._has_lost_sandbox

    async def _run_main(self) -> None:
        policy: Policy = self.scene.pod["spec"].get("restartPolicy") or "Always"
        async with asyncio.TaskGroup() as group:
            for container, record in zip(self.scene.pod["spec"]["containers"], self._view.containers, strict=True):
                if "waiting" in record.state and not record.last_state:
                    record.state = {"waiting": {"reason": "ContainerCreating"}}
                group.create_task(self._runner(container, record, policy).run(), name=f"container {record.name}")

    def _runner(self, container: Json, record: Record, policy: Policy) -> Runner:
        runner = self.runners[record.name] = Runner(self.scene, container, record, policy)
        if self.scene.stop.is_ordered:
            runner.stop.order(self.scene.stop.seconds_left)
        elif self._has_lost_sandbox:
            runner.stop.order(0.0)
        return runner

    async def _take_down(self) -> None:
        scene, house = self.scene, self._house
        scene.end_turn()
        if scene.box is not None:
            house.hosts.remove_pod(scene.pod)
            box, scene.box = scene.box, None
            house.addresses.leave(box.uid)
            with contextlib.suppress(HelperError):
                await house.sandbox.remove(box)
        house.gpus.give_back(scene.pod)

    async def _keep_deadline(self) -> None:
        """Counted from the pod's start, also across a restart of the cluster."""
        limit = self.scene.pod["spec"].get("activeDeadlineSeconds")
        if limit is None:
            return
        await asyncio.sleep(max(0.0, self._view.started_at + limit - self._house.now()))
        self._fail("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
        self._order_stop(self.scene.grace)

    async def _refresh_volumes(self) -> None:
        """At once: programs that read a list of hosts over and over expect to see the change."""
        scene, house = self.scene, self._house
        while True:
            await self._is_stale.wait()
            self._is_stale.clear()
            await scene.volumes.refresh(scene.pod, scene.node, scene.ip, house.sandbox.host_ip)

    async def _write_statuses(self) -> None:
        while True:
            await self._dirty.wait()
            await asyncio.sleep(self._house.timing.coalesce)
            await self._write_status()

    async def _write_status(self) -> None:
        """Until it is written: a status that got lost would leave the pod running for ever in the eyes of everyone."""
        self._dirty.clear()
        while not self._is_gone:
            status = status_of(self.scene.pod, self._view, self._house.now(), self._written)
            if status == self._written:
                return
            try:
                await self._house.api.update_status(self.scene.pod, status)
            except Exception:
                log.exception("status of pod %s not written", self.scene.pod["metadata"]["name"])
                await asyncio.sleep(self._house.timing.retry)
            else:
                self._written = status
                return
