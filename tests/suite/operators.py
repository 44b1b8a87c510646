"""Operators at work on a server, and what they asked of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from tests.kubernetes.installed import NAMESPACE, Answers, Recording
from tests.suite.servers import Server, make_namespace

from trainmaster import frameworks
from trainmaster.kube import config as kubeconfig
from trainmaster.kube.transport import HttpTransport
from trainmaster.operator.install import Installation
from trainmaster.operator.main import operate
from trainmaster.operator.options import Options


@dataclass(frozen=True)
class Operator:
    """One installation. Confined to a namespace it lives beside others; otherwise it must be alone."""

    namespace: str = ""
    scheduler: str = ""
    answers: Answers = field(default_factory=list)

    @property
    def installation(self) -> Installation:
        return Installation(
            frameworks.BUILT_IN,
            namespace=f"{NAMESPACE}-{self.namespace}" if self.namespace else NAMESPACE,
            watch_namespace=self.namespace,
            gang_scheduler_name=self.scheduler,
        )

    @property
    def options(self) -> Options:
        return Options(
            namespace=self.namespace,
            gang_scheduler_name=self.scheduler,
            metrics_bind_address="0",
            health_probe_bind_address="0",
            leader_elect=True,
            leader_election_namespace=self.installation.namespace,
        )

    @property
    def refused(self) -> list[str]:
        """What it was not allowed to do."""
        return [request for code, request in self.answers if code == 403]


async def prepared(server: Server, operators: Iterable[Operator]) -> None:
    """Namespaces and accounts, of all of them at once."""

    async def prepare(operator: Operator) -> None:
        for namespace in filter(None, (operator.installation.namespace, operator.namespace)):
            await make_namespace(admin, namespace)
        await server.account(operator.installation)

    async with server.connect() as admin, asyncio.TaskGroup() as group:
        for operator in operators:
            group.create_task(prepare(operator), name=f"prepare {operator.namespace}")


@contextlib.asynccontextmanager
async def operating(server: Server, operators: Iterable[Operator]) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for operator in operators:
            path = await server.account(operator.installation)
            transport = Recording(HttpTransport(kubeconfig.load(str(path))), operator.answers)
            group.create_task(operate(operator.options, transport, stop), name=f"operator {operator.namespace}")
        try:
            yield
        finally:
            stop.set()
