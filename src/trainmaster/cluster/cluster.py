"""Puts a cluster together: store, registry, API server, controllers, scheduler, kubelet, in one task group.

    cluster = Cluster(ClusterOptions(home))
    async with cluster.running():
        ...                      # cluster.url, cluster.kubeconfig

Started in the order in which they need one another; whatever fails ends the whole.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trainmaster.cluster.controllers.claims import ClaimKeeper
from trainmaster.cluster.controllers.endpoints import EndpointsKeeper
from trainmaster.cluster.controllers.event_keeper import EVENT_SECONDS, EventKeeper
from trainmaster.cluster.controllers.garbage import GarbageCollector
from trainmaster.cluster.controllers.jobs import JobKeeper
from trainmaster.cluster.controllers.lost_pods import LostPodKeeper
from trainmaster.cluster.controllers.namespaces import NamespaceKeeper
from trainmaster.cluster.controllers.node import NodeKeeper
from trainmaster.cluster.controllers.statefulsets import StatefulSetKeeper
from trainmaster.cluster.controllers.workloads import deployments, replica_sets
from trainmaster.cluster.kubelet.cgroups import process_limit
from trainmaster.cluster.kubelet.ending import Ending
from trainmaster.cluster.kubelet.hosts import qualified
from trainmaster.cluster.kubelet.images import Images
from trainmaster.cluster.kubelet.kubelet import Kubelet, Timing
from trainmaster.cluster.kubelet.machine_config import MachineConfig
from trainmaster.cluster.kubelet.podapi import RegistryPodApi
from trainmaster.cluster.kubelet.runtime import PodRuntime
from trainmaster.cluster.kubelet.sandbox import DOOR, Sandbox, open_sandbox
from trainmaster.cluster.kubelet.sandbox import Kind as SandboxKind
from trainmaster.cluster.kubelet.toolbox import Toolbox
from trainmaster.cluster.registry.registry import Registry
from trainmaster.cluster.scheduling.scheduler import Scheduler
from trainmaster.cluster.server import auth
from trainmaster.cluster.server.apiserver import ApiServer
from trainmaster.cluster.server.auth import ADMIN, Credentials
from trainmaster.cluster.storage import private
from trainmaster.cluster.storage.store import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    home: Path
    """Keys, logs, volumes and, if durable, objects live here."""

    port: int = 0
    nodes: int = 1
    sandbox: SandboxKind = "auto"
    images: Images = field(default_factory=Images)
    machine: MachineConfig = MachineConfig()
    is_durable: bool = True
    workdir: str = "/"
    """Where containers start for which neither manifest nor image says."""

    forget_after: float = EVENT_SECONDS
    """Seconds that Events, and logs of removed pods, are kept."""


class Runnable(Protocol):
    async def run(self) -> None: ...


class Cluster:
    def __init__(
        self, options: ClusterOptions, *, now: Callable[[], float] = time.time, ending: Ending | None = None
    ) -> None:
        self._options = options
        self._ending = ending or Ending()
        self._now = now
        self.url = ""
        self.sandbox_kind = ""
        self._server: ApiServer | None = None

    @property
    def kubeconfig(self) -> Path:
        return self._options.home / "kubeconfig"

    @property
    def token(self) -> str:
        return self._credentials.token

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everything runs within; everything has ended after, containers in the time that their pods give them."""
        home = self._options.home
        for repaired in private.prepare(home, checks_way=self._options.is_durable):
            log.warning("%s", repaired)
        async with AsyncExitStack() as stack:
            store = await Store.open(home / "objects.db" if self._options.is_durable else None)
            stack.push_async_callback(store.close)
            # Now that the directory is ours alone: keys of another that is just starting there are not to be replaced.
            self._credentials: Credentials = await asyncio.to_thread(auth.prepare, home / "pki")
            registry = Registry(store, now=self._now)
            await registry.start()
            sandbox = await open_sandbox(self._options.sandbox, home)
            stack.push_async_callback(sandbox.close)
            self.sandbox_kind = sandbox.kind
            doors = await self._doors(sandbox, stack)
            port = doors[0].getsockname()[1]
            await _announce(registry, port)
            machine = self._options.machine
            nodes = NodeKeeper(
                registry,
                now=self._now,
                count=self._options.nodes,
                override=machine.resources,
                labels=machine.labels,
            )
            await nodes.register()
            kubelet = self._kubelet(registry, sandbox, nodes, port)
            server = ApiServer(
                registry,
                runtime=PodRuntime(kubelet),
                tokens={self.token: ADMIN},
                tls=self._credentials.server_context(),
                accounts=self._credentials.accounts,
                sockets=doors,
            )
            self._server = server
            async with _beside([server, nodes, kubelet, *self._controllers(registry, nodes)]):
                try:
                    await server.ready.wait()
                    self.url = server.url
                    auth.write_kubeconfig(self.kubeconfig, self.url, self._credentials)
                    yield
                finally:
                    await kubelet.end(self._ending)

    async def connect(self, client: asyncio.Protocol) -> None:
        """To the API server, from within this process: HTTP as for everybody else, without the network below it."""
        if self._server is None:
            raise ConnectionRefusedError("the cluster is not running")
        await self._server.connect(client)

    async def _doors(self, sandbox: Sandbox, stack: AsyncExitStack) -> list[socket.socket]:
        """Where the API server listens: on this machine, and in the network of pods if they have one of their own."""
        doors = [stack.enter_context(socket.create_server(("127.0.0.1", self._options.port)))]
        inside = await sandbox.open_door(doors[0].getsockname()[1])
        return doors if inside is None else [*doors, stack.enter_context(inside)]

    async def _reopen(self, sandbox: Sandbox, port: int) -> None:
        """The network of pods is a new one: open the API server's door in it."""
        inside = await sandbox.open_door(port)
        if inside is not None and self._server is not None:
            await self._server.replace_door(inside)

    def _kubelet(self, registry: Registry, sandbox: Sandbox, nodes: NodeKeeper, port: int) -> Kubelet:
        home, token = self._options.home, self._credentials.accounts.issue
        return Kubelet(
            RegistryPodApi(registry, now=self._now),
            nodes=nodes.names,
            root=home,
            images=self._options.images,
            sandbox=sandbox,
            now=self._now,
            timing=Timing(log_retention=self._options.forget_after),
            names=dict.fromkeys(qualified("kubernetes", "default"), DOOR[0]),
            workdir=self._options.workdir,
            token=token,
            tools=Toolbox(home / "inside", sandbox, port=port, ca=self._credentials.ca.read_text(), token=token),
            stand_ins=self._options.machine.volumes,
            processes=process_limit(self._options.machine.processes),
            reopen=functools.partial(self._reopen, sandbox, port),
        )

    def _controllers(self, registry: Registry, nodes: NodeKeeper) -> list[Runnable]:
        return [
            NamespaceKeeper(registry, ca=self._credentials.ca.read_text(), now=self._now),
            GarbageCollector(registry),
            LostPodKeeper(registry, own=nodes.names, now=self._now),
            EndpointsKeeper(registry),
            EventKeeper(registry, now=self._now, seconds=self._options.forget_after),
            ClaimKeeper(registry, root=self._options.home / "volumes"),
            JobKeeper(registry, now=self._now),
            StatefulSetKeeper(registry, now=self._now),
            deployments(registry, now=self._now),
            replica_sets(registry, now=self._now),
            Scheduler(registry, now=self._now),
        ]


async def _announce(registry: Registry, port: int) -> None:
    """The Service by which pods find the API server; the port on this machine is another at every start."""
    kind = registry.kinds.lookup("", "v1", "services")
    assert kind is not None, "services are always served"
    address, own = DOOR
    spec = {"clusterIP": address, "ports": [{"name": "https", "port": own, "targetPort": port}]}
    held = registry.store.get(kind.prefix, "default/kubernetes")
    if held is None:
        labels = {"component": "apiserver", "provider": "kubernetes"}
        metadata = {"name": "kubernetes", "namespace": "default", "labels": labels}
        await registry.create(kind, "default", {"metadata": metadata, "spec": spec})
    elif held.value["spec"]["ports"][0].get("targetPort") != port:
        changed = {**held.value, "spec": {**held.value["spec"], "ports": spec["ports"]}}
        await registry.update(kind, "default", "kubernetes", changed)


@asynccontextmanager
async def _beside(parts: Sequence[Runnable]) -> AsyncIterator[None]:
    """Runs them all beside the body, and ends them after it."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part.run(), name=type(part).__name__) for part in parts]
        try:
            yield
        finally:
            for task in reversed(tasks):
                task.cancel()
