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
from trainmaster.objects.resource import EVENTS, JOBS, LEASES, PODS, PRIORITY_CLASSES, SERVICES, Resource
from trainmaster.operator import install_webhooks

NAME, HOME = "trainmaster", "trainmaster-system"
LABELS = {"app.kubernetes.io/name": NAME, "control-plane": NAME}
USER = 65532
"""Uid and gid in our image: nobody's, on any machine."""

METRICS_PORT, HEALTH_PORT = 8080, 8081

PARTS = ("webhook", "outside", "priorities", "leader-election")
"""What follows a dash in the names of roles and registrations."""

KEEPING_VERBS = ("get", "list", "watch", "create", "patch")
READ_VERBS = ("list", "watch")


@dataclass(frozen=True, slots=True)
class Installation:
    frameworks: tuple[Framework, ...]
    namespace: str = HOME
    watch_namespace: str = ""
    """Confine the operator to this namespace: rights are then given there only."""

    image: str = f"trainmaster:{trainmaster.__version__}"
    schemes: tuple[str, ...] = ()
    gang_scheduler_name: str = ""
    compat: str = ""
    strict_topology: bool = False
    cel: bool = False
    replicas: int = 2
    """Of the operator: one leads, the others wait to take over."""

    webhooks: str = ""
    """Register admission webhooks: `validating`, or `all` with defaulting too. Empty registers none."""

    webhook_failure_policy: str = "Ignore"
    """What happens to jobs while no webhook answers: `Ignore` lets them in, `Fail` keeps them out."""

    name_outside: str = NAME
    """Of what lies beyond the operator's own namespace, where it would meet what another installation has there."""


def name_outside(namespace: str) -> str:
    """A name for what lies beyond this namespace that no installation in another one takes, whatever is put after it.

    A namespace that ends like one of our names goes before a dot, which no namespace has in it.
    """
    if namespace == HOME:
        return NAME
    is_like_a_part = f"-{namespace}".endswith(tuple(f"-{part}" for part in PARTS))
    return f"{namespace}.{NAME}" if is_like_a_part else f"{NAME}-{namespace}"


def manifests(installation: Installation) -> Iterator[Json]:
    """Everything, in an order in which it can be applied."""
    labels = {**LABELS, **install_webhooks.namespace_labels(installation)}
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": installation.namespace, "labels": labels}}
    yield from crds(installation.frameworks, cel=installation.cel)
    yield _object(installation, "v1", "ServiceAccount")
    yield from _rights(installation)
    yield _metrics_service(installation)
    yield from install_webhooks.webhooks(installation, NAME, LABELS)
    yield _network_policy(installation)
    yield _deployment(installation)
    if installation.replicas > 1:  # of a lone operator none could ever be evicted, and no node drained
        yield _object(
            installation,
            "policy/v1",
            "PodDisruptionBudget",
            spec={"minAvailable": 1, "selector": {"matchLabels": LABELS}},
        )


def crds(frameworks: Iterable[Framework], *, cel: bool = False) -> Iterator[Json]:
    for framework in frameworks:
        for resource in framework.served:
            yield schema.crd(framework, resource, cel=cel)


def rules(installation: Installation) -> list[Json]:
    """What the operator does to jobs and their objects, and nothing beyond."""
    jobs = [resource for framework in installation.frameworks for resource in framework.served]
    marked = [r for framework in installation.frameworks if _marks_jobs(framework) for r in framework.served]
    passing, lasting = _owned(installation)
    return [
        *_rules(jobs, (*READ_VERBS, "delete")),
        *_rules(marked, ("patch",)),
        *_rules(jobs, ("update",), "/status"),
        *_rules(jobs, ("update",), "/finalizers"),  # for owner references that block deletion
        *_rules(passing, (*KEEPING_VERBS, "delete")),
        *_rules(lasting, KEEPING_VERBS),
        *(dict(rule) for framework in installation.frameworks for rule in framework.grants),
        *_rules([EVENTS], ("create", "patch")),
    ]


def _owned(installation: Installation) -> tuple[list[Resource], list[Resource]]:
    """What the operator makes: the kinds that it also removes, and those that only ever go with their job."""
    companions = {r for framework in installation.frameworks for r in framework.companion_resources} - {PODS, SERVICES}
    removed = {r for f in installation.frameworks for r in {*f.companion_resources} - {*f.lasting_resources}}
    delegates = {JOBS for framework in installation.frameworks if framework.delegates}
    group = gang.resource_of(Settings(gang_scheduler=installation.gang_scheduler_name))
    passing = [PODS, SERVICES, *sorted((companions & removed) | delegates), *([group] if group else [])]
    return passing, sorted(companions - removed)


