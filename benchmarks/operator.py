"""The operator on a real control plane with pretended kubelets: many small jobs, and one large.

Beside it a floor: the same pods and services, as the operator made them, POSTed by the same client and nothing else.
The operator has ended by then, as it would look at them too. The two take turns, so that whatever else the machine
does, and the server's own warming up, hits both.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Raw
from tools.kubernetes.controlplane import control_plane

from benchmarks.apiserver import connected, make_namespace, until
from benchmarks.measure import ROUNDS, Result, child, cpu_seconds, median, memory_mb
from trainmaster import frameworks
from trainmaster.kube.client import Client
from trainmaster.kube.codec import Page
from trainmaster.objects.resource import CUSTOM_RESOURCE_DEFINITIONS, PODS, SERVICES, Resource
from trainmaster.operator.install import crds

AT_ONCE = 32
STILL = 3.0
"""Seconds without a write after which an operator, or a control plane, is done with what it was given."""

PATIENCE = 600.0
ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints")
T = TypeVar("T")
R = TypeVar("R")
_REQUEST = re.compile(r'trainmaster_api_requests_total{code="(\w+)",resource="(\w+)",verb="(\w+)"} ([\d.]+)')
_WRITES = ("POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True, slots=True)
class Shape:
    jobs: int
    replicas: int
    flags: tuple[str, ...] = ()


SHAPES = {
    "100 jobs x 4": Shape(100, 4),
    "100 jobs x 4, one worker": Shape(100, 4, ("--controller-threads", "1")),
    "1 job x 500": Shape(1, 500),
}


@dataclass(frozen=True, slots=True)
class Operator:
    pid: int
    metrics: str
    health: str

    def requests(self) -> Counter[str]:
        """So far, by verb and resource, and by the code of those that were refused or lost."""
        with urllib.request.urlopen(self.metrics, timeout=10) as answer:
            return requests_in(answer.read().decode())

    def writes(self) -> int:
        return sum(writes_of(self.requests()).values())

    def settle(self) -> None:
        """Returns when it writes nothing any more: events are written after everything else."""
        before, seen = -1, self.writes()
        while before != seen:
            time.sleep(STILL)
            before, seen = seen, self.writes()


def requests_in(metrics: str) -> Counter[str]:
    found = Counter[str]()
    for code, resource, verb, count in _REQUEST.findall(metrics):
        name = f"{verb} {resource}" if code.startswith("2") else f"{verb} {resource}, {code}"
        found[name] += int(float(count))
    return found


def writes_of(requests: Mapping[str, int]) -> dict[str, int]:
    """Those that change something and were agreed to."""
    return {name: count for name, count in requests.items() if name.split()[0] in _WRITES and "," not in name}


@dataclass(frozen=True, slots=True)
class Round:
    made: float
    done: float
    cpu: float
    memory: float
    requests: Counter[str]
    floor_made: float = 0.0
    floor_done: float = 0.0


def run() -> Result:
    with cluster() as kubeconfig, kubelets(kubeconfig):
        rounds = {
            name: [_round(kubeconfig, shape, f"shape-{index}-{number}") for number in range(ROUNDS)]
            for index, (name, shape) in enumerate(SHAPES.items())
        }
    return {name: _summary(SHAPES[name], found) for name, found in rounds.items()}


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


def _round(kubeconfig: Path, shape: Shape, namespace: str) -> Round:
    """A fresh operator each time: memory only grows."""
    with operator(kubeconfig, *shape.flags) as running:
        found = asyncio.run(_operated(kubeconfig, running, shape, namespace))
    floor_made, floor_done = asyncio.run(_floor(kubeconfig, namespace))
    return replace(found, floor_made=floor_made, floor_done=floor_done)


async def _operated(kubeconfig: Path, running: Operator, shape: Shape, namespace: str) -> Round:
    async with connected(kubeconfig) as client:
        await make_namespace(client, namespace)
        await _warm(client, running, namespace)
        cpu, before = cpu_seconds(running.pid), await asyncio.to_thread(running.requests)
        started = time.perf_counter()
        await post(client, job_resource(), [a_job(f"j{n}", shape.replicas) for n in range(shape.jobs)], namespace)
        await _until_all(client, PODS, namespace, shape.jobs * shape.replicas, _exists)
        made = time.perf_counter() - started
        await _until_all(client, job_resource(), namespace, shape.jobs, is_done)
        done = time.perf_counter() - started
        await asyncio.to_thread(running.settle)
        requests = await asyncio.to_thread(running.requests) - before
        return Round(made, done, cpu_seconds(running.pid) - cpu, memory_mb(running.pid), requests)


def _summary(shape: Shape, rounds: list[Round]) -> Result:
    def middle(name: str) -> float:
        return median([getattr(one, name) for one in rounds])

    requests = sum((one.requests for one in rounds), Counter[str]())
    jobs = shape.jobs * len(rounds)
    return {
        "until all pods exist, s": middle("made"),
        "floor of that, s": middle("floor_made"),
        "until all pods exist / floor": median([one.made / one.floor_made for one in rounds]),
        "until all succeeded, s": middle("done"),
        "floor of that, s ": middle("floor_done"),
        "until all succeeded / floor": median([one.done / one.floor_done for one in rounds]),
        "operator CPU per job, ms": middle("cpu") / shape.jobs * 1000,
        "operator memory, MB": max(one.memory for one in rounds),
        "writes per job": sum(writes_of(requests).values()) / jobs,
        "requests per replica": {name: count / jobs / shape.replicas for name, count in sorted(requests.items())},
    }


async def _warm(client: Client, running: Operator, namespace: str) -> None:
    """One job through the whole way: caches are filled, connections open."""
    await client.create(job_resource(), a_job("warm", 1), namespace)
    await _until_all(client, job_resource(), namespace, 1, is_done)
    await client.delete(job_resource(), "warm", namespace)
    await until(lambda: client.list(PODS, namespace), lambda page: not page.items)
    await asyncio.to_thread(running.settle)


async def _floor(kubeconfig: Path, namespace: str) -> tuple[float, float]:
    """What the operator made, made again elsewhere, as fast as the client can: until all exists, until all is over."""
    async with connected(kubeconfig) as client:
        return await _made_again(client, namespace)


async def _made_again(client: Client, namespace: str) -> tuple[float, float]:
    pods, services = [(await client.list(kind, namespace)).items for kind in (PODS, SERVICES)]
    await _until_all(client, PODS, namespace, len(pods), _is_over)
    await until_quiet(client)
    elsewhere = f"{namespace}-floor"
    await make_namespace(client, elsewhere)
    started = time.perf_counter()
    await post(client, SERVICES, [_bare(one, "Service") for one in services], elsewhere)
    await post(client, PODS, [_bare(one, "Pod") for one in pods], elsewhere)
    made = time.perf_counter() - started
    await _until_all(client, PODS, elsewhere, len(pods), _is_over)
    done = time.perf_counter() - started
    await until_quiet(client)
    return made, done


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


def _bare(item: dict[str, Any], kind: str) -> dict[str, Any]:
    meta = {key: item["metadata"][key] for key in ("name", "labels", "annotations") if key in item["metadata"]}
    spec = {key: value for key, value in item["spec"].items() if key not in ("nodeName", "clusterIP", "clusterIPs")}
    if kind == "Service" and item["spec"].get("clusterIP") == "None":
        spec["clusterIP"] = "None"
    if kind == "Pod":
        spec = _without_token(spec)
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, "spec": spec}


def _without_token(spec: dict[str, Any]) -> dict[str, Any]:
    """The account's secret is mounted by the server, and is another in another namespace."""
    made = {key: value for key, value in spec.items() if key != "volumes"}
    for role in ("containers", "initContainers"):
        if role in spec:
            made[role] = [{key: one[key] for key in one if key != "volumeMounts"} for one in spec[role]]
    return made


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


async def _until_all(
    client: Client, resource: Resource, namespace: str, count: int, is_it: Callable[[dict[str, Any]], bool]
) -> None:
    """So many are as they should be: by their own events, so that looking costs next to nothing."""
    page = await client.list(resource, namespace)
    reached = {item["metadata"]["uid"] for item in page.items if is_it(item)}
    events = client.watch(resource, namespace, resource_version=page.resource_version, timeout_seconds=int(PATIENCE))
    async with asyncio.timeout(PATIENCE), aclosing(events):
        while len(reached) < count:
            event = await anext(events)
            if event.object is not None and is_it(event.object):
                reached.add(event.object["metadata"]["uid"])


def _exists(item: dict[str, Any]) -> bool:
    return True


def _is_over(pod: dict[str, Any]) -> bool:
    return bool(pod["status"].get("phase") == "Succeeded")


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
