"""Puts the operator together: one manager, one set of caches, a controller for every kind of job.

What changes in a cache becomes a key in a queue. Jobs enter at once when what their users wrote has changed; changes
of the objects they own enter a moment later, so that the pods of one job that start together are one pass, not ten.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from trainmaster.api.framework import Framework
from trainmaster.api.settings import Settings
from trainmaster.engine import gang, labels
from trainmaster.kube import discovery, logs
from trainmaster.kube.client import Client
from trainmaster.kube.controller import Controller
from trainmaster.kube.errors import KubeError
from trainmaster.kube.manager import Manager
from trainmaster.kube.metrics import KubeMetrics
from trainmaster.kube.queue import WorkQueue
from trainmaster.kube.recorder import Recorder
from trainmaster.kube.reflector import Reflector
from trainmaster.objects.meta import Meta, Object, Stored
from trainmaster.objects.pod import Pod
from trainmaster.objects.resource import (
    HORIZONTAL_POD_AUTOSCALERS,
    JOBS,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
    Resource,
)
from trainmaster.operator import hostports
from trainmaster.operator.apply import Applier
from trainmaster.operator.elastic import Etcd
from trainmaster.operator.hostports import HostPorts
from trainmaster.operator.metrics import JobMetrics
from trainmaster.operator.observe import World
from trainmaster.operator.options import Options
from trainmaster.operator.outside import Outside
from trainmaster.operator.reconcile import Reconciler, Supplies

log = logs.get(__name__)

USERS_OWN = ("PodGroup", "HorizontalPodAutoscaler")
"""Users make these for their jobs too, and theirs are respected: they are seen whether they bear our labels or not."""

COALESCE = 0.05
"""Seconds in which changes of a job's objects are gathered into one pass."""


class NotInstalled(KubeError):
    """Something was asked for that this cluster lacks."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the parts of one operator share."""

    options: Options
    frameworks: tuple[Framework, ...]
    client: Client
    asking: Client
    """For what has to be known before anything runs: it waits for no answer long."""

    manager: Manager
    metrics: KubeMetrics
    now: Callable[[], float]


async def assemble(parts: Parts) -> None:
    """Fills the manager; its `run` does the rest."""
    settings, missing = await _suited(parts)
    jobs = [resource for framework in parts.frameworks for resource in framework.served]
    world = World(jobs, _others(parts.frameworks, settings, missing))
    queues = {resource: WorkQueue[str](observer=parts.metrics.queue(_title(resource))) for resource in jobs}
    _route(world, queues)
    _add_caches(parts, world, settings, missing)
    job_metrics = JobMetrics(parts.metrics.registry)
    job_metrics.leading(lambda: parts.manager.is_leader)
    for resource in (framework.resource for framework in parts.frameworks if framework.name == "mpi"):
        world.jobs[resource].subscribe(job_metrics.on_mpi_job)
    supplies = _supplies(parts, world, settings)
    for framework in parts.frameworks:
        _add_controllers(parts, framework, settings, world, queues, job_metrics, supplies)
    if parts.options.namespace:
        _look_outside(parts, missing)
    parts.manager.on_synced(_rest)


