"""The two servers that the suite runs on, each with the definitions of all our kinds and of three gang schedulers.

On the embedded one the operator is the administrator: it knows no rights. On a real one every operator has the account,
and exactly the rights, that its installation gives it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tests.kubernetes.installed import PLURALS, connected, established, token_of_operator
from tools.kubernetes.controlplane import ControlPlane, control_plane

from trainmaster import frameworks
from trainmaster.cluster.cluster import Runnable
from trainmaster.cluster.controllers.garbage import GarbageCollector
from trainmaster.cluster.controllers.jobs import JobKeeper
from trainmaster.cluster.controllers.namespaces import NamespaceKeeper
from trainmaster.cluster.registry.registry import Registry
from trainmaster.cluster.server import auth
from trainmaster.cluster.server.apiserver import ApiServer
from trainmaster.cluster.server.auth import ADMIN
from trainmaster.cluster.storage.store import Store
from trainmaster.kube.client import Client
from trainmaster.kube.errors import AlreadyExists
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import CUSTOM_RESOURCE_DEFINITIONS, SERVICE_ACCOUNTS
from trainmaster.operator.install import NAME, Installation, crds, manifests
from trainmaster.testing.patience import PATIENCE

DEFINITIONS = Path(__file__).parent / "definitions"
NOWHERE = ("Deployment", "PodDisruptionBudget", "NetworkPolicy", "CustomResourceDefinition")
"""What an installation has and this server does not get: no node would run it, or it is there already."""


@dataclass(slots=True)
class Server:
    kubeconfig: Path
    """The administrator's."""

    plane: ControlPlane | None = None
    is_defined: bool = False
    accounts: dict[str, Path] = field(default_factory=dict)
    """Kubeconfigs of operators, by the namespaces where they live."""

    def connect(self) -> AbstractAsyncContextManager[Client]:
        return connected(self.kubeconfig)

    async def define(self) -> None:
        """Sees to it that every kind is served."""
        if self.is_defined:
            return
        async with self.connect() as admin, asyncio.TaskGroup() as group:
            for definition in (*crds(frameworks.BUILT_IN), *definitions()):
                group.create_task(_defined(admin, definition), name=definition["metadata"]["name"])
        self.is_defined = True

    async def account(self, installation: Installation) -> Path:
        """The kubeconfig of an operator that is installed so."""
        home = installation.namespace
        if home not in self.accounts:
            self.accounts[home] = await self._installed(installation, self.plane) if self.plane else self.kubeconfig
        return self.accounts[home]

    async def _installed(self, installation: Installation, plane: ControlPlane) -> Path:
        home = installation.namespace
        async with self.connect() as admin:
            for body in manifests(installation):
                if body["kind"] not in NOWHERE:
                    await _ensured(admin, _told_apart(body, installation))
            token = await token_of_operator(admin, home)
        return plane.write_kubeconfig(self.kubeconfig.parent / f"kubeconfig-{home}", NAME, token)


@contextmanager
def embedded(home: Path) -> Iterator[Server]:
    """The API server in a thread of its own, with those controllers beside it that jobs cannot do without."""
    started, stop = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_serve(home, started, stop)), name="embedded")
    thread.start()
    try:
        assert started.wait(PATIENCE)
        yield Server(home / "kubeconfig")
    finally:
        stop.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


@contextmanager
def kubernetes(home: Path) -> Iterator[Server]:
    with control_plane() as plane:
        yield Server(plane.kubeconfig, plane)


SERVERS: dict[str, Callable[[Path], contextlib.AbstractContextManager[Server]]] = {
    "embedded": embedded,
    "kubernetes": kubernetes,
}


async def make_namespace(client: Client, name: str) -> None:
    """With its default account, without which no pods are taken."""
    await _ensured(client, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    page = await client.list(SERVICE_ACCOUNTS, name)
    accounts = {each["metadata"]["name"] for each in page.items}
    watch = client.watch(SERVICE_ACCOUNTS, name, resource_version=page.resource_version, timeout_seconds=int(PATIENCE))
    async with contextlib.aclosing(watch) as events:
        while "default" not in accounts:
            event = await anext(events)
            accounts |= {event.object["metadata"]["name"]} if event.object else set()


def definitions() -> Iterator[dict[str, Any]]:
    """Of the gang schedulers, as they install them."""
    for path in sorted(DEFINITIONS.glob("*.yaml")):
        yield from yaml.safe_load_all(path.read_text())


async def _defined(admin: Client, definition: Json) -> None:
    """The embedded server has gang schedulers' kinds of its own, which give way to the real ones."""
    name = definition["metadata"]["name"]
    try:
        await admin.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    except AlreadyExists:
        held = await admin.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        await admin.update(CUSTOM_RESOURCE_DEFINITIONS, {**held, "spec": definition["spec"]})
    await established(admin, name)


async def _ensured(admin: Client, body: Json) -> None:
    with contextlib.suppress(AlreadyExists):
        await admin.create(PLURALS[body["kind"]], body)


def _told_apart(body: Json, installation: Installation) -> Json:
    """Cluster-wide objects of several installations, each by a name of its own."""
    if body["kind"] not in ("ClusterRole", "ClusterRoleBinding"):
        return body
    name = f"{installation.namespace}-{body['metadata']['name']}"
    named = {**body, "metadata": {**body["metadata"], "name": name}}
    return {**named, "roleRef": {**body["roleRef"], "name": name}} if "roleRef" in body else named


async def _serve(home: Path, started: threading.Event, stop: threading.Event) -> None:
    credentials = auth.prepare(home / "pki")
    store = await Store.open(None)
    registry = Registry(store, now=time.time)
    await registry.start()
    server = ApiServer(registry, runtime=None, tokens={credentials.token: ADMIN}, tls=credentials.server_context())
    keepers: list[Runnable] = [
        NamespaceKeeper(registry, ca=credentials.ca.read_text(), now=time.time),
        GarbageCollector(registry),
        JobKeeper(registry, now=time.time),
    ]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part.run(), name=type(part).__name__) for part in (server, *keepers)]
        await server.ready.wait()
        auth.write_kubeconfig(home / "kubeconfig", server.url, credentials)
        started.set()
        await asyncio.to_thread(stop.wait)
        for task in tasks:
            task.cancel()
    await store.close()
