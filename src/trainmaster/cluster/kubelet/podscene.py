"""What the containers of one pod share while it runs, and what the kubelet shares with all its pods."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trainmaster.cluster.kubelet.beneath import step
from trainmaster.cluster.kubelet.cluster_ips import ClusterIPs
from trainmaster.cluster.kubelet.gpus import Gpus
from trainmaster.cluster.kubelet.hosts import Hosts
from trainmaster.cluster.kubelet.images import Images
from trainmaster.cluster.kubelet.kubelet_api import PodApi, Timing
from trainmaster.cluster.kubelet.logfiles import LogWatch
from trainmaster.cluster.kubelet.sandbox import PodSandbox, Sandbox
from trainmaster.cluster.kubelet.stopping import Stop
from trainmaster.cluster.kubelet.toolbox import Toolbox
from trainmaster.cluster.kubelet.volumes import Volumes
from trainmaster.objects.meta import Json

log = logging.getLogger(__name__)

_STARTING_AT_ONCE = 8
"""Of a thousand pods the first should run, and end, before the last has a sandbox: a bridge has 1,023 ports."""


@dataclass(slots=True, kw_only=True)
class House:
    """The kubelet's own: one for all pods."""

    api: PodApi
    sandbox: Sandbox
    images: Images
    root: Path
    now: Callable[[], float]
    timing: Timing
    hosts: Hosts
    logs: LogWatch
    workdir: str
    token: Callable[[str, str], str]
    addresses: ClusterIPs
    tools: Toolbox | None = None
    processes: int | None = None  # most of them in a container
    stand_ins: Mapping[str, Path] = field(default_factory=dict)  # for volumes that lie elsewhere
    gpus: Gpus = field(default_factory=Gpus)
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_STARTING_AT_ONCE))
    told: set[str] = field(default_factory=set)  # shortcomings of this machine, told once each

    def directory_of(self, uid: str) -> Path:
        return self.root / "pods" / step(uid)


@dataclass(slots=True)
class Scene:
    """One pod's."""

    house: House
    pod: Json  # as last seen
    node: Json
    volumes: Volumes
    changed: Callable[[], None]  # the status is to be written
    stop: Stop = field(default_factory=Stop)
    box: PodSandbox | None = None
    has_turn: bool = False
    told: set[tuple[str, str, str]] = field(default_factory=set)

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"]["uid"])

    @property
    def directory(self) -> Path:
        return self.house.directory_of(self.uid)

    @property
    def ip(self) -> str:
        return self.box.ip if self.box else ""

    @property
    def grace(self) -> float:
        seconds = self.pod["metadata"].get("deletionGracePeriodSeconds")
        if seconds is None:
            seconds = self.pod["spec"].get("terminationGracePeriodSeconds", 30)
        return float(seconds)

    async def take_turn(self) -> bool:
        """Whether it may use it: the order to end may have come while it waited."""
        if not self.has_turn:
            await self.house.turns.acquire()
            self.has_turn = True
        return not self.stop.is_ordered

    def end_turn(self) -> None:
        """The pod has got so far that another may start; harmless when it has no turn."""
        if self.has_turn:
            self.has_turn = False
            self.house.turns.release()

    def log_path(self, container: str, attempt: int) -> Path:
        return self.directory / step(container) / f"{attempt}.log"

    async def event(self, kind: Literal["Normal", "Warning"], reason: str, message: str, container: str = "") -> None:
        """An event must not keep a pod from running."""
        try:
            await self.house.api.event(self.pod, kind, reason, message, container)
        except Exception:
            log.exception("event not recorded")

    async def event_once(self, reason: str, message: str, container: str = "") -> None:
        """A warning about something tried again and again."""
        if (reason, message, container) not in self.told:
            self.told.add((reason, message, container))
            await self.event("Warning", reason, message, container)
