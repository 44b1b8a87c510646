"""The API server goes away in the middle of jobs' lives and comes back: nothing is lost, nothing is done twice."""

import asyncio
import signal
import time
from collections import Counter

import pytest
from tests.kubernetes.lives import BREEDS, Life, effects_of, lead_undisturbed, together
from tests.kubernetes.operators import COLLECTING, bedded, staged

SETS = 2
"""Lives of each breed that are led at once."""

OUTAGE = 6.0
"""Seconds without an API server, besides those that it takes to end and to start."""

GRACE = "5s"
"""For so long an API server that is asked to end serves the watches that it has, and no new ones."""

OFTEN = 12.0
"""Times per second, at most, that one thing is asked for while nobody answers; without pauses it would be thousands."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    flags = [f"--request-timeout={GRACE}"]
    with staged(tmp_path_factory.mktemp("outage"), flags=flags, controllers=COLLECTING) as running:
        yield running


@pytest.fixture(scope="module")
def undisturbed(stage):
    async def main():
        async with bedded(stage) as bed, bed.operating():
            return await lead_undisturbed(bed.proxy, bed.mirror, bed.node)

    return asyncio.run(main())


class Outage:
    """What the operator did meanwhile."""

    def __init__(self, bed, operator):
        self._bed, self._operator = bed, operator
        self.seconds = self.cpu_seconds = 0.0
        self.asked: Counter[tuple[str, str, str]] = Counter()

    async def happen(self, number):
        plane, record = self._bed.stage.plane, self._bed.proxy.record
        await asyncio.to_thread(plane.stop_apiserver, number)
        before, began, used = len(record), time.monotonic(), self._operator.cpu_seconds()
        await asyncio.sleep(OUTAGE)  # an outage lasts for a time; there is nothing in it to wait for
        self.cpu_seconds = self._operator.cpu_seconds() - used
        self.seconds = time.monotonic() - began
        self.asked = Counter((exchange.method, exchange.path, exchange.name) for exchange in record[before:])
        await asyncio.to_thread(plane.start_apiserver)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["ended", "killed"])
@pytest.mark.parametrize("moment", [0.25, 0.6], ids=["while pods are made", "while replicas are replaced"])
def test_an_outage_of_the_api_server_costs_time_and_nothing_else(stage, undisturbed, number, moment):
    expected = sum(calm.writes for calm in undisturbed.values()) * SETS

    async def main():
        async with bedded(stage) as bed, bed.operating() as operator:
            sort = f"{number.name[3:].lower()}{moment * 100:.0f}"
            lives = [Life(b, f"{b.name}-{sort}-{i}", bed.mirror, bed.node) for b in BREEDS for i in range(SETS)]
            outage = Outage(bed, operator)

            async def strike():
                await bed.proxy.until(lambda: len(bed.proxy.writes) >= expected * moment, "the middle")
                await outage.happen(number)

            await together({"outage": strike()} | {life.name: lead(life, undisturbed) for life in lives})

            await bed.proxy.settled()
            for life in lives:
                assert effects_of(bed.proxy.record, life.name) <= undisturbed[life.breed].effects, life.name
            assert max(outage.asked.values()) <= OFTEN * outage.seconds, outage.asked.most_common(5)
            assert outage.cpu_seconds <= outage.seconds / 2
            assert not operator.has_ended
            await together({life.name: life.be_deleted() for life in lives})

    asyncio.run(main())


async def lead(life, undisturbed):
    await life.live(undisturbed[life.breed].story)
