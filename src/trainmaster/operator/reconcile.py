"""One pass over one job: observe, plan, apply."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

from trainmaster.api import reading
from trainmaster.api.framework import Framework
from trainmaster.api.job import Job
from trainmaster.api.problem import shortened
from trainmaster.api.settings import Settings
from trainmaster.api.status import status_of
from trainmaster.engine.actions import Event
from trainmaster.engine.plan import Plan, plan, plan_refused, plan_rejected
from trainmaster.kube import logs
from trainmaster.kube.errors import KubeError
from trainmaster.objects.meta import Json, Object
from trainmaster.objects.resource import Resource
from trainmaster.operator.apply import Applier, TemplateRefused
from trainmaster.operator.elastic import Etcd
from trainmaster.operator.hostports import HostPorts, Provision
from trainmaster.operator.observe import World, decoded

log = logs.get(__name__)

KEPT = 256
"""Readings that are kept, per kind."""

RETRY = 30.0
"""Seconds until a job asks again for what was not to be had."""


@dataclass(frozen=True, slots=True)
class Supplies:
    """What some jobs need from beyond their own objects."""

    ports: HostPorts
    etcd: Etcd | None = None


class Readings:
    """Jobs as they were read, kept while their authors leave them as they are: most passes are about their pods.

    Bounded, and only for jobs that still run; to forget one costs no more than to read it again.
    """

    def __init__(self, framework: Framework, settings: Settings, resource: Resource) -> None:
        self._framework, self._settings, self._resource = framework, settings, resource
        self._kept: OrderedDict[str, tuple[int, reading.Reading]] = OrderedDict()

    def read(self, stored: Object) -> reading.Reading | None:
        """None for a job that another controller runs."""
        meta = stored.metadata
        generation, known = self._kept.pop(meta.uid, (0, None))
        if known is None or known.job is None or not meta.generation or generation != meta.generation:
            return self._read_anew(stored)
        status = known.framework.inherited(status_of(stored.at("status")))
        current = replace(known, job=replace(known.job, meta=meta, status=status))
        self._keep(stored, current)
        return current

    def _read_anew(self, stored: Object) -> reading.Reading | None:
        raw = decoded(stored)
        if reading.is_managed_elsewhere(self._framework, raw):
            return None
        read = reading.read(self._framework, raw, self._settings, self._resource)
        self._keep(stored, read)
        return read

    def _keep(self, stored: Object, read: reading.Reading) -> None:
        if read.job is not None and not read.job.status.is_finished:
            self._kept[stored.metadata.uid] = (stored.metadata.generation, read)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)


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
        self._readings = Readings(framework, settings, resource)

    async def reconcile(self, key: str) -> float | None:
        stored = self._world.jobs[self._resource].get(key)
        read = self._readings.read(stored) if stored is not None else None
        if stored is None or read is None:
            return None
        if read.job is None:
            return await self._reject(decoded(stored), read)
        job = read.job
        ports = await self._supplies.ports.provide(read.framework, job, self._applier)
        if ports is Provision.DEALT:
            return RETRY
        made = plan(self._world.observe(read.framework, job, read.advice), self._now())
        if ports is Provision.NONE_LEFT:
            made = _waiting(made)
        if made.marks:
            log.info("job changed", kind=job.kind, job=key, marks=made.marks)
        try:
            await self._applier.apply(read.framework, job, made)
        except TemplateRefused as refusal:
            return await self._refuse(key, refusal)
        if self._supplies.etcd is None or made.status.is_finished or job.meta.is_terminating:
            return made.wake_after
        return _sooner(made.wake_after, await self._share(read.framework, job, self._supplies.etcd))

    async def _share(self, framework: Framework, job: Job, etcd: Etcd) -> float | None:
        """Seconds until it is to be tried again, where it has to be."""
        try:
            followed = await etcd.follow(framework.shared(job))
        except KubeError as error:
            log.warning("etcd cannot be asked", job=job.meta.key, error=str(error))
            message = f"the job's processes cannot be told how many they are to be: {error}"
            events: tuple[Event, ...] = (Event("Warning", "EtcdUnreachable", message, repeat=False),)
            retry: float | None = RETRY
        else:
            events = tuple(Event("Normal", "Scaled", value.message) for value in followed.changed)
            retry = RETRY if followed.missing else None
        if events:
            await self._applier.apply(framework, job, Plan(job.status, events=events))
        return retry

    async def _refuse(self, key: str, refusal: TemplateRefused) -> float | None:
        """The job is looked at anew: its status may have been written since, and some of its pods been made."""
        stored = self._world.jobs[self._resource].get(key)
        read = self._readings.read(stored) if stored is not None else None
        if read is None or read.job is None:
            raise refusal
        observed = self._world.observe(read.framework, read.job, read.advice)
        made = plan_refused(observed, refusal.name, str(refusal), self._now())
        if made is None:
            raise refusal
        log.info("pods refused", kind=read.job.kind, job=key, why=str(refusal))
        await self._applier.apply(read.framework, read.job, made)
        return made.wake_after

    async def _reject(self, raw: Json, read: reading.Reading) -> float | None:
        job = reading.bare(read.framework, self._resource, raw, self._settings)
        has_pods = bool(self._world.pods_of(job.meta.uid))
        made = plan_rejected(read.framework, job, read.problems, self._now(), has_pods=has_pods)
        if made.marks:
            log.info(
                "job rejected", kind=job.kind, job=job.meta.key, problems=shortened([str(p) for p in read.problems])
            )
        await self._applier.apply(self._framework, job, made)
        return made.wake_after


def _waiting(made: Plan) -> Plan:
    """The plan of a job that lacks what it needs: how it stands is told, and nothing is made for it."""
    if made.status.is_finished:
        return made
    return replace(made, actions=(), wake_after=_sooner(made.wake_after, RETRY))


def _sooner(one: float | None, other: float | None) -> float | None:
    return min((wait for wait in (one, other) if wait is not None), default=None)
