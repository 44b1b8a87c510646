"""PyTorchJob: MASTER_ADDR and friends for torch.distributed, PET_* for torchrun, elastic or not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from trainmaster.api import schema
from trainmaster.api.framework import QUALIFIED, Companion, Count, Env, Framework, Messages, Role
from trainmaster.api.job import Job, Member
from trainmaster.api.problem import Advice, Problem, forbidden, invalid, required
from trainmaster.frameworks.pytorch_wait import init_containers
from trainmaster.objects import template
from trainmaster.objects.meta import Json
from trainmaster.objects.number import number_of
from trainmaster.objects.resource import HORIZONTAL_POD_AUTOSCALERS

MOST_PROCESSES = 999_999
PAIR = schema.record(
    {"key": schema.told(schema.STRING, "Its name."), "value": schema.told(schema.STRING, "Its value.")}
)
ELASTIC_POLICY = schema.record(
    {
        "minReplicas": schema.told(schema.integer(), "Fewest workers; maxReplicas, or their number, if unset."),
        "maxReplicas": schema.told(
            schema.integer(maximum=schema.MAX_REPLICAS), "Most workers; minReplicas, or their number, if unset."
        ),
        "maxRestarts": schema.told(schema.integer(), "How often torchrun starts the ranks again."),
        "metrics": schema.told(schema.array(schema.ANYTHING), "Of an HPA that scales the workers; none if unset."),
        "nProcPerNode": schema.told(schema.integer(), "Deprecated: use spec.nprocPerNode."),
        "rdzvBackend": schema.told(schema.STRING, "How workers meet; c10d if unset."),
        "rdzvHost": schema.told(schema.STRING, "Where; worker 0 if unset."),
        "rdzvPort": schema.told(schema.integer(1, 65535), "At which port; that of worker 0 if unset."),
        "rdzvId": schema.told(schema.STRING, "The name of their meeting."),
        "rdzvConf": schema.told(schema.array(PAIR), "Further settings of the backend."),
        "standalone": schema.told(schema.BOOLEAN, "Each worker by itself (torchrun --standalone)."),
    }
)


def with_elastic_bounds(job: Job) -> Job:
    """An elastic job's missing bound is the other one; with neither, both are the number of workers."""
    policy = job.spec.get("elasticPolicy")
    if policy is None:
        return job
    low, high = policy.get("minReplicas"), policy.get("maxReplicas")
    workers = job.count("Worker")
    bounds = {
        "minReplicas": low if low is not None else high if high is not None else workers,
        "maxReplicas": high if high is not None else low if low is not None else workers,
    }
    return replace(job, spec={**job.spec, "elasticPolicy": {**policy, **bounds}})


