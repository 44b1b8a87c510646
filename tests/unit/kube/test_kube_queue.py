"""The work queue: once in line, never with two workers, nothing lost, delays kept."""

from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trainmaster.kube.queue import QueueClosed, WorkQueue
from trainmaster.testing import clock


def now() -> float:
    return asyncio.get_running_loop().time()


async def take(queue: WorkQueue[str], count: int) -> list[tuple[str, float]]:
    """So many keys, each with the time it was handed out at."""
    return [(await queue.get(), now()) for _ in range(count)]


def test_keys_come_out_in_the_order_they_went_in() -> None:
    async def main() -> list[tuple[str, float]]:
        queue = WorkQueue[str]()
        for key in ("a", "b", "c"):
            queue.add(key)
        return await take(queue, 3)

    assert clock.run(main()) == [("a", 0), ("b", 0), ("c", 0)]


def test_a_key_stands_in_line_once() -> None:
    async def main() -> None:
        queue = WorkQueue[str]()
        queue.add("a")
        queue.add("a")
        queue.add("a", after=5)

        assert (queue.depth, queue.delayed, len(queue)) == (1, 0, 1)

    clock.run(main())


def test_a_key_added_while_worked_on_is_handed_out_again_only_after_done() -> None:
    async def main() -> None:
        queue = WorkQueue[str]()
        queue.add("a")
        await queue.get()

        queue.add("a")
        queue.add("a")
        depth_while_working = queue.depth
        queue.done("a")

        assert depth_while_working == 0
        assert await take(queue, 1) == [("a", 0)]
        assert len(queue) == 0

    clock.run(main())


def test_a_key_not_added_again_is_not_handed_out_again() -> None:
    async def main() -> None:
        queue = WorkQueue[str]()
        queue.add("a")
        queue.done(await queue.get())

        assert len(queue) == 0

    clock.run(main())


@pytest.mark.parametrize(
    ("delays", "expected"),
    [
        pytest.param((10, 3, 7), 3, id="the earliest of several delays counts"),
        pytest.param((10, 0), 0, id="an immediate add overrides a delay"),
        pytest.param((0, 10), 0, id="a delay does not hold back what is ready"),
        pytest.param((4, 4), 4, id="the same delay twice is one"),
        pytest.param((-1,), 0, id="a time in the past is now"),
        pytest.param((math.inf, 2), 2, id="never gives way to any time"),
    ],
)
def test_a_key_is_handed_out_at_its_earliest_time(delays: tuple[float, ...], expected: float) -> None:
    async def main() -> None:
        queue = WorkQueue[str]()
        for after in delays:
            queue.add("a", after=after)

        assert await take(queue, 1) == [("a", expected)]
        await asyncio.sleep(60)
        assert len(queue) == 0

    clock.run(main())


def test_delayed_keys_come_out_in_order_of_their_times() -> None:
    async def main() -> list[tuple[str, float]]:
        queue = WorkQueue[str]()
        for key, after in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
            queue.add(key, after=after)
        return await take(queue, 3)

    assert clock.run(main()) == [("a", 1), ("b", 2), ("c", 3)]


def test_a_delay_that_ends_while_the_key_is_worked_on_puts_it_back_when_done() -> None:
    async def main() -> list[tuple[str, float]]:
        queue = WorkQueue[str]()
        queue.add("a")
        await queue.get()
        queue.add("a", after=5)
        await asyncio.sleep(8)
        queue.done("a")
        return await take(queue, 1)

    assert clock.run(main()) == [("a", 8)]


def test_keys_delayed_until_tomorrow_on_every_pass_do_not_pile_up() -> None:
    async def main() -> int:
        queue = WorkQueue[str]()
        for _ in range(1000):
            queue.add("a", after=86400)
            queue.add("a")
            queue.done(await queue.get())
        return len(queue._delays._heap)

    assert clock.run(main()) < 100


def test_retries_come_twice_as_late_each_time_up_to_a_limit() -> None:
    async def main() -> list[float]:
        queue = WorkQueue[str](base_delay=1, max_delay=5)
        delays = []
        for _ in range(5):
            delays.append(queue.retry("a"))
            queue.done(await queue.get())
        return [*delays, now(), queue.retries("a")]

    assert clock.run(main()) == [1, 2, 4, 5, 5, 17, 5]


def test_ten_thousand_failures_still_have_a_delay() -> None:
    async def main() -> float:
        queue = WorkQueue[str]()
        queue._failures["a"] = 10_000
        return queue.retry("a")

    assert clock.run(main()) == 300


def test_a_forgotten_key_starts_over() -> None:
    async def main() -> tuple[float, float, int]:
        queue = WorkQueue[str]()
        queue.retry("a")
        second = queue.retry("a")
        queue.forget("a")
        return second, queue.retry("a"), queue.retries("b")

    assert clock.run(main()) == (0.01, 0.005, 0)


