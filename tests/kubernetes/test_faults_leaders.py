"""Two operators, of which one leads: it is stopped in the middle of its work, and comes back when the other leads."""

import asyncio
import signal
import time

import pytest
from tests.kubernetes.cutting import Busy, Cut, Rule, proxied
from tests.kubernetes.fleet import Fleet
from tests.kubernetes.leases import asked_for_lease, claims
from tests.kubernetes.operators import ELECTING, bedded, staged

WORDS = tuple("abcdefgh")


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    with staged(tmp_path_factory.mktemp("leaders")) as running:
        yield running


class Late(Rule):
    """Writes stay on the wire until they are let go."""

    def __init__(self):
        self.caught = asyncio.Event()
        self.go = asyncio.Event()

    async def before(self, exchange):
        self.caught.set()
        await self.go.wait()


class Broken(Late):
    """The connections of writes break while nobody looks."""

    async def before(self, exchange):
        await super().before(exchange)
        raise Cut


class Refused(Rule):
    """The server is too busy for any write, so that all of them are about to be repeated."""

    def __init__(self):
        self.caught = asyncio.Event()
        self.go = asyncio.Event()

    async def before(self, exchange):
        if not self.go.is_set():
            self.caught.set()
            raise Busy


@pytest.mark.parametrize("rule", [Late, Broken, Refused], ids=["on their way", "cut off", "to be repeated"])
def test_a_leader_that_was_stopped_writes_nothing_once_another_leads(stage, rule):
    async def main():
        async with bedded(stage) as bed, proxied(stage.plane, stage.token) as second, bed.operating(*ELECTING) as old:
            first = bed.proxy
            await first.until(lambda: bool(claims(first)), "a leader")
            async with bed.operating(*ELECTING, proxy=second) as new:
                await second.until(lambda: asked_for_lease(second), "a candidate")
                fleet = Fleet(bed.mirror, bed.node, rule.__name__.lower())
                await fleet.submit(*WORDS)
                await fleet.running(*WORDS)
                held = first.rule = rule()
                for word in WORDS:
                    await fleet.lose_worker(word)
                await held.caught.wait()
                old.signal(signal.SIGSTOP)

                await second.until(lambda: bool(claims(second)), "another leader")
                took_over = claims(second)[0]
                await fleet.recovered(*WORDS)
                pods = {word: fleet.uids(word) for word in WORDS}
                resumed = time.monotonic()
                held.go.set()
                old.signal(signal.SIGCONT)
                code = await old.ended()
                await fleet.succeed(*WORDS)

                late = [e for e in first.writes if e.took_effect and e.answered > took_over]
                assert code == 1
                assert "lease" in old.words
                assert late == []
                # What was past its last look at the lease when it was stopped goes out once, and the server refuses it.
                after = [e for e in first.writes if e.asked > resumed]
                assert not any(e.took_effect for e in after)
                assert len({e.path for e in after}) == len(after) <= len(WORDS)
                assert {word: fleet.uids(word) for word in WORDS} == pods
                assert all(fleet.status(word)["attempts"] == {"worker-1": 1} for word in WORDS)
                assert not new.has_ended
                await fleet.delete(*WORDS)

    asyncio.run(main())
