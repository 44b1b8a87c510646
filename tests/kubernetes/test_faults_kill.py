"""The operator is killed with SIGKILL at every write of every kind's life, and another takes up where it was.

Many lives are led at once, each cut at a write of its own: all that a job writes from its cut on is held in the proxy,
so when all have come to theirs, one blow strikes each of them at its moment.
"""

import asyncio

import pytest
from tests.kubernetes.cutting import Cuts, LostAnswers
from tests.kubernetes.lives import Life, effects_of, lead_undisturbed, together
from tests.kubernetes.operators import bedded, staged

from trainmaster.objects.resource import EVENTS

STRIDE = 8
"""Lives whose cuts are so many writes apart are led together; more would fill the operator's slots with held writes."""

THREADS = "--controller-threads=64"
"""A job that is held keeps its worker."""

ROUNDS = pytest.mark.parametrize("first", range(1, STRIDE + 1), ids=lambda first: f"writes {first}, {first + STRIDE}…")


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    with staged(tmp_path_factory.mktemp("kill")) as running:
        yield running


@pytest.fixture(scope="module")
def undisturbed(stage):
    async def main():
        async with bedded(stage) as bed, bed.operating():
            return await lead_undisturbed(bed.proxy, bed.mirror, bed.node)

    return asyncio.run(main())


def lives_of(bed, undisturbed, sort, first, stride=STRIDE):
    """With the write at which each is to be struck."""
    for breed, calm in undisturbed.items():
        for number in range(first, calm.writes + 1, stride):
            yield Life(breed, f"{breed.name}-{sort}{number}", bed.mirror, bed.node), number


async def led(bed, numbers, undisturbed, cuts=None):
    """Leads them all to their ends. One that is struck at its first write begins when its siblings have come to theirs:
    some things the operator gives to one job after the other, and who is held meanwhile keeps them from the rest."""

    async def lead(life, number):
        if cuts is not None and number == 1:
            await cuts.reached({other.name for other in numbers if other.breed == life.breed} - {life.name})
        await life.live(undisturbed[life.breed].story)
        if cuts is not None:
            await cuts.done(life.name)

    await together({life.name: lead(life, number) for life, number in numbers.items()})


async def assert_done_once(bed, lives, undisturbed):
    await bed.proxy.settled()
    for life in lives:
        assert effects_of(bed.proxy.record, life.name) == undisturbed[life.breed].effects, life.name
    assert not [exchange for exchange in bed.proxy.record if exchange.status == 403]


async def troubles(bed, jobs):
    """What users were told of objects that could not be made."""
    events = (await bed.mirror.client.list(EVENTS, "default")).items
    told = [(event["involvedObject"]["name"], event["reason"], event["message"]) for event in events]
    return [words for words in told if words[0] in jobs and words[1].startswith("FailedCreate")]


@pytest.mark.parametrize("takes_effect", [False, True], ids=["before it takes effect", "after it took effect"])
@ROUNDS
def test_an_operator_killed_at_any_write_leaves_nothing_that_the_next_does_not_make_good(
    stage, undisturbed, first, takes_effect
):
    async def main():
        async with bedded(stage) as bed:
            numbers = dict(lives_of(bed, undisturbed, "a" if takes_effect else "b", first))
            cuts = bed.proxy.rule = Cuts({life.name: n for life, n in numbers.items()}, takes_effect=takes_effect)
            async with asyncio.TaskGroup() as group:
                leading = group.create_task(led(bed, numbers, undisturbed, cuts), name="lives")
                async with bed.operating(THREADS) as victim:
                    await cuts.reached()
                    await victim.kill()
                await cuts.release()
                async with bed.operating(THREADS):
                    await asyncio.wait([leading])

                    await assert_done_once(bed, numbers, undisturbed)
                    await together({life.name: life.be_deleted() for life in numbers})
            # In how many steps a status comes to its end is left to chance, but all the rest is written in any life.
            due = {life.name for life, n in numbers.items() if n <= undisturbed[life.breed].effects.total()}
            assert cuts.cut >= due

    asyncio.run(main())


@pytest.mark.parametrize("name", ["pytorchjob", "mpi-v1", "mpi-v2beta1", "pdj-host"])
def test_an_answer_that_is_lost_on_its_way_does_no_harm(stage, undisturbed, name):
    chosen = {breed: calm for breed, calm in undisturbed.items() if breed.name == name}

    async def main():
        async with bedded(stage) as bed:
            numbers = dict(lives_of(bed, chosen, "l", 1, stride=1))
            bed.proxy.rule = LostAnswers({life.name: n for life, n in numbers.items()})
            async with bed.operating():
                await led(bed, numbers, undisturbed)

                await assert_done_once(bed, numbers, undisturbed)
                assert await troubles(bed, {life.name for life in numbers}) == []
                await together({life.name: life.be_deleted() for life in numbers})

    asyncio.run(main())
