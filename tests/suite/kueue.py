"""Kueue's part, played as its integrations of Kubeflow jobs and of MPIJob act.

It knows a job by its queue's label and acts on spec.runPolicy.suspend and the pod templates only, both in one update:
on admission it lays labels, annotations, node selectors and tolerations of its flavours over every template, and on
eviction it puts back what it had remembered. Of the status it reads three things: whether any replica is active (then
an eviction has not taken effect yet), whether Running is true (all pods are ready), and whether Succeeded or Failed is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.suite.cluster import Cluster, conditions, named, written_as

from trainmaster.kube.errors import Conflict
from trainmaster.objects.meta import Json
from trainmaster.testing.jobs import ROLES
from trainmaster.testing.scene import Scene, a_job

QUEUE = "kueue.x-k8s.io/queue-name"
PODSET, WORKLOAD = "kueue.x-k8s.io/podset", "kueue.x-k8s.io/workload"
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
FLAVOUR = {"cloud.example.com/accelerator": "a100"}
TOLERATION = {"key": "reserved", "operator": "Equal", "value": "training", "effect": "NoSchedule"}
OWN = {"team": "vision"}
"""What the user's own templates select and are labelled with: Kueue adds to it."""

KINDS: dict[str, Mapping[str, int]] = {
    **{kind: ROLES[kind] for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")},
    "MPIJob": {"Launcher": 1, "Worker": 2},
}


def queued(kind: str, name: str, **policy: Any) -> Scene:
    """As Kueue's webhook leaves a job that names a queue: suspended."""
    scene = a_job(kind, name, version="v2beta1" if kind == "MPIJob" else "")
    for role, replicas in KINDS[kind].items():
        scene = scene.role(role, replicas, "Never", metadata={"labels": dict(OWN)}, nodeSelector=dict(OWN))
    return scene.meta(labels={QUEUE: "training"}).policy(suspend=True, **policy)


def roles_of(job: Json) -> tuple[str, Mapping[str, Json]]:
    """Where the templates stand, and they."""
    [field] = [key for key in job["spec"] if key.endswith("ReplicaSpecs")]
    return field, job["spec"][field]


def templates(job: Json) -> dict[str, Any]:
    return {role: replica["template"] for role, replica in roles_of(job)[1].items()}


async def admit(cluster: Cluster, job: Json) -> Json:
    """The templates with a flavour laid over them, and the end of the suspension, in one update."""
    return await _updated(cluster, job, False, {role: _flavoured(role, each) for role, each in templates(job).items()})


async def evict(cluster: Cluster, job: Json) -> Json:
    """The suspension, and the templates as they were, in one update."""
    return await _updated(cluster, job, True, templates(job))


async def _updated(cluster: Cluster, job: Json, suspend: bool, wanted: Mapping[str, Json]) -> Json:
    """Of the job as it stands now; tried again when the operator was faster."""
    while True:
        held = await cluster.get(written_as(job), named(job))
        field, roles = roles_of(held)
        changed = {role: {**replica, "template": wanted[role]} for role, replica in roles.items()}
        spec = {**held["spec"], field: changed, "runPolicy": {**held["spec"]["runPolicy"], "suspend": suspend}}
        try:
            return await cluster.client.update(written_as(job), {**held, "spec": spec})
        except Conflict:
            continue


def _flavoured(role: str, template: Json) -> Json:
    metadata, spec = template.get("metadata", {}), template["spec"]
    return {
        "metadata": {
            **metadata,
            "labels": {**metadata.get("labels", {}), PODSET: role.lower()},
            "annotations": {**metadata.get("annotations", {}), WORKLOAD: "job-of-training"},
        },
        "spec": {
            **spec,
            "nodeSelector": {**spec.get("nodeSelector", {}), **FLAVOUR},
            "tolerations": [*spec.get("tolerations", ()), TOLERATION],
        },
    }


def is_active(status: Json) -> bool:
    return any(counted.get("active") for counted in status.get("replicaStatuses", {}).values())


def are_pods_ready(status: Json) -> bool:
    return ("Running", "True") in conditions(status)


def finish_of(status: Json) -> str:
    """Succeeded, Failed, or neither yet."""
    ends = [kind for kind, value in conditions(status) if kind in ("Succeeded", "Failed") and value == "True"]
    return ends[0] if ends else ""
