"""What a framework author writes: a class of facts and a few pure functions.

Everything else (CRD, RBAC, defaults, validation, the controller, `trainmaster plan`) is derived from it. A
framework sees a frozen `Job` or `Member` and returns values; it never meets a client, a cache or the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from trainmaster.api.job import Job, Member
from trainmaster.api.messages import QUALIFIED as QUALIFIED
from trainmaster.api.messages import Messages as Messages
from trainmaster.api.problem import Advice, Problem
from trainmaster.api.status import JobStatus
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import Resource
from trainmaster.objects.template import EnvValue

Env = Mapping[str, EnvValue]
"""Variables in the order in which they are appended; later ones may refer to earlier ones as `$(NAME)`."""


@dataclass(frozen=True, slots=True)
class Role:
    """A kind of replica. `min` and `max` bound its replicas when the job has it; `required` jobs must have it."""

    name: str
    min: int = 0
    max: int | None = None
    replicas: int = 1
    """How many there are when the job does not say."""

    restart_policy: str = ""
    """Of this role, where it differs from the framework's."""

    leader: bool = False
    required: bool = False
    numbered: bool = True
    """Whether its pods bear their index in their names; a role of one pod need not."""

    serves: bool = False
    """Whether its replicas go on for ever: parameter servers and the like, which somebody has to end."""

    served: bool = True
    """Whether a Service may bear the name of a replica, for which the job's name must begin with a letter."""

    delegated: bool = False
    """Whether a Kubernetes Job makes its pod, and counts its retries."""


@dataclass(frozen=True, slots=True)
class Count:
    """How a role stands: indices of its replicas by what has become of them."""

    active: frozenset[int] = frozenset()
    succeeded: frozenset[int] = frozenset()
    failed: frozenset[int] = frozenset()
    completed: frozenset[int] = frozenset()
    """Succeeded, and the training container is known to have exited with 0."""

    ready: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Alias:
    """A second name under which the same kind is served: an old API group, or an old kind."""

    group: str
    version: str
    kind: str
    plural: str


@dataclass(frozen=True, slots=True)
class Companion:
    """An object the job needs beside pods and Services. With `keep` it stays while suspended and after the end.

    `secret` makes, once and when the object is created, the part of its body that no plan may hold: keys.
    """

    resource: Resource
    body: Json
    keep: bool = False
    frozen: bool = False
    """What stands under its name stays as it is; nothing is made and nothing is changed."""

    secret: Callable[[], Json] | None = None
    names_pods: bool = False
    """It says which pods there are: it is kept true while the job is suspended and after its end, too."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A value that the job's processes watch in an etcd, and what users are told when it changes."""

    key: str
    value: str
    message: str


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a job has failed, where it is not a replica's failure that says so."""

    reason: str
    message: str


Column = tuple[str, str, str]
"""Heading, type and JSON path of a column of `kubectl get`."""

STATE: Column = ("State", "string", ".status.conditions[-1:].type")
AGE: Column = ("Age", "date", ".metadata.creationTimestamp")


