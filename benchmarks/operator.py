"""The operator on a real control plane with pretended kubelets: many small jobs, and one large.

Beside it a floor: the same pods and services, as the operator made them, POSTed by the same client and nothing else.
The operator has ended by then, as it would look at them too. The two take turns, so that whatever else the machine
does, and the server's own warming up, hits both.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.apiserver import connected, make_namespace, until
from benchmarks.measure import ROUNDS, Result, cpu_seconds, median, memory_mb
from benchmarks.stage import (
    Operator,
    Request,
    a_job,
    cluster,
    is_done,
    job_resource,
    kubelets,
    operator,
    post,
    until_quiet,
    writes,
)
from trainmaster.kube.client import Client
from trainmaster.objects.resource import PODS, SERVICES, Resource

PATIENCE = 600.0


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
class Round:
    made: float
    done: float
    cpu: float
    memory: float
    requests: Counter[Request]
    floor_made: float = 0.0
    floor_done: float = 0.0


def run() -> Result:
    with cluster() as kubeconfig, kubelets(kubeconfig):
        rounds = {
            name: [_round(kubeconfig, shape, f"shape-{index}-{number}") for number in range(ROUNDS)]
            for index, (name, shape) in enumerate(SHAPES.items())
        }
    return {name: _summary(SHAPES[name], found) for name, found in rounds.items()}


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

    requests = sum((one.requests for one in rounds), Counter[Request]())
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
        "writes per job": writes(requests) / jobs,
        "requests per replica": {str(one): count / jobs / shape.replicas for one, count in sorted(requests.items())},
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
