"""A job and its objects in memory: built in a line, planned, and carried forward without a server.

    scene = a_job("PyTorchJob").role("Master").role("Worker", 2).all("Running")
    assert scene.plan().status.is_true("Running")

`Scene.after(plan)` is the world once the plan was carried out, so that tests can follow a job's whole life.
Every method returns a new scene.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import msgspec

from trainmaster import frameworks
from trainmaster.api import reading, status
from trainmaster.api.framework import Framework
from trainmaster.api.job import Job
from trainmaster.api.settings import DEFAULT, Settings
from trainmaster.api.status import JobStatus
from trainmaster.engine import gang, labels
from trainmaster.engine.actions import Create, Delete, Patch
from trainmaster.engine.observed import Observed
from trainmaster.engine.plan import Plan, plan
from trainmaster.engine.services import service_of
from trainmaster.objects import timestamp
from trainmaster.objects.meta import Json, Meta, Object, OwnerReference, Service, ServiceSpec, mutable
from trainmaster.objects.pod import ContainerState, ContainerStatus, Pod, PodCondition, PodStatus, Terminated
from trainmaster.objects.resource import PODS, SERVICES, Resource
from trainmaster.testing import holdings
from trainmaster.testing.fakeapi_store import merge

_COMPANIONS = (
    *("ConfigMap", "Secret", "ServiceAccount", "Role", "RoleBinding"),
    *("HorizontalPodAutoscaler", "PodDisruptionBudget"),
)
NOW = 1_700_000_000.0
UID = "job-uid"
CLUSTER_IP = "10.96.1.7"
"""What every Service gets that is not headless."""


@dataclass(frozen=True)
class Scene:
    framework: Framework
    manifest: Json
    settings: Settings = DEFAULT
    pods: Mapping[str, Pod] = field(default_factory=dict)
    services: Mapping[str, Service] = field(default_factory=dict)
    others: Mapping[tuple[str, str], Object] = field(default_factory=dict)
    """Companions and PodGroups, by kind and name."""

    priorities: Mapping[str, int] = field(default_factory=dict)
    """Values of PriorityClasses by name."""

    now: float = NOW
    births: int = 0
    """How many objects plans have made so far; gives each a UID of its own."""

    is_deleted: bool = False

    # What the job says.

    def role(
        self,
        name: str,
        replicas: int | None = 1,
        restart: str | None = None,
        *,
        metadata: Json | None = None,
        **template: Any,
    ) -> Scene:
        """A role with one training container; `template` goes into the pod template's spec."""
        container = {"name": self.framework.container or "main", "image": "example/train:1"}
        spec: dict[str, Any] = {"template": {"spec": {"containers": [container], **template}}}
        if metadata is not None:
            spec["template"]["metadata"] = metadata
        if replicas is not None:
            spec["replicas"] = replicas
        if restart is not None:
            spec["restartPolicy"] = restart
        return self._declaring(name, spec)

    def spec(self, **fields: Any) -> Scene:
        return replace(self, manifest={**self.manifest, "spec": {**self.manifest["spec"], **fields}})

    def policy(self, **fields: Any) -> Scene:
        return self.spec(runPolicy={**self.manifest["spec"].get("runPolicy", {}), **fields})

    def scaled(self, role: str, replicas: int) -> Scene:
        held: Any = self.framework.declared(self.manifest["spec"])
        return self._declaring(role, {**held[role], "replicas": replicas})

    def _declaring(self, role: str, spec: Json) -> Scene:
        field = self.framework.replicas_field
        if not field:
            return self.spec(**{role: spec})
        return self.spec(**{field: {**self.manifest["spec"].get(field, {}), role: spec}})

    def having(self, **settings: Any) -> Scene:
        return replace(self, settings=replace(self.settings, **settings))

    def meta(self, **fields: Any) -> Scene:
        return replace(self, manifest={**self.manifest, "metadata": {**self.manifest["metadata"], **fields}})

    def at(self, seconds: float) -> Scene:
        """The same, so many seconds later."""
        return replace(self, now=self.now + seconds)

    def standing(self, stands: JobStatus) -> Scene:
        return replace(self, manifest={**self.manifest, "status": status.render(stands)})

    # What the cluster holds.

    def pod(
        self,
        role: str,
        index: int,
        phase: str = "Running",
        *,
        exit_code: int | None = None,
        restarts: int = 0,
        attempt: int = 0,
        terminating: bool = False,
        ended: float | None = None,
        owner: str = UID,
        ready: bool = False,
        ip: str = "",
        reason: str = "",
        message: str = "",
        name: str = "",
        born: str = "",
    ) -> Scene:
        name = name or self._named(role, index)
        ended_at = timestamp.render(self.now if ended is None else ended)
        terminated = Terminated(exit_code=exit_code, finished_at=ended_at) if exit_code is not None else None
        state = ContainerState(terminated=terminated)
        training = self.framework.container or "main"
        container = ContainerStatus(name=training, restart_count=restarts, state=state)
        meta = Meta(
            name=name,
            namespace="default",
            uid=f"uid-{name}-{attempt}",
            creation_timestamp=born,
            deletion_timestamp=timestamp.render(self.now) if terminating else None,
            annotations={labels.ATTEMPT: str(attempt)} if attempt else {},
            owner_references=(OwnerReference(uid=owner, controller=True),),
        )
        statuses = (container,) if exit_code is not None or restarts else ()
        stands = PodStatus(
            phase=phase,
            reason=reason,
            message=message,
            pod_ip=ip,
            conditions=(PodCondition("Ready", "True"),) if ready else (),
            container_statuses=statuses,
        )
        return replace(self, pods={**self.pods, name: Pod(meta, stands)})

    def _named(self, role: str, index: int) -> str:
        alone = any(r.name == role and not r.numbered for r in self.framework.roles)
        return f"{self.name}-{role.lower()}" + ("" if alone else f"-{index}")

    def delegate(self, role: str, **stands: Any) -> Scene:
        """The Kubernetes Job of a role; `stands` is its status."""
        name = self._named(role, 0)
        meta = Meta(name=name, namespace="default", uid=f"uid-{name}", owner_references=_owned_by(UID))
        return self.other("Job", meta, {}, stands)

    def delegated_pod(self, role: str, phase: str = "Running", attempt: int = 0, **more: Any) -> Scene:
        """A pod that the Kubernetes Job of a role has made."""
        name = self._named(role, 0)
        born = timestamp.render(self.now + attempt)
        return self.pod(role, 0, phase, name=f"{name}-{attempt}", owner=f"uid-{name}", born=born, **more)

    def all(self, phase: str, role: str = "", **more: Any) -> Scene:
        """Every wanted replica (of that role) with its Service, its pod in that phase."""
        scene = self.served()
        for member in self.job.members():
            if role in ("", member.role):
                scene = scene.pod(member.role, member.index, phase, **more)
        return scene

    def served(self) -> Scene:
        owner = (OwnerReference(uid=UID, controller=True),)
        made = {
            member.name: Service(
                Meta(name=member.name, namespace="default", uid=f"svc-{member.name}", owner_references=owner),
                ServiceSpec(body["spec"].get("clusterIP", CLUSTER_IP)),
            )
            for member in self.job.members()
            if (body := service_of(self.reading.framework, member)) is not None
        }
        return replace(self, services={**made, **self.services})

    def gone(self, role: str, index: int) -> Scene:
        name = self._named(role, index)
        return replace(self, pods={key: pod for key, pod in self.pods.items() if key != name})

    def group(self, phase: str = "", *, owner: str = UID, **spec: Any) -> Scene:
        meta = Meta(name=self.name, namespace="default", uid="group-uid", owner_references=_owned_by(owner))
        return self.other("PodGroup", meta, spec, {"phase": phase} if phase else {})

    def other(self, kind: str, meta: Meta, spec: Json, stands: Json | None = None) -> Scene:
        """A companion or a PodGroup as the cluster holds it."""
        held = Object(meta, _raw(spec), _raw(stands or {}))
        return replace(self, others={**self.others, (kind, meta.name): held})

    def edited(self, kind: str, name: str, **changes: Any) -> Scene:
        """An object after somebody changed it by hand, as by `kubectl patch`."""
        return self._mended(kind, self.others[kind, name].metadata, changes)

    # What follows.

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    @cached_property
    def reading(self) -> reading.Reading:
        return reading.read(self.framework, self.manifest, self.settings)

    @property
    def job(self) -> Job:
        read = self.reading
        assert read.job is not None, [str(problem) for problem in read.problems]
        return read.job

    @property
    def problems(self) -> list[str]:
        return [str(problem) for problem in self.reading.problems]

    def observed(self) -> Observed:
        read = self.reading
        assert read.job is not None, [str(problem) for problem in read.problems]
        jobs = tuple(h for (kind, _), h in self.others.items() if kind == "Job" and h.metadata.is_controlled_by(UID))
        delegates = {held.metadata.uid for held in jobs}
        pods = tuple(self.pods.values())
        return Observed(
            read.framework,
            read.job,
            pods=pods,
            services=tuple(self.services.values()),
            companions={**self._services(), **{k: held for k, held in self.others.items() if k[0] in _COMPANIONS}},
            jobs=jobs,
            delegated_pods=tuple(pod for pod in pods if _owner_of(pod) in delegates),
            pod_group=self.others.get(("PodGroup", self.name)) if gang.resource_of(self.settings) else None,
            priorities=self.priorities,
            advice=read.advice,
        )

    def _services(self) -> dict[tuple[str, str], Service]:
        return {("Service", name): held for name, held in self.services.items()}

    def plan(self) -> Plan:
        return plan(self.observed(), self.now)

    def after(self, made: Plan | None = None) -> Scene:
        """The world after the plan was carried out. Deleted pods go at once; created ones are Pending."""
        made = made or self.plan()
        scene = self if made.status == self.job.status else self.standing(made.status)
        for action in made.actions:
            scene = scene._carried_out(action)
        return scene

    def settled(self, passes: int = 20) -> Scene:
        """The world when the operator has nothing more to do."""
        scene = self
        for _ in range(passes):
            following = scene.after()
            if following == scene or following.is_deleted:
                return following
            scene = following
        raise AssertionError(f"still changing after {passes} passes: {scene.plan()}")

    def _carried_out(self, action: Create | Patch | Delete) -> Scene:
        match action:
            case Create(resource):
                return self._created(resource.kind, action.name, action.body)
            case Delete(resource, target) if resource == PODS:
                return replace(
                    self, pods={name: pod for name, pod in self.pods.items() if pod.metadata.uid != target.uid}
                )
            case Delete(resource, target) if resource == SERVICES:
                kept = {name: held for name, held in self.services.items() if held.metadata.uid != target.uid}
                return replace(self, services=kept)
            case Delete(resource, _) if resource == self.framework.resource:
                return replace(self, is_deleted=True)
            case Delete(resource, target):
                return replace(
                    self, others={k: held for k, held in self.others.items() if held.metadata.uid != target.uid}
                )
            case Patch(resource, target, body):
                return self._mended(resource.kind, target, body)

    def _created(self, kind: str, name: str, body: Json) -> Scene:
        made = mutable(body)
        made["metadata"]["uid"] = f"born-{self.births}"
        born = replace(self, births=self.births + 1)
        if kind == "Pod":
            assert name not in self.pods, f"a second pod for {name}"
            return replace(born, pods={**self.pods, name: msgspec.convert(made | {"status": {}}, Pod)})
        if kind == "Service":
            assert name not in self.services, f"a second Service {name}"
            made["spec"].setdefault("clusterIP", CLUSTER_IP)
            return replace(born, services={**self.services, name: msgspec.convert(made, Service)})
        assert (kind, name) not in self.others, f"a second {kind} {name}"
        return replace(born, others={**self.others, (kind, name): holdings.stored(kind, made)})

    def _mended(self, kind: str, target: Meta, body: Json) -> Scene:
        if kind == "Pod":
            return self._annotated(target, body)
        if kind == "Service":
            return self
        held = self.others[kind, target.name]
        assert held.metadata.uid == target.uid, f"{kind} {target.name} is another one by now"
        merged = holdings.stored(kind, merge(holdings.written(held), body))
        return replace(self, others={**self.others, (kind, target.name): merged})

    def _annotated(self, target: Meta, body: Json) -> Scene:
        held = self.pods[target.name]
        annotations = {**held.metadata.annotations, **body["metadata"]["annotations"]}
        changed = Pod(msgspec.structs.replace(held.metadata, annotations=annotations), held.status)
        return replace(self, pods={**self.pods, target.name: changed})