def _title(resource: Resource) -> str:
    """Two kinds may share a plural, so groups are told apart."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


async def _suited(parts: Parts) -> tuple[Settings, frozenset[Resource]]:
    """Settings that fit this cluster, and the resources it does not serve."""
    settings = parts.options.settings
    older = replace(HORIZONTAL_POD_AUTOSCALERS, version="v2beta2")
    group = gang.resource_of(settings)
    jobs = [resource for framework in parts.frameworks for resource in framework.served]
    wanted = {*jobs, HORIZONTAL_POD_AUTOSCALERS, older, *([group] if group else [])}
    found = await discovery.served(parts.asking, wanted)
    if group is not None and group not in found:
        raise NotInstalled(
            f"gang scheduling by {settings.gang_scheduler} needs {_title(group)}/{group.version}, which this cluster "
            f"does not serve; install the scheduler, or leave out --gang-scheduler-name"
        )
    if HORIZONTAL_POD_AUTOSCALERS not in found and older in found:
        settings = replace(settings, autoscaling_version="v2beta2")
    return settings, frozenset(wanted) - found


def _others(frameworks: Iterable[Framework], settings: Settings, missing: frozenset[Resource]) -> list[Resource]:
    companions = {settings.adapted(resource) for framework in frameworks for resource in framework.companion_resources}
    companions |= {JOBS for framework in frameworks if framework.delegates}
    group = gang.resource_of(settings)
    return [*sorted(companions - missing - {PODS, SERVICES}), *([group] if group else [])]


def _add_caches(parts: Parts, world: World, settings: Settings, missing: frozenset[Resource]) -> None:
    def reflector(resource: Resource, selector: str = "") -> Reflector[Stored]:
        return Reflector(
            parts.client,
            resource,
            world.type(resource),
            world.cache(resource),
            namespace=parts.options.namespace if resource.namespaced else "",
            label_selector=selector,
        )

    for resource in world.jobs:
        if resource in missing:
            # Not waited for, but looked for: it may be installed later.
            log.warning("kind not installed", kind=resource.kind, group=resource.group)
            parts.manager.add_server(reflector(resource), name=f"absent {_title(resource)}")
        else:
            parts.manager.add_cache(_title(resource), reflector(resource))
    for resource in (PODS, SERVICES):
        parts.manager.add_cache(_title(resource), reflector(resource, labels.JOB_NAME))
    for resource in world.others:
        selector = "" if resource.kind in USERS_OWN else labels.JOB_NAME
        parts.manager.add_cache(_title(resource), reflector(resource, selector))
    if gang.resource_of(settings) is not None:
        parts.manager.add_cache(_title(PRIORITY_CLASSES), reflector(PRIORITY_CLASSES))


def _add_controllers(
    parts: Parts,
    framework: Framework,
    settings: Settings,
    world: World,
    queues: dict[Resource, WorkQueue[str]],
    job_metrics: JobMetrics,
    supplies: Supplies,
) -> None:
    recorder = Recorder(parts.client, component=framework.controller_name, now=parts.now, on_result=parts.metrics.event)
    parts.manager.add_server(recorder, name=f"events of {framework.group} {framework.controller_name}")
    applier = Applier(parts.client, world, recorder, job_metrics, lambda: parts.manager.is_leader)
    for resource in framework.served:
        reconciler = Reconciler(framework, resource, settings, world, applier, supplies, parts.now)
        name = _title(resource)
        parts.manager.add_controller(
            Controller(
                name,
                reconciler.reconcile,
                queues[resource],
                workers=parts.options.controller_threads,
                metrics=parts.metrics.controller(name),
            )
        )


def _look_outside(parts: Parts, missing: frozenset[Resource]) -> None:
    jobs = {one: framework for framework in parts.frameworks for one in framework.served if one not in missing}
    log.warning("watching one namespace only", namespace=parts.options.namespace)
    recorder = Recorder(parts.client, component="trainmaster", now=parts.now, on_result=parts.metrics.event)
    outside = Outside(parts.client, recorder, jobs, parts.options.namespace, parts.now, lambda: parts.manager.is_leader)
    parts.manager.add_server(recorder, name="events outside")
    parts.manager.add_server(outside, name="outside")


def _supplies(parts: Parts, world: World, settings: Settings) -> Supplies:
    ports = HostPorts(world, parts.frameworks, hostports.parse_range(parts.options.port_range))
    if not settings.etcd_servers:
        return Supplies(ports)
    etcd = Etcd(settings.etcd_servers)
    parts.manager.add_server(etcd, name="etcd")
    return Supplies(ports, etcd)


def _route(world: World, queues: dict[Resource, WorkQueue[str]]) -> None:
    by_owner = {(resource.group, resource.kind): queue for resource, queue in queues.items()}
    delegating = JOBS in world.others

    def on_owned(old: Stored | None, new: Stored | None) -> None:
        stored = new or old
        if stored is None or (old is not None and new is not None and not _is_news(old, new)):
            return
        owner = stored.metadata.controller
        if owner is not None and owner.kind == JOBS.kind:  # the pod of a delegate: its Job's owner is concerned
            delegate = world.others[JOBS].get(f"{stored.metadata.namespace}/{owner.name}") if delegating else None
            owner = delegate.metadata.controller if delegate is not None else None
            if owner is None:
                on_leftover(stored)
        queue = by_owner.get((owner.api_version.partition("/")[0], owner.kind)) if owner else None
        if owner is not None and queue is not None:
            queue.add(f"{stored.metadata.namespace}/{owner.name}", after=COALESCE)

    def on_leftover(stored: Stored) -> None:
        """A pod whose Job is gone; the job that it once ran for waits until it is gone, too."""
        uid = stored.metadata.annotations.get(labels.JOB_UID)
        key = f"{stored.metadata.namespace}/{stored.metadata.labels.get(labels.JOB_NAME)}"
        for resource, cache in world.jobs.items() if uid else ():
            found = cache.get(key)
            if found is not None and found.metadata.uid == uid:
                queues[resource].add(key, after=COALESCE)

    def on_group(old: Object | None, new: Object | None) -> None:
        """PodGroups made by users have no owner: whatever job bears the name is concerned."""
        stored = new or old
        for resource, cache in world.jobs.items():
            if stored is not None and cache.get(stored.metadata.key) is not None:
                queues[resource].add(stored.metadata.key, after=COALESCE)

    for resource, cache in world.jobs.items():
        cache.subscribe(_on_job(queues[resource]))
    world.pods.subscribe(on_owned)
    world.services.subscribe(on_owned)
    for resource, other in world.others.items():
        other.subscribe(on_group if resource.kind == "PodGroup" else on_owned)


def _on_job(queue: WorkQueue[str]) -> Callable[[Object | None, Object | None], None]:
    def on_job(old: Object | None, new: Object | None) -> None:
        """Our own status writes come back as changes too; they are no news."""
        if new is not None and (old is None or _said(old.metadata) != _said(new.metadata)):
            queue.add(new.metadata.key)

    return on_job


def _said(meta: Meta) -> tuple[object, ...]:
    return (meta.uid, meta.generation, meta.deletion_timestamp, meta.annotations, meta.labels)


def _is_news(old: Stored, new: Stored) -> bool:
    """Whether anything changed that a plan could depend on."""
    if old.metadata.deletion_timestamp != new.metadata.deletion_timestamp:
        return True
    if isinstance(old, Pod) and isinstance(new, Pod):
        return old.status != new.status or old.metadata.owner_references != new.metadata.owner_references
    return True


def _rest() -> None:
    """What was loaded stays: the garbage collector need not look at it again and again."""
    gc.freeze()