def test_close_wakes_every_waiter_and_hands_out_nothing_more() -> None:
    async def main() -> None:
        queue = WorkQueue[str]()
        refused: list[str] = []

        async def worker(name: str) -> None:
            with pytest.raises(QueueClosed):
                await queue.get()
            refused.append(name)

        async with asyncio.TaskGroup() as group:
            for name in ("one", "two"):
                group.create_task(worker(name), name=name)
            await asyncio.sleep(1)
            queue.add("a")
            queue.add("b", after=5)
            queue.close()
            queue.add("c")

        assert refused == ["one", "two"]
        assert queue.delayed == 0
        with pytest.raises(QueueClosed):
            await queue.get()

    clock.run(main())


def test_work_in_hand_may_be_finished_after_close() -> None:
    async def main() -> None:
        queue = WorkQueue[str]()
        queue.add("a")
        key = await queue.get()
        queue.add("a")

        queue.close()
        queue.done(key)
        queue.retry(key)

        assert len(queue) == 0

    clock.run(main())


def test_a_cancelled_waiter_takes_no_key_with_it() -> None:
    async def main() -> list[tuple[str, float]]:
        queue = WorkQueue[str]()
        async with asyncio.TaskGroup() as group:
            waiter = group.create_task(queue.get(), name="waiter")
            await asyncio.sleep(1)
            queue.add("a")
            waiter.cancel()
        return await take(queue, 1)

    assert clock.run(main()) == [("a", 1)]


class Counter:
    def __init__(self) -> None:
        self.seen: list[tuple[str, float]] = []

    def on_add(self) -> None:
        self.seen.append(("add", 0))

    def on_get(self, waited: float) -> None:
        self.seen.append(("get", waited))

    def on_done(self, worked: float) -> None:
        self.seen.append(("done", worked))

    def on_retry(self) -> None:
        self.seen.append(("retry", 0))


def test_the_observer_sees_how_long_keys_wait_and_work_takes() -> None:
    async def main() -> list[tuple[str, float]]:
        counter = Counter()
        queue = WorkQueue[str](observer=counter)
        queue.add("a")
        queue.add("a")
        await asyncio.sleep(2)
        key = await queue.get()
        await asyncio.sleep(3)
        queue.retry(key)
        queue.done(key)
        return counter.seen

    assert clock.run(main()) == [("add", 0), ("get", 2), ("retry", 0), ("done", 3)]


KEYS = st.sampled_from(["a", "b", "c"])
DELAYS = st.integers(0, 20).map(float)


class QueueMachine(RuleBasedStateMachine):
    """Against a model: what is owed, since when, and what is in someone's hands."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = clock.VirtualLoop()
        self.queue = WorkQueue[str](base_delay=1)
        self.owed: dict[str, float] = {}
        self.hands: set[str] = set()

    def teardown(self) -> None:
        try:
            self.nothing_is_lost()
        finally:
            self.queue.close()
            self.loop.close()

    @property
    def due(self) -> set[str]:
        return {key for key, when in self.owed.items() if when <= self.loop.time() and key not in self.hands}

    @rule(key=KEYS, after=DELAYS)
    def add(self, key: str, after: float) -> None:
        async def act() -> None:
            self.queue.add(key, after=after)

        self.loop.run_until_complete(act())
        self.owed[key] = min(self.owed.get(key, math.inf), self.loop.time() + after)

    @precondition(lambda self: self.due)
    @rule()
    def get(self) -> None:
        key = self.loop.run_until_complete(self.queue.get())

        assert key not in self.hands, "two workers on one key"
        assert key in self.due, "a key before its time"
        del self.owed[key]
        self.hands.add(key)

    @precondition(lambda self: self.hands)
    @rule(data=st.data(), fails=st.booleans())
    def done(self, data: st.DataObject, fails: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.hands)))

        async def act() -> float:
            delay = self.queue.retry(key) if fails else math.inf
            self.queue.done(key)
            return delay

        delay = self.loop.run_until_complete(act())
        if fails:
            self.owed[key] = min(self.owed.get(key, math.inf), self.loop.time() + delay)
        self.hands.discard(key)

    @rule(seconds=DELAYS)
    def wait(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    @invariant()
    def the_line_holds_exactly_what_is_due(self) -> None:
        self.loop.run_until_complete(asyncio.sleep(0))

        assert self.queue.depth == len(self.due)
        assert self.queue._ready == self.due

    def nothing_is_lost(self) -> None:
        for key in sorted(self.hands):
            self.loop.run_until_complete(self._finish(key))
        self.hands.clear()
        while self.owed:
            key = self.loop.run_until_complete(self.queue.get())
            assert self.owed.pop(key) <= self.loop.time()
        assert len(self.queue) == 0

    async def _finish(self, key: str) -> None:
        self.queue.done(key)


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