def a_job(kind: str, name: str = "job", *, group: str = "", version: str = "", **spec: Any) -> Scene:
    """`a_job("TFJob")`; roles and pods are added by the scene's methods. `group` tells two kinds of a name apart."""
    found = [f for f in frameworks.registered() if f.kind == kind and group in ("", f.group)]
    framework = found[0]
    manifest = {
        "apiVersion": f"{framework.group}/{version or framework.version}",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "uid": UID},
        "spec": {**({"jobMode": "MXTrain"} if kind == "MXJob" else {}), **spec},
    }
    return Scene(framework, manifest)


TYPICAL: Mapping[str, Mapping[str, int]] = {
    "TFJob": {"Chief": 1, "PS": 1, "Worker": 2},
    "PyTorchJob": {"Master": 1, "Worker": 2},
    "XGBoostJob": {"Master": 1, "Worker": 2},
    "MXJob": {"Scheduler": 1, "Server": 1, "Worker": 2},
    "PaddleJob": {"Master": 1, "Worker": 2},
    "JAXJob": {"Worker": 2},
}
"""The roles that a job of each kind usually has; the first of them decides."""


def a_typical_job(kind: str, restart: str | None = None) -> Scene:
    scene = a_job(kind)
    for role, replicas in TYPICAL[kind].items():
        scene = scene.role(role, replicas, restart)
    return scene


