"""Everything a plan is made from, read at one moment, frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from trainmaster.api.framework import Count, Framework
from trainmaster.api.job import Delegate, Job, Sight
from trainmaster.api.problem import Advice
from trainmaster.objects import template
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
    companions: Mapping[tuple[str, str], Object | Service] = field(default_factory=dict)
    """By kind and name: what stands under the names that the job's companions want, whoever owns it."""

    jobs: tuple[Object, ...] = ()
    """The Kubernetes Jobs that this job owns, because roles are delegated to them."""

    delegated_pods: tuple[Pod, ...] = ()
    """The pods of those Jobs, and what is left of earlier ones."""

    pod_group: Object | None = None
    priorities: Mapping[str, int] = field(default_factory=dict)
    """Values of PriorityClasses by name."""

    advice: tuple[Advice, ...] = ()

    def __post_init__(self) -> None:
        """The job sees what was observed: its framework is asked about the job alone."""
        wanted = {slot: pod for slot, pod in self.pod_at.items() if self.is_wanted(slot)}
        services = {service.metadata.name: service for service in self.owned_services}
        delegates = {role.name: found for role in self.framework.roles if (found := self._delegate(role.name))}
        object.__setattr__(self, "job", replace(self.job, seen=Sight(wanted, services, delegates, self.companions)))

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

    def _delegate(self, role: str) -> Delegate | None:
        if not self.framework.role(role).delegated:
            return None
        name = self.job.host(role)
        held = next((job for job in self.jobs if job.metadata.name == name), None)
        if held is None or held.metadata.is_terminating:
            return None
        conditions = {c.get("type"): c for c in held.at("status", "conditions") or () if c.get("status") == "True"}
        failed = conditions.get("Failed")
        return Delegate(
            name=name,
            uid=held.metadata.uid,
            is_complete="Complete" in conditions,
            failure=(failed.get("reason", ""), failed.get("message", "")) if failed else None,
            failed=held.at("status", "failed") or 0,
            pods=tuple(pod for pod in self.delegated_pods if pod.metadata.is_controlled_by(held.metadata.uid)),
        )

    def slot_of(self, name: str) -> Slot | None:
        """Which replica bears this name. Names, unlike labels, are the same under every operator of the past."""
        rest = name.removeprefix(f"{self.job.name}-")
        alone = next((role for role in self.job.unnumbered if role.lower() == rest != name), None)
        if alone is not None:
            return alone, 0
        role, _, index = rest.rpartition("-")
        canonical = next((r.name for r in self.framework.roles if r.numbered and r.name.lower() == role), None)
        if canonical is None or rest == name or not index.isdecimal() or str(int(index)) != index:
            return None
        return canonical, int(index)

    def is_wanted(self, slot: Slot) -> bool:
        role, index = slot
        return index < self.job.count(role)

    @cached_property
    def counts(self) -> Mapping[str, Count]:
        """How every role of the job stands. Pods that are being scaled away do not count."""
        delegates = self.job.seen.delegates
        return {
            role: _delegated(delegates.get(role)) if self.framework.role(role).delegated else self._count(role)
            for role in self.job.replicas
        }

    def _count(self, role: str) -> Count:
        pods = {index: pod for (of, index), pod in self.pod_at.items() if of == role and self.is_wanted((of, index))}
        phase = {index: pod.status.phase for index, pod in pods.items()}
        running = {index for index in pods if phase[index] == "Running"}
        leaving = {index for index in pods if self._is_leaving(pods[index])}
        completed = self.job.status.completed.get(role, ())
        remembered = {i for i in completed if self.is_wanted((role, i)) and (i not in pods or i in leaving)}
        done = {index for index in pods if phase[index] == "Succeeded"} - leaving
        names = self.container_names(role)
        return Count(
            active=frozenset(running - leaving),
            succeeded=frozenset(done | remembered),
            failed=frozenset((leaving | {index for index in pods if phase[index] == "Failed"}) - remembered),
            completed=frozenset({index for index in done if pods[index].exit_code(names) == 0} | remembered),
            ready=frozenset(index for index in running - leaving if pods[index].is_ready),
        )

    def _is_leaving(self, pod: Pod) -> bool:
        is_cut_short = pod.status.phase == "Running" or pod.was_stopped
        return pod.metadata.is_terminating and (self.framework.replaces_deleted or is_cut_short)

    def container_names(self, role: str) -> tuple[str, ...]:
        """Under which names the training container of a role may be found in its pod's status."""
        if self.framework.container_names:
            return self.framework.container_names
        first = template.container_named(self.job.replicas[role].template, ()) if role in self.job.replicas else None
        return (str(first.get("name", "")),) if first else ()


def _delegated(delegate: Delegate | None) -> Count:
    """A Job that has not given up may still succeed, so pods that failed under it are not failures of ours."""
    if delegate is None:
        return Count()
    running = any(pod.status.phase == "Running" and not pod.metadata.is_terminating for pod in delegate.pods)
    return Count(
        active=frozenset({0} if running and not delegate.is_finished else ()),
        succeeded=frozenset({0} if delegate.is_complete else ()),
        failed=frozenset({0} if delegate.failure is not None else ()),
        completed=frozenset({0} if delegate.is_complete else ()),
        ready=frozenset(index for index, pod in enumerate(delegate.pods[:1]) if running and pod.is_ready),
    )
