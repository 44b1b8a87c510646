"""MSJob of mindspore.gitee.com: a scheduler introduces servers and workers to one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from trainmaster.api import schema
from trainmaster.api.framework import QUALIFIED, Count, Env, Framework, Messages, Role
from trainmaster.api.job import Job, Member, ungrouped, ungrouped_advice
from trainmaster.api.problem import Advice, Problem, invalid, required
from trainmaster.objects import template
from trainmaster.objects.meta import Json
from trainmaster.objects.template import EnvValue

HEADLESS = "None"
MET_AT = "trainmaster.dev/scheduler-address"
"""Annotation of a pod: where it was told to find the scheduler."""

POD_IP: Json = {"fieldRef": {"fieldPath": "status.podIP"}}
POD_NAME: Json = {"fieldRef": {"fieldPath": "metadata.name"}}
TOPOLOGY = "UnusualTopology"
LATE_NEWS = 60.0
"""Seconds: a kubelet that has not told of a pod's end by then has lost its node."""


class MindSpore(Framework):
    """Worker 0 decides, or all workers under `successPolicy: AllWorkers`; a lone worker needs no scheduler.

    MindSpore takes addresses and no names, so the scheduler's Service has a cluster IP, which outlives the
    scheduler's pod, and nobody starts before it is known.
    """

    group, version = "mindspore.gitee.com", "v1"
    name, kind, plural, replicas_field = "mindspore", "MSJob", "msjobs", "msReplicaSpecs"
    container, port, port_name = "mindspore", 2222, "msjob-port"
    roles = (Role("Scheduler", serves=True), Role("PS", serves=True, served=False), Role("Worker", served=False))
    decides = ("Worker",)
    clean_pod_policy = clean_pod_policy_2021 = "Running"
    exit_codes_2021 = True
    env_in_every_container = False
    deadline_while_waiting = True  # devices that leftovers hold are what users set it against
    rejected = "Failed"
    limit_reason = "JobFailed"
    replaces_deleted = True  # a node keeps its name, by which MindSpore takes it back
    fields = {
        "successPolicy": schema.told(schema.STRING, "AllWorkers: all must succeed; otherwise worker 0 decides."),
        "enableDynamicWorker": schema.told(schema.BOOLEAN, "Failed workers do not fail the job."),
    }

    def env(self, member: Member) -> Env:
        job = member.job
        if not job.count("Scheduler"):
            return {}
        is_scheduler = member.role == "Scheduler"
        variables: dict[str, EnvValue] = {
            # A scheduler listens on this address, so it must be one of its own.
            "MS_SCHED_HOST": POD_IP if is_scheduler else _address(job) or _name(job),
            "MS_NODE_ID": POD_NAME,  # the same after a restart, by which MindSpore knows a node that comes back
            "MS_SCHED_PORT": job.ports["Scheduler"],
            "MS_SERVER_NUM": job.count("PS"),
            "MS_WORKER_NUM": job.count("Worker"),
            "MS_ROLE": {"Scheduler": "MS_SCHED", "PS": "MS_PSERVER", "Worker": "MS_WORKER"}[member.role],
        }
        return variables

    def default(self, job: Job) -> Job:
        return ungrouped(job)

    def may_start(self, role: str, job: Job, counts: Mapping[str, Count]) -> bool:
        return not job.count("Scheduler") or bool(_address(job))

    def labels(self, member: Member) -> Mapping[str, str]:
        """ms-operator wrote the labels of 2021 beside today's, and users select by either."""
        return {
            "group-name": self.group,
            "job-name": member.job.name,
            "replica-type": member.role.lower(),
            "replica-index": str(member.index),
        }

    def service(self, body: Json, member: Member) -> Json | None:
        if not self.role(member.role).served:
            return None
        labels = {**body["metadata"]["labels"], **self.labels(member)}
        spec = {key: value for key, value in body["spec"].items() if key != "clusterIP"}
        known = _known_address(member.job) if member.index == 0 else ""
        return {
            **body,
            "metadata": {**body["metadata"], "labels": labels},
            "spec": {"type": "ClusterIP", **({"clusterIP": known} if known else {}), **spec, "selector": labels},
        }

    def decorate(self, pod: Json, member: Member) -> Json:
        address = _address(member.job) if member.job.count("Scheduler") else ""
        return template.with_metadata(pod, annotations={MET_AT: address}) if address else pod

    def validate(self, job: Job) -> Iterator[Problem]:
        for role, replica in job.replicas.items():
            names = [container.get("name") for container in template.containers_of(replica.template)]
            if names.count(self.container) > 1:
                path = f"{self.path(role)}.template.spec.containers"
                yield invalid(
                    path, names, f"must have exactly one container with name {self.container}; rename the others"
                )
        if _is_strict(job):
            yield from self._forbidden(job)

    def _forbidden(self, job: Job) -> Iterator[Problem]:
        """The topologies of `_odd`, in the words of a refusal."""
        path, schedulers = self.path("Scheduler"), job.count("Scheduler")
        if job.has("Scheduler") and schedulers != 1:
            yield invalid(f"{path}.replicas", schedulers, "must be 1, because all meet at one scheduler; set it to 1")
        elif _needs_scheduler(job):
            those = " and ".join(f"{job.count(role)} {role}" for role in ("PS", "Worker") if job.count(role))
            yield required(path, f"{those} could not find one another without it; add one with 1 replica")

    def advice(self, job: Job) -> Iterator[Advice]:
        yield from ungrouped_advice(job)
        if not _is_strict(job):
            yield from self._odd(job)
        if not job.count("Worker"):
            yield Advice(TOPOLOGY, f"{self.path('Worker')} has no replicas; a job without workers never succeeds")

    def _odd(self, job: Job) -> Iterator[Advice]:
        schedulers, workers = job.count("Scheduler"), job.count("Worker")
        path = self.path("Scheduler")
        if schedulers > 1:
            message = f"{path}.replicas is {schedulers}, but all meet at {job.host('Scheduler')}; set it to 1"
            yield Advice(TOPOLOGY, message)
        elif job.has("Scheduler") and schedulers == 0 and workers == 1 and not job.count("PS"):
            yield Advice(TOPOLOGY, f"{path}.replicas is 0; set it to 1, or leave the role out: one worker needs none")
        if _needs_scheduler(job):
            message = "is needed for servers or several workers to find one another; without it each trains alone"
            yield Advice(TOPOLOGY, f"{path} {message}; add one with 1 replica")

    def succeeded(self, job: Job, counts: Mapping[str, Count]) -> bool:
        if super().succeeded(job, counts):
            return True
        worker_0_decides = job.count("Worker") > 0 and job.spec.get("successPolicy") != "AllWorkers"
        return worker_0_decides and 0 in counts["Worker"].completed

    def tolerates_failure(self, job: Job, role: str) -> bool:
        return role == "Worker" and bool(job.spec.get("enableDynamicWorker"))

    def grace(self, job: Job, role: str, counts: Mapping[str, Count]) -> float:
        """Workers that are done end the scheduler, with 1; from another node, that may be heard before they are."""
        workers = counts.get("Worker", Count())
        return LATE_NEWS if role != "Worker" and workers.succeeded and not workers.failed else 0.0

    def cleaning_at_limit(self, job: Job) -> str:
        return job.policy.clean_pod_policy

    def messages(self, job: Job) -> Messages:
        restarting = "{kind} {name} is restarting because {role} replica(s) failed."
        failed = "{kind} {namespace}/{name} has failed because {count} {role} replica(s) failed."
        return replace(QUALIFIED, failed=failed, failing=failed, restarting=restarting, replacing=restarting)


def _is_strict(job: Job) -> bool:
    """With jobs that have begun it is too late: one that is refused is no longer looked after."""
    return job.settings.strict_topology and not job.status.is_true("Created")


def _needs_scheduler(job: Job) -> bool:
    return not job.count("Scheduler") and (job.count("Worker") > 1 or job.count("PS") > 0)


def _address(job: Job) -> str:
    """The scheduler's cluster IP; empty until it has one. That of a Service on its way out is as good as none."""
    service = job.seen.services.get(job.host("Scheduler"))
    if service is None or service.metadata.is_terminating or service.spec.cluster_ip == HEADLESS:
        return ""
    return service.spec.cluster_ip


def _known_address(job: Job) -> str:
    """Where those that run look for the scheduler: a Service that is made again must be found there."""
    known = (pod.metadata.annotations.get(MET_AT, "") for pod in job.seen.pods.values() if not pod.is_finished)
    return next(filter(None, known), "")


def _name(job: Job) -> str:
    """What stands for the address where a job is only planned."""
    domain = f".{job.settings.cluster_domain}" if job.settings.cluster_domain else ""
    return f"{job.host('Scheduler')}.{job.namespace}.svc{domain}"
