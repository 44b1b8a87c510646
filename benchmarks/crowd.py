"""The operator among many: a new job beside thousands of finished ones, the start among ten thousand pods, and rest.

What stands in the cluster is put there by hand, as the operator would have made it: its own blueprint of each job, pods
and Services too; pretended kubelets run the pods, as pods that nothing can run keep scheduler and operator busy. A
round with finished jobs has a cluster of its own. The one with live pods takes too long to fill for that: rest and
start are measured several times in the same one, and only the first start finds jobs to write to.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from msgspec import Raw

from benchmarks.apiserver import connected, make_namespace, until
from benchmarks.fakekubelet import node_name
from benchmarks.measure import ROUNDS, Result, cpu_seconds, median, medians, memory_mb
from benchmarks.stage import (
    STILL,
    Operator,
    a_job,
    cluster,
    is_done,
    job_resource,
    kubelets,
    operator,
    post,
    until_quiet,
    with_each,
)
from trainmaster import frameworks
from trainmaster.api import reading
from trainmaster.engine.blueprint import blueprint
from trainmaster.engine.observed import Observed
from trainmaster.kube.client import Client
from trainmaster.objects.resource import PODS, SERVICES

FINISHED, PROBES, REPLICAS = 2000, 200, 4
SETTLED, LIVE_PODS = 500, 10_000
PER_NAMESPACE = 100
"""Jobs: for every Service the control plane goes through all pods of its namespace."""

IDLE_SECONDS = 30.0
PATIENCE = 300.0
_NOW = "2026-01-01T00:00:00Z"


def run() -> Result:
    return {"a new job": medians([_beside_finished_jobs() for _ in range(ROUNDS)]), "many pods": _among_live_pods()}


def _beside_finished_jobs() -> dict[str, float]:
    with cluster() as kubeconfig, kubelets(kubeconfig, 0.0):
        with operator(kubeconfig) as running:
            empty = _probed(kubeconfig, running, "empty")
        asyncio.run(_fill_with_finished(kubeconfig))
        with operator(kubeconfig) as running:
            crowded = _probed(kubeconfig, running, "crowded")
    return {
        "p99 in an empty cluster, ms": empty.p99,
        f"p99 beside {FINISHED} finished jobs, ms": crowded.p99,
        "p99 beside them / empty": crowded.p99 / empty.p99,
        "median beside them / empty": crowded.median / empty.median,
        "operator CPU beside them / empty": crowded.cpu / empty.cpu,
    }


@dataclass(frozen=True, slots=True)
class Probed:
    median: float
    p99: float
    cpu: float


def _probed(kubeconfig: Path, running: Operator, namespace: str) -> Probed:
    """Milliseconds of latency; seconds of the operator's CPU for all these jobs, from making to success."""
    running.until_ready()
    running.settle()
    before = cpu_seconds(running.pid)
    found = asyncio.run(_latencies(kubeconfig, namespace))
    running.settle()
    parts = statistics.quantiles(found, n=100)
    return Probed(parts[49] * 1000, parts[98] * 1000, cpu_seconds(running.pid) - before)


async def _latencies(kubeconfig: Path, namespace: str) -> list[float]:
    """Seconds from a job's creation to that of its last pod, for jobs that come one by one, each when the one before
    has succeeded."""
    async with connected(kubeconfig) as client:
        await make_namespace(client, namespace)
        await _latency(client, namespace, "warm")
        return [await _latency(client, namespace, f"probe-{number}") for number in range(PROBES)]


async def _latency(client: Client, namespace: str, name: str) -> float:
    page = await client.list(PODS, namespace, limit=1, type=Raw)
    started = time.perf_counter()
    await client.create(job_resource(), a_job(name, REPLICAS), namespace)
    events = client.watch(PODS, namespace, resource_version=page.resource_version, timeout_seconds=int(PATIENCE))
    made = 0
    async with asyncio.timeout(PATIENCE), aclosing(events):
        while made < REPLICAS:
            made += (await anext(events)).type == "ADDED"
    took = time.perf_counter() - started
    await until(lambda: client.get(job_resource(), name, namespace), is_done, every=0.05)
    return took


async def _fill_with_finished(kubeconfig: Path) -> None:
    async with connected(kubeconfig) as client:
        jobs = await _make_all(client, "finished", range(FINISHED))
        await _until_no_pod_is(client, "status.phase!=Succeeded")
        ended = [{**job, "status": _succeeded()} for job in jobs]
        await with_each(ended, lambda job: client.update(job_resource(), job, subresource="status"))
        await until_quiet(client)


