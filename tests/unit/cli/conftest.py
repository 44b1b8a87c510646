"""A verb at work on an API server in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from trainmaster import frameworks
from trainmaster.cli.catalog import Catalog
from trainmaster.cli.connection import Session, tell
from trainmaster.engine.gang import VOLCANO
from trainmaster.kube.client import Client
from trainmaster.objects.resource import PODS
from trainmaster.testing import clock
from trainmaster.testing.fakeapi import FakeApi
from trainmaster.testing.fakediscovery import DEPLOYMENTS, NODES, Discovering
from trainmaster.testing.scene import a_job

BORN = 1_700_000_000.0
NOW = BORN + 90
JOBS = [resource for framework in frameworks.registered() for resource in framework.served]
SCALED = {"deployments": "spec.replicas", "pytorchjobs": "spec.pytorchReplicaSpecs.Worker.replicas"}
SHORT = {"pods": ["po"], "services": ["svc"], "deployments": ["deploy"]}


class Stage:
    def __init__(self) -> None:
        self.api = FakeApi([*JOBS, NODES, DEPLOYMENTS, VOLCANO])
        self.openapi: dict[str, Any] = {}

    def run(self, verb, work, *, namespace="default", everywhere=False, beside=None, seconds=3600.0):
        """The exit code; None when it still goes on after so many virtual seconds."""

        async def main():
            client = Client(Discovering(self.api, short_names=SHORT, scaled=SCALED, openapi=self.openapi))
            session = Session(client, Catalog(client), namespace, everywhere=everywhere, now=lambda: NOW)
            try:
                async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                    if beside is not None:
                        group.create_task(beside())
                    code = await work(session)
            except TimeoutError:
                return None
            return code

        try:
            return clock.run(main())
        except Exception as error:
            return tell(verb, error)

    def job(self, kind="PyTorchJob", name="ddp", *, namespace="default", workers=2, master=True, **status):
        scene = a_job(kind, name)
        if master:
            scene = scene.role("Master")
        manifest = scene.role("Worker", workers).manifest
        metadata = {"name": name, "namespace": namespace, "uid": f"uid-{kind}-{name}"}
        found = frameworks.serving(manifest["apiVersion"], kind)
        assert found is not None
        _, resource = found
        body = {**manifest, "metadata": metadata, **({"status": status} if status else {})}
        self.api.put(resource, body)
        return resource

    def conditions(self, *pairs):
        moment = "2023-11-14T22:14:00Z"
        return [
            {"type": kind, "status": "True", "reason": f"PyTorchJob{kind}", "message": message}
            | {"lastTransitionTime": moment, "lastUpdateTime": moment}
            for kind, message in pairs
        ]

    def pod(self, title, *, job="ddp", kind="PyTorchJob", status=None, log=b"", leader=False, spec=None):
        name = f"{job}-{title}"
        labels = {"training.kubeflow.org/job-name": job}
        if leader:
            labels["training.kubeflow.org/job-role"] = "master"
        owner = {"kind": kind, "name": job, "uid": f"uid-{kind}-{job}", "controller": True}
        metadata = {"name": name, "namespace": "default", "labels": labels, "ownerReferences": [owner]}
        spec = spec or {"containers": [{"name": "pytorch"}], "nodeName": "node-1"}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self.api.put(PODS, {**body, "status": status or {"phase": "Running"}})
        self.api.logs["default", name] = log


def ended(code, reason="Error", *, at="2023-11-14T22:14:10Z", message="", phase="Failed", restarts=0):
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message, "finishedAt": at}}
    return {"phase": phase, "containerStatuses": [{"name": "pytorch", "restartCount": restarts, "state": state}]}


def waiting(reason, message="", *, last=None):
    one = {"name": "pytorch", "state": {"waiting": {"reason": reason, "message": message}}}
    return {"phase": "Pending", "containerStatuses": [one | ({"lastState": last} if last else {})]}


Work = Callable[[Session], Awaitable[int]]


@pytest.fixture
def stage():
    return Stage()


@pytest.fixture
def pods():
    """Statuses of pods: `pods.ended(1)`, `pods.waiting("ImageNotMapped")`."""

    class Statuses:
        ended = staticmethod(ended)
        waiting = staticmethod(waiting)

    return Statuses
