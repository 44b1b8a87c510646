"""The one reader: everything a plan needs, from the caches and from nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from trainmaster.api.framework import Framework
from trainmaster.api.job import Job
from trainmaster.api.problem import Advice
from trainmaster.engine import gang, labels
from trainmaster.engine.observed import Observed
from trainmaster.kube.cache import Cache
from trainmaster.objects.meta import FiledObject, JobObject, Json, Object, PriorityClass, Service, Stored
from trainmaster.objects.pod import Pod
from trainmaster.objects.resource import (
    CONFIG_MAPS,
    JOBS,
    PODS,
    PRIORITY_CLASSES,
    ROLE_BINDINGS,
    ROLES,
    SERVICES,
    Resource,
)

_TYPES: Mapping[Resource, type[Any]] = {
    PODS: Pod,
    SERVICES: Service,
    PRIORITY_CLASSES: PriorityClass,
    **dict.fromkeys((CONFIG_MAPS, ROLES, ROLE_BINDINGS), FiledObject),
}

OWNER = "owner"
"""The index of objects by the UID of the job that controls them."""


def owner_index(stored: Stored) -> Iterable[str]:
    owner = stored.metadata.controller
    return (owner.uid,) if owner is not None else ()


def pod_index(pod: Pod) -> Iterable[str]:
    """Pods of a Kubernetes Job are found under the training job, too: they may outlive that Job."""
    job = pod.metadata.annotations.get(labels.JOB_UID)
    return (*owner_index(pod), job) if job else owner_index(pod)


def owned() -> Mapping[str, Any]:
    return {OWNER: owner_index}


class World:
    """The caches, by what they hold. One for all controllers: each kind of object is watched once."""

    def __init__(self, jobs: Iterable[Resource], others: Iterable[Resource]) -> None:
        self.jobs: dict[Resource, Cache[Object]] = {resource: Cache() for resource in jobs}
        self.pods: Cache[Pod] = Cache({OWNER: pod_index})
        self.services: Cache[Service] = Cache(owned())
        self.priorities: Cache[PriorityClass] = Cache()
        self.others: dict[Resource, Cache[Object]] = {resource: Cache(owned()) for resource in others}
        fixed: dict[Resource, Cache[Any]] = {
            PODS: self.pods,
            SERVICES: self.services,
            PRIORITY_CLASSES: self.priorities,
        }
        self._caches = {**fixed, **self.others, **self.jobs}

    def cache(self, resource: Resource) -> Cache[Any]:
        return self._caches[resource]

    def type(self, resource: Resource) -> type[Any]:
        return JobObject if resource in self.jobs else _TYPES.get(resource, Object)

    def pods_of(self, uid: str) -> tuple[Pod, ...]:
        return tuple(self.pods.by(OWNER, uid))

    def observe(self, framework: Framework, job: Job, advice: tuple[Advice, ...] = ()) -> Observed:
        uid = job.meta.uid
        jobs = self._delegates(framework, uid)
        pods = self.pods_of(uid)
        delegated = {pod.metadata.uid: pod for held in jobs for pod in self.pods_of(held.metadata.uid)}
        delegated |= {pod.metadata.uid: pod for pod in pods if labels.JOB_UID in pod.metadata.annotations}
        return Observed(
            framework,
            job,
            pods=pods,
            services=tuple(self.services.by(OWNER, uid)),
            companions=dict(self._companions(framework, job)),
            jobs=jobs,
            delegated_pods=tuple(delegated.values()),
            pod_group=self._pod_group(job),
            priorities={p.metadata.name: p.value for p in self.priorities.values()},
            advice=advice,
        )

    def _delegates(self, framework: Framework, uid: str) -> tuple[Object, ...]:
        return tuple(self.others[JOBS].by(OWNER, uid)) if framework.delegates else ()

    def _companions(self, framework: Framework, job: Job) -> Iterator[tuple[tuple[str, str], Object | Service]]:
        wanted = {(c.resource, str(c.body["metadata"]["name"])) for c in framework.companions(job)}
        for resource in framework.companion_resources:
            cache = self._caches.get(job.settings.adapted(resource))
            if cache is None:
                continue
            for held in cache.by(OWNER, job.meta.uid):
                yield (resource.kind, held.metadata.name), held
            for name in (name for kind, name in wanted if kind == resource):
                standing = cache.get(f"{job.namespace}/{name}")
                if standing is not None:
                    yield (resource.kind, name), standing

    def _pod_group(self, job: Job) -> Object | None:
        resource = gang.resource_of(job.settings)
        return self.others[resource].get(job.meta.key) if resource is not None else None


def decoded(stored: Object) -> Json:
    """A job as it is stored; its metadata stays typed."""
    return {"metadata": stored.metadata, "spec": _decoded(stored.spec), "status": _decoded(stored.status)}


def _decoded(raw: msgspec.Raw) -> Any:
    return msgspec.json.decode(raw) if bytes(raw) else None
