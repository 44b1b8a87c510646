"""A job after reading: typed, defaulted, frozen. What frameworks compute from and what the engine plans for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from trainmaster.api.problem import Advice
from trainmaster.api.settings import DEFAULT, Settings
from trainmaster.api.status import JobStatus
from trainmaster.objects.meta import Json, Meta, Object, Service
from trainmaster.objects.pod import Pod
from trainmaster.objects.resource import Resource

QUEUE_NAME = "scheduling.volcano.sh/queue-name"
"""Annotation of a job: the queue, where its policy names none."""

DEFAULT_QUEUE = "default"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Replica:
    """What one role asks for."""

    replicas: int
    restart_policy: str
    template: Json
    extra: Json = field(default_factory=dict)
    """Fields of the replica spec that only this framework (or an old operator) knows."""


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    min_available: int | None = None
    queue: str = ""
    min_resources: Mapping[str, str] | None = None
    priority_class: str = ""
    schedule_timeout_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class RunPolicy:
    clean_pod_policy: str = "None"
    is_cleaning_told: bool = True
    """Whether the job says so itself, or another operator's habits are to be kept; if not, we may choose how."""

    ttl_seconds_after_finished: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    suspend: bool = False
    managed_by: str | None = None
    scheduling: SchedulingPolicy = SchedulingPolicy()


@dataclass(frozen=True, slots=True)
class Sight:
    """How far a job's objects are, for contracts that depend on it: a hostfile of running pods, a Service's address.

    Empty where a job is only planned on paper.
    """

    pods: Mapping[tuple[str, int], Pod] = field(default_factory=dict)
    """The pods of wanted replicas, by role and index."""

    services: Mapping[str, Service] = field(default_factory=dict)
    delegates: Mapping[str, Delegate] = field(default_factory=dict)
    """The Jobs to which roles are delegated, by role."""

    companions: Mapping[tuple[str, str], Object | Service] = field(default_factory=dict)
    """What stands under the names of its companions, by kind and name, whoever owns it."""


@dataclass(frozen=True, slots=True)
class Delegate:
    """A Kubernetes Job that runs a role for us, as far as it matters."""

    name: str
    uid: str
    is_complete: bool = False
    failure: tuple[str, str] | None = None
    """Reason and message, once the Job has given up."""

    failed: int = 0
    """Pods that failed under it."""

    pods: tuple[Pod, ...] = ()

    @property
    def is_finished(self) -> bool:
        return self.is_complete or self.failure is not None


@dataclass(frozen=True, slots=True)
class Job:
    resource: Resource
    meta: Meta
    spec: Json
    replicas: Mapping[str, Replica]
    """By canonical role name, in the framework's role order; roles the job leaves out are absent."""

    ports: Mapping[str, int]
    """The rendezvous port of every role."""

    policy: RunPolicy = RunPolicy()
    status: JobStatus = JobStatus()
    settings: Settings = DEFAULT
    version: str = ""
    """The API version that its author wrote, where several are served; otherwise the resource's."""

    unnumbered: frozenset[str] = frozenset()
    """Roles whose one pod bears no index in its name."""

    delegated: Json = field(default_factory=dict)
    """What the Jobs of delegated roles are told beside their pods: limits that we then do not keep ourselves."""

    seen: Sight = Sight()
    kept_from: str = ""
    """The operator's gang scheduler, where the job names another and is left to that."""

    _known: dict[Callable[[Job], Any], Any] = field(init=False, repr=False, compare=False, default_factory=dict)

    @property
    def api_version(self) -> str:
        return f"{self.resource.group}/{self.version}" if self.version else self.resource.api_version

    @property
    def name(self) -> str:
        return self.meta.name

    @property
    def namespace(self) -> str:
        return self.meta.namespace

    @property
    def kind(self) -> str:
        return self.resource.kind

    @property
    def world(self) -> int:
        """All replicas of all roles."""
        return sum(replica.replicas for replica in self.replicas.values())

    @property
    def queue(self) -> str:
        """Where it waits for its gang to be admitted."""
        return self.policy.scheduling.queue or self.meta.annotations.get(QUEUE_NAME) or DEFAULT_QUEUE

    def once(self, function: Callable[[Job], T]) -> T:
        """What the function makes of this job, computed when first asked for. What is the same for all replicas is
        asked for by each of them, and of ten thousand none can afford to look at all the others."""
        if function not in self._known:
            self._known[function] = function(self)
        found: T = self._known[function]
        return found

    def has(self, role: str) -> bool:
        return role in self.replicas

    def count(self, role: str) -> int:
        return self.replicas[role].replicas if role in self.replicas else 0

    def host(self, role: str, index: int = 0) -> str:
        """The name of a replica's pod and of the Service before it."""
        stem = f"{self.name}-{role.lower()}"
        return stem if role in self.unnumbered else f"{stem}-{index}"

    def hosts(self, role: str) -> list[str]:
        return [self.host(role, index) for index in range(self.count(role))]

    def members(self) -> list[Member]:
        """Every replica, in role order: rank is the position in this list."""
        slots = [(role, index) for role, replica in self.replicas.items() for index in range(replica.replicas)]
        return [Member(self, role, index, rank) for rank, (role, index) in enumerate(slots)]


@dataclass(frozen=True, slots=True)
class Member:
    """One replica: a pod to be."""

    job: Job
    role: str
    index: int
    rank: int

    @property
    def name(self) -> str:
        return self.job.host(self.role, self.index)

    @property
    def slot(self) -> str:
        """The key under which its attempts are counted."""
        return f"{self.role.lower()}-{self.index}"

    @property
    def replica(self) -> Replica:
        return self.job.replicas[self.role]


def ungrouped(job: Job) -> Job:
    """A job that names another scheduler than the operator's is left to that one as a whole: a gang of which a part is
    placed by somebody else is never complete."""
    gang = job.settings.gang_scheduler
    if {named.lower() for named in _schedulers(job).values()} <= {gang.lower()}:
        return job
    return replace(job, settings=replace(job.settings, gang_scheduler=""), kept_from=gang)


def ungrouped_advice(job: Job) -> Iterator[Advice]:
    """Who has set another scheduler, where there would have been a gang."""
    for role, named in _schedulers(job).items():
        if job.kept_from and named.lower() != job.kept_from.lower():
            message = f"Another scheduler ({named}) is set in the pod template of {role} and will not be overwritten"
            yield Advice("SetPodTemplateSchedulerName", f"{message}; the whole job is left to it, without a PodGroup")


def _schedulers(job: Job) -> dict[str, str]:
    """By role, where its template names one."""
    named = ((role, replica.template.get("spec", {}).get("schedulerName")) for role, replica in job.replicas.items())
    return {role: str(name) for role, name in named if name}
