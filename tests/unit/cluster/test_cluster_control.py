from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from trainmaster.cluster.controllers.control import Loop
from trainmaster.cluster.controllers.recorder import Recorder
from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.cluster.storage.store import ALL, Change, Store
from trainmaster.testing import clock, stage
from trainmaster.testing.stage import Stage

PODS = "/pods"


def a_key(change: Change) -> Iterator[str]:
    yield change.entry.key


def play(
    scene: Callable[[Store, Loop[str]], Awaitable[None]],
    reconcile: Callable[[str], Awaitable[float | None]],
    *,
    prefix: str = PODS,
    history: int = 1000,
    **options: Any,
) -> None:
    async def main() -> None:
        store = await Store.open(None, history=history)
        await store.put(PODS, "ns/first", {"metadata": {}}, expect=None)
        loop: Loop[str] = Loop("test", store, {prefix: a_key}, reconcile, **options)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(loop.run())
            await scene(store, loop)
            running.cancel()
        await store.close()

    clock.run(main())


@pytest.mark.parametrize("prefix", [PODS, ALL])
def test_what_is_there_is_looked_at_first_and_then_what_changes(prefix: str) -> None:
    seen: asyncio.Queue[str] = asyncio.Queue()

    async def scene(store: Store, loop: Loop[str]) -> None:
        assert await seen.get() == "ns/first"
        await store.put(PODS, "ns/second", {"metadata": {}}, expect=None)
        assert await seen.get() == "ns/second"
        await store.remove(PODS, "ns/first")
        assert await seen.get() == "ns/first"

    play(scene, seen.put, prefix=prefix)


def test_a_key_is_never_worked_on_twice_at_once_and_changes_meanwhile_make_one_more_pass() -> None:
    passes, at_once = 0, 0
    may_end = asyncio.Event()
    begun = asyncio.Event()

    async def reconcile(key: str) -> None:
        nonlocal passes, at_once
        passes, at_once = passes + 1, at_once + 1
        assert at_once == 1
        begun.set()
        await may_end.wait()
        at_once -= 1

    async def scene(store: Store, loop: Loop[str]) -> None:
        await begun.wait()
        for _ in range(5):
            loop.mark("ns/first")
        may_end.set()
        await asyncio.sleep(10)
        assert passes == 2

    play(scene, reconcile)


def test_a_result_asks_to_be_called_again_and_a_mark_comes_earlier() -> None:
    moments: list[float] = []

    async def reconcile(key: str) -> float | None:
        moments.append(asyncio.get_running_loop().time())
        return 100.0 if len(moments) < 4 else None

    async def scene(store: Store, loop: Loop[str]) -> None:
        await asyncio.sleep(150)
        loop.mark("ns/first")
        await asyncio.sleep(1000)
        assert moments == [0, 100, 150, 250]

    play(scene, reconcile)


@pytest.mark.parametrize(
    ("error", "is_told"),
    [(ApiError(409, "Conflict", "x"), False), (ApiError(500, "InternalError", "x"), True), (ValueError("x"), True)],
)
def test_a_failure_is_tried_again_with_growing_pauses(
    error: Exception, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    moments: list[float] = []

    async def reconcile(key: str) -> None:
        moments.append(asyncio.get_running_loop().time())
        if len(moments) < 5:
            raise error

    async def scene(store: Store, loop: Loop[str]) -> None:
        await asyncio.sleep(1000)
        pauses = [round(later - earlier, 3) for earlier, later in zip(moments, moments[1:], strict=False)]
        assert pauses == [0.01, 0.02, 0.04, 0.08]

    with caplog.at_level(logging.WARNING):
        play(scene, reconcile)

    assert bool(caplog.records) == is_told


def test_a_loop_that_missed_changes_looks_at_everything_again() -> None:
    seen: list[str] = []
    resets = 0

    def reset() -> None:
        nonlocal resets
        resets += 1

    async def reconcile(key: str) -> None:
        seen.append(key)

    async def scene(store: Store, loop: Loop[str]) -> None:
        await asyncio.sleep(1)
        for number in range(20):
            await store.put(PODS, f"ns/{number}", {"metadata": {}}, expect=None)
        await asyncio.sleep(1)
        assert set(seen) == {"ns/first", *(f"ns/{number}" for number in range(20))}
        assert resets == 2

    play(scene, reconcile, history=5, reset=reset)


def test_a_repeated_event_counts_up() -> None:
    async def scene(stage: Stage) -> None:
        obj = await stage.create("v1/configmaps", {"metadata": {"name": "a"}})
        recorder = Recorder(stage.registry, "tester", now=stage.now)

        for reason in ("Broken", "Broken", "Mended"):
            await recorder.record(obj, reason, "because", warning=reason == "Broken")

        events = {event["reason"]: event for event in stage.all("v1/events", "default")}
        assert {reason: event["count"] for reason, event in events.items()} == {"Broken": 2, "Mended": 1}
        assert (events["Broken"]["type"], events["Mended"]["type"]) == ("Warning", "Normal")
        assert events["Broken"]["involvedObject"]["uid"] == obj["metadata"]["uid"]

    stage.play(scene, lambda registry, now: [])


def test_an_event_that_cannot_be_written_stops_nobody() -> None:
    async def scene(stage: Stage) -> None:
        obj = await stage.create("v1/configmaps", {"metadata": {"name": "a"}})
        elsewhere = {**obj, "metadata": {**obj["metadata"], "namespace": "gone"}}

        await Recorder(stage.registry, "tester", now=stage.now).record(elsewhere, "Broken", "because")

        assert stage.all("v1/events") == []

    stage.play(scene, lambda registry, now: [])
