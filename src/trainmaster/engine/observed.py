"""Everything a plan is made from, read at one moment, frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from trainmaster.api.framework import Count, Framework
from trainmaster.api.job import Job
from trainmaster.api.problem import Advice
from trainmaster.objects.meta import Object, Service
from trainmaster.objects.pod import Pod

Slot = tuple[str, int]
"""A replica's place: canonical role and index."""


@dataclass(frozen=True)
class Observed:
    framework: Framework
    job: Job
    pods: tuple[Pod, ...] = ()
    services: tuple[Service, ...] = ()
    companions: Mapping[tuple[str, str], Object] = field(default_factory=dict)
    """By kind and name: what stands under the names that the job's companions want, whoever owns it."""

    pod_group: Object | None = None
    priorities: Mapping[str, int] = field(default_factory=dict)
    """Values of PriorityClasses by name."""

    advice: tuple[Advice, ...] = ()

    @cached_property
    def owned_pods(self) -> tuple[Pod, ...]:
        return tuple(pod for pod in self.pods if pod.metadata.is_controlled_by(self.job.meta.uid))

    @cached_property
    def owned_services(self) -> tuple[Service, ...]:
        return tuple(s for s in self.services if s.metadata.is_controlled_by(self.job.meta.uid))

    @cached_property
    def pod_at(self) -> Mapping[Slot, Pod]:
        """Owned pods by slot, out-of-range ones too. Names are deterministic, so a slot has at most one pod."""
        slots = ((self.slot_of(pod.name), pod) for pod in self.owned_pods)
        return {slot: pod for slot, pod in slots if slot is not None}

    def slot_of(self, name: str) -> Slot | None:
        """Which replica bears this name. Names, unlike labels, are the same under every operator of the past."""
        rest = name.removeprefix(f"{self.job.name}-")
        role, _, index = rest.rpartition("-")
        canonical = next((r.name for r in self.framework.roles if r.name.lower() == role), None)
        if canonical is None or rest == name or not index.isdecimal() or str(int(index)) != index:
            return None
        return canonical, int(index)

    def is_wanted(self, slot: Slot) -> bool:
        role, index = slot
        return index < self.job.count(role)

    @cached_property
    def counts(self) -> Mapping[str, Count]:
        """How every role of the job stands. Pods that are being scaled away do not count."""
        return {role: self._count(role) for role in self.job.replicas}

    def _count(self, role: str) -> Count:
        pods = {index: pod for (of, index), pod in self.pod_at.items() if of == role and self.is_wanted((of, index))}
        remembered = {i for i in self.job.status.completed.get(role, ()) if self.is_wanted((role, i)) and i not in pods}
        phase = {index: pod.status.phase for index, pod in pods.items()}
        running = {index for index in pods if phase[index] == "Running"}
        leaving = {index for index in running if pods[index].metadata.is_terminating}
        done = {index for index in pods if phase[index] == "Succeeded"}
        names = self.framework.container_names
        return Count(
            active=frozenset(running - leaving),
            succeeded=frozenset(done | remembered),
            failed=frozenset(leaving | {index for index in pods if phase[index] == "Failed"}),
            completed=frozenset({index for index in done if pods[index].exit_code(names) == 0} | remembered),
            ready=frozenset(index for index in running - leaving if pods[index].is_ready),
        )
