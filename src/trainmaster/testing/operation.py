"""The whole operator on an API server in memory, under virtual time: a job's life in milliseconds.

async def main():
    async with operating(api):
        api.create(job)
        await quiet(api)
clock.run(main())
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from trainmaster import frameworks
from trainmaster.engine import gang
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import (
    HORIZONTAL_POD_AUTOSCALERS,
    LEASES,
    PODS,
    PRIORITY_CLASSES,
    Resource,
)
from trainmaster.operator.main import operate
from trainmaster.operator.options import Options
from trainmaster.testing.clock import Clock
from trainmaster.testing.fakeapi import FakeApi

QUIET = 5.0
"""Virtual seconds without a request after which nothing more is to be expected by itself."""

OFF = {"metrics_bind_address": "0", "health_probe_bind_address": "0", "controller_threads": 2}


def an_api(extra: Iterable[Resource] = (), **more: Any) -> FakeApi:
    """With every kind of job installed. Its clock is the virtual one."""
    jobs = [resource for framework in frameworks.registered() for resource in framework.served]
    others = (HORIZONTAL_POD_AUTOSCALERS, PRIORITY_CLASSES, gang.VOLCANO, gang.SCHEDULER_PLUGINS, gang.KUBE_BATCH)
    return FakeApi([*jobs, *others, *extra], clock=Clock().now, **more)


@asynccontextmanager
async def operating(api: FakeApi, **options: Any) -> AsyncIterator[asyncio.Task[None]]:
    """Runs the operator beside the body and stops it after. Cancel the task, and it dies on the spot."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(operate(Options(**{**OFF, **options}), api, stop, now=Clock().now), name="operator")
        try:
            yield running
        finally:
            stop.set()


async def quiet(api: FakeApi, seconds: float = QUIET) -> None:
    """Returns when the operator has been silent for so many virtual seconds, renewals of its lease aside."""
    heard = -1
    while (now_heard := sum(f"/{LEASES.plural}" not in path for _, path in api.requests)) != heard:
        heard = now_heard
        await asyncio.sleep(seconds)


async def passing(seconds: float) -> None:
    """Lets virtual time pass."""
    await asyncio.sleep(seconds)


def submit(api: FakeApi, job: Json) -> Json:
    """Stores a job as a user would."""
    found = frameworks.serving(job["apiVersion"], job["kind"])
    assert found is not None, f"no framework runs {job['kind']}"
    _, resource = found
    body = {key: value for key, value in job.items() if key != "status"}
    metadata = {key: value for key, value in body["metadata"].items() if key != "uid"}
    author = {"manager": "kubectl", "operation": "Update", "apiVersion": job["apiVersion"]}
    return api.put(resource, {**body, "metadata": {**metadata, "generation": 1, "managedFields": [author]}})


def edit(api: FakeApi, job: Json) -> Json:
    """A user changes the spec of a stored job: its status stays, its generation grows."""
    held = job_of(api, job)
    found = frameworks.serving(job["apiVersion"], job["kind"])
    assert found is not None
    metadata = {**held["metadata"], "generation": held["metadata"]["generation"] + 1}
    return api.put(found[1], {**held, "metadata": metadata, "spec": job["spec"]})


def job_of(api: FakeApi, job: Json) -> Json:
    """The job as it is stored now."""
    found = frameworks.serving(job["apiVersion"], job["kind"])
    assert found is not None
    metadata = job["metadata"]
    return api.object(found[1], metadata.get("namespace", "default"), metadata["name"])


def conditions_of(api: FakeApi, job: Json) -> list[tuple[str, str]]:
    conditions = job_of(api, job).get("status", {}).get("conditions", ())
    return [(condition["type"], condition["status"]) for condition in conditions]


def set_phases(api: FakeApi, phase: str, exit_code: int | None = None, only: str = "") -> None:
    """Every pod whose name contains `only` reaches this phase."""
    for pod in api.objects(PODS):
        if only in pod["metadata"]["name"]:
            api.set_pod_phase(pod["metadata"]["namespace"], pod["metadata"]["name"], phase, exit_code=exit_code)
