"""Jobs of many replicas: only as many bodies exist as are being written, and what is kept of a pod is small."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

import pytest

from trainmaster.engine import pods
from trainmaster.kube.transport import Request, Response
from trainmaster.objects.meta import Json, encode
from trainmaster.objects.resource import PODS
from trainmaster.operator.apply import IN_FLIGHT_OF_ONE
from trainmaster.testing import clock
from trainmaster.testing.clock import Clock
from trainmaster.testing.fakeapi import FakeApi
from trainmaster.testing.operation import an_api, job_of, operating, quiet, submit
from trainmaster.testing.scene import a_job

REPLICAS = 3 * IN_FLIGHT_OF_ONE


class SlowApi(FakeApi):
    """Answers no create of a pod until the gate is open."""

    def __init__(self) -> None:
        super().__init__([*an_api().resources], clock=Clock().now)
        self.gate = asyncio.Event()
        self.asked = 0

    async def send(self, request: Request) -> Response:
        if request.method == "POST" and request.path.endswith("/pods"):
            self.asked += 1
            await self.gate.wait()
        return await super().send(request)


def test_only_bodies_that_are_being_written_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    build = pods.PodRecipe.build

    def counted(recipe: pods.PodRecipe) -> Json:
        built.append(recipe.name)
        return build(recipe)

    monkeypatch.setattr(pods.PodRecipe, "build", counted)

    async def main() -> tuple[int, int, int]:
        api = SlowApi()
        async with operating(api):
            submit(api, a_job("TFJob").role("Worker", REPLICAS).manifest)
            await quiet(api)
            waiting = (len(built), api.asked)
            api.gate.set()
            await quiet(api)
            return (*waiting, len(api.objects(PODS)))

    exist, asked, finally_made = clock.run(main())

    assert exist == asked == IN_FLIGHT_OF_ONE
    assert finally_made == len(built) == REPLICAS


class Body(dict[str, Any]):
    """A dict that can be referred to weakly."""


@pytest.mark.parametrize("refusals", [0, REPLICAS], ids=["taken", "refused"])
def test_no_body_outlives_its_request(refusals: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors have tracebacks, and those have the bodies of what was refused."""
    alive: list[weakref.ref[Body]] = []
    most = 0
    build = pods.PodRecipe.build

    def watched(recipe: pods.PodRecipe) -> Json:
        nonlocal most
        alive[:] = [ref for ref in alive if ref() is not None]
        body = Body(build(recipe))
        alive.append(weakref.ref(body))
        most = max(most, len(alive))
        return body

    monkeypatch.setattr(pods.PodRecipe, "build", watched)

    async def main() -> int:
        api = an_api()
        api.fail_next("POST */pods", 403, times=refusals)
        async with operating(api):
            submit(api, a_job("TFJob").role("Worker", REPLICAS).manifest)
            await quiet(api)
            await quiet(api)
            return len(api.objects(PODS))

    assert clock.run(main()) == REPLICAS
    assert 0 < most <= IN_FLIGHT_OF_ONE


def test_every_pod_is_asked_for_once() -> None:
    async def main() -> list[str]:
        api = an_api()
        async with operating(api):
            submit(api, a_job("TFJob").role("Worker", REPLICAS).manifest)
            await quiet(api)
            return [path for method, path in api.requests if method == "POST" and path.endswith("/pods")]

    assert len(clock.run(main())) == REPLICAS


def test_a_job_that_is_too_large_fails_with_the_reason_and_has_no_pods() -> None:
    job = a_job("TFJob").role("Worker", 10_000).manifest

    async def main() -> tuple[dict[str, str], int]:
        api = an_api()
        async with operating(api):
            submit(api, job)
            await quiet(api)
            return job_of(api, job)["status"]["conditions"][-1], len(api.objects(PODS))

    condition, made = clock.run(main())

    assert (condition["type"], condition["reason"], made) == ("Failed", "TFJobFailedValidation", 0)
    assert "131072 bytes that Linux allows for one environment variable" in condition["message"]


def test_the_status_does_not_grow_with_replicas() -> None:
    def status_of(replicas: int) -> int:
        scene = a_job("TFJob").role("Worker", replicas)
        sizes = [len(encode(scene.all(phase).after().manifest["status"])) for phase in ("Pending", "Running")]
        return max(sizes)

    assert status_of(1000) <= status_of(10) + 10
