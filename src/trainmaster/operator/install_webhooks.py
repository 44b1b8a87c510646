"""What an installation needs for admission webhooks, where it wants them: registrations, a Service, a Secret, rights.

What lies in the operator's namespace bears one name everywhere; the registrations belong to no namespace, so theirs
says whose they are. The Secret is empty: the operator fills it, and may read and change this one and no other. So with
the registrations, into which it writes the authority that it made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trainmaster.objects.meta import Json
from trainmaster.objects.resource import SECRETS, Resource
from trainmaster.operator.webhook import CREATE, UPDATE, versions_of
from trainmaster.operator.webhook_protocol import DEFAULT, MUTATING, NAME, REGISTRATION, VALIDATE, VALIDATING

if TYPE_CHECKING:
    from trainmaster.operator.install import Installation

PORT = 9443
TIMEOUT = 5
"""Seconds that a user waits at most; an answer takes milliseconds."""

_RBAC = "rbac.authorization.k8s.io"
_NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""Borne by every namespace, from Kubernetes 1.21 on."""

_VERBS = ("get", "patch")


def webhooks(installation: Installation, account: str, labels: Mapping[str, str]) -> Iterator[Json]:
    """In an order in which it can be applied. `account` is the operator's, `labels` are those of its pods."""
    if not installation.webhooks:
        return
    namespace, registered = installation.namespace, registration_of(installation)
    here = {"name": NAME, "namespace": namespace, "labels": dict(labels)}
    everywhere = {"name": registered, "labels": dict(labels)}
    yield {"apiVersion": "v1", "kind": "Secret", "metadata": here, "type": "Opaque"}
    yield from _granted(here, [_rule(NAME, SECRETS.group, SECRETS.plural)], account, namespace)
    registrations = _rule(registered, REGISTRATION, VALIDATING.plural, MUTATING.plural)
    yield from _granted(everywhere, [registrations], account, namespace)
    ports = [{"name": "webhook", "port": 443, "targetPort": "webhook", "protocol": "TCP"}]
    yield {"apiVersion": "v1", "kind": "Service", "metadata": here, "spec": {"selector": dict(labels), "ports": ports}}
    yield _registration(installation, VALIDATING, VALIDATE, everywhere)
    if installation.webhooks == "all":
        yield _registration(installation, MUTATING, DEFAULT, everywhere)


def registration_of(installation: Installation) -> str:
    """Two installations must not share it."""
    return f"{installation.name_outside}-webhook"


def namespace_labels(installation: Installation) -> dict[str, str]:
    """By which the operator's own namespace is found where its jobs are: Kubernetes before 1.21 sets none."""
    is_asked = installation.webhooks and installation.watch_namespace == installation.namespace
    return {_NAMESPACE_LABEL: installation.namespace} if is_asked else {}


def arguments(installation: Installation) -> list[str]:
    """Flags of the operator."""
    if not installation.webhooks:
        return []
    return [
        f"--webhook-bind-address=:{PORT}",
        f"--webhook-service={NAME}.{installation.namespace}",
        f"--webhook-registration={registration_of(installation)}",
    ]


def ports(installation: Installation) -> list[Json]:
    """Of the operator's container."""
    return [{"name": "webhook", "containerPort": PORT, "protocol": "TCP"}] if installation.webhooks else []


def _rule(name: str, group: str, *plurals: str) -> Json:
    return {"apiGroups": [group], "resources": list(plurals), "resourceNames": [name], "verbs": list(_VERBS)}


def _granted(metadata: Json, rules: list[Json], account: str, namespace: str) -> Iterator[Json]:
    kind = "Role" if "namespace" in metadata else "ClusterRole"
    yield {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules}
    yield {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": metadata["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }


def _registration(installation: Installation, resource: Resource, path: str, metadata: Json) -> Json:
    service = {"name": NAME, "namespace": installation.namespace, "path": path, "port": 443}
    webhook: dict[str, Any] = {
        "name": f"{path.removeprefix('/')}.trainmaster.dev",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": service},
        "failurePolicy": installation.webhook_failure_policy,
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchExpressions": _namespaces(installation, metadata["labels"])},
        "rules": _rules(installation),
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT,
    }
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata,
        "webhooks": [webhook],
    }


def _rules(installation: Installation) -> list[Json]:
    """The jobs themselves; of their status and scale nothing is asked. The version that a user wrote is what is sent,
    as every one of them is named."""
    return [
        {
            "apiGroups": [resource.group],
            "apiVersions": list(versions_of(framework, resource)),
            "resources": [resource.plural],
            "operations": [CREATE, UPDATE],
            "scope": "Namespaced",
        }
        for framework in installation.frameworks
        for resource in framework.served
    ]


def _namespaces(installation: Installation, labels: Json) -> list[Json]:
    """The watched one alone, or all but the operator's own, unless that is the watched one. Known by two labels, as
    Kubernetes before 1.21 sets none."""
    watched = installation.watch_namespace
    not_ours = [
        {"key": _NAMESPACE_LABEL, "operator": "NotIn", "values": [installation.namespace]},
        {"key": "control-plane", "operator": "NotIn", "values": [labels["control-plane"]]},
    ]
    return [
        *(not_ours if watched != installation.namespace else []),
        *([{"key": _NAMESPACE_LABEL, "operator": "In", "values": [watched]}] if watched else []),
    ]