class PyTorch(Framework):
    """The master decides; without one, all workers do, or any worker of an elastic job."""

    name, kind, plural, replicas_field = "pytorch", "PyTorchJob", "pytorchjobs", "pytorchReplicaSpecs"
    container, port, port_name = "pytorch", 23456, "pytorchjob-port"
    roles = (Role("Master", min=1, max=1, leader=True), Role("Worker", min=1))
    decides = ("Master", "Worker")
    restart_policy = "OnFailure"
    scalable_role = "Worker"
    fields = {
        "nprocPerNode": schema.told(schema.INT_OR_STRING, "Processes per replica: auto, cpu, gpu or a number."),
        "elasticPolicy": schema.told(ELASTIC_POLICY, "Between how many workers torchrun may go on, and how they meet."),
    }
    companion_resources = (HORIZONTAL_POD_AUTOSCALERS,)

    def default(self, job: Job) -> Job:
        policy: Json | None = job.spec.get("elasticPolicy")
        if policy is None or "nProcPerNode" not in policy:
            job = replace(job, spec={**job.spec, "nprocPerNode": str(job.spec.get("nprocPerNode", "auto"))})
        return with_elastic_bounds(job)

    def validate(self, job: Job) -> Iterator[Problem]:
        processes = str(job.spec.get("nprocPerNode", "auto"))
        if processes not in ("auto", "cpu", "gpu") and not _is_count(processes):
            yield invalid("spec.nprocPerNode", processes, "must be auto, cpu, gpu or a number of processes")
        policy = job.spec.get("elasticPolicy")
        if policy is None:
            return
        if not job.has("Worker"):
            yield required("spec.pytorchReplicaSpecs[Worker]", "must be configured if elastic policy is used")
        if "nProcPerNode" in policy and "nprocPerNode" in job.spec:
            yield forbidden("spec.elasticPolicy.nProcPerNode", "must not be used with spec.nprocPerNode")
        if policy["minReplicas"] > policy["maxReplicas"]:
            yield forbidden("spec.elasticPolicy.minReplicas", f"must be at most maxReplicas ({policy['maxReplicas']})")

    def advice(self, job: Job) -> Iterator[Advice]:
        if "nProcPerNode" in job.spec.get("elasticPolicy", {}):
            yield Advice("DeprecatedField", "spec.elasticPolicy.nProcPerNode is deprecated, use spec.nprocPerNode")

    def env(self, member: Member) -> Env:
        job = member.job
        env: dict[str, template.EnvValue] = {"PYTHONUNBUFFERED": 1}
        if job.has("Master"):
            env |= _master_env(member)
        if "nprocPerNode" in job.spec:
            env["PET_NPROC_PER_NODE"] = job.spec["nprocPerNode"]
        if "elasticPolicy" not in job.spec:
            return {**env, "PET_NNODES": job.world}
        return {**env, **_elastic_env(job, job.spec["elasticPolicy"])}

    def decorate(self, pod: Json, member: Member) -> Json:
        if member.role == "Worker" and member.job.has("Master"):
            return template.with_init_containers(pod, init_containers(pod, member))
        return pod

    def companions(self, job: Job) -> Iterable[Companion]:
        policy = job.spec.get("elasticPolicy", {})
        if "metrics" in policy:
            yield Companion(HORIZONTAL_POD_AUTOSCALERS, _autoscaler(job, policy))

    def succeeded(self, job: Job, counts: Mapping[str, Count]) -> bool:
        if super().succeeded(job, counts):
            return True
        is_elastic = "elasticPolicy" in job.spec and not job.has("Master")
        return is_elastic and bool(counts["Worker"].succeeded)

    def is_leader(self, member: Member) -> bool:
        return super().is_leader(member) if member.job.has("Master") else member.index == 0

    def messages(self, job: Job) -> Messages:
        return Messages() if job.has("Master") else QUALIFIED


def _master_env(member: Member) -> dict[str, template.EnvValue]:
    job = member.job
    local = job.settings.compat_2021 and member.role == "Master"
    address = "localhost" if local else job.host("Master")
    return {
        "MASTER_PORT": job.ports["Master"],
        "PET_MASTER_PORT": job.ports["Master"],
        "MASTER_ADDR": address,
        "PET_MASTER_ADDR": address,
        "WORLD_SIZE": job.world * _processes(str(job.spec.get("nprocPerNode", ""))),
        "RANK": member.rank,
        "PET_NODE_RANK": member.rank,
    }


def _processes(text: str) -> int:
    """How many processes a node runs, as far as we can know: `auto`, `cpu` and `gpu` are torchrun's to resolve."""
    return number_of(text, MOST_PROCESSES) or 1


def _is_count(text: str) -> bool:
    return bool(number_of(text, MOST_PROCESSES))


def _elastic_env(job: Job, policy: Json) -> dict[str, template.EnvValue]:
    host = policy.get("rdzvHost") or job.host("Worker")
    env: dict[str, template.EnvValue] = {
        "PET_RDZV_ENDPOINT": f"{host}:{policy.get('rdzvPort', job.ports['Worker'])}",
        "PET_RDZV_BACKEND": policy.get("rdzvBackend") or "c10d",
        "PET_NNODES": f"{policy['minReplicas']}:{policy['maxReplicas']}",
    }
    given = {"PET_MAX_RESTARTS": "maxRestarts", "PET_NPROC_PER_NODE": "nProcPerNode", "PET_RDZV_ID": "rdzvId"}
    env |= {variable: policy[field] for variable, field in given.items() if field in policy}
    if policy.get("rdzvConf"):
        env["PET_RDZV_CONF"] = ",".join(f"{e.get('key', '')}={e.get('value', '')}" for e in policy["rdzvConf"])
    if policy.get("standalone"):
        env["PET_STANDALONE"] = ""
    # Without it, workers restarted after a lost process meet stale peer addresses in the shared store and hang.
    env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = 1
    return env


def _autoscaler(job: Job, policy: Json) -> dict[str, Any]:
    return {
        "apiVersion": f"autoscaling/{job.settings.autoscaling_version}",
        "kind": HORIZONTAL_POD_AUTOSCALERS.kind,
        "metadata": {"name": job.name, "namespace": job.namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": job.resource.api_version, "kind": job.kind, "name": job.name},
            "minReplicas": policy["minReplicas"],
            "maxReplicas": policy["maxReplicas"],
            "metrics": policy["metrics"],
        },
    }
