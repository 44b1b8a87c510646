"""Running jobs as other operators have left them: their labels, their owner references and their objects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from trainmaster import frameworks
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import (
    CONFIG_MAPS,
    JOBS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from trainmaster.testing import clock
from trainmaster.testing.fakeapi import FakeApi
from trainmaster.testing.operation import an_api, operating, passing, quiet

NEW = "training.kubeflow.org/"
NAME, UID = "old", "uid-of-the-job"
STARTED = "2023-12-31T10:00:00Z"
RBAC = "rbac.authorization.k8s.io"
A_WHILE = 600.0
"""Seconds: longer than any timer of ours that is not the job's own."""

Then = Callable[[FakeApi], Awaitable[None]]


@dataclass
class Past:
    """A job and what stands around it. `gains` is what we make beside: objects that the old operator did without."""

    job: dict[str, Any]
    objects: list[tuple[Resource, dict[str, Any]]] = field(default_factory=list)
    gains: frozenset[tuple[str, str]] = frozenset()
    decisive: str = "worker"
    """The pods whose success ends the job."""

    def put(self, api: FakeApi) -> None:
        found = frameworks.serving(self.job["apiVersion"], self.job["kind"])
        assert found is not None
        api.put(found[1], self.job)
        for resource, body in self.objects:
            api.put(resource, body)

    def add(self, resource: Resource, name: str, labels: Json, **content: Any) -> Past:
        """An object that the job controls."""
        return self.add_of(resource, name, labels, owner_of(self.job), **content)

    def add_of(self, resource: Resource, name: str, labels: Json, owner: Json, **content: Any) -> Past:
        metadata = {"name": name, "namespace": "default", "uid": f"uid-{resource.plural}-{name}", "labels": labels}
        self.objects.append((resource, {"metadata": {**metadata, "ownerReferences": [owner]}, **content}))
        return self

    def pod(self, name: str, labels: Json, container: str, **more: Any) -> Past:
        """Running and ready, with a mark in its spec by which a new one would be known."""
        return self.add(PODS, name, labels, **running(name, container), **more)


def running(name: str, container: str) -> dict[str, Any]:
    state = {"name": container, "ready": True, "restartCount": 0, "state": {"running": {"startedAt": STARTED}}}
    return {
        "spec": {"nodeName": "node-of-old", "containers": [{"name": container, "image": "example/train:1"}]},
        "status": {
            "phase": "Running",
            "podIP": f"10.1.0.{sum(map(ord, name)) % 250}",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [state],
        },
    }


def owner_of(job: Json, **changes: Any) -> dict[str, Any]:
    identity = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": NAME, "uid": UID}
    return {**identity, "controller": True, "blockOwnerDeletion": True, **changes}


def a_job(api_version: str, kind: str, spec: Json, status: Json, **metadata: Any) -> dict[str, Any]:
    meta = {"name": NAME, "namespace": "default", "uid": UID, "creationTimestamp": STARTED, "generation": 1, **metadata}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec, "status": status}


