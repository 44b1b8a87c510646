"""Logs of pods that are gone: kept for a while, and not without limit."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from trainmaster.cluster.kubelet.log_keeper import LogKeeper
from trainmaster.testing import clock

HOUR = 3600.0


def left_behind(directory: Path, name: str, size: int = 10) -> None:
    (directory / name / "main").mkdir(parents=True)
    (directory / name / "main" / "0.log").write_bytes(b"x" * size)


def with_keeper(
    directory: Path, body: Callable[[LogKeeper, clock.Clock], Awaitable[None]], **limits: int
) -> list[list[str]]:
    """What is there just before the hour is over, and after it."""

    async def main() -> list[list[str]]:
        time = clock.Clock()
        keeper = LogKeeper(directory, HOUR, time.now, **limits)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(keeper.run())
            await body(keeper, time)
            await asyncio.sleep(HOUR - 10)
            before = sorted(os.listdir(directory))
            await asyncio.sleep(20)
            task.cancel()
        return [before, sorted(os.listdir(directory))]

    return clock.run(main())


def test_logs_are_removed_when_their_time_is_over(tmp_path: Path) -> None:
    async def body(keeper: LogKeeper, time: clock.Clock) -> None:
        left_behind(tmp_path, "one")
        await keeper.keep("one")
        left_behind(tmp_path, "alive")

    assert with_keeper(tmp_path, body) == [["alive", "one"], ["alive"]]


def test_of_too_many_pods_the_oldest_go_first(tmp_path: Path) -> None:
    async def body(keeper: LogKeeper, time: clock.Clock) -> None:
        for name in ("a", "b", "c"):
            left_behind(tmp_path, name)
            await keeper.keep(name)

    assert with_keeper(tmp_path, body, max_pods=2)[0] == ["b", "c"]


def test_of_too_many_bytes_the_oldest_go_first(tmp_path: Path) -> None:
    async def body(keeper: LogKeeper, time: clock.Clock) -> None:
        for name in ("a", "b", "c"):
            left_behind(tmp_path, name, 1 << 20)
            await keeper.keep(name)

    assert with_keeper(tmp_path, body, max_bytes=5 << 19)[0] == ["b", "c"]


def test_what_an_earlier_cluster_left_is_removed_an_hour_after_it_was_written(tmp_path: Path) -> None:
    async def body(keeper: LogKeeper, time: clock.Clock) -> None:
        for name, age in (("old", 2 * HOUR), ("recent", HOUR / 2), ("alive", 2 * HOUR), ("new", 0.0)):
            left_behind(tmp_path, name)
            os.utime(tmp_path / name, (time.now() - age, time.now() - age))
        await keeper.find(lambda name: name == "alive")

    assert with_keeper(tmp_path, body) == [["alive", "new"], ["alive"]]
