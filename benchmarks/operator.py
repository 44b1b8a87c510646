"""The operator on a real control plane with pretended kubelets: many small jobs, and one large.

Beside it a floor: the same pods and services, as the operator made them, POSTed by the same client and nothing else.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.kubernetes.controlplane import control_plane

from benchmarks.apiserver import connected, make_namespace, until
from benchmarks.measure import Result, child, cpu_seconds, memory_mb
from trainmaster import frameworks
from trainmaster.kube.client import Client
from trainmaster.kube.codec import Page
from trainmaster.objects.resource import CUSTOM_RESOURCE_DEFINITIONS, PODS, SERVICES, Resource
from trainmaster.operator.install import crds

SHAPES = {"100 jobs x 4": (100, 4), "1 job x 500": (1, 500)}
AT_ONCE = 16
QUIET = 5.0
"""Seconds for the control plane to be done with what the operator gave it."""

PATIENCE = 600.0
_REQUEST = re.compile(r'trainmaster_api_requests_total{code="(\d+)",resource="(\w+)",verb="(\w+)"} ([\d.]+)')
_WRITES = ("POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True, slots=True)
class Operator:
    pid: int
    metrics: str

    def writes(self) -> Counter[str]:
        """Requests so far that change something and were agreed to, by verb and resource."""
        with urllib.request.urlopen(self.metrics, timeout=10) as answer:
            rows = _REQUEST.findall(answer.read().decode())
        return Counter({f"{verb} {what}": int(float(n)) for code, what, verb, n in rows if verb in _WRITES})


def run() -> Result:
    with control_plane() as plane:
        asyncio.run(_install(plane.kubeconfig))
        with child("-m", "benchmarks.fakekubelet", str(plane.kubeconfig)) as kubelet:
            assert kubelet.stdout is not None
            kubelet.stdout.readline()
            return {name: _measured(plane.kubeconfig, *shape) for name, shape in SHAPES.items()}


def _measured(kubeconfig: Path, jobs: int, replicas: int) -> Result:
    """A fresh operator per shape: memory only grows."""
    with _operator(kubeconfig) as operator:
        return asyncio.run(_compared(kubeconfig, operator, jobs, replicas))


@contextmanager
def _operator(kubeconfig: Path) -> Iterator[Operator]:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = door.getsockname()[1]
    flags = ("--kubeconfig", str(kubeconfig), "--metrics-bind-address", f"127.0.0.1:{port}", "--log-level", "warning")
    with child("-m", "trainmaster", "operator", *flags, "--health-probe-bind-address", "0") as process:
        yield Operator(process.pid, f"http://127.0.0.1:{port}/metrics")


async def _install(kubeconfig: Path) -> None:
    async with connected(kubeconfig) as client:
        for crd in crds(frameworks.BUILT_IN):
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)


async def _compared(kubeconfig: Path, operator: Operator, jobs: int, replicas: int) -> Result:
    async with connected(kubeconfig) as client:
        namespace = f"jobs-{jobs}"
        await make_namespace(client, namespace)
        await _warm(client, namespace)
        cpu, before = cpu_seconds(operator.pid), await asyncio.to_thread(operator.writes)
        started = time.perf_counter()
        await _post(client, _resource(), [_a_job(f"j{index}", replicas) for index in range(jobs)], namespace)
        made = await _until_made(client, namespace, jobs * replicas, started)
        done = await _until_done(client, namespace, jobs, started)
        writes = await asyncio.to_thread(operator.writes) - before
        cpu = cpu_seconds(operator.pid) - cpu
        floor = await _floor(client, namespace)
    return {
        "until all pods exist, s": made,
        "floor, s": floor,
        "until all pods exist / floor": made / floor,
        "until all succeeded, s": done,
        "operator CPU per job, ms": cpu / jobs * 1000,
        "operator memory, MB": memory_mb(operator.pid),
        "writes per job": {name: count / jobs for name, count in sorted(writes.items())},
    }


async def _warm(client: Client, namespace: str) -> None:
    """One job through the whole way: caches are filled, connections open."""
    await client.create(_resource(), _a_job("warm", 1), namespace)
    await _until_done(client, namespace, 1, 0)
    await client.delete(_resource(), "warm", namespace)
    await until(lambda: client.list(PODS, namespace), lambda page: not page.items)


async def _floor(client: Client, namespace: str) -> float:
    """What the operator made, made again elsewhere, as fast as the client can."""
    pods, services = [(await client.list(kind, namespace)).items for kind in (PODS, SERVICES)]
    await until(lambda: client.list(PODS, namespace), _are_over)
    await asyncio.sleep(QUIET)
    elsewhere = f"{namespace}-floor"
    await make_namespace(client, elsewhere)
    started = time.perf_counter()
    await _post(client, SERVICES, [_bare(one, "Service") for one in services], elsewhere)
    await _post(client, PODS, [_bare(one, "Pod") for one in pods], elsewhere)
    return time.perf_counter() - started


def _are_over(page: Page[dict[str, Any]]) -> bool:
    return all(pod["status"].get("phase") == "Succeeded" for pod in page.items)


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


async def _post(client: Client, resource: Resource, bodies: list[dict[str, Any]], namespace: str) -> None:
    numbers = iter(bodies)

    async def work() -> None:
        for body in numbers:
            await client.create(resource, body, namespace)

    async with asyncio.TaskGroup() as group:
        for index in range(AT_ONCE):
            group.create_task(work(), name=f"worker {index}")


async def _until_made(client: Client, namespace: str, count: int, started: float) -> float:
    """From the pods' own events, so that looking costs nothing."""
    seen: set[str] = set()
    page = await client.list(PODS, namespace)
    seen.update(pod["metadata"]["uid"] for pod in page.items)
    events = client.watch(PODS, namespace, resource_version=page.resource_version, timeout_seconds=int(PATIENCE))
    async with asyncio.timeout(PATIENCE):
        while len(seen) < count:
            event = await anext(events)
            if event.object is not None:
                seen.add(event.object["metadata"]["uid"])
    await events.aclose()
    return time.perf_counter() - started


async def _until_done(client: Client, namespace: str, count: int, started: float) -> float:
    def are_done(page: Page[dict[str, Any]]) -> bool:
        conditions = [one for job in page.items for one in job.get("status", {}).get("conditions", ())]
        done = [one for one in conditions if one["type"] == "Succeeded" and one["status"] == "True"]
        return len(done) >= count

    await until(lambda: client.list(_resource(), namespace), are_done)
    return time.perf_counter() - started


def _a_job(name: str, replicas: int) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "registry.example/main:1"}

    def role(count: int) -> dict[str, Any]:
        return {"replicas": count, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}

    roles = {"Master": role(1), **({"Worker": role(replicas - 1)} if replicas > 1 else {})}
    spec = {"pytorchReplicaSpecs": roles, "runPolicy": {"cleanPodPolicy": "None"}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}, "spec": spec}


def _resource() -> Resource:
    found = frameworks.serving("kubeflow.org/v1", "PyTorchJob")
    assert found is not None
    return found[1]
