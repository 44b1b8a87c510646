"""What a PaddleJob of batch.paddlepaddle.org is: its facts, and the rules by which it runs and ends.

The rendezvous comes in a ConfigMap (`paddle_batch_contract`); `paddle_batch_pod` has what is done to pods,
`paddle_batch_status` the phases that users of paddle-operator know.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

from trainmaster.api import limits, schema
from trainmaster.api.framework import AGE, Companion, Count, Ending, Env, Framework, Role, Shared
from trainmaster.api.job import Job, Member, Replica, ungrouped, ungrouped_advice
from trainmaster.api.problem import Advice, Problem, invalid, required
from trainmaster.api.status import JobStatus
from trainmaster.frameworks import paddle_batch_contract as contract
from trainmaster.frameworks import paddle_batch_pod as pods
from trainmaster.frameworks import paddle_batch_status as statuses
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import CONFIG_MAPS, Resource
from trainmaster.objects.template import EnvValue

CLEANED = {
    "": ("All", "None"),
    "Always": ("All", "All"),
    "OnCompletion": ("All", "None"),
    "OnFailure": ("None", "All"),
    "Never": ("None", "None"),
}
"""What goes when the job has completed, and when it has failed."""

CLEANING = "When pods go: Always, Never, OnFailure, or OnCompletion, which is also the default."
ELASTIC_TIMEOUT = 60
PARTY = {"ps": "PSERVER", "worker": "TRAINER", "heter": "HETER"}
SAMPLE_SET = schema.record(
    {
        "name": schema.told(schema.STRING, "Of the SampleSet, and of its PersistentVolumeClaim."),
        "namespace": schema.told(schema.STRING, "Must be the job's own: pods can mount no other claims."),
        "mountPath": schema.told(schema.STRING, "Where replicas find it."),
    },
    required=["name", "mountPath"],
)


TASK_NAME = schema.told(schema.STRING, "Of the task; up to its first - it is its type.")
TASK = schema.record({"name": TASK_NAME, **schema.REPLICA_SPEC["properties"]}, required=["name"])


class PaddleRoles(Framework):
    """All workers (and heters) decide; parameter servers may serve on in a job that has completed."""

    group, version = "batch.paddlepaddle.org", "v1"
    name, kind, plural, replicas_field = "paddle-batch", "PaddleJob", "paddlejobs", ""
    short_names = ("pdj",)
    columns = (
        ("Status", "string", ".status.phase"),
        ("Mode", "string", ".status.mode"),
        ("PS", "string", ".status.ps.ready"),
        ("Worker", "string", ".status.worker.ready"),
        AGE,
    )
    roles = (Role("ps"), Role("worker"), Role("heter"))
    decides = ("worker", "heter", "ps")
    clean_pod_policy = clean_pod_policy_2021 = ""
    clean_pod_policies = ()
    env_in_every_container = replaces_evicted = False
    replaces_deleted = restarts_by_template = starts_when_running = deadline_while_waiting = True
    finalizers = ("finalizers.paddlepaddle.org",)
    host_ports = contract.PORTS
    companion_resources = (CONFIG_MAPS,)
    replica_fields: ClassVar[tuple[str, ...]] = ("requests", "limits")
    status_fields = statuses.FIELDS
    fields = {
        "cleanPodPolicy": schema.told(schema.STRING, CLEANING),
        "intranet": schema.told(schema.STRING, "How replicas reach each other: PodIP (if unset), Service, or Host."),
        "withGloo": schema.told(schema.integer(), "0: off; 1: gloo among workers; 2: among servers too. Needs ps."),
        "elastic": schema.told(schema.integer(), "Any number: workers may come and go while the job runs."),
        "tasks": schema.told(schema.array(TASK), "Groups of replicas by name, in place of ps, worker and heter."),
        "mode": schema.told(schema.STRING, "Of a job that has tasks: PS, Collective, Single or Custom."),
        "startInOrder": schema.told(
            schema.integer(), "1: a task's pods are made when those of the task before have addresses."
        ),
        "sampleSetRef": schema.told(SAMPLE_SET, "The claim of this name is mounted into every replica."),
    }

    def inherited(self, status: JobStatus) -> JobStatus:
        return statuses.inherited(status, self.kind)

    def default(self, job: Job) -> Job:
        replicas = {role: self._defaulted(job, role, replica) for role, replica in job.replicas.items()}
        return replace(ungrouped(job), replicas=replicas)

    def _defaulted(self, job: Job, role: str, replica: Replica) -> Replica:
        """Endpoints that are names outlive a container; addresses do too, but that is for the user to rely on."""
        if contract.is_elastic(job):
            return replace(replica, restart_policy="OnFailure")
        is_said = replica.template.get("spec", {}).get("restartPolicy") or replica.restart_policy != self.restart_policy
        is_named = role == "worker" and contract.intranet(job) == contract.SERVICE
        return replace(replica, restart_policy="OnFailure") if is_named and not is_said else replica

    def validate(self, job: Job) -> Iterator[Problem]:
        if contract.is_elastic(job) and not job.has("worker"):
            why = "must be present, because spec.elastic lets the number of workers change"
            yield required(self.path("worker"), why)
        samples = job.spec.get("sampleSetRef")
        if samples and ":" in samples["mountPath"]:
            yield invalid("spec.sampleSetRef.mountPath", samples["mountPath"], "must not contain ':'")
        if samples:
            yield from self._namesakes(job, samples["name"])

    def _namesakes(self, job: Job, samples: str) -> Iterator[Problem]:
        """Two volumes of one name would be refused by the API server, pod by pod."""
        for role, replica in job.replicas.items():
            for index, volume in enumerate(replica.template.get("spec", {}).get("volumes", ())):
                if volume.get("name") == samples:
                    path = f"{self.path(role)}.template.spec.volumes[{index}].name"
                    yield invalid(path, samples, "is the name of the volume of spec.sampleSetRef; take one of them out")

    def advice(self, job: Job) -> Iterator[Advice]:
        yield from ungrouped_advice(job)
        policy, intranet = job.policy.clean_pod_policy, job.spec.get("intranet", "")
        if policy not in CLEANED:
            hint = _meant(policy, [name for name in CLEANED if name])
            yield Advice("UnknownPolicy", f"spec.cleanPodPolicy {policy} is not known, so all pods are kept; {hint}")
        if intranet and intranet not in contract.INTRANETS:
            hint = _meant(intranet, contract.INTRANETS)
            yield Advice("UnknownIntranet", f"spec.intranet {intranet} is not known, so PodIP is taken; {hint}")
        namespace = (job.spec.get("sampleSetRef") or {}).get("namespace", job.namespace)
        if namespace != job.namespace:
            message = f"spec.sampleSetRef.namespace is {namespace}, but pods can mount claims of {job.namespace} alone"
            yield Advice("ForeignNamespace", f"{message}; make the claim there")

    def env(self, member: Member) -> Env:
        job = member.job
        is_named = contract.intranet(job) == contract.SERVICE
        party, number = self.identity(member)
        env: dict[str, EnvValue] = {
            "POD_IP": member.name if is_named else {"fieldRef": {"fieldPath": "status.podIP"}},
            "PADDLE_TRAINER_ID": number,
            "TRAINING_ROLE": party,
            "PADDLE_TRAINING_ROLE": party,
        }
        if contract.is_elastic(job):
            env |= {
                "PADDLE_ELASTIC_JOB_ID": _elastic_id(job),
                "PADDLE_ELASTIC_NP": job.count("worker"),
                "PADDLE_ELASTIC_TIMEOUT": ELASTIC_TIMEOUT,
            }
            if job.settings.etcd_servers:
                env["PADDLE_ELASTIC_SERVER"] = ",".join(job.settings.etcd_servers)
        return env

    def identity(self, member: Member) -> tuple[str, int]:
        """What the replica is to Paddle, and which of its sort."""
        return PARTY[member.role], member.index

    def parties(self, job: Job) -> contract.Parties:
        return {PARTY[role]: [(role, index) for index in range(job.count(role))] for role in job.replicas}

    def mode(self, job: Job) -> str:
        if job.has("ps"):
            return "PS"
        return "Collective" if job.count("worker") > 1 else "Single"

    def decorate(self, pod: Json, member: Member) -> Json:
        return pods.decorate(pod, member, self._is_by_volcano)

    def _is_by_volcano(self, job: Job) -> bool:
        templates = (job.replicas[role].template for role in self.scheduling(job) if job.has(role))
        return any(declared.get("spec", {}).get("schedulerName") == pods.VOLCANO for declared in templates)

    def scheduling(self, job: Job) -> Iterable[str]:
        """The roles whose templates say who schedules the job."""
        return ("worker",)

    def service(self, body: Json, member: Member) -> Json | None:
        return pods.service(body, member)

    def labels(self, member: Member) -> Mapping[str, str]:
        return {"paddle-res-name": member.name, "paddle-res-type": member.role}

    def annotations(self, member: Member) -> Mapping[str, str]:
        return {"paddle-resource": member.role}

    def companions(self, job: Job) -> Iterable[Companion]:
        return contract.gate(job, job.once(self.variables))

    def common_env(self, job: Job) -> Mapping[str, str]:
        return {} if contract.is_elastic(job) else job.once(self.variables)

    def claims(self, job: Job) -> Iterable[tuple[Resource, str]]:
        """Of another's ConfigMap of the job's name pods would start at once, with an environment that is not theirs."""
        return () if contract.is_elastic(job) else ((CONFIG_MAPS, job.name),)

    def variables(self, job: Job) -> Mapping[str, str]:
        return contract.variables(job, self.parties(job))

    def succeeded(self, job: Job, counts: Mapping[str, Count]) -> bool:
        """A failure goes first, whoever has succeeded."""
        awaited = [role for role in self.awaited(job) if job.count(role)]
        done = all(counts[role].succeeded >= frozenset(range(job.count(role))) for role in awaited)
        return bool(awaited) and done and not statuses.has_failed(job)

    def awaited(self, job: Job) -> Iterable[str]:
        """The roles whose end is the job's."""
        return ("worker", "heter") if job.count("worker") else job.replicas

    def is_leader(self, member: Member) -> bool:
        """Servers say little: the first of those that train is the one to read."""
        return member.index == 0 and member.role == member.job.once(self._foremost)

    def _foremost(self, job: Job) -> str:
        return next((role for role in self.awaited(job) if job.count(role)), "")

    def ending(self, job: Job, counts: Mapping[str, Count]) -> Ending | None:
        """Addresses are known only now, and may be longer than those with which the job was checked."""
        name = next(limits.too_long(self.common_env(job)), "") if contract.has_addresses(job) else ""
        remedy = "use fewer replicas, or shorter addresses (spec.intranet: Service, and a short name of the job)"
        return Ending(f"{job.kind}Failed", f"{limits.variable(name)}; {remedy}") if name else None

    def is_running(self, job: Job, counts: Mapping[str, Count]) -> bool:
        return statuses.is_running(job)

    def replaces_failed(self, job: Job) -> bool:
        """An elastic job goes on without a worker that was evicted, and takes it back."""
        return contract.is_elastic(job)

    def cleaning(self, job: Job, *, succeeded: bool) -> str:
        on_completion, on_failure = CLEANED.get(job.policy.clean_pod_policy, CLEANED["Never"])
        return on_completion if succeeded else on_failure

    def cleaning_at_limit(self, job: Job) -> str:
        """Left alone, a job past its limit would go on. Only who says Never wants to see that."""
        is_said = job.policy.clean_pod_policy not in ("", "OnCompletion")
        return self.cleaning(job, succeeded=False) if is_said else "Running"

    def report(self, job: Job, status: JobStatus, counts: Mapping[str, Count]) -> Json:
        return {**statuses.report(job, status, self.mode(job) if job.replicas else ""), **statuses.roles(job)}

    def wants_host_ports(self, job: Job) -> bool:
        return contract.intranet(job) == contract.HOST

    def shared(self, job: Job) -> Iterable[Shared]:
        """The number of workers, by which Paddle's launcher scales. It writes the key itself when it starts."""
        if contract.is_elastic(job) and not job.has("ps"):
            workers = job.count("worker")
            yield Shared(f"/paddle/{_elastic_id(job)}/np", str(workers), f"scaled replicas to {workers}")


def _meant(written: str, known: Iterable[str]) -> str:
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(written.lower(), by_lower, n=1)
    return f"did you mean {by_lower[close[0]]}?" if close else f"write one of {', '.join(by_lower.values())}"


def _elastic_id(job: Job) -> str:
    return f"{job.namespace}-{job.name}"
