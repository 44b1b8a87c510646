"""A real control plane for the whole session, the CRDs installed, the operator running with exactly its own rights."""

import asyncio
import base64
import contextlib
import threading
from pathlib import Path

import pytest
from tools.kubernetes.controlplane import control_plane

from trainmaster import frameworks
from trainmaster.kube import config as kubeconfig
from trainmaster.kube.client import Client
from trainmaster.kube.transport import HttpTransport
from trainmaster.objects.resource import CUSTOM_RESOURCE_DEFINITIONS, Resource
from trainmaster.operator.install import NAME, Installation, manifests
from trainmaster.operator.main import operate
from trainmaster.operator.options import Options

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


@pytest.fixture(scope="session")
def plane():
    with control_plane() as running:
        yield running


@contextlib.asynccontextmanager
async def connected(path: Path):
    client = Client(HttpTransport(kubeconfig.load(str(path))))
    try:
        yield client
    finally:
        await client.close()


async def install(client):
    """What `trainmaster manifests | kubectl apply -f -` does, less the Deployment, which has nowhere to run."""
    for body in manifests(Installation(frameworks.BUILT_IN, namespace=NAMESPACE)):
        if body["kind"] not in ("Deployment", "PodDisruptionBudget"):
            await client.create(PLURALS[body["kind"]], body)
    for body in manifests(Installation(frameworks.BUILT_IN)):
        if body["kind"] == "CustomResourceDefinition":
            await established(client, body["metadata"]["name"])


async def established(client, name):
    for _ in range(200):
        crd = await client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        conditions = {c["type"]: c["status"] for c in crd.get("status", {}).get("conditions", ())}
        assert conditions.get("NonStructuralSchema") != "True", crd["status"]
        if conditions.get("Established") == "True":
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{name} was not established")


async def token_of_operator(client):
    for _ in range(200):
        for secret in (await client.list(SECRETS, NAMESPACE)).items:
            if secret["metadata"].get("annotations", {}).get("kubernetes.io/service-account.name") == NAME:
                return base64.b64decode(secret["data"]["token"]).decode()
        await asyncio.sleep(0.05)
    raise AssertionError("the operator's account got no token")


@pytest.fixture(scope="session")
def operator(plane, tmp_path_factory):
    """The operator in a thread of its own, as its ServiceAccount; gives the codes of all its answers."""
    path = tmp_path_factory.mktemp("operator") / "kubeconfig"
    ready, stop = threading.Event(), threading.Event()
    codes: list[tuple[int, str]] = []

    async def main():
        async with connected(plane.kubeconfig) as admin:
            await install(admin)
            plane.write_kubeconfig(path, NAME, await token_of_operator(admin))
        ready.set()
        stopped = asyncio.Event()
        transport = Recording(HttpTransport(kubeconfig.load(str(path))), codes)
        options = Options(
            metrics_bind_address="0",
            health_probe_bind_address="0",
            leader_elect=True,
            leader_election_namespace=NAMESPACE,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(operate(options, transport, stopped), name="operator")
            await asyncio.to_thread(stop.wait)
            stopped.set()

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="operator")
    thread.start()
    assert ready.wait(60)
    yield codes
    stop.set()
    thread.join(30)
    assert not thread.is_alive()


class Recording:
    """A transport that keeps what was asked and how it was answered."""

    def __init__(self, inner, codes):
        self._inner, self._codes = inner, codes

    async def send(self, request):
        response = await self._inner.send(request)
        self._codes.append((response.status, str(request)))
        return response

    async def close(self):
        await self._inner.close()