def _owner_of(pod: Pod) -> str:
    owner = pod.metadata.controller
    return owner.uid if owner is not None else ""


def _owned_by(uid: str) -> tuple[OwnerReference, ...]:
    return (OwnerReference(uid=uid, controller=True),) if uid else ()


def _raw(value: Json) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


# How tests read a plan.


def created(made: Plan, resource: Resource = PODS) -> list[str]:
    """Names of what the plan creates, in its order."""
    return [a.name for a in made.actions if isinstance(a, Create) and a.resource == resource]


def deleted(made: Plan, resource: Resource = PODS) -> list[str]:
    return [a.name for a in made.actions if isinstance(a, Delete) and a.resource == resource]


def body(made: Plan, name: str, resource: Resource = PODS) -> Json:
    """The object of that name that the plan creates."""
    return next(a.body for a in made.actions if isinstance(a, Create) and (a.resource, a.name) == (resource, name))


def states(stands: JobStatus) -> list[str]:
    """The conditions in their order, as in `["Created", "Running(False)", "Succeeded"]`."""
    return [c.type if c.status == "True" else f"{c.type}({c.status})" for c in stands.conditions]


def told(made: Plan) -> list[tuple[str, str]]:
    """Reasons and messages of the plan's events."""
    return [(event.reason, event.message) for event in made.events]
