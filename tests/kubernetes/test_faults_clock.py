"""The wall clocks of two operators are stepped by an hour, apart from each other, while jobs and a lease run."""

import asyncio

import pytest
from tests.kubernetes.cutting import proxied
from tests.kubernetes.fleet import Fleet
from tests.kubernetes.leases import asked_for_lease, claims
from tests.kubernetes.operators import ELECTING, bedded, staged

HOUR = 3600
LONG, SHORT = HOUR - 600, 4
"""Seconds that a job may take, or be kept: less than the step, and less than a test lasts."""

RENEWALS = 9
"""So many take longer than a lease is good for."""

MODEST = 0.3
"""The most of a core that an operator with next to nothing to do may use, however slow the machine."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    with staged(tmp_path_factory.mktemp("clock")) as running:
        yield running


class Pair:
    """A leader and a candidate, each with a clock of its own."""

    def __init__(self, bed, second, leader, candidate):
        self._bed, self.second, self.leader, self.candidate = bed, second, leader, candidate

    async def step(self, seconds):
        """The leader's clock goes one way and the candidate's the other; then time passes, as the lease shows."""
        set_clock(self._bed, "leader", seconds)
        set_clock(self._bed, "candidate", -seconds)
        before, used = len(claims(self._bed.proxy)), self.leader.cpu_seconds()
        began = claims(self._bed.proxy)[-1]
        await self._bed.proxy.until(lambda: len(claims(self._bed.proxy)) >= before + RENEWALS, "renewals of the lease")
        self.used = (self.leader.cpu_seconds() - used) / (claims(self._bed.proxy)[-1] - began)


def clock_of(bed, name):
    return bed.stage.home / f"{name}.clock"


def set_clock(bed, name, seconds):
    """In one stroke: an operator may look at any moment."""
    fresh = clock_of(bed, f"{name}.next")
    fresh.write_text(str(seconds))
    fresh.rename(clock_of(bed, name))


def led(stage, body):
    """Runs the body with a leader that leads and a candidate that waits."""

    async def main():
        async with bedded(stage) as bed, proxied(stage.plane, stage.token) as second:
            for name in ("leader", "candidate"):
                set_clock(bed, name, 0)
            altered = [{"CLOCK": str(clock_of(bed, name))} for name in ("leader", "candidate")]
            async with bed.operating(*ELECTING, altered=altered[0]) as leader:
                await bed.proxy.until(lambda: bool(claims(bed.proxy)), "a leader")
                async with bed.operating(*ELECTING, altered=altered[1], proxy=second) as candidate:
                    await second.until(lambda: asked_for_lease(second), "a candidate")
                    await body(bed, Pair(bed, second, leader, candidate))
                    assert not leader.has_ended
                    assert not candidate.has_ended
                    assert claims(second) == []
                    assert "crashed" not in leader.words

    asyncio.run(main())


def test_a_step_forward_uses_time_up_and_costs_nobody_the_lease(stage):
    async def body(bed, pair):
        fleet = Fleet(bed.mirror, bed.node, "forward")
        await fleet.submit("plain")
        await fleet.submit("limited", activeDeadlineSeconds=LONG)
        await fleet.submit("kept", ttlSecondsAfterFinished=LONG)
        await fleet.running("plain", "limited", "kept")
        await fleet.succeed("kept")

        await pair.step(HOUR)
        await fleet.touch("plain", "limited", "kept")
        await fleet.submit("fresh", activeDeadlineSeconds=LONG)

        await fleet.ended("Failed", "limited")
        await fleet.gone("kept")
        await fleet.running("plain", "fresh")
        assert pair.used <= MODEST
        await fleet.delete("plain", "limited", "fresh")

    led(stage, body)


def test_a_step_back_prolongs_what_runs_and_costs_nobody_the_lease(stage):
    async def body(bed, pair):
        fleet = Fleet(bed.mirror, bed.node, "back")
        await fleet.submit("limited", activeDeadlineSeconds=RENEWALS)
        await fleet.submit("kept", ttlSecondsAfterFinished=RENEWALS)
        await fleet.running("limited", "kept")
        await fleet.succeed("kept")

        await pair.step(-HOUR)
        await fleet.submit("fresh", activeDeadlineSeconds=SHORT)
        await fleet.submit("brief", ttlSecondsAfterFinished=SHORT)
        await fleet.running("brief")
        await fleet.succeed("brief")

        await fleet.ended("Failed", "fresh")
        await fleet.gone("brief")
        await fleet.running("limited")
        await fleet.ended("Succeeded", "kept")
        assert pair.used <= MODEST
        await fleet.delete("limited", "kept", "fresh")

    led(stage, body)
