"""What a framework author writes: a class of facts and a few pure functions.

Everything else (CRD, RBAC, defaults, validation, the controller, `trainmaster plan`) is derived from it. A
framework sees a frozen `Job` or `Member` and returns values; it never meets a client, a cache or the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from trainmaster.api.job import Job, Member
from trainmaster.api.problem import Advice, Problem
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
    leader: bool = False
    required: bool = False


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
class Messages:
    """Texts of conditions; users' scripts read them, so each kind keeps its own."""

    running: str = "{kind} {name} is running."
    succeeded: str = "{kind} {name} is successfully completed."
    failed: str = "{kind} {name} is failed because {count} {role} replica(s) failed."
    restarting: str = "{kind} {name} is restarting because {count} {role} replica(s) failed."


QUALIFIED = Messages(
    running="{kind} {namespace}/{name} is running.",
    succeeded="{kind} {namespace}/{name} successfully completed.",
)


@dataclass(frozen=True, slots=True)
class Alias:
    """A second name under which the same kind is served: an old API group, or an old kind."""

    group: str
    version: str
    kind: str
    plural: str


@dataclass(frozen=True, slots=True)
class Companion:
    """An object the job needs beside pods and Services. With `keep` it stays while suspended and after the end."""

    resource: Resource
    body: Json
    keep: bool = False


class Framework:
    group: ClassVar[str] = "kubeflow.org"
    version: ClassVar[str] = "v1"
    older_versions: ClassVar[tuple[str, ...]] = ()
    """Also served, with the same schema and no conversion."""

    aliases: ClassVar[tuple[Alias, ...]] = ()
    name: ClassVar[str]
    """`pytorch`: the value of the metrics' `framework` label and the name of docs and icons."""

    kind: ClassVar[str]
    plural: ClassVar[str]
    replicas_field: ClassVar[str]
    container: ClassVar[str]
    container_aliases: ClassVar[tuple[str, ...]] = ()
    port: ClassVar[int]
    port_name: ClassVar[str]
    roles: ClassVar[tuple[Role, ...]]
    """In start and rank order."""

    decides: ClassVar[tuple[str, ...]]
    """The first of these roles that a job has decides whether it runs and when it has succeeded."""

    restart_policy: ClassVar[str] = "Never"
    clean_pod_policy_2021: ClassVar[str] = "None"
    env_in_every_container: ClassVar[bool] = True
    replaces_evicted: ClassVar[bool] = True
    """Whether a Failed pod under OnFailure or Always is replaced; otherwise it fails the job."""

    always_ran: ClassVar[bool] = False
    """Whether a job that ended before it was seen running still gets a Running condition."""

    scalable_role: ClassVar[str] = ""
    """The role behind `kubectl scale` and HPAs."""

    managers: ClassVar[tuple[str, ...]] = ("kubeflow.org/training-operator",)
    """Values of `managedBy` that mean us."""

    fields: ClassVar[Mapping[str, Json]] = {}
    """Schemas of the spec fields that only this kind has."""

    required_fields: ClassVar[tuple[str, ...]] = ()
    replica_fields: ClassVar[tuple[str, ...]] = ()
    """Fields of a replica spec beyond `replicas`, `restartPolicy` and `template`; see `Replica.extra`."""

    companion_resources: ClassVar[tuple[Resource, ...]] = ()
    """Kinds of objects that `companions` may return: watched, and granted in RBAC."""

    def env(self, member: Member) -> Env:
        """The rendezvous contract of one replica."""
        raise NotImplementedError

    def decorate(self, pod: Json, member: Member) -> Json:
        """The last word on a pod before it is created."""
        return pod

    def companions(self, job: Job) -> Iterable[Companion]:
        return ()

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

    def tolerates_failure(self, job: Job, role: str) -> bool:
        """Whether the job goes on without a failed replica of this role."""
        return False

    def may_start(self, role: str, job: Job, counts: Mapping[str, Count]) -> bool:
        """Whether pods of this role may be created yet."""
        return True

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
        return next(role for role in self.roles if role.name == name)

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def controller_name(self) -> str:
        return f"{self.singular}-controller"

    @property
    def container_names(self) -> tuple[str, ...]:
        return (self.container, *self.container_aliases)

    @property
    def resource(self) -> Resource:
        return Resource(self.group, self.version, self.plural, self.kind)

    @property
    def served(self) -> tuple[Resource, ...]:
        """Every resource whose objects this framework's controller runs: its own, then its aliases."""
        return (self.resource, *(Resource(a.group, a.version, a.plural, a.kind) for a in self.aliases))
