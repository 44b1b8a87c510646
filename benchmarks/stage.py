"""A real control plane with pretended kubelets, the operator as a process on it, and jobs to give it."""

from __future__ import annotations

import asyncio
import re
import socket
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from msgspec import Raw
from tools.kubernetes.controlplane import control_plane

from benchmarks.apiserver import connected, until
from benchmarks.measure import child
from trainmaster import frameworks
from trainmaster.kube.client import Client
from trainmaster.kube.codec import Page
from trainmaster.objects.resource import CUSTOM_RESOURCE_DEFINITIONS, SERVICES, Resource
from trainmaster.operator.install import crds

AT_ONCE = 32
STILL = 3.0
"""Seconds without a write after which an operator, or a control plane, is done with what it was given."""

PATIENCE = 300.0
ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints")
T = TypeVar("T")
R = TypeVar("R")
_REQUEST = re.compile(r'trainmaster_api_requests_total{code="(\w+)",resource="(\w*)",verb="(\w+)"} ([\d.]+)')
_WRITES = ("POST", "PUT", "PATCH", "DELETE")


class Request(NamedTuple):
    verb: str
    resource: str
    """Empty where it is about none, as in discovery."""

    refusal: str = ""
    """Its code, or what became of a request that was lost."""

    def __str__(self) -> str:
        return " ".join(filter(None, self))

    @property
    def is_write(self) -> bool:
        return self.verb in _WRITES and not self.refusal


def requests_in(metrics: str) -> Counter[Request]:
    found = Counter[Request]()
    for code, resource, verb, count in _REQUEST.findall(metrics):
        found[Request(verb, resource, "" if code.startswith("2") else code)] += int(float(count))
    return found


def writes(requests: Counter[Request]) -> int:
    """Of what changes something, and was agreed to."""
    return sum(count for request, count in requests.items() if request.is_write)


@dataclass(frozen=True, slots=True)
class Operator:
    pid: int
    metrics: str
    health: str

    def requests(self) -> Counter[Request]:
        """So far."""
        with urllib.request.urlopen(self.metrics, timeout=10) as answer:
            return requests_in(answer.read().decode())

    def until_ready(self) -> None:
        """Its caches are filled."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(self.health, timeout=5):
                    return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.02)
        raise TimeoutError("the operator was not ready in time")

    def settle(self) -> None:
        """Returns when it writes nothing any more: events are written after everything else."""
        before, seen = -1, writes(self.requests())
        while before != seen:
            time.sleep(STILL)
            before, seen = seen, writes(self.requests())


@contextmanager
def cluster() -> Iterator[Path]:
    """A real control plane that knows our kinds; gives its kubeconfig."""
    with control_plane() as plane:
        asyncio.run(_install(plane.kubeconfig))
        yield plane.kubeconfig


@contextmanager
def kubelets(kubeconfig: Path, seconds: float = 1.0) -> Iterator[None]:
    """Their pods run for so long."""
    with child("-m", "benchmarks.fakekubelet", str(kubeconfig), str(seconds)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield


@contextmanager
def operator(kubeconfig: Path, *flags: str) -> Iterator[Operator]:
    metrics, health = _free_address(), _free_address()
    addresses = ("--metrics-bind-address", metrics, "--health-probe-bind-address", health)
    arguments = ("--kubeconfig", str(kubeconfig), *addresses, "--log-level", "warning", *flags)
    with child("-m", "trainmaster", "operator", *arguments) as process:
        yield Operator(process.pid, f"http://{metrics}/metrics", f"http://{health}/readyz")


def _free_address() -> str:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{door.getsockname()[1]}"


async def _install(kubeconfig: Path) -> None:
    async with connected(kubeconfig) as client:
        for crd in crds(frameworks.BUILT_IN):
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
        await until(lambda: client.list(CUSTOM_RESOURCE_DEFINITIONS), _are_established)


def _are_established(page: Page[dict[str, Any]]) -> bool:
    conditions = [crd.get("status", {}).get("conditions") or () for crd in page.items]
    return all(("Established", "True") in [(one["type"], one["status"]) for one in held] for held in conditions)


async def until_quiet(client: Client) -> None:
    """The control plane has made what it makes of every Service, and writes nothing any more: until then it works
    beside us, and beside one of two only where it has fallen behind."""
    services = len((await client.list(SERVICES, type=Raw)).items)
    await until(
        lambda: client.list(ENDPOINTS, resource_version="0", type=Raw),
        lambda page: len(page.items) >= services,
        every=STILL,
    )
    before, seen = "", await _revision(client)
    while before != seen:
        await asyncio.sleep(STILL)
        before, seen = seen, await _revision(client)


async def _revision(client: Client) -> str:
    """Of the whole store: every list tells it, this one is short."""
    return (await client.list(CUSTOM_RESOURCE_DEFINITIONS, limit=1)).resource_version


async def post(client: Client, resource: Resource, bodies: list[dict[str, Any]], namespace: str) -> list[Any]:
    """All of them; gives what the server answered, in that order."""
    return await with_each(bodies, lambda body: client.create(resource, body, namespace))


async def with_each(items: Iterable[T], act: Callable[[T], Awaitable[R]]) -> list[R]:
    """A few at a time; gives the results in order."""
    waiting = iter(enumerate(items))
    results: dict[int, R] = {}

    async def work() -> None:
        for index, item in waiting:
            results[index] = await act(item)

    async with asyncio.TaskGroup() as group:
        for index in range(AT_ONCE):
            group.create_task(work(), name=f"worker {index}")
    return [results[index] for index in sorted(results)]


def is_done(job: dict[str, Any]) -> bool:
    conditions = job.get("status", {}).get("conditions", ())
    return any(one["type"] == "Succeeded" and one["status"] == "True" for one in conditions)


def a_job(name: str, replicas: int) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "registry.example/main:1"}

    def role(count: int) -> dict[str, Any]:
        return {"replicas": count, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}

    roles = {"Master": role(1), **({"Worker": role(replicas - 1)} if replicas > 1 else {})}
    spec = {"pytorchReplicaSpecs": roles, "runPolicy": {"cleanPodPolicy": "None"}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}, "spec": spec}


def job_resource() -> Resource:
    found = frameworks.serving("kubeflow.org/v1", "PyTorchJob")
    assert found is not None
    return found[1]
