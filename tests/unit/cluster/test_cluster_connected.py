"""From within its own process the API server is reached without the network, and asks who it is all the same."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.unit.cluster.serving import TOKEN, api_server

from trainmaster.cluster.registry.registry import Registry
from trainmaster.cluster.server.apiserver import ApiServer
from trainmaster.cluster.storage.store import Store
from trainmaster.kube.client import Client
from trainmaster.kube.config import Config
from trainmaster.kube.credentials import Fixed
from trainmaster.kube.errors import Unauthorized, Unreachable
from trainmaster.kube.transport import HttpTransport
from trainmaster.objects.resource import PODS
from trainmaster.testing import clock

NOWHERE = "https://127.0.0.1:1"


@asynccontextmanager
async def client_of(server: ApiServer, token: str = TOKEN) -> AsyncIterator[Client]:
    client = Client(HttpTransport(Config(NOWHERE, credentials=Fixed.bearer(token)), dial=server.connect))
    try:
        yield client
    finally:
        await client.close()


def test_nothing_of_the_address_is_needed():
    async def main() -> None:
        async with api_server() as (server, _), client_of(server) as client:
            page = await client.list(PODS, "default")

        assert not page.items

    clock.run(main())


def test_a_wrong_token_is_refused():
    async def main() -> None:
        async with api_server() as (server, _), client_of(server, "guessed") as client:
            with pytest.raises(Unauthorized):
                await client.list(PODS, "default")

    clock.run(main())


def test_a_server_that_does_not_run_is_unreachable():
    async def main() -> None:
        registry = Registry(await Store.open(None), now=clock.Clock().now)
        server = ApiServer(registry, runtime=None, tokens={}, tls=None)
        async with client_of(server) as client:
            with pytest.raises(Unreachable, match="the API server is not running"):
                await client.list(PODS, "default")
        await registry.store.close()

    clock.run(main())


@pytest.mark.parametrize("steps", range(6))
def test_whoever_gives_up_while_being_connected_leaves_no_socket_behind(steps: int):
    def sockets() -> int:
        return sum(os.readlink(f"/proc/self/fd/{number}").startswith("socket:") for number in fds())

    def fds() -> list[str]:
        return [number for number in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{number}")]

    async def main() -> None:
        async with api_server() as (server, _):
            before = sockets()
            connecting = asyncio.create_task(server.connect(asyncio.Protocol()))
            for _ in range(steps):
                await asyncio.sleep(0)
            is_late = not connecting.cancel()
            await asyncio.wait([connecting])
            for _ in range(5):
                await asyncio.sleep(0)

            assert is_late or sockets() == before

    clock.run(main())
