"""The operator's life on either server: `--server embedded` is ours, `--server kubernetes` a real control plane.

Tests are coroutines that take `cluster` and their parameters. Those of a module live side by side, on one server and
under the operators of the module: all are started with the first, and each then waits for its own end.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.integration.bed import in_thread
from tests.suite.cluster import Cluster
from tests.suite.operators import Operator, operating, prepared
from tests.suite.servers import SERVERS, Server

from trainmaster.kube.client import Client

AT_ONCE = 24
"""Lives side by side. More would only wait for one another."""


@dataclass(frozen=True)
class Life:
    """One test, and how it ended."""

    item: pytest.Function
    outcome: Future[None] = field(default_factory=Future)

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.item.callspec.params) if hasattr(self.item, "callspec") else {}

    async def live(self, cluster: Cluster, turns: asyncio.Semaphore) -> None:
        async with turns:
            try:
                await self.item.obj(cluster, **self.parameters)
            except BaseException as error:
                self.outcome.set_exception(error)
                if not isinstance(error, Exception | pytest.fail.Exception):
                    raise
            else:
                self.outcome.set_result(None)


def is_life(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not is_life(pyfuncitem):
        return None
    lives = pyfuncitem.funcargs["cluster"]
    assert isinstance(lives, dict)
    lives[pyfuncitem.nodeid].outcome.result()
    return True


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    start = SERVERS[request.config.getoption("--server")]
    with start(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def operators() -> tuple[Operator, ...]:
    """Who works while the tests of a module live; a module may have its own."""
    return (Operator(),)


@pytest.fixture(scope="module")
def cluster(
    request: pytest.FixtureRequest, server: Server, operators: tuple[Operator, ...]
) -> Iterator[dict[str, Life]]:
    """To pytest, the lives of a module by their tests; what the tests themselves get is a `Cluster`."""
    items = [item for item in request.session.items if is_life(item) and item.module is request.module]  # type: ignore[attr-defined]  # a Function has it
    lives = {item.nodeid: Life(item) for item in items if isinstance(item, pytest.Function)}

    @contextlib.asynccontextmanager
    async def stage() -> AsyncIterator[Client]:
        await server.define()
        await prepared(server, operators)
        async with server.connect() as client, operating(server, operators), asyncio.TaskGroup() as group:
            turns = asyncio.Semaphore(AT_ONCE)
            for life in lives.values():
                group.create_task(life.live(Cluster(server, client), turns), name=life.item.name)
            yield client

    with in_thread(stage):
        yield lives
