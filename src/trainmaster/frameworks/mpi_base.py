"""What MPIJobs of all API versions have in common: a launcher that runs mpirun, and workers that wait for it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from trainmaster.api import schema
from trainmaster.api.framework import AGE, STATE, Count, Ending, Framework, Role
from trainmaster.api.job import Job, Replica
from trainmaster.api.problem import Advice
from trainmaster.api.reading import is_cleaning_told
from trainmaster.objects import template
from trainmaster.objects.meta import Json
from trainmaster.objects.pod import Pod
from trainmaster.objects.template import EnvValue

LAUNCHER, WORKER = "Launcher", "Worker"
CONFIG = "mpi-job-config"
CONFIG_PATH = "/etc/mpi"
HOSTFILE = f"{CONFIG_PATH}/hostfile"
HOSTS = "trainmaster.dev/hosts"
"""Annotation of the launcher: changing it makes the kubelet refresh the mounted discover_hosts.sh at once."""

NO_GPU: dict[str, EnvValue] = {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
"""A launcher without GPUs of its own must not be shown those of its node."""

AS_ROOT: dict[str, EnvValue] = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
"""Images run as root, mostly; Open MPI, of any version, would refuse to."""

STRANDED = "{kind} {namespace}/{name} has failed: {count} {role} replica(s) failed before the launcher could start"
"""Of a job whose failed workers are otherwise left to mpirun."""

FIELDS = {
    "slotsPerWorker": schema.told(schema.integer(), "Ranks per worker; 1 if unset."),
    "mainContainer": schema.told(schema.STRING, "Where ranks start; the first container if unset (v1)."),
    "mpiDistribution": schema.told(schema.STRING, "OpenMPI, IntelMPI or MPICH (v1alpha2)."),
    "mpiImplementation": schema.told(schema.STRING, "OpenMPI, Intel or MPICH (v2beta1)."),
    "sshAuthMountPath": schema.told(schema.STRING, "Where SSH keys are mounted; /root/.ssh if unset (v2beta1)."),
    "launcherCreationPolicy": schema.told(schema.STRING, "AtStartup, or WaitForWorkersReady (v2beta1)."),
    "runLauncherAsWorker": schema.told(schema.BOOLEAN, "Whether ranks run beside the launcher, too (v2beta1)."),
}


class MPIBase(Framework):
    name, kind, plural, replicas_field = "mpi", "MPIJob", "mpijobs", "mpiReplicaSpecs"
    short_names = ("mj", "mpij")
    columns = (AGE, STATE)
    roles = (
        Role(LAUNCHER, min=1, max=1, leader=True, required=True, numbered=False),
        Role(WORKER, replicas=0, serves=True),
    )
    decides = (LAUNCHER,)
    env_in_every_container = False
    scalable_role = WORKER
    managers = ("kubeflow.org/training-operator", "kubeflow.org/mpi-operator")
    fields = FIELDS
    foreign: ClassVar[Mapping[str, str]] = {}
    """Those of them that are another version's, and what becomes of what they ask for."""

    def advice(self, job: Job) -> Iterator[Advice]:
        for field, instead in self.foreign.items():
            if field in job.spec:
                message = f"spec.{field} is not a field of {self.group}/{self.version} and is ignored; {instead}"
                yield Advice("UnknownField", message)

    def default(self, job: Job) -> Job:
        """`command: [""]`, which some generators write, is no command."""
        return replace(job, replicas={role: _without_blank(replica) for role, replica in job.replicas.items()})

    def may_start(self, role: str, job: Job, counts: Mapping[str, Count]) -> bool:
        """mpirun gives up on a host that does not answer, so the launcher waits until all do."""
        return role != LAUNCHER or not self.launcher_waits(job) or are_ready(job, counts)

    def launcher_waits(self, job: Job) -> bool:
        return True

    def gang_size(self, job: Job) -> int:
        return job.count(WORKER) if self.launcher_waits(job) and job.count(WORKER) else job.world

    def priority_class(self, job: Job) -> str:
        specs = [replica.template.get("spec", {}) for replica in job.replicas.values()]
        named = [spec["priorityClassName"] for spec in specs if spec.get("priorityClassName")]
        return super().priority_class(job) or next(iter(named), "")

    def ending(self, job: Job, counts: Mapping[str, Count]) -> Ending | None:
        evicted = [role for (role, _), pod in job.seen.pods.items() if is_evicted(pod)]
        lost = {role for role in evicted if self.ends_by_eviction(job, role)}
        if not lost:
            return self._deserted(job, counts)
        workers = f"{evicted.count(WORKER)}/{job.count(WORKER)} workers are evicted"
        failed = self.messages(job).text("failed", job, role=LAUNCHER, count=1)
        return Ending(f"{job.kind}Evicted", workers if WORKER in lost else failed)

    def _deserted(self, job: Job, counts: Mapping[str, Count]) -> Ending | None:
        """A launcher that waits for workers which will never be ready, because they have ended, waits for ever."""
        done = len(counts.get(WORKER, Count()).succeeded)
        if not done or not self.is_launcher_awaited(job):
            return None
        ended = f"{done}/{job.count(WORKER)} workers have ended before the launcher"
        remedy = "a worker is to wait until it is stopped: leave out its command, or give it one that does not end"
        return Ending(f"{job.kind}Failed", f"{ended}; {remedy}")

    def is_launcher_awaited(self, job: Job) -> bool:
        return self.launcher_waits(job) and not has_launcher(job)

    def leaves_to_mpirun(self, job: Job, role: str) -> bool:
        """Whether a worker that failed for good is mpirun's to notice. There has to be one: a launcher that waits for
        this worker would wait for ever. While a worker is being deleted, it is not known yet who has failed."""
        if role != WORKER or not self.is_launcher_awaited(job):
            return role == WORKER
        return any(pod.metadata.is_terminating for (of, _), pod in job.seen.pods.items() if of == WORKER)

    def ends_by_eviction(self, job: Job, role: str) -> bool:
        return job.replicas[role].restart_policy == "Never" or job.settings.compat_2021


