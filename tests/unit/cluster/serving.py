"""An API server over an empty registry, without a cluster around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trainmaster.cluster.registry.registry import Registry
from trainmaster.cluster.server import auth
from trainmaster.cluster.server.apiserver import ApiServer
from trainmaster.cluster.storage.store import Store
from trainmaster.testing import clock

TOKEN = "secret"


@asynccontextmanager
async def api_server() -> AsyncIterator[tuple[ApiServer, Registry]]:
    """It takes TOKEN for the administrator's."""
    store = await Store.open(None)
    registry = Registry(store, now=clock.Clock().now)
    await registry.start()
    server = ApiServer(registry, runtime=None, tokens={TOKEN: auth.ADMIN}, tls=None)
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(server.run())
            await server.ready.wait()
            yield server, registry
            running.cancel()
    finally:
        await store.close()
