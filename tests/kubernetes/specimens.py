"""Small valid objects, and the paths they live at. `{ns}` is the scenario's namespace."""

from __future__ import annotations

import copy
from typing import Any

CORE = "/api/v1/namespaces/{ns}"
PODS = f"{CORE}/pods"
SERVICES = f"{CORE}/services"
CONFIG_MAPS = f"{CORE}/configmaps"
SECRETS = f"{CORE}/secrets"
CLAIMS = f"{CORE}/persistentvolumeclaims"
EVENTS = f"{CORE}/events"
ACCOUNTS = f"{CORE}/serviceaccounts"
QUOTAS = f"{CORE}/resourcequotas"
VOLUMES = "/api/v1/persistentvolumes"
NAMESPACES = "/api/v1/namespaces"
NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{ns}/deployments"
STATEFUL_SETS = "/apis/apps/v1/namespaces/{ns}/statefulsets"
BATCH_JOBS = "/apis/batch/v1/namespaces/{ns}/jobs"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JOBS = "/apis/kubeflow.org/v1/namespaces/{ns}/pytorchjobs"

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def changed(body: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A copy with values set at dotted paths; `__` stands for the dot, None removes."""
    made = copy.deepcopy(body)
    for path, value in fields.items():
        *parents, last = path.split("__")
        place: Any = made
        for name in parents:
            place = place[int(name)] if isinstance(place, list) else place.setdefault(name, {})
        key: Any = int(last) if isinstance(place, list) else last
        if value is None:
            del place[key]
        else:
            place[key] = value
    return made


def a_pod(name: str = "p", **fields: Any) -> dict[str, Any]:
    """For a scheduler that does not exist: nobody touches it."""
    spec = {
        "schedulerName": "nobody",
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": "registry.example/main:1"}],
    }
    return changed({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}, **fields)


def a_service(name: str = "s", **fields: Any) -> dict[str, Any]:
    spec = {"selector": {"app": "x"}, "ports": [{"port": 80}]}
    return changed({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}, **fields)


def a_config_map(name: str = "c", **fields: Any) -> dict[str, Any]:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}}
    return changed(body, **fields)


def a_secret(name: str = "s", **fields: Any) -> dict[str, Any]:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"a": "MQ=="}}
    return changed(body, **fields)


def a_claim(name: str = "c", **fields: Any) -> dict[str, Any]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "nobody",
    }
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}
    return changed(body, **fields)


def a_volume(name: str = "v-{ns}", **fields: Any) -> dict[str, Any]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/tmp/x"},
        "storageClassName": "elsewhere",
    }
    body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
    return changed(body, **fields)


def a_lease(name: str = "l", **fields: Any) -> dict[str, Any]:
    spec = {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2026-01-02T03:04:05.000006Z"}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
    return changed(body, **fields)


def an_event(name: str = "e", **fields: Any) -> dict[str, Any]:
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "namespace": "{ns}", "name": "p", "apiVersion": "v1"},
        "reason": "Tested",
        "message": "it was",
        "type": "Normal",
        "source": {"component": "test"},
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
        "count": 1,
    }
    return changed(body, **fields)


def a_template() -> dict[str, Any]:
    return {"metadata": {"labels": {"app": "x"}}, "spec": a_pod()["spec"]}


def a_deployment(name: str = "d", **fields: Any) -> dict[str, Any]:
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "x"}}, "template": a_template()}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
    return changed(body, **fields)


def a_batch_job(name: str = "j", **fields: Any) -> dict[str, Any]:
    spec = {"parallelism": 0, "template": {"spec": {**a_pod()["spec"], "restartPolicy": "Never"}}}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    return changed(body, **fields)


def a_job(name: str = "j", **fields: Any) -> dict[str, Any]:
    replica = {
        "replicas": 1,
        "restartPolicy": "Never",
        "template": {"spec": {"containers": [{"name": "pytorch", "image": "registry.example/main:1"}]}},
    }
    spec = {"pytorchReplicaSpecs": {"Master": replica, "Worker": copy.deepcopy(replica)}}
    body = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}, "spec": spec}
    return changed(body, **fields)


def a_definition(plural: str, kind: str, schema: dict[str, Any], **version: Any) -> dict[str, Any]:
    """A namespaced kind of the group `test.example` with one version."""
    one = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.test.example"},
        "spec": {"group": "test.example", "scope": "Namespaced", "names": names, "versions": [one]},
    }
