"""A thousand pods of `true`, as a hundred jobs, through `trainmaster up --nodes 10`: none fails, nothing stays."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.apiserver import connected, until
from benchmarks.measure import Result, child, cpu_seconds, memory_mb
from trainmaster import frameworks
from trainmaster.kube.client import Client
from trainmaster.kube.codec import Page
from trainmaster.objects.resource import PODS

JOBS, WORKERS, NODES = 100, 10, 10
KEEPALIVE = 120.0
_NAMESPACES = ("net", "mnt", "uts", "pid", "ipc", "user")


@dataclass(frozen=True, slots=True)
class Traces:
    """What a cluster holds of the machine: its own files, and everything in it and below it."""

    processes: int
    namespaces: int
    mounts: int
    descriptors: int

    @classmethod
    def of(cls, pid: int) -> Traces:
        family = [pid, *_descendants(pid)]
        spaces = {link for one in family for name in _NAMESPACES if (link := _link(f"/proc/{one}/ns/{name}"))}
        mounts = len(Path(f"/proc/{pid}/mountinfo").read_text().splitlines())
        return cls(len(family), len(spaces), mounts, len(os.listdir(f"/proc/{pid}/fd")))

    def beyond(self, other: Traces) -> dict[str, int]:
        return {name: getattr(self, name) - getattr(other, name) for name in self.__slots__}


def run() -> Result:
    with _cluster() as (pid, kubeconfig):
        return asyncio.run(_measure(pid, kubeconfig))


@contextlib.contextmanager
def _cluster() -> Iterator[tuple[int, Path]]:
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as directory:
        home = Path(directory) / "home"
        arguments = ("-m", "trainmaster", "up", "--data-dir", str(home), "--nodes", str(NODES))
        with child(*arguments, "--image", "*=/usr", log=Path(directory) / "log") as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.stdout.readline()
            yield process.pid, home / "kubeconfig"


async def _measure(pid: int, kubeconfig: Path) -> Result:
    async with connected(kubeconfig) as client:
        await _jobs(client, "warm", 1)
        await _clear(client)
        before, used = await _settled(pid), cpu_seconds(pid)
        started = time.monotonic()
        failures = await _jobs(client, "bench", JOBS)
        took = time.monotonic() - started
        await _clear(client)
        after = await _settled(pid, before)
        return {
            "pods": JOBS * WORKERS,
            "seconds": took,
            "pods per s": JOBS * WORKERS / took,
            "failures": failures,
            "left behind": after.beyond(before),
            "CPU of the cluster process, s": cpu_seconds(pid) - used,
            "memory of the cluster process, MB": memory_mb(pid),
        }


async def _jobs(client: Client, name: str, count: int) -> int:
    """Submits them and waits for all; gives how many failed."""
    for index in range(count):
        await client.create(JAX_JOBS, _a_job(f"{name}-{index}"), "default")

    def are_over(page: Page[dict[str, Any]]) -> bool:
        return sum(bool(_end_of(job)) for job in page.items) >= count

    ended = await until(lambda: client.list(JAX_JOBS, "default"), are_over)
    pods = (await client.list(PODS, "default")).items
    bad = [pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Running")]
    restarted = [pod for pod in pods for one in pod["status"].get("containerStatuses", ()) if one["restartCount"]]
    return sum(_end_of(job) != "Succeeded" for job in ended.items) + len(bad) + len(restarted)


async def _clear(client: Client) -> None:
    await client.request("DELETE", JAX_JOBS.path("default"), params=(("propagationPolicy", "Background"),))
    await until(lambda: client.list(PODS, "default", limit=1), lambda page: not page.items)


async def _settled(pid: int, before: Traces | None = None) -> Traces:
    """Connections that are kept for a while, here the operator's, get the time to be closed."""
    await asyncio.sleep(5)
    deadline = time.monotonic() + KEEPALIVE
    while before is not None and time.monotonic() < deadline:
        if not any(count > 0 for count in Traces.of(pid).beyond(before).values()):
            break
        await asyncio.sleep(5)
    return Traces.of(pid)


def _a_job(name: str) -> dict[str, Any]:
    container = {"name": "jax", "image": "registry.example/true:1", "command": ["true"]}
    worker = {"replicas": WORKERS, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    spec = {"jaxReplicaSpecs": {"Worker": worker}, "runPolicy": {"cleanPodPolicy": "None"}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "JAXJob", "metadata": {"name": name}, "spec": spec}


def _end_of(job: dict[str, Any]) -> str:
    conditions = job.get("status", {}).get("conditions", ())
    ends = [one["type"] for one in conditions if one["type"] in ("Succeeded", "Failed") and one["status"] == "True"]
    return ends[-1] if ends else ""


def _descendants(pid: int) -> list[int]:
    parents = {int(entry): _parent_of(entry) for entry in os.listdir("/proc") if entry.isdigit()}
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def _parent_of(entry: str) -> int:
    try:
        return int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _resource(kind: str) -> Any:
    found = frameworks.serving("kubeflow.org/v1", kind)
    assert found is not None
    return found[1]


JAX_JOBS = _resource("JAXJob")