def _marks_jobs(framework: Framework) -> bool:
    """Whether jobs themselves are changed: finalizers of older operators taken off, ports written on them."""
    return bool(framework.finalizers or framework.host_ports)


def _rules(resources: Iterable[Resource], verbs: tuple[str, ...], subresource: str = "") -> Iterator[Json]:
    """One rule per API group."""
    groups: dict[str, list[str]] = {}
    for resource in resources:
        groups.setdefault(resource.group, []).append(resource.plural + subresource)
    for group, plurals in groups.items():
        yield {"apiGroups": [group], "resources": plurals, "verbs": list(verbs)}


def _rights(installation: Installation) -> Iterator[Json]:
    scope, name = installation.watch_namespace, installation.name_outside
    yield from _granted(installation, name, rules(installation), scope)
    if gang.resource_of(Settings(gang_scheduler=installation.gang_scheduler_name)) is not None:
        # PriorityClasses belong to no namespace, so the right to read them cannot either.
        yield from _granted(installation, f"{name}-priorities", [*_rules([PRIORITY_CLASSES], READ_VERBS)], "")
    if scope:
        # To tell jobs elsewhere that nobody runs them. The operator also works where this is taken away from it.
        jobs = [resource for framework in installation.frameworks for resource in framework.served]
        granted = [*_rules(jobs, ("list",)), *_rules([EVENTS], ("create", "patch"))]
        yield from _granted(installation, f"{name}-outside", granted, "")
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
    # Without the protocol, server-side apply refuses it before Kubernetes 1.21.
    ports = [{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics", "protocol": "TCP"}]
    return _object(installation, "v1", "Service", spec={"selector": LABELS, "ports": ports})


def _network_policy(installation: Installation) -> Json:
    """Connections to the ports that are served, from anywhere: where an API server, a kubelet or a Prometheus calls
    from is seldom to be told by labels, and whoever knows it better narrows the rules, of which each port has one."""
    served = [_port("metrics", METRICS_PORT), _port("health", HEALTH_PORT), *install_webhooks.ports(installation)]
    rules = [{"ports": [{"port": port["containerPort"], "protocol": port["protocol"]}]} for port in served]
    spec = {"podSelector": {"matchLabels": LABELS}, "policyTypes": ["Ingress"], "ingress": rules}
    return _object(installation, "networking.k8s.io/v1", "NetworkPolicy", spec=spec)


def _deployment(installation: Installation) -> Json:
    pod = {
        "serviceAccountName": NAME,
        "terminationGracePeriodSeconds": 20,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [_spread()],
        "containers": [_container(installation)],
    }
    spec = {
        "replicas": installation.replicas,
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": pod},
    }
    return _object(installation, "apps/v1", "Deployment", spec=spec)


def _spread() -> Json:
    """On different nodes, so that one node's end is not everybody's; on the same where there is but one."""
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": LABELS},
    }


def _container(installation: Installation) -> Json:
    def probe(path: str) -> Json:
        return {"httpGet": {"path": path, "port": "health"}, "periodSeconds": 10, "timeoutSeconds": 3}

    return {
        "name": NAME,
        "image": installation.image,
        "args": _arguments(installation),
        "ports": [
            _port("metrics", METRICS_PORT),
            _port("health", HEALTH_PORT),
            *install_webhooks.ports(installation),
        ],
        "livenessProbe": {**probe("/healthz"), "initialDelaySeconds": 15},
        "readinessProbe": probe("/readyz"),
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _port(name: str, number: int) -> Json:
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def _arguments(installation: Installation) -> list[str]:
    """The Lease lies in the operator's own namespace, which it knows by itself."""
    flags = ["operator", "--leader-elect"]
    flags += [f"--enable-scheme={scheme}" for scheme in installation.schemes]
    flags += install_webhooks.arguments(installation)
    given = {
        "namespace": installation.watch_namespace,
        "gang-scheduler-name": installation.gang_scheduler_name,
        "compat": installation.compat,
    }
    flags += [f"--{name}={value}" for name, value in given.items() if value]
    return flags + (["--strict-topology"] if installation.strict_topology else [])
