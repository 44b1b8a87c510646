"""One pass over one job: observe, plan, apply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainmaster.api import reading
from trainmaster.api.framework import Framework
from trainmaster.api.job import Job
from trainmaster.api.settings import Settings
from trainmaster.engine.actions import Event
from trainmaster.engine.plan import Plan, plan, plan_rejected
from trainmaster.kube import logs
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import Resource
from trainmaster.operator.apply import Applier
from trainmaster.operator.elastic import Etcd
from trainmaster.operator.hostports import HostPorts
from trainmaster.operator.observe import World

log = logs.get(__name__)

RETRY = 30.0
"""Seconds until a job asks again for what was not to be had."""


@dataclass(frozen=True, slots=True)
class Supplies:
    """What some jobs need from beyond their own objects."""

    ports: HostPorts
    etcd: Etcd | None = None


class Reconciler:
    """Runs the jobs of one resource. Keys are `namespace/name`."""

    def __init__(
        self,
        framework: Framework,
        resource: Resource,
        settings: Settings,
        world: World,
        applier: Applier,
        supplies: Supplies,
        now: Callable[[], float],
    ) -> None:
        self._framework, self._resource, self._settings = framework, resource, settings
        self._world, self._applier, self._now = world, applier, now
        self._supplies = supplies

    async def reconcile(self, key: str) -> float | None:
        raw = self._world.job(self._resource, key)
        if raw is None or reading.is_managed_elsewhere(self._framework, raw):
            return None
        read = reading.read(self._framework, raw, self._settings, self._resource)
        if read.job is None:
            await self._reject(raw, read)
            return None
        job = read.job
        if not await self._supplies.ports.provide(read.framework, job, self._applier):
            return RETRY
        made = plan(self._world.observe(read.framework, job, read.advice), self._now())
        if made.marks:
            log.info("job changed", kind=job.kind, job=key, marks=made.marks)
        await self._applier.apply(read.framework, job, made)
        if not made.status.is_finished and not job.meta.is_terminating:
            await self._share(read.framework, job)
        return made.wake_after

    async def _share(self, framework: Framework, job: Job) -> None:
        changed = await self._supplies.etcd.follow(framework.shared(job)) if self._supplies.etcd is not None else []
        if changed:
            events = tuple(Event("Normal", "Scaled", value.message) for value in changed)
            await self._applier.apply(framework, job, Plan(job.status, events=events))

    async def _reject(self, raw: Json, read: reading.Reading) -> None:
        job = reading.bare(self._resource, raw, self._settings)
        has_pods = bool(self._world.pods_of(job.meta.uid))
        made = plan_rejected(read.framework, job, read.problems, self._now(), has_pods=has_pods)
        if made.marks:
            log.info("job rejected", kind=job.kind, job=job.meta.key, problems=[str(p) for p in read.problems])
        await self._applier.apply(self._framework, job, made)
