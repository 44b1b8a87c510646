"""A pod as observed: who it is, how far it got, how its containers ended. Its spec is not kept."""

from __future__ import annotations

from msgspec import Struct, field

from trainmaster.objects import timestamp
from trainmaster.objects.learning import learn
from trainmaster.objects.meta import Meta


class Waiting(Struct, frozen=True, gc=False):
    reason: str = ""
    message: str = ""


class Terminated(Struct, frozen=True, gc=False, rename="camel"):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(Struct, frozen=True, gc=False):
    waiting: Waiting | None = None
    running: dict[str, str | None] | None = None
    terminated: Terminated | None = None


class ContainerStatus(Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodCondition(Struct, frozen=True, gc=False, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class PodStatus(Struct, frozen=True, gc=False, rename="camel"):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    pod_ip: str = field(default="", name="podIP")
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Struct, frozen=True, gc=False):
    metadata: Meta
    status: PodStatus = PodStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def is_finished(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def was_stopped(self) -> bool:
        """Whether somebody deleted it while it ran. Whatever code it then ended with, its work was not done: programs
        that save their state on SIGTERM end with 0."""
        due = timestamp.parse(self.metadata.deletion_timestamp)
        told = due - (self.metadata.deletion_grace_period_seconds or 0) if due is not None else None
        states = (status.state.terminated for status in self.status.container_statuses)
        ends = (timestamp.parse(state.finished_at) for state in states if state is not None)
        return told is not None and max((end for end in ends if end is not None), default=0.0) >= told

    @property
    def is_ready(self) -> bool:
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)

    @property
    def restart_count(self) -> int:
        """In-place restarts by the kubelet, init containers included."""
        statuses = self.status.init_container_statuses + self.status.container_statuses
        return sum(status.restart_count for status in statuses)

    def exit_code(self, containers: tuple[str, ...]) -> int | None:
        """How the first of these containers ended, or None if none of them is known to have ended."""
        for status in self.status.container_statuses:
            if status.name in containers and status.state.terminated is not None:
                return status.state.terminated.exit_code
        return None


learn(Pod)
