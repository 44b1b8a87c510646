"""Admission of pods: service account and its token, priority, initial status."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from trainmaster.cluster.registry.admission import Object, Policy, World
from trainmaster.cluster.registry.kinds_builtin import BUILTIN
from trainmaster.cluster.registry.pod_check import check_pod
from trainmaster.cluster.registry.pod_defaults import fill_pod, qos_class
from trainmaster.cluster.registry.pod_update import check_pod_update
from trainmaster.cluster.registry.status_error import ApiError, forbidden
from trainmaster.cluster.registry.validation import subdomain_problems

_PODS = next(kind for kind in BUILTIN if kind.prefix == "/pods")
_CLASSES = "scheduling.k8s.io/priorityclasses"
_TOKENS = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_SECONDS = 3607
"""An hour and a bit, by which the API server tells its own volumes from those that people wrote."""

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


def admit_pod(pod: Object, world: World) -> None:
    metadata, spec = pod["metadata"], pod["spec"]
    _resolve_account(metadata, spec, world)
    _resolve_priority(metadata, spec, world)
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}


def _resolve_account(metadata: Mapping[str, Any], spec: Object, world: World) -> None:
    name = spec.get("serviceAccountName") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    account = world.find("/serviceaccounts", f"{metadata['namespace']}/{name}")
    if account is None:
        why = f'error looking up service account {metadata["namespace"]}/{name}: serviceaccount "{name}" not found'
        raise forbidden(_PODS, metadata.get("name") or "", why)
    wishes = (spec.get("automountServiceAccountToken"), account.get("automountServiceAccountToken"))
    if next((wish for wish in wishes if wish is not None), True):
        _mount_token(spec)


def _mount_token(spec: Object) -> None:
    """Where clients inside the pod look for the API server's certificate and for who they are."""
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    without = [
        container
        for container in containers
        if all(mount.get("mountPath") != _TOKENS for mount in container.get("volumeMounts") or ())
    ]
    if not without:
        return
    name = f"kube-api-access-{''.join(secrets.choice(_SUFFIX) for _ in range(5))}"
    spec["volumes"] = [*(spec.get("volumes") or ()), {"name": name, "projected": _token_files()}]
    mount = {"name": name, "readOnly": True, "mountPath": _TOKENS}
    for container in without:
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), dict(mount)]


def _token_files() -> dict[str, Any]:
    namespace = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": _TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
    ]
    return {"defaultMode": 0o644, "sources": sources}


def _resolve_priority(metadata: Mapping[str, Any], spec: Object, world: World) -> None:
    """The number behind the class's name, so that the scheduler need not look it up."""
    name = spec.get("priorityClassName") or ""
    found = world.find(_CLASSES, name) if name else _default_class(world)
    if name and found is None:
        raise _refused(metadata, f"no PriorityClass with name {name} was found")
    if found is not None:
        spec["priorityClassName"] = found["metadata"]["name"]
    value = found.get("value", 0) if found is not None else 0
    if spec.get("priority") not in (None, value):
        why = f"the integer value of priority ({spec['priority']}) must not be provided in pod spec"
        raise _refused(
            metadata, f"{why}; priority admission controller computed {value} from the given PriorityClass name"
        )
    spec["priority"] = value
    spec.setdefault("preemptionPolicy", (found or {}).get("preemptionPolicy") or "PreemptLowerPriority")


def _default_class(world: World) -> Mapping[str, Any] | None:
    classes = [each for each in world.find_all(_CLASSES) if each.get("globalDefault")]
    return min(classes, key=lambda each: int(each.get("value", 0)), default=None)


def _refused(metadata: Mapping[str, Any], why: str) -> ApiError:
    return forbidden(_PODS, metadata.get("name") or "", why)


POLICY = Policy(
    defaults=fill_pod,
    create=admit_pod,
    check=check_pod,
    check_update=check_pod_update,
    name_rule=subdomain_problems,
)
