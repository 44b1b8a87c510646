"""Plays the kubelets of a real control plane: nodes that stay ready, and pods that run for a moment and succeed.

`python -m benchmarks.fakekubelet KUBECONFIG SECONDS`; prints a line when its nodes are registered. Every pod that is
bound to one of them becomes Running, and after those seconds Succeeded, or never (`inf`). Deleted ones go at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

from benchmarks.apiserver import connected
from trainmaster.kube.client import Client
from trainmaster.kube.errors import AlreadyExists, Conflict, NotFound
from trainmaster.objects.resource import LEASES, PODS, Resource

NODES, PODS_PER_NODE, WORKERS = 10, 500, 16
_NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
_BOUND = "spec.nodeName!="
_BEAT = 10.0


def node_name(index: int) -> str:
    return f"fake-{index % NODES}"


class Kubelets:
    def __init__(self, client: Client, seconds: float) -> None:
        self._client = client
        self._seconds = seconds
        self._queue: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self._known: dict[str, str] = {}

    async def run(self) -> None:
        for index in range(NODES):
            await self._register(node_name(index))
        print("ready", flush=True)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(), name="watch")
            group.create_task(self._beat(), name="leases")
            for index in range(WORKERS):
                group.create_task(self._work(), name=f"worker {index}")

    async def _register(self, name: str) -> None:
        with contextlib.suppress(AlreadyExists):
            await self._client.create(_NODES, _a_node(name))
            await self._client.create(LEASES, _a_lease(name), "kube-node-lease")

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_BEAT)
            for index in range(NODES):
                body = {"spec": {"renewTime": _now()}}
                await self._client.patch(LEASES, node_name(index), body, "kube-node-lease")

    async def _watch(self) -> None:
        while True:
            page = await self._client.list(PODS, field_selector=_BOUND)
            for pod in page.items:
                self._see("ADDED", pod)
            events = self._client.watch(
                PODS, resource_version=page.resource_version, timeout_seconds=600, field_selector=_BOUND
            )
            async with contextlib.aclosing(events):
                async for event in events:
                    if event.object is not None:
                        self._see(event.type, event.object)

    def _see(self, change: str, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        if change == "DELETED":
            self._known.pop(uid, None)
        elif pod["metadata"].get("deletionTimestamp"):
            if self._known.get(uid) != "deleting":
                self._known[uid] = "deleting"
                self._queue.put_nowait(("delete", pod))
        elif uid not in self._known and pod["status"].get("phase") == "Pending":
            self._known[uid] = "starting"
            self._queue.put_nowait(("start", pod))

    async def _work(self) -> None:
        while True:
            action, pod = await self._queue.get()
            with contextlib.suppress(NotFound, Conflict):
                await self._act(action, pod)

    async def _act(self, action: str, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        if action == "delete":
            await self._client.delete(PODS, meta["name"], meta["namespace"], uid=meta["uid"], grace_seconds=0)
            return
        body = {"metadata": {"uid": meta["uid"]}, "status": status_of(pod, is_over=action == "end")}
        await self._client.patch(PODS, meta["name"], body, meta["namespace"], "status")
        if action == "start" and isfinite(self._seconds):
            asyncio.get_running_loop().call_later(self._seconds, self._queue.put_nowait, ("end", pod))


def status_of(pod: dict[str, Any], *, is_over: bool) -> dict[str, Any]:
    now = _now()[:19] + "Z"
    state = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now}}
    ready = "False" if is_over else "True"
    return {
        "phase": "Succeeded" if is_over else "Running",
        "startTime": now,
        "podIP": "10.1.0.1",
        "conditions": [{"type": kind, "status": ready, "lastTransitionTime": now} for kind in ("Ready", "Initialized")],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": not is_over,
                "restartCount": 0,
                "state": state if is_over else {"running": {"startedAt": now}},
            }
            for container in pod["spec"]["containers"]
        ],
    }


def _a_node(name: str) -> dict[str, Any]:
    room = {"cpu": "64", "memory": "512Gi", "pods": str(PODS_PER_NODE), "ephemeral-storage": "1Ti"}
    now = _now()[:19] + "Z"
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}
    status = {"capacity": room, "allocatable": room, "conditions": [{**ready, "lastTransitionTime": now}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def _a_lease(name: str) -> dict[str, Any]:
    spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _now()}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def main(kubeconfig: Path, seconds: float) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        async with connected(kubeconfig) as client:
            await Kubelets(client, seconds).run()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
