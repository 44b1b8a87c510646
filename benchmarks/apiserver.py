"""Throughput of the embedded API server and of a real one with etcd: same machine, same client, same objects.

Both are whole clusters in processes of their own, over TLS, with a durable store in memory where there is room for
that. Rounds alternate, so that whatever else the machine does hits both alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Raw
from tools.kubernetes.controlplane import control_plane

from benchmarks.measure import ROUNDS, Result, child, median
from trainmaster.kube import config as kubeconfig
from trainmaster.kube.client import Client
from trainmaster.kube.transport import HttpTransport
from trainmaster.objects.resource import CONFIG_MAPS, PODS, Resource

PODS_MADE, READS, LISTS = 1000, 2000, 20
WATCHERS, CHANGES = 50, 100
AT_ONCE = 32
SIZE = 4096
NAMESPACE = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
T = TypeVar("T")
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")


def run() -> Result:
    with control_plane() as plane, _embedded() as embedded:
        rounds = [
            {name: asyncio.run(_round(path, number)) for name, path in (("real", plane.kubeconfig), ("ours", embedded))}
            for number in range(ROUNDS)
        ]
    return {verb: _compared(rounds, verb) for verb in rounds[0]["real"]}


def _compared(rounds: list[dict[str, dict[str, float]]], verb: str) -> Result:
    real, ours = (median([one[name][verb] for one in rounds]) for name in ("real", "ours"))
    return {"embedded per s": ours, "real per s": real, "embedded / real": ours / real}


@contextlib.contextmanager
def _embedded() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(prefix="trainmaster-bench-", dir=memory if memory.is_dir() else None) as home,
        child("-m", "benchmarks.embedded", home) as process,
    ):
        assert process.stdout is not None
        yield Path(process.stdout.readline().strip())


@contextlib.asynccontextmanager
async def connected(path: Path) -> AsyncIterator[Client]:
    client = Client(HttpTransport(kubeconfig.load(str(path))))
    try:
        yield client
    finally:
        await client.close()


async def _round(path: Path, number: int) -> dict[str, float]:
    namespace = f"bench-{number}"
    async with connected(path) as client:
        await make_namespace(client, namespace)
        rates = {
            "POST": await _rate(PODS_MADE, lambda index: client.create(PODS, a_pod(f"p{index}"), namespace)),
            "GET": await _rate(READS, lambda index: client.get(PODS, f"p{index % PODS_MADE}", namespace, type=Raw)),
            "LIST of 1000": await _rate(LISTS, lambda index: client.list(PODS, namespace, type=Raw), at_once=4),
            f"watch events to {WATCHERS}": await _fan_out(client, namespace),
        }
        await client.request("DELETE", PODS.path(namespace), params=(("gracePeriodSeconds", "0"),))
    return rates


async def make_namespace(client: Client, name: str) -> None:
    """With its account, which a real server's pods wait for."""
    await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    await until(lambda: client.list(ACCOUNTS, name), lambda page: bool(page.items))


async def until(
    look: Callable[[], Awaitable[T]], is_enough: Callable[[T], bool], *, patience: float = 600.0, every: float = 0.1
) -> T:
    """Looks again and again, for a cluster that is somebody else's tells nothing on its own."""
    async with asyncio.timeout(patience):
        while True:
            if is_enough(found := await look()):
                return found
            await asyncio.sleep(every)


def a_pod(name: str) -> dict[str, Any]:
    """4 KB, bound to a node that does not exist: stored, shown to everybody, and run by nobody."""
    spec = {
        "nodeName": "nowhere",
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": "registry.example/main:1", "command": ["true"]}],
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": {"fill": ""}}, "spec": spec}
    body["metadata"]["annotations"]["fill"] = "x" * (SIZE - len(str(body)))  # type: ignore[index]  # the literal above
    return body


async def _rate(count: int, call: Callable[[int], Awaitable[Any]], *, at_once: int = AT_ONCE) -> float:
    numbers = iter(range(count))

    async def work() -> None:
        for index in numbers:
            await call(index)

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for worker in range(at_once):
            group.create_task(work(), name=f"worker {worker}")
    return count / (time.perf_counter() - started)


async def _fan_out(client: Client, namespace: str) -> float:
    """Events delivered per second: every watcher sees every change."""
    listed = await client.list(CONFIG_MAPS, namespace)
    waiting = asyncio.Semaphore(0)

    async def watch() -> None:
        async with client.stream(
            CONFIG_MAPS, namespace, resource_version=listed.resource_version, timeout_seconds=120, bookmarks=False
        ) as events:
            waiting.release()
            seen = 0
            async for _ in events:
                seen += 1
                if seen == CHANGES:
                    return

    async with asyncio.TaskGroup() as group:
        for number in range(WATCHERS):
            group.create_task(watch(), name=f"watcher {number}")
        for _ in range(WATCHERS):
            await waiting.acquire()
        started = time.perf_counter()
        await _rate(CHANGES, lambda index: client.create(CONFIG_MAPS, _a_config_map(index), namespace), at_once=8)
    return WATCHERS * CHANGES / (time.perf_counter() - started)


def _a_config_map(index: int) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{index}"}, "data": {"x": "y" * SIZE}}
