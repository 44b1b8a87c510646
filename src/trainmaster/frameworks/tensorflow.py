"""TFJob: every replica learns the whole cluster from one variable, TF_CONFIG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Raw

from trainmaster.api import limits, schema
from trainmaster.api.framework import Count, Env, Framework, Messages, Role
from trainmaster.api.job import Job, Member
from trainmaster.api.problem import Problem, forbidden
from trainmaster.objects.meta import encode

SPARSE = "or set spec.enableDynamicWorker: true, which lists only the replica itself and the parameter servers"


class TensorFlow(Framework):
    """A chief or master decides; without one, worker 0 does, or all workers under `successPolicy: AllWorkers`."""

    name, kind, plural, replicas_field = "tensorflow", "TFJob", "tfjobs", "tfReplicaSpecs"
    container, port, port_name = "tensorflow", 2222, "tfjob-port"
    roles = (
        Role("Chief", leader=True),
        Role("Master", leader=True),
        Role("PS", serves=True),
        Role("Worker"),
        Role("Evaluator"),
    )
    decides = ("Chief", "Master", "Worker")
    clean_pod_policy_2021 = "Running"
    env_in_every_container = False
    fields = {
        "successPolicy": schema.told(schema.STRING, "AllWorkers: all must succeed; otherwise worker 0 decides."),
        "enableDynamicWorker": schema.told(schema.BOOLEAN, "Workers may come and go while the job runs."),
    }

    def env(self, member: Member) -> Env:
        job = member.job
        if job.world == 1:  # a lone replica trains locally; TF_CONFIG would make it wait for a cluster
            return {}
        task = {"type": member.role.lower(), "index": member.index}
        if job.spec.get("enableDynamicWorker"):
            return {"TF_CONFIG": _json({"cluster": _sparse(member), "task": task})}
        return {"TF_CONFIG": _json({"cluster": job.once(_cluster), "task": task, "environment": "cloud"})}

    def validate(self, job: Job) -> Iterator[Problem]:
        if job.has("Chief") and job.has("Master"):
            yield forbidden("spec.tfReplicaSpecs", "must not have more than 1 Chief or Master role")
        if not job.spec.get("enableDynamicWorker"):
            yield from limits.variable_problems(self, job, SPARSE)

    def succeeded(self, job: Job, counts: Mapping[str, Count]) -> bool:
        if super().succeeded(job, counts):
            return True
        worker_0_decides = self.deciding(job) == "Worker" and job.spec.get("successPolicy") != "AllWorkers"
        return worker_0_decides and 0 in counts["Worker"].completed

    def tolerates_failure(self, job: Job, role: str) -> bool:
        return role == "Worker" and bool(job.spec.get("enableDynamicWorker"))

    def is_leader(self, member: Member) -> bool:
        if member.job.has("Chief") or member.job.has("Master"):
            return super().is_leader(member)
        return member.role == "Worker" and member.index == 0

    def messages(self, job: Job) -> Messages:
        return Messages(
            running="{kind} {namespace}/{name} is running.",
            succeeded="{kind} {namespace}/{name} successfully completed.",
            failed="{kind} {namespace}/{name} has failed because {count} {role} replica(s) failed.",
        )


def _cluster(job: Job) -> Raw:
    told = [role for role in sorted(job.replicas) if role != "Evaluator" or not job.settings.compat_2021]
    return Raw(encode({role.lower(): _endpoints(job, role) for role in told}))


def _endpoints(job: Job, role: str) -> list[str]:
    return [_endpoint(job, role, index) for index in range(job.count(role))]


def _endpoint(job: Job, role: str, index: int) -> str:
    domain = f".{job.settings.cluster_domain}" if job.settings.cluster_domain else ""
    return f"{job.host(role, index)}.{job.namespace}.svc{domain}:{job.ports[role]}"


def _sparse(member: Member) -> dict[str, Any]:
    """With dynamic workers each replica knows only itself and the servers, so others may come and go."""
    job = member.job
    own = _endpoint(job, member.role, member.index)
    match member.role:
        case "Worker":
            return {"worker": {str(member.index): own}, "ps": _endpoints(job, "PS") if job.has("PS") else None}
        case "PS":
            return {"worker": {}, "ps": [own]}
        case _:
            return {"worker": {}, "ps": []}


def _json(value: Mapping[str, Any]) -> str:
    return encode(value).decode()