def _succeeded() -> dict[str, Any]:
    said = {"status": "True", "lastUpdateTime": _NOW, "lastTransitionTime": _NOW, "message": "it has"}
    conditions = [
        {"type": "Created", "reason": "PyTorchJobCreated", **said},
        {"type": "Running", "reason": "PyTorchJobRunning", **said, "status": "False"},
        {"type": "Succeeded", "reason": "PyTorchJobSucceeded", **said},
    ]
    counts = {"Master": {"succeeded": 1}, "Worker": {"succeeded": REPLICAS - 1}}
    return {"conditions": conditions, "startTime": _NOW, "completionTime": _NOW, "replicaStatuses": counts}


@dataclass(frozen=True, slots=True)
class Start:
    synced: float
    memory_then: float
    settled: float
    most_memory: float


def _among_live_pods() -> Result:
    jobs = LIVE_PODS // REPLICAS
    with cluster() as kubeconfig, kubelets(kubeconfig, inf):
        asyncio.run(_fill_with_running(kubeconfig, range(SETTLED)))
        with operator(kubeconfig) as running:
            running.until_ready()
            running.settle()
            idle = median([_load_at_rest(running) for _ in range(ROUNDS)])
        asyncio.run(_fill_with_running(kubeconfig, range(SETTLED, jobs)))
        starts = [_start(kubeconfig) for _ in range(ROUNDS)]
    return {
        f"CPU at rest with {SETTLED} settled jobs, %": idle * 100,
        f"start to synced caches, {LIVE_PODS} pods, s": median([one.synced for one in starts]),
        "memory then, MB": median([one.memory_then for one in starts]),
        "first start until all jobs were looked at, s": starts[0].settled,
        "most memory, MB": max(one.most_memory for one in starts),
    }


def _load_at_rest(running: Operator) -> float:
    before = cpu_seconds(running.pid)
    time.sleep(IDLE_SECONDS)
    return (cpu_seconds(running.pid) - before) / IDLE_SECONDS


def _start(kubeconfig: Path) -> Start:
    started = time.perf_counter()
    with operator(kubeconfig) as running:
        running.until_ready()
        synced, memory_then = time.perf_counter() - started, memory_mb(running.pid)
        running.settle()
        return Start(synced, memory_then, time.perf_counter() - started, memory_mb(running.pid))


async def _fill_with_running(kubeconfig: Path, numbers: range) -> None:
    async with connected(kubeconfig) as client:
        await _make_all(client, "running", numbers)
        await _until_no_pod_is(client, "status.phase=Pending")
        await until_quiet(client)


async def _until_no_pod_is(client: Client, selector: str) -> None:
    look = partial(client.list, PODS, field_selector=selector, type=Raw)
    await until(look, lambda page: not page.items, every=STILL)


async def _make_all(client: Client, prefix: str, numbers: range) -> list[Any]:
    """In namespaces of that prefix; gives the jobs."""
    jobs = []
    for at in range(0, len(numbers), PER_NAMESPACE):
        some = numbers[at : at + PER_NAMESPACE]
        namespace = f"{prefix}-{some.start}"
        await make_namespace(client, namespace)
        jobs += await _make(client, namespace, [f"job-{number}" for number in some])
    return jobs


async def _make(client: Client, namespace: str, names: list[str]) -> list[Any]:
    """Jobs with their Services and pods; gives the jobs."""
    jobs = await post(client, job_resource(), [a_job(name, REPLICAS) for name in names], namespace)
    parts = [part for job in jobs for part in _objects_of(job)]
    await post(client, SERVICES, [dict(one.body) for one in parts if one.resource == SERVICES], namespace)
    pods = [dict(one.body) for one in parts if one.resource == PODS]
    await post(client, PODS, [_placed(pod, number) for number, pod in enumerate(pods)], namespace)
    return jobs


def _objects_of(job: dict[str, Any]) -> list[Any]:
    found = frameworks.serving(job["apiVersion"], job["kind"])
    assert found is not None
    read = reading.read(found[0], job)
    assert read.job is not None, read.problems
    return list(blueprint(Observed(read.framework, read.job)))


def _placed(pod: dict[str, Any], number: int) -> dict[str, Any]:
    """Without the scheduler's help, which would take longer than all the rest."""
    return {**pod, "spec": {**pod["spec"], "nodeName": node_name(number), "automountServiceAccountToken": False}}
