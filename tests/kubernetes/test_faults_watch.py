"""Connections that break without a word: noticed when the read timeout is over, and what was missed is made good."""

import asyncio
import time

import pytest
from tests.kubernetes.alteredoperator import GRACE
from tests.kubernetes.fleet import Fleet
from tests.kubernetes.operators import bedded, staged

from trainmaster.objects.resource import PODS

WATCH_SECONDS, ANSWER_SECONDS = 6, 4
HASTY = {"WATCH_SECONDS": str(WATCH_SECONDS), "ANSWER_SECONDS": str(ANSWER_SECONDS)}
SLACK = 30.0
"""Seconds that a busy machine may take for anything."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    with staged(tmp_path_factory.mktemp("watch")) as running:
        yield running


def made(bed, before, name):
    """How often an object of that name was created since then."""
    return sum(e.name == name and e.method == "POST" and e.took_effect for e in bed.proxy.record[before:])


def test_a_watch_that_went_silent_is_given_up_and_the_cache_catches_up(stage):
    async def main():
        async with bedded(stage) as bed, bed.operating(altered=HASTY):
            fleet = Fleet(bed.mirror, bed.node, "silent")
            lost = f"{fleet.name('job')}-worker-1"
            await fleet.submit("job")
            await fleet.running("job")
            before, old = len(bed.proxy.record), fleet.uids("job")

            bed.proxy.hush_watches()
            began = time.monotonic()
            await bed.mirror.client.delete(PODS, lost, "default")
            await bed.proxy.until(lambda: made(bed, before, lost) > 0, "a new pod")
            took = time.monotonic() - began
            await fleet.running("job")

            assert took <= WATCH_SECONDS + GRACE + SLACK
            assert made(bed, before, lost) == 1
            assert fleet.uids("job")["-worker-0"] == old["-worker-0"]
            await fleet.delete("job")

    asyncio.run(main())


def test_a_server_that_accepts_connections_and_says_nothing_is_lived_through(stage):
    async def main():
        async with bedded(stage) as bed, bed.operating(altered=HASTY) as operator:
            fleet = Fleet(bed.mirror, bed.node, "hung")
            lost = f"{fleet.name('job')}-worker-1"
            await fleet.submit("job")
            await fleet.running("job")
            before = len(bed.proxy.record)
            watched = sorted(e.path for e in bed.proxy.record if e.is_watch and not e.ended)

            def asked_again():
                return {e.path for e in bed.proxy.record[before:]} >= set(watched)

            bed.proxy.hush()
            await bed.mirror.client.delete(PODS, lost, "default")
            await fleet.submit("other")
            used = operator.cpu_seconds()
            began = time.monotonic()
            await bed.proxy.until(asked_again, "every watch to be tried anew")
            used, took = operator.cpu_seconds() - used, time.monotonic() - began
            bed.proxy.drop_watches()
            bed.proxy.speak()
            await bed.proxy.until(lambda: made(bed, before, lost) > 0, "a new pod")
            await fleet.running("job", "other")

            assert used <= took / 2
            assert made(bed, before, lost) == 1
            assert not operator.has_ended
            await fleet.delete("job", "other")

    asyncio.run(main())
