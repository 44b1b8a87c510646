"""Controllers: every outcome of a reconcile, workers that live on, and an end in good order."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from trainmaster.kube import logs, steps
from trainmaster.kube.controller import LONGEST_WAIT, Controller, Result, Terminal
from trainmaster.kube.errors import Conflict, NotFound, Unreachable
from trainmaster.kube.queue import WorkQueue
from trainmaster.testing import clock

ENDLESS = re.compile(r"(a+)+$")

Reconcile = Callable[[str], Awaitable[float | None]]


def now() -> float:
    return asyncio.get_running_loop().time()


class Script:
    """A reconcile that does what it is told, call by call, and notes when it was called."""

    def __init__(self, *outcomes: float | BaseException | None) -> None:
        self.outcomes = list(outcomes)
        self.calls: list[tuple[str, float]] = []

    async def __call__(self, key: str) -> float | None:
        self.calls.append((key, now()))
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


class Counter:
    def __init__(self) -> None:
        self.seen: list[tuple[Result, float]] = []

    def observe(self, result: Result, seconds: float) -> None:
        self.seen.append((result, seconds))


def run_for(
    seconds: float, reconcile: Reconcile, *keys: str, workers: int = 1, timeout: float = 120.0
) -> tuple[WorkQueue[str], list[tuple[Result, float]]]:
    """A controller at work on these keys for so long, then stopped."""

    async def main() -> tuple[WorkQueue[str], list[tuple[Result, float]]]:
        queue, counter = WorkQueue[str](base_delay=1), Counter()
        controller = Controller("test", reconcile, queue, workers=workers, timeout=timeout, metrics=counter)
        for key in keys:
            queue.add(key)
        async with asyncio.TaskGroup() as group:
            group.create_task(controller.run(), name="controller")
            await asyncio.sleep(seconds)
            await controller.stop(0)
        return queue, counter.seen

    return clock.run(main())


def test_a_key_that_is_done_is_left_alone() -> None:
    reconcile = Script(None)

    queue, seen = run_for(1000, reconcile, "a")

    assert reconcile.calls == [("a", 0)]
    assert seen == [("success", 0)]
    assert queue.retries("a") == 0


def test_a_key_is_seen_again_after_the_seconds_it_asked_for() -> None:
    reconcile = Script(30.0, 5.0, None)

    _, seen = run_for(1000, reconcile, "a")

    assert reconcile.calls == [("a", 0), ("a", 30), ("a", 35)]
    assert [result for result, _ in seen] == ["requeue", "requeue", "success"]


def test_a_key_that_waits_for_long_is_looked_at_now_and_then_because_clocks_are_stepped() -> None:
    reconcile = Script(86400.0, 86400.0, None)

    run_for(2000, reconcile, "a")

    assert reconcile.calls == [("a", 0), ("a", LONGEST_WAIT), ("a", 2 * LONGEST_WAIT)]


def test_failures_back_off_and_success_forgets_them() -> None:
    reconcile = Script(OSError("1"), OSError("2"), OSError("3"), 100.0, OSError("4"), None)

    queue, seen = run_for(1000, reconcile, "a")

    assert [at for _, at in reconcile.calls] == [0, 1, 3, 7, 107, 108]
    assert [result for result, _ in seen] == ["error", "error", "error", "requeue", "error", "success"]
    assert queue.retries("a") == 0


def test_a_terminal_failure_is_never_retried() -> None:
    reconcile = Script(OSError("1"), Terminal("spec.replicas: -1 is negative"))

    queue, seen = run_for(1000, reconcile, "a")

    assert [at for _, at in reconcile.calls] == [0, 1]
    assert [result for result, _ in seen] == ["error", "terminal"]
    assert queue.retries("a") == 0


@pytest.mark.parametrize(
    ("error", "level", "message", "has_traceback"),
    [
        pytest.param(Conflict(409, "Conflict", "stale"), "INFO", "reconcile met a conflict", False, id="conflict"),
        pytest.param(NotFound(404), "WARNING", "reconcile failed", False, id="api error"),
        pytest.param(Unreachable("no route"), "WARNING", "reconcile failed", False, id="unreachable"),
        pytest.param(Terminal("no"), "ERROR", "reconcile given up", False, id="terminal"),
        pytest.param(KeyError("x"), "ERROR", "reconcile crashed", True, id="unexpected"),
        pytest.param(
            ExceptionGroup("", [Conflict(409), ExceptionGroup("", [Conflict(409)])]),
            "INFO",
            "reconcile met a conflict",
            False,
            id="conflicts of a fan-out",
        ),
        pytest.param(
            ExceptionGroup("", [Conflict(409), KeyError("x")]), "ERROR", "reconcile crashed", True, id="mixed group"
        ),
        pytest.param(ExceptionGroup("", [Terminal("no")]), "ERROR", "reconcile given up", False, id="terminal group"),
    ],
)
def test_a_failure_is_logged_once_at_the_length_it_deserves(
    error: Exception, level: str, message: str, has_traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    run_for(1000, Script(error), "a")

    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == (level, message)
    assert bool(record.exc_info) is has_traceback


def test_a_reconcile_that_takes_too_long_is_cancelled_and_retried() -> None:
    cancelled_at: list[float] = []

    async def reconcile(key: str) -> None:
        if not cancelled_at:
            try:
                await asyncio.sleep(10_000)
            finally:
                cancelled_at.append(now())

    _, seen = run_for(1000, reconcile, "a", timeout=120)

    assert cancelled_at == [120]
    assert [result for result, _ in seen] == ["error", "success"]


def test_a_stray_cancellation_does_not_end_the_worker() -> None:
    reconcile = Script(asyncio.CancelledError(), None)

    _, seen = run_for(1000, reconcile, "a")

    assert [result for result, _ in seen] == ["error", "success"]


def test_a_failing_key_does_not_delay_others() -> None:
    calls: list[tuple[str, float]] = []

    async def reconcile(key: str) -> None:
        calls.append((key, now()))
        if key == "bad":
            raise OSError

    run_for(4, reconcile, "bad", "good", "fine")

    assert calls == [("bad", 0), ("good", 0), ("fine", 0), ("bad", 1), ("bad", 3)]


def test_workers_work_at_the_same_time_but_never_on_one_key() -> None:
    chance = random.Random(7)
    spans: dict[str, list[tuple[float, float]]] = {}
    queue = WorkQueue[str]()

    async def reconcile(key: str) -> float:
        started = now()
        await asyncio.sleep(chance.uniform(0.1, 2))
        queue.add(chance.choice("abcdef"))
        spans.setdefault(key, []).append((started, now()))
        return chance.uniform(0, 1)

    async def main() -> None:
        controller = Controller("test", reconcile, queue, workers=4)
        for key in "abcdef":
            queue.add(key)
        async with asyncio.TaskGroup() as group:
            group.create_task(controller.run(), name="controller")
            await asyncio.sleep(200)
            await controller.stop(10)

    clock.run(main())

    assert sorted(spans) == list("abcdef")
    for times in spans.values():
        assert all(ended <= started for (_, ended), (started, _) in pairwise(sorted(times)))
    assert sum(ended - started for times in spans.values() for started, ended in times) > 2 * 200


def test_a_long_line_of_quick_reconciles_lets_other_tasks_run() -> None:
    done: list[str] = []
    turns: list[int] = []

    async def reconcile(key: str) -> None:
        done.append(key)

    async def main() -> None:
        queue = WorkQueue[str]()
        controller = Controller("test", reconcile, queue)
        for number in range(100):
            queue.add(str(number))
        async with asyncio.TaskGroup() as group:
            group.create_task(controller.run(), name="controller")
            while len(done) < 100:
                await asyncio.sleep(0)
                turns.append(len(done))
            await controller.stop(0)

    clock.run(main())

    assert len(turns) >= 100


def test_each_reconcile_has_an_id_of_its_own() -> None:
    ids: list[str] = []

    async def reconcile(key: str) -> None:
        ids.append(logs.reconcile_id.get())

    run_for(1, reconcile, "a", "b")

    assert len(set(ids)) == 2
    assert "" not in ids
    assert logs.reconcile_id.get() == ""


async def stopped_during_a_reconcile(reconcile: Reconcile, deadline: float) -> float:
    """How long the stop took."""
    queue = WorkQueue[str]()
    controller = Controller("test", reconcile, queue)
    queue.add("a")
    queue.add("b")
    async with asyncio.TaskGroup() as group:
        group.create_task(controller.run(), name="controller")
        await asyncio.sleep(1)
        started = now()
        await controller.stop(deadline)
        return now() - started


def test_stop_lets_running_reconciles_finish_and_starts_no_others() -> None:
    finished: list[str] = []

    async def reconcile(key: str) -> None:
        await asyncio.sleep(5)
        finished.append(key)

    took = clock.run(stopped_during_a_reconcile(reconcile, deadline=10))

    assert took == 4
    assert finished == ["a"]


def test_stop_cancels_what_is_not_finished_at_the_deadline(caplog: pytest.LogCaptureFixture) -> None:
    finished: list[str] = []

    async def reconcile(key: str) -> None:
        await asyncio.sleep(100)
        finished.append(key)

    took = clock.run(stopped_during_a_reconcile(reconcile, deadline=10))

    assert took == 10
    assert finished == []
    assert [record.getMessage() for record in caplog.records] == ["reconciles cut short"]


def test_a_reconcile_that_swallows_its_cancellation_gets_no_further_key() -> None:
    calls: list[str] = []

    async def reconcile(key: str) -> None:
        calls.append(key)
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(1)

    async def main() -> None:
        queue = WorkQueue[str]()
        queue.add("a")
        queue.add("b")
        async with asyncio.TaskGroup() as group:
            running = group.create_task(Controller("test", reconcile, queue).run(), name="controller")
            await asyncio.sleep(5)
            running.cancel()

    clock.run(main())

    assert calls == ["a"]


def test_stop_before_run_is_no_error() -> None:
    async def main() -> None:
        controller = Controller[str]("test", Script(), WorkQueue[str]())
        await controller.stop(10)
        await controller.run()

    clock.run(main())


def test_a_key_that_computes_without_end_is_named_and_does_not_hold_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: list[str] = []

    async def reconcile(key: str) -> None:
        await asyncio.sleep(1)
        if key == "bad":
            ENDLESS.match("a" * 40 + "!")
        done.append(key)

    async def main() -> None:
        queue = WorkQueue[str](base_delay=1)
        controller = Controller("test", reconcile, queue, longest_step=0.05)
        for key in ("bad", "good"):
            queue.add(key)
        async with asyncio.TaskGroup() as group:
            group.create_task(controller.run(), name="controller")
            await asyncio.sleep(1000)
            await controller.stop(0)

    clock.run(main())

    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert done == ["good"]
    assert record.getMessage().startswith("reconcile given up")
    assert "bad" in str(vars(record))
    assert "it takes more than 0.05 s of processor time; left alone until it changes" in str(vars(record))


def test_a_limited_reconcile_is_cancelled_and_answered_like_any_other() -> None:
    seen: list[str] = []

    async def inner() -> int:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return 1

    async def main() -> int:
        task = asyncio.ensure_future(asyncio.wait_for(steps.Limited(inner(), 60), 1))
        with pytest.raises(TimeoutError):
            await task
        return await steps.Limited(asyncio.sleep(1, result=7), 60)

    assert clock.run(main()) == 7
    assert seen == ["cancelled"]