def has_launcher(job: Job) -> bool:
    return (LAUNCHER, 0) in job.seen.pods or LAUNCHER in job.seen.delegates


def cleaned_at_limit(job: Job) -> str:
    """What goes where a limit has ended the job: what its author says; otherwise all that would go on past the limit,
    and the launcher's log stays."""
    return job.policy.clean_pod_policy if is_cleaning_told(job.spec) else "Running"


def are_ready(job: Job, counts: Mapping[str, Count]) -> bool:
    workers = counts.get(WORKER, Count())
    return workers.ready >= frozenset(range(job.count(WORKER)))


def is_evicted(pod: Pod) -> bool:
    return pod.status.phase == "Failed" and pod.status.reason == "Evicted"


def slots(job: Job) -> int:
    return int(job.spec.get("slotsPerWorker", 1))


def _without_blank(replica: Replica) -> Replica:
    def cleaned(container: Json) -> Json:
        is_blank = container.get("command") == [""]
        return {key: value for key, value in container.items() if key != "command" or not is_blank}

    if not any(container.get("command") == [""] for container in template.containers_of(replica.template)):
        return replica
    return replace(replica, template=template.with_containers(replica.template, cleaned))


def first_container(replica: Replica) -> Json:
    return next(iter(template.containers_of(replica.template)), {})


def environment_of(replica: Replica) -> set[str]:
    """The names of the variables that the user gave the first container."""
    return {str(entry.get("name")) for entry in first_container(replica).get("env") or ()}


def is_gpu(resource: str) -> bool:
    return resource.endswith(".com/gpu") or "gpu" in resource


def has_gpus(replica: Replica) -> bool:
    containers = template.containers_of(replica.template)
    return any(is_gpu(name) for c in containers for name in (c.get("resources") or {}).get("limits") or {})


def running_workers(job: Job) -> Iterator[str]:
    """Names of the running workers, as text sorts them; none before anybody can ask, which saves writes."""
    pods = [pod for (role, _), pod in job.seen.pods.items() if role == WORKER]
    running = [pod for pod in pods if pod.status.phase == "Running" and not pod.metadata.is_terminating]
    if has_launcher(job) or sum(pod.is_ready for pod in running) >= job.count(WORKER):
        yield from sorted(pod.name for pod in running)


def hosts_annotation(script: str) -> dict[str, str]:
    return {HOSTS: hashlib.sha256(script.encode()).hexdigest()[:16]}


def config_volume(modes: Mapping[str, int], job: Job) -> dict[str, Any]:
    items = [{"key": key, "path": key, "mode": mode} for key, mode in modes.items()]
    return {"name": CONFIG, "configMap": {"name": f"{job.name}-config", "items": items}}


def config_map(job: Job, data: Mapping[str, str]) -> dict[str, Any]:
    return named(job, "v1", "ConfigMap", f"{job.name}-config", data=dict(data))


def named(job: Job, api_version: str, kind: str, name: str, **content: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": job.namespace, "labels": {"app": job.name}}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}
