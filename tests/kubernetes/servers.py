"""The two servers of the differential test: the embedded one with nobody to run pods, and a real one."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.kubernetes.exchange import Api
from tools.kubernetes.controlplane import ControlPlane, control_plane

from trainmaster.cluster.cluster import Runnable
from trainmaster.cluster.controllers.garbage import GarbageCollector
from trainmaster.cluster.controllers.namespaces import NamespaceKeeper
from trainmaster.cluster.registry.registry import Registry
from trainmaster.cluster.server.apiserver import ApiServer
from trainmaster.cluster.server.auth import ADMIN
from trainmaster.cluster.storage.store import Store
from trainmaster.testing.patience import PATIENCE

TOKEN = "embedded"
HISTORY = 300
"""Revisions the embedded server remembers: few, so that a watch from the beginning comes too late on both."""


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    token: str
    context: ssl.SSLContext | None = None

    def api(self, namespace: str) -> Api:
        return Api(self.url, self.token, namespace, self.context)


@contextlib.contextmanager
def embedded_server() -> Iterator[Server]:
    """In a thread of its own; ended and joined on the way out."""
    started, stop = threading.Event(), threading.Event()
    urls: list[str] = []
    thread = threading.Thread(target=lambda: asyncio.run(_serve(urls, started, stop)), name="embedded")
    thread.start()
    try:
        assert started.wait(PATIENCE)
        yield Server(urls[0], TOKEN)
    finally:
        stop.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


@contextlib.contextmanager
def real_server() -> Iterator[Server]:
    with control_plane() as plane:
        yield server_of(plane)


def server_of(plane: ControlPlane) -> Server:
    authority = plane.kubeconfig.parent / "ca.crt"
    return Server(plane.url, plane.token, ssl.create_default_context(cafile=str(authority)))


def make_namespaces(server: Server, names: list[str]) -> None:
    """With their default account, without which a real server takes no pods."""
    for name in names:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        server.api(name).send("POST", "/api/v1/namespaces", body)
    for name in names:
        _wait_for_account(server.api(name))


def _wait_for_account(api: Api) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        account = api.send("GET", "/api/v1/namespaces/{ns}/serviceaccounts/default", is_kept=False)
        is_real = api.context is not None
        if account.get("kind") == "ServiceAccount" and (account.get("secrets") or not is_real):
            return
        time.sleep(0.02)
    raise AssertionError(f"no default account in {api.namespace}")


async def _serve(urls: list[str], started: threading.Event, stop: threading.Event) -> None:
    store = await Store.open(None, history=HISTORY)
    registry = Registry(store, now=time.time)
    await registry.start()
    server = ApiServer(registry, runtime=None, tokens={TOKEN: ADMIN}, tls=None)
    parts: list[Runnable] = [server, NamespaceKeeper(registry, ca="", now=time.time), GarbageCollector(registry)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part.run(), name=type(part).__name__) for part in parts]
        await server.ready.wait()
        urls.append(server.url)
        started.set()
        await asyncio.to_thread(stop.wait)
        for task in tasks:
            task.cancel()
    await store.close()


def wait_until_served(api: Api, path: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if "items" in api.send("GET", path, is_kept=False):
            return
        time.sleep(0.02)
    raise AssertionError(f"{path} is not served")
