"""MXJob: ps-lite's DMLC_* contract for training, MX_CONFIG for tuning jobs and BytePS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Raw

from trainmaster.api import schema
from trainmaster.api.framework import Alias, Env, Framework, Messages, Role
from trainmaster.api.job import Job, Member
from trainmaster.api.problem import Problem, unsupported
from trainmaster.objects.meta import encode
from trainmaster.objects.template import EnvValue

MODES = ("MXTrain", "MXTune")
TUNER_KEY = "tuner-server-key"


class MXNet(Framework):
    """The scheduler decides a training job, the lone worker a local one, the tuner a tuning job."""

    name, kind, plural, replicas_field = "mxnet", "MXJob", "mxjobs", "mxReplicaSpecs"
    older_versions = ("v1beta1",)
    aliases = (Alias("kubeflow.org", "v1", "MXNetJob", "mxnetjobs"),)
    container, port, port_name = "mxnet", 9091, "mxjob-port"
    roles = (
        Role("Scheduler"),
        Role("Server", leader=True, serves=True),  # sic: it is the servers that upstream labels as master
        Role("Worker"),
        Role("TunerTracker", serves=True),
        Role("TunerServer", serves=True),
        Role("Tuner"),
    )
    decides = ("Tuner", "Scheduler", "Worker")
    clean_pod_policy_2021 = "All"
    replaces_evicted = False
    fields = {"jobMode": schema.told(schema.STRING, "MXTrain or MXTune.")}
    required_fields = ("jobMode",)
    replica_fields = ("label",)

    def validate(self, job: Job) -> Iterator[Problem]:
        if job.spec["jobMode"] not in MODES:
            yield unsupported("spec.jobMode", job.spec["jobMode"], MODES)

    def env(self, member: Member) -> Env:
        job, role = member.job, member.role.lower()
        env: dict[str, EnvValue] = {
            "MX_CONFIG": _config(member),
            "DMLC_PS_ROOT_PORT": job.ports["Scheduler"] if job.count("Scheduler") else 0,
            "DMLC_PS_ROOT_URI": job.host("Scheduler") if job.count("Scheduler") else "",
            "DMLC_NUM_SERVER": job.count("Server"),
            "DMLC_NUM_WORKER": job.count("Worker"),
            "DMLC_ROLE": role,
            "DMLC_USE_KUBERNETES": 1,
        }
        return {**env, "DMLC_WORKER_ID": member.index} if member.role == "Worker" else env

    def messages(self, job: Job) -> Messages:
        return Messages(
            failed="mxjob {name} is failed because {count} {role} replica(s) failed.",
            restarting="mxjob {name} is restarting because {count} {role} replica(s) failed.",
        )


def _config(member: Member) -> str:
    job = member.job
    config: dict[str, Any] = {
        "cluster": job.once(_cluster),
        "labels": {role.lower(): _tuner_key(job, role) for role in _sorted(job)},
        "task": {"type": member.role.lower(), "index": member.index},
    }
    return encode(config).decode()


def _cluster(job: Job) -> Raw:
    addresses = {role: [{"url": host, "port": job.ports[role]} for host in job.hosts(role)] for role in _sorted(job)}
    return Raw(encode({role.lower(): found for role, found in addresses.items()}))


def _sorted(job: Job) -> list[str]:
    return sorted(job.replicas, key=str.lower)


def _tuner_key(job: Job, role: str) -> str:
    """From the template's annotation, or from the replica's `label` as mxnet-operator 1.0 had it."""
    replica = job.replicas[role]
    annotations = replica.template.get("metadata", {}).get("annotations", {})
    return str(annotations.get(TUNER_KEY) or replica.extra.get("label", ""))
