"""An operator of one namespace that may not look into others: it does without, and looks again later."""

from __future__ import annotations

import pytest

from trainmaster.objects.resource import EVENTS, PODS
from trainmaster.operator import outside
from trainmaster.testing import clock
from trainmaster.testing.fakeapi import FakeApi
from trainmaster.testing.jobs import a_small
from trainmaster.testing.operation import an_api, operating, passing, submit
from trainmaster.testing.scene import a_job

SAID = "jobs in other namespaces cannot be told that nobody runs them"


class Fence:
    """The right to list jobs everywhere, until it is granted."""

    def __init__(self, api: FakeApi) -> None:
        self.stands = True
        api.on_request(self._refusal)

    def _refusal(self, method: str, path: str, _: bytes) -> int | None:
        is_everywhere = path.startswith("/apis/") and path.count("/") == 4
        return 403 if self.stands and method == "GET" and is_everywhere else None


def told(api: FakeApi) -> list[str]:
    return [event["involvedObject"]["name"] for event in api.objects(EVENTS) if event["reason"] == outside.REASON]


def test_an_operator_that_may_not_look_outside_runs_on_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    api, job = an_api(), a_small("PyTorchJob").meta(namespace="team").manifest
    Fence(api)

    async def main() -> None:
        async with operating(api, namespace="team", leader_elect=True) as running:
            await passing(3 * outside.RARELY)
            assert not running.done()
            submit(api, job)
            await passing(10)

    clock.run(main())

    assert [record.getMessage() for record in caplog.records].count(SAID) == 1
    assert api.objects(PODS)


def test_once_it_may_look_outside_jobs_there_are_told() -> None:
    api, job = an_api(), a_job("PyTorchJob", "lost").role("Master").meta(namespace="elsewhere").manifest
    fence = Fence(api)

    async def main() -> None:
        async with operating(api, namespace="team"):
            submit(api, job)
            await passing(2 * outside.EVERY)
            assert told(api) == []
            fence.stands = False
            await passing(outside.RARELY + outside.EVERY)

    clock.run(main())

    assert told(api) == ["lost"]
