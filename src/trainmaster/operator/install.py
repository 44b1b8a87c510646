"""What has to be applied to a cluster to install the operator: derived from the frameworks, never written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import trainmaster
from trainmaster.api import schema
from trainmaster.api.framework import Framework
from trainmaster.api.settings import Settings
from trainmaster.engine import gang
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import EVENTS, LEASES, PODS, PRIORITY_CLASSES, SERVICES, Resource

NAME = "trainmaster"
LABELS = {"app.kubernetes.io/name": NAME, "control-plane": NAME}
OWNED_VERBS = ("get", "list", "watch", "create", "patch", "delete")
READ_VERBS = ("list", "watch")


@dataclass(frozen=True, slots=True)
class Installation:
    frameworks: tuple[Framework, ...]
    namespace: str = "trainmaster-system"
    watch_namespace: str = ""
    """Confine the operator to this namespace: rights are then given there only."""

    image: str = f"trainmaster:{trainmaster.__version__}"
    schemes: tuple[str, ...] = ()
    gang_scheduler_name: str = ""
    compat: str = ""
    cel: bool = False


def manifests(installation: Installation) -> Iterator[Json]:
    """Everything, in an order in which it can be applied."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": installation.namespace, "labels": LABELS}}
    yield from crds(installation.frameworks, cel=installation.cel)
    yield _object(installation, "v1", "ServiceAccount")
    yield from _rights(installation)
    yield _metrics_service(installation)
    yield _deployment(installation)


def crds(frameworks: Iterable[Framework], *, cel: bool = False) -> Iterator[Json]:
    for framework in frameworks:
        for resource in framework.served:
            yield schema.crd(framework, resource, cel=cel)


def rules(installation: Installation) -> list[Json]:
    """What the operator does to jobs and their objects, and nothing beyond."""
    settings = Settings(gang_scheduler=installation.gang_scheduler_name)
    jobs = [resource for framework in installation.frameworks for resource in framework.served]
    companions = {r for framework in installation.frameworks for r in framework.companion_resources} - {PODS, SERVICES}
    group = gang.resource_of(settings)
    owned = [PODS, SERVICES, *sorted(companions), *([group] if group else [])]
    return [
        *_rules(jobs, (*READ_VERBS, "delete")),
        *_rules(jobs, ("update",), "/status"),
        *_rules(jobs, ("update",), "/finalizers"),  # for owner references that block deletion
        *_rules(owned, OWNED_VERBS),
        *(dict(rule) for framework in installation.frameworks for rule in framework.grants),
        *_rules([EVENTS], ("create", "patch")),
    ]


def _rules(resources: Iterable[Resource], verbs: tuple[str, ...], subresource: str = "") -> Iterator[Json]:
    """One rule per API group."""
    groups: dict[str, list[str]] = {}
    for resource in resources:
        groups.setdefault(resource.group, []).append(resource.plural + subresource)
    for group, plurals in groups.items():
        yield {"apiGroups": [group], "resources": plurals, "verbs": list(verbs)}


def _rights(installation: Installation) -> Iterator[Json]:
    scope = installation.watch_namespace
    yield from _granted(installation, NAME, rules(installation), scope)
    if gang.resource_of(Settings(gang_scheduler=installation.gang_scheduler_name)) is not None:
        # PriorityClasses belong to no namespace, so the right to read them cannot either.
        yield from _granted(installation, f"{NAME}-priorities", [*_rules([PRIORITY_CLASSES], READ_VERBS)], "")
    leases = [*_rules([LEASES], ("get", "create", "update"))]
    yield from _granted(installation, f"{NAME}-leader-election", leases, installation.namespace)


def _granted(installation: Installation, name: str, granted: list[Json], scope: str) -> Iterator[Json]:
    """A role and its binding to our account: in one namespace, or in the cluster when the scope is empty."""
    kind = "Role" if scope else "ClusterRole"
    metadata = {"name": name, **({"namespace": scope} if scope else {}), "labels": LABELS}
    api = "rbac.authorization.k8s.io"
    yield {"apiVersion": f"{api}/v1", "kind": kind, "metadata": metadata, "rules": granted}
    yield {
        "apiVersion": f"{api}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": api, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": installation.namespace}],
    }


def _object(installation: Installation, api_version: str, kind: str, **content: Any) -> Json:
    metadata = {"name": NAME, "namespace": installation.namespace, "labels": LABELS}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def _metrics_service(installation: Installation) -> Json:
    ports = [{"name": "metrics", "port": 8080, "targetPort": "metrics"}]
    return _object(installation, "v1", "Service", spec={"selector": LABELS, "ports": ports})


def _deployment(installation: Installation) -> Json:
    pod = {
        "serviceAccountName": NAME,
        "terminationGracePeriodSeconds": 20,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(installation)],
    }
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": pod},
    }
    return _object(installation, "apps/v1", "Deployment", spec=spec)


def _container(installation: Installation) -> Json:
    def probe(path: str) -> Json:
        return {"httpGet": {"path": path, "port": "health"}, "periodSeconds": 10, "timeoutSeconds": 3}

    return {
        "name": NAME,
        "image": installation.image,
        "args": _arguments(installation),
        "ports": [{"name": "metrics", "containerPort": 8080}, {"name": "health", "containerPort": 8081}],
        "livenessProbe": {**probe("/healthz"), "initialDelaySeconds": 15},
        "readinessProbe": probe("/readyz"),
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _arguments(installation: Installation) -> list[str]:
    flags = ["operator", "--leader-elect", f"--leader-election-namespace={installation.namespace}"]
    flags += [f"--enable-scheme={scheme}" for scheme in installation.schemes]
    given = {
        "namespace": installation.watch_namespace,
        "gang-scheduler-name": installation.gang_scheduler_name,
        "compat": installation.compat,
    }
    return flags + [f"--{name}={value}" for name, value in given.items() if value]
