"""The operator installed on a real control plane: its CRDs, its account and exactly its rights."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from trainmaster import frameworks
from trainmaster.kube import config as kubeconfig
from trainmaster.kube.client import Client
from trainmaster.kube.transport import HttpTransport, Request, Response, Transport
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import CUSTOM_RESOURCE_DEFINITIONS, Resource
from trainmaster.operator.install import NAME, Installation, manifests
from trainmaster.testing.patience import PATIENCE

NAMESPACE = "trainmaster-system"
PLURALS = {
    "Namespace": Resource("", "v1", "namespaces", "Namespace", namespaced=False),
    "ServiceAccount": Resource("", "v1", "serviceaccounts", "ServiceAccount"),
    "ClusterRole": Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False),
    "ClusterRoleBinding": Resource(
        "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
    ),
    "Role": Resource("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    "RoleBinding": Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
    "Service": Resource("", "v1", "services", "Service"),
    "Deployment": Resource("apps", "v1", "deployments", "Deployment"),
    "CustomResourceDefinition": CUSTOM_RESOURCE_DEFINITIONS,
}
SECRETS = Resource("", "v1", "secrets", "Secret")

Answers = list[tuple[int, str]]
"""The codes of answers, each with what was asked."""


@contextlib.asynccontextmanager
async def connected(path: Path) -> AsyncIterator[Client]:
    client = Client(HttpTransport(kubeconfig.load(str(path))))
    try:
        yield client
    finally:
        await client.close()


async def install(client: Client) -> None:
    """What `trainmaster manifests | kubectl apply -f -` does, less the Deployment, which has nowhere to run."""
    for body in manifests(Installation(frameworks.BUILT_IN, namespace=NAMESPACE)):
        if body["kind"] not in ("Deployment", "PodDisruptionBudget", "NetworkPolicy"):
            await client.create(PLURALS[body["kind"]], body)
    for body in manifests(Installation(frameworks.BUILT_IN)):
        if body["kind"] == "CustomResourceDefinition":
            await established(client, body["metadata"]["name"])


async def established(client: Client, name: str) -> Json:
    """The definition, once its kind is served."""
    only = f"metadata.name={name}"
    page = await client.list(CUSTOM_RESOURCE_DEFINITIONS, field_selector=only)
    found = page.items[0]
    watch = client.watch(
        CUSTOM_RESOURCE_DEFINITIONS,
        resource_version=page.resource_version,
        timeout_seconds=int(PATIENCE),
        field_selector=only,
    )
    async with contextlib.aclosing(watch) as events:
        while not _is_established(found):
            event = await anext(events, None)
            assert event is not None, f"{name} was not established: {found.get('status')}"
            found = event.object or found
    return found


def _is_established(definition: Json) -> bool:
    conditions = {c["type"]: c["status"] for c in definition.get("status", {}).get("conditions") or ()}
    assert conditions.get("NonStructuralSchema") != "True", definition["status"]
    return conditions.get("Established") == "True"


async def token_of_operator(client: Client, namespace: str = NAMESPACE) -> str:
    """As kube-controller-manager of this age makes one for every account."""
    page = await client.list(SECRETS, namespace)
    watch = client.watch(SECRETS, namespace, resource_version=page.resource_version, timeout_seconds=int(PATIENCE))
    async with contextlib.aclosing(watch) as events:
        found = [token for token in map(_token, page.items) if token]
        while not found:
            event = await anext(events, None)
            assert event is not None, "the operator's account got no token"
            found = [token for token in [_token(event.object or {})] if token]
    return found[0]


def _token(secret: Json) -> str:
    annotations = secret.get("metadata", {}).get("annotations", {})
    if annotations.get("kubernetes.io/service-account.name") != NAME:
        return ""
    return base64.b64decode(secret.get("data", {}).get("token", "")).decode()


class Recording:
    """A transport that keeps what was asked and how it was answered."""

    def __init__(self, inner: Transport, codes: Answers) -> None:
        self._inner, self._codes = inner, codes

    async def send(self, request: Request) -> Response:
        response = await self._inner.send(request)
        self._codes.append((response.status, str(request)))
        return response

    async def close(self) -> None:
        await self._inner.close()