def replica(container: str, replicas: int, **more: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": container, "image": "example/train:1"}]}}
    return {"replicas": replicas, "template": template, **more}


def conditions(kind: str) -> list[dict[str, Any]]:
    times = {"lastUpdateTime": STARTED, "lastTransitionTime": STARTED}
    told = {"Created": f"{kind} {NAME} is created.", "Running": f"{kind} {NAME} is running."}
    return [
        {"type": name, "status": "True", "reason": f"{kind}{name}", "message": message, **times}
        for name, message in told.items()
    ]


def standing(kind: str, **active: int) -> dict[str, Any]:
    counts = {role: {"active": count} for role, count in active.items()}
    return {"conditions": conditions(kind), "replicaStatuses": counts, "startTime": STARTED}


def of_today(kind: str, role: str, index: int) -> dict[str, str]:
    return {
        NEW + "operator-name": f"{kind.lower()}-controller",
        NEW + "job-name": NAME,
        NEW + "replica-type": role,
        NEW + "replica-index": str(index),
    }


def of_2021(role: str, index: int) -> dict[str, str]:
    return {"group-name": "kubeflow.org", "job-name": NAME, "replica-type": role, "replica-index": str(index)}


def pytorch_1_9() -> Past:
    """training-operator 1.9: a Service for every replica."""
    spec = {"pytorchReplicaSpecs": {"Master": replica("pytorch", 1), "Worker": replica("pytorch", 2)}}
    past = Past(a_job("kubeflow.org/v1", "PyTorchJob", spec, standing("PyTorchJob", Master=1, Worker=2)))
    past.decisive = "master"
    for role, index in (("master", 0), ("worker", 0), ("worker", 1)):
        labels = of_today("PyTorchJob", role, index)
        leading = {NEW + "job-role": "master"} if role == "master" else {}
        past.pod(f"{NAME}-{role}-{index}", {**labels, **leading}, "pytorch")
        past.add(SERVICES, f"{NAME}-{role}-{index}", labels, spec={"clusterIP": "None", "selector": labels})
    return past


def tensorflow_1_9() -> Past:
    spec = {"tfReplicaSpecs": {"PS": replica("tensorflow", 1), "Worker": replica("tensorflow", 2)}}
    past = Past(a_job("kubeflow.org/v1", "TFJob", spec, standing("TFJob", PS=1, Worker=2)))
    for role, index in (("ps", 0), ("worker", 0), ("worker", 1)):
        labels = of_today("TFJob", role, index)
        past.pod(f"{NAME}-{role}-{index}", labels, "tensorflow")
        past.add(SERVICES, f"{NAME}-{role}-{index}", labels, spec={"clusterIP": "None", "selector": labels})
    return past


def tensorflow_2021() -> Past:
    """tf-operator: labels without a prefix, policies flat in the spec."""
    spec = {"cleanPodPolicy": "None", "tfReplicaSpecs": {"Worker": replica("tensorflow", 2, restartPolicy="OnFailure")}}
    past = Past(a_job("kubeflow.org/v1", "TFJob", spec, standing("TFJob", Worker=2)))
    for index in range(2):
        labels = of_2021("worker", index)
        past.pod(f"{NAME}-worker-{index}", labels, "tensorflow")
        past.add(SERVICES, f"{NAME}-worker-{index}", labels, spec={"clusterIP": "None", "selector": labels})
    return past


def pytorch_2021() -> Past:
    """pytorch-operator: labels of its own, and a Service for the master alone."""
    spec = {"pytorchReplicaSpecs": {"Master": replica("pytorch", 1), "Worker": replica("pytorch", 1)}}
    past = Past(a_job("kubeflow.org/v1", "PyTorchJob", spec, standing("PyTorchJob", Master=1, Worker=1)))
    past.decisive, past.gains = "master", frozenset({("Service", f"{NAME}-worker-0")})
    for role in ("master", "worker"):
        common = {"group-name": "kubeflow.org", "controller-name": "pytorch-operator", "pytorch-job-name": NAME}
        labels = {**common, "pytorch-replica-type": role, "pytorch-replica-index": "0"}
        past.pod(f"{NAME}-{role}-0", labels, "pytorch")
        if role == "master":
            past.add(SERVICES, f"{NAME}-{role}-0", labels, spec={"clusterIP": "None", "selector": labels})
    return past


def mpi_v2beta1() -> Past:
    """mpi-operator 0.8: a Job for the launcher, one Service for all, keys in a Secret. Only pods bear its labels."""
    spec = {
        "slotsPerWorker": 1,
        "runPolicy": {"cleanPodPolicy": "Running"},
        "mpiReplicaSpecs": {"Launcher": replica("mpi", 1), "Worker": replica("mpi", 2)},
    }
    authors = [{"manager": "kubectl", "operation": "Update", "apiVersion": "kubeflow.org/v2beta1", "time": STARTED}]
    status = standing("MPIJob", Launcher=1, Worker=2)
    past = Past(a_job("kubeflow.org/v2beta1", "MPIJob", spec, status, managedFields=authors), decisive="launcher")
    mine = {NEW + "operator-name": "mpi-operator", NEW + "job-name": NAME}
    app = {"app": NAME}
    past.add(SERVICES, NAME, app, spec={"clusterIP": "None", "selector": mine})
    hosts = "".join(f"{NAME}-worker-{i}.{NAME}.default.svc slots=1\n" for i in range(2))
    past.add(CONFIG_MAPS, f"{NAME}-config", app, data={"hostfile": hosts, "discover_hosts.sh": "#!/bin/sh\n"})
    keys = {"ssh-privatekey": "b2xk", "ssh-publickey": "b2xk"}
    past.add(SECRETS, f"{NAME}-ssh", app, type="kubernetes.io/ssh-auth", data=keys)
    for index in range(2):
        labels = {**mine, NEW + "job-role": "worker", NEW + "replica-index": str(index)}
        past.pod(f"{NAME}-worker-{index}", labels, "mpi")
    launcher = {**mine, NEW + "job-role": "launcher"}
    template = {"metadata": {"labels": launcher}, "spec": {}}
    past.add(JOBS, f"{NAME}-launcher", app, spec={"template": template}, status={"active": 1})
    made_by = {"apiVersion": "batch/v1", "kind": "Job", "name": f"{NAME}-launcher"}
    owner = {**made_by, "uid": f"uid-jobs-{NAME}-launcher", "controller": True}
    past.add_of(PODS, f"{NAME}-launcher-abcde", launcher, owner, **running("launcher", "mpi"))
    return past


def mpi_v1() -> Past:
    """training-operator 1.9: the launcher is a pod that reaches the workers by `kubectl exec`."""
    spec = {"mpiReplicaSpecs": {"Launcher": replica("mpi", 1), "Worker": replica("mpi", 1)}}
    past = Past(a_job("kubeflow.org/v1", "MPIJob", spec, standing("MPIJob", Launcher=1, Worker=1)))
    past.decisive = "launcher"
    app, name = {"app": NAME}, f"{NAME}-launcher"
    past.add(SERVICE_ACCOUNTS, name, app)
    past.add(CONFIG_MAPS, f"{NAME}-config", app, data={"hostfile": f"{NAME}-worker-0 slots=1\n", "kubexec.sh": "old"})
    past.add(ROLES, name, app, rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}])
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    past.add(ROLE_BINDINGS, name, app, roleRef={"apiGroup": RBAC, "kind": "Role", "name": name}, subjects=[subject])
    common = {NEW + "operator-name": "mpijob-controller", NEW + "job-name": NAME}
    leading = {NEW + "replica-type": "launcher", NEW + "job-role": "master"}
    past.pod(name, {**common, **leading}, "mpi")
    past.pod(f"{NAME}-worker-0", {**common, NEW + "replica-type": "worker", NEW + "replica-index": "0"}, "mpi")
    return past


