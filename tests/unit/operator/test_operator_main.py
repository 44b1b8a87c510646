"""The operator over any transport: what it does while nobody answers, and whether it may write."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from trainmaster.kube import metrics
from trainmaster.kube.errors import Unreachable
from trainmaster.kube.transport import Request, Response
from trainmaster.operator.main import IMPATIENCE, operate
from trainmaster.operator.options import Options
from trainmaster.testing import clock
from trainmaster.testing.operation import an_api, operating, quiet

QUIET = Options(metrics_bind_address="0", health_probe_bind_address="0")


class Silence:
    """A server that takes every request and answers none."""

    async def send(self, request: Request) -> Response:
        await asyncio.sleep(request.timeout)
        raise Unreachable(f"{request}: nothing came for {request.timeout:g} s")

    async def close(self) -> None: ...


def test_a_silent_api_server_is_told_of_at_every_try_and_given_up_within_two_minutes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> float:
        with pytest.raises(Unreachable, match=f"nothing came for {IMPATIENCE:g} s"):
            await operate(QUIET, Silence(), asyncio.Event())
        return asyncio.get_running_loop().time()

    took = clock.run(main())

    told = [one for one in caplog.records if one.getMessage() == "no answer from the API server yet"]
    assert len(told) == 6
    assert took < 120


def test_who_is_told_to_stop_does_not_wait_for_an_answer() -> None:
    async def main() -> float:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(3, stop.set)
        await operate(QUIET, Silence(), stop)
        return asyncio.get_running_loop().time()

    assert clock.run(main()) == 3


@pytest.mark.parametrize("leader_elect", [False, True], ids=["alone", "elected"])
def test_an_operator_that_may_write_says_so_under_both_names(
    monkeypatch: pytest.MonkeyPatch, leader_elect: bool
) -> None:
    registry, api = CollectorRegistry(), an_api()
    monkeypatch.setattr(metrics, "_new_registry", lambda: registry)

    async def main() -> list[float | None]:
        async with operating(api, leader_elect=leader_elect):
            await quiet(api)
            return [registry.get_sample_value(name) for name in ("trainmaster_leader", "mpi_operator_is_leader")]

    assert clock.run(main()) == [1, 1]