class Framework:
    group: ClassVar[str] = "kubeflow.org"
    version: ClassVar[str] = "v1"
    older_versions: ClassVar[tuple[str, ...]] = ()
    """Also served, with the same schema and no conversion."""

    deprecated: ClassVar[Mapping[str, str]] = {}
    """Versions that can be read and deleted, but not written any more, with what kubectl warns of."""

    retired: ClassVar[str] = ""
    """Why jobs of this dialect are not run any more, and what to write instead."""

    short_names: ClassVar[tuple[str, ...]] = ()
    columns: ClassVar[tuple[Column, ...]] = (STATE, AGE)

    aliases: ClassVar[tuple[Alias, ...]] = ()
    name: ClassVar[str]
    """`pytorch`: the value of the metrics' `framework` label and the name of docs and icons."""

    kind: ClassVar[str]
    plural: ClassVar[str]
    replicas_field: ClassVar[str]
    """Where the roles stand in the spec; empty when they stand in the spec itself."""

    container: ClassVar[str] = ""
    """The name of the container that trains; empty when it is the first one, whatever its name."""

    container_aliases: ClassVar[tuple[str, ...]] = ()
    port: ClassVar[int] = 0
    """Of the rendezvous; 0 when there is none to declare."""

    port_name: ClassVar[str] = ""
    roles: ClassVar[tuple[Role, ...]]
    """In start and rank order."""

    decides: ClassVar[tuple[str, ...]]
    """The first of these roles that a job has decides whether it runs and when it has succeeded."""

    restart_policy: ClassVar[str] = "Never"
    restart_policies: ClassVar[tuple[str, ...]] = ("Always", "OnFailure", "Never", "ExitCode")
    clean_pod_policy: ClassVar[str] = "Running"
    """Where the job names none: what would hold its devices for ever goes, logs of what has ended stay."""

    clean_pod_policy_2021: ClassVar[str] = "None"
    clean_pod_policies: ClassVar[tuple[str, ...]] = ("None", "Running", "All")
    """What users may write; nothing here means anything goes, and `cleaning` makes sense of it."""

    env_in_every_container: ClassVar[bool] = True
    exit_codes_2021: ClassVar[bool] = False
    """Whether ExitCode retries 130, 137, 138 and 143 alone, as all did in 2021, and not every code from 128 on."""

    replaces_evicted: ClassVar[bool] = True
    """Whether a Failed pod under OnFailure or Always is replaced; otherwise it fails the job."""

    replaces_deleted: ClassVar[bool] = False
    """Whether a pod that somebody deletes is made again whatever its restart policy, and its end says nothing."""

    tallies_attempts: ClassVar[bool] = False
    """Whether attempts that failed and were replaced stay in the count of failed replicas, as a Job counts its pods."""

    restarts_by_template: ClassVar[bool] = False
    """Whether the restart policy stands in the pod template, as in a plain pod, and not beside it."""

    starts_when_running: ClassVar[bool] = False
    """Whether `startTime` is when the job was first seen running, and not when its first pod was made."""

    deadline_while_waiting: ClassVar[bool] = False
    """Whether `activeDeadlineSeconds` counts from when the job was first seen, what it waits for included; otherwise
    it counts from `startTime`, which a job that waits for its gang does not have yet."""

    rejected: ClassVar[str] = "FailedValidation"
    """What a job that cannot be read is told to have done: the end of the reason, after the kind."""

    limit_reason: ClassVar[str] = ""
    """Of a job that a deadline or `backoffLimit` has ended, where it differs from that of every failure."""

    always_ran: ClassVar[bool] = False
    """Whether a job that ended before it was seen running still gets a Running condition."""

    announced: ClassVar[tuple[str, ...]] = ()
    """Conditions told as events beside those that every kind tells."""

    outlives_ttl: ClassVar[bool] = False
    """Whether `ttlSecondsAfterFinished` takes away the Jobs of delegated roles, and not the job itself."""

    prepares_suspended: ClassVar[bool] = False
    """Whether lasting companions are made for a job that is suspended."""

    scalable_role: ClassVar[str] = ""
    """The role behind `kubectl scale` and HPAs."""

    managers: ClassVar[tuple[str, ...]] = ("kubeflow.org/training-operator",)
    """Values of `managedBy` that mean us."""

    fields: ClassVar[Mapping[str, Json]] = {}
    """Schemas of the spec fields that only this kind has."""

    required_fields: ClassVar[tuple[str, ...]] = ()
    replica_fields: ClassVar[tuple[str, ...]] = ()
    """Fields of a replica spec beyond `replicas`, `restartPolicy` and `template`; see `Replica.extra`."""

    status_fields: ClassVar[Mapping[str, Json]] = {}
    """Schemas of the status fields that `report` writes."""

    finalizers: ClassVar[tuple[str, ...]] = ()
    """Marks that another operator has left on jobs. They are taken off when a job is deleted; we need none."""

    host_ports: ClassVar[int] = 0
    """How many ports of its own on every node a job may ask for; see `wants_host_ports`."""

    companion_resources: ClassVar[tuple[Resource, ...]] = ()
    """Kinds of objects that `companions` may return: watched, and granted in RBAC."""

    lasting_resources: ClassVar[tuple[Resource, ...]] = ()
    """Those of them that go with the job and never before: the right to delete them is not needed, nor granted."""

    grants: ClassVar[tuple[Json, ...]] = ()
    """RBAC rules that companions give away: the operator can only give what it has."""

    def dialect(self, raw: Json) -> Framework:
        """Who runs this very object, where old API versions of a kind are jobs of another sort."""
        return self

    def checked_as(self) -> Framework:
        """Whose schema jobs of this dialect are checked against. Dialects that are made for single objects share one: a
        compiled schema takes a megabyte."""
        return self

    def inherited(self, status: JobStatus) -> JobStatus:
        """A stored status, with conditions for an end that an older operator has written down otherwise."""
        return status

    def env(self, member: Member) -> Env:
        """The rendezvous contract of one replica."""
        raise NotImplementedError

    def common_env(self, job: Job) -> Mapping[str, str]:
        """Variables that all replicas take from a ConfigMap of the job, so that their length can be checked."""
        return {}

    def decorate(self, pod: Json, member: Member) -> Json:
        """The last word on a pod before it is created."""
        return pod

    def companions(self, job: Job) -> Iterable[Companion]:
        return ()

    def claims(self, job: Job) -> Iterable[tuple[Resource, str]]:
        """Kinds and names of objects by which pods start: while one is somebody else's, no pod is made."""
        return ()

    def service(self, body: Json, member: Member) -> Json | None:
        """The last word on the Service of one replica; None where it needs none."""
        return body

    def labels(self, member: Member) -> Mapping[str, str]:
        """Labels of a pod beside the common ones, or instead of those of the same name."""
        return {}

    def annotations(self, member: Member) -> Mapping[str, str]:
        """Annotations that are kept current on the living pod."""
        return {}

    def default(self, job: Job) -> Job:
        """Defaults beyond the common ones."""
        return job

    def validate(self, job: Job) -> Iterator[Problem]:
        """Rules beyond the common ones. Runs only on jobs whose types are right."""
        yield from ()

    def advice(self, job: Job) -> Iterator[Advice]:
        yield from ()

    def succeeded(self, job: Job, counts: Mapping[str, Count]) -> bool:
        role = self.deciding(job)
        return role is not None and counts[role].succeeded >= frozenset(range(job.count(role)))

    def is_running(self, job: Job, counts: Mapping[str, Count]) -> bool:
        """As soon as one replica of the deciding role is."""
        role = self.deciding(job)
        return role is not None and bool(counts[role].active)

    def ending(self, job: Job, counts: Mapping[str, Count]) -> Ending | None:
        """Why the job has failed by a rule of this kind's own."""
        return None

    def tolerates_failure(self, job: Job, role: str) -> bool:
        """Whether the job goes on without a failed replica of this role."""
        return False

    def grace(self, job: Job, role: str, counts: Mapping[str, Count]) -> float:
        """Seconds for which a failure of this role is not believed, because news of the job's success may be late."""
        return 0.0

    def counts_restarts(self, role: str) -> bool:
        """Whether restarts of this role use up `backoffLimit`."""
        return True

    def replaces_failed(self, job: Job) -> bool:
        """Whether pods that fail as a whole under OnFailure or Always are replaced in this very job."""
        return self.replaces_evicted and not job.settings.compat_2021

    def may_start(self, role: str, job: Job, counts: Mapping[str, Count]) -> bool:
        """Whether pods of this role may be created yet."""
        return True

    def gang_size(self, job: Job) -> int:
        """Pods that a gang scheduler is to place together; those that start later cannot be waited for."""
        return job.world

    def priority_class(self, job: Job) -> str:
        """Of the whole gang."""
        return job.policy.scheduling.priority_class

    def cleaning(self, job: Job, *, succeeded: bool) -> str:
        """Which pods go at the end: None, Running or All."""
        return job.policy.clean_pod_policy

    def cleaning_at_limit(self, job: Job) -> str:
        """The same where a deadline or `backoffLimit` ends the job. It lets go of all it has, unless its author says
        otherwise."""
        return job.policy.clean_pod_policy if job.policy.is_cleaning_told else "All"

    def forgets(self, job: Job, role: str) -> bool:
        """Whether the tally of this role is cleared when the job has ended."""
        return False

    def report(self, job: Job, status: JobStatus, counts: Mapping[str, Count]) -> Json:
        """Status fields that only this kind has, from the others and from what is seen."""
        return {}

    def wants_host_ports(self, job: Job) -> bool:
        """Whether the job needs ports that no other job has. It finds the first in its annotation `host-port`."""
        return False

    def shared(self, job: Job) -> Iterable[Shared]:
        """What the job's own processes are told while they run, through the etcd that they share with us."""
        return ()

    def is_leader(self, member: Member) -> bool:
        """Whether the pod is labelled `job-role: master`, which is where users look for logs first."""
        return self.role(member.role).leader

    def messages(self, job: Job) -> Messages:
        return Messages()

    # Derived; not for overriding.

    def deciding(self, job: Job) -> str | None:
        """None where no replica could: a job scaled to nothing waits, it has not succeeded."""
        return next((role for role in self.decides if job.count(role)), None)

    def role(self, name: str) -> Role:
        return self._role_by_name[name]

    @cached_property
    def _role_by_name(self) -> Mapping[str, Role]:
        """Some jobs have a thousand roles of their own."""
        return {role.name: role for role in self.roles}

    def declared(self, spec: Json) -> object:
        """The mapping of role names to what they ask for, as written; anything at all if it is not well-formed."""
        if self.replicas_field:
            return spec.get(self.replicas_field)
        names = {role.name.lower() for role in self.roles}
        return {key: value for key, value in spec.items() if key.lower() in names}

    def rescaled(self, spec: Json, role: str, replicas: int) -> Json:
        """A merge patch of the spec by which a role, spelt as the spec does, has so many replicas."""
        declared = {role: {"replicas": replicas}}
        return {self.replicas_field: declared} if self.replicas_field else declared

    def path(self, role: str = "") -> str:
        """Where a role stands, as users read it: `spec.tfReplicaSpecs[Worker]`, or `spec.worker`."""
        if self.replicas_field:
            return f"spec.{self.replicas_field}" + (f"[{role}]" if role else "")
        return f"spec.{role}" if role else "spec"

    @property
    def delegates(self) -> bool:
        return any(role.delegated for role in self.roles)

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def controller_name(self) -> str:
        return f"{self.singular}-controller"

    @property
    def operator_name(self) -> str:
        """By which pods are labelled."""
        return self.controller_name

    @property
    def container_names(self) -> tuple[str, ...]:
        return (self.container, *self.container_aliases) if self.container else ()

    @property
    def resource(self) -> Resource:
        return Resource(self.group, self.version, self.plural, self.kind)

    @property
    def served(self) -> tuple[Resource, ...]:
        """Every resource whose objects this framework's controller runs: its own, then its aliases."""
        return (self.resource, *(Resource(a.group, a.version, a.plural, a.kind) for a in self.aliases))