def paddle_batch() -> Past:
    """paddle-operator: pods know no job by label, and the ConfigMap holds a port drawn at random."""
    spec = {"cleanPodPolicy": "Never", "ps": replica("paddle", 1), "worker": replica("paddle", 2)}
    roles = {"ps": {"running": 1, "ready": "1/1"}, "worker": {"running": 2, "ready": "2/2"}}
    status = {"phase": "Running", "mode": "PS", "startTime": STARTED, **roles}
    marks = {"finalizers": ["finalizers.paddlepaddle.org"]}
    past = Past(a_job("batch.paddlepaddle.org/v1", "PaddleJob", spec, status, **marks))
    for role, index in (("ps", 0), ("worker", 0), ("worker", 1)):
        name = f"{NAME}-{role}-{index}"
        past.pod(name, {"paddle-res-name": name, "paddle-res-type": role}, "paddle")
        past.add(SERVICES, name, {}, spec={"clusterIP": "None", "selector": {"paddle-res-name": name}})
    past.add(CONFIG_MAPS, NAME, {"paddle-res-name": NAME}, data={"PADDLE_PORT": "41234", "PADDLE_TRAINERS_NUM": "2"})
    return past


def mindspore() -> Past:
    """ms-operator: both generations of labels, and a Service with a cluster IP for the scheduler alone."""
    roles = {"Scheduler": replica("mindspore", 1), "Worker": replica("mindspore", 2)}
    status = standing("MSJob", Scheduler=1, Worker=2)
    past = Past(a_job("mindspore.gitee.com/v1", "MSJob", {"msReplicaSpecs": roles}, status))
    for role, index in (("scheduler", 0), ("worker", 0), ("worker", 1)):
        older = {**of_2021(role, index), "group-name": "mindspore.gitee.com"}
        labels = {**of_today("MSJob", role, index), **older}
        past.pod(f"{NAME}-{role}-{index}", labels, "mindspore")
        if role == "scheduler":
            past.add(SERVICES, f"{NAME}-{role}-{index}", labels, spec={"clusterIP": "10.96.0.77", "selector": labels})
    return past


PASTS = {
    "PyTorchJob of training-operator 1.9": pytorch_1_9,
    "TFJob of training-operator 1.9": tensorflow_1_9,
    "MPIJob v1 of training-operator 1.9": mpi_v1,
    "TFJob of tf-operator 2021": tensorflow_2021,
    "PyTorchJob of pytorch-operator 2021": pytorch_2021,
    "MPIJob v2beta1 of mpi-operator 0.8": mpi_v2beta1,
    "PaddleJob of paddle-operator": paddle_batch,
    "MSJob of ms-operator": mindspore,
}


def taken_over(past: Past, then: Then | None = None) -> FakeApi:
    """Long after our operator came to a cluster with such a job."""
    api = an_api(graceful=True)

    async def main() -> None:
        past.put(api)
        async with operating(api):
            await quiet(api)
            await passing(A_WHILE)
            if then is not None:
                await then(api)

    clock.run(main())
    return api
