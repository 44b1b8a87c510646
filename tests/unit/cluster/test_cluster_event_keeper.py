"""Events go an hour after they were last written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from trainmaster.cluster.controllers.event_keeper import EventKeeper, last_written
from trainmaster.cluster.controllers.recorder import Recorder
from trainmaster.cluster.registry.registry import Registry
from trainmaster.cluster.storage.store import Store
from trainmaster.cluster.storage.store_history import Entry
from trainmaster.testing import clock

HOUR = 3600.0
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default", "uid": "u"}}


class Bed:
    def __init__(self, store: Store, registry: Registry, time: clock.Clock) -> None:
        self.store, self.registry, self.time = store, registry, time
        self.removals = 0

    async def say(self, message: str) -> None:
        await Recorder(self.registry, "test", now=self.time.now).record(POD, "Said", message)

    def messages(self) -> list[str]:
        kind = self.registry.kinds.lookup("", "v1", "events")
        assert kind is not None
        return sorted(entry.value["message"] for entry in self.store.list(kind.prefix))


@asynccontextmanager
async def a_bed(time: clock.Clock, path: Path | None = None) -> AsyncIterator[Bed]:
    store = await Store.open(path)
    registry = Registry(store, now=time.now)
    await registry.start()
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(EventKeeper(registry, now=time.now).run())
            yield Bed(store, registry, time)
            task.cancel()
    finally:
        await store.close()


def test_an_event_goes_an_hour_after_it_was_last_written() -> None:
    async def main() -> list[list[str]]:
        seen = []
        async with a_bed(clock.Clock()) as bed:
            await bed.say("once")
            await bed.say("again")
            await asyncio.sleep(HOUR / 2)
            await bed.say("again")
            await asyncio.sleep(HOUR / 2 - 10)
            seen.append(bed.messages())
            await asyncio.sleep(70)
            seen.append(bed.messages())
            await asyncio.sleep(HOUR / 2)
            seen.append(bed.messages())
            await bed.say("later")
            await asyncio.sleep(HOUR + 120)
            seen.append(bed.messages())
        return seen

    assert clock.run(main()) == [["again", "once"], ["again"], [], []]


def test_the_hour_goes_on_across_a_restart(tmp_path: Path) -> None:
    async def main() -> list[list[str]]:
        time, seen = clock.Clock(), []
        async with a_bed(time, tmp_path / "objects.db") as bed:
            await bed.say("before")
        await asyncio.sleep(HOUR - 10)
        async with a_bed(time, tmp_path / "objects.db") as bed:
            await bed.say("after")
            seen.append(bed.messages())
            await asyncio.sleep(120)
            seen.append(bed.messages())
        return seen

    assert clock.run(main()) == [["after", "before"], ["after"]]


def test_a_thousand_events_are_no_thousand_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> tuple[int, list[str]]:
        looks = 0
        look = EventKeeper._remove_old

        async def counted(self: EventKeeper) -> float | None:
            nonlocal looks
            looks += 1
            return await look(self)

        monkeypatch.setattr(EventKeeper, "_remove_old", counted)
        async with a_bed(clock.Clock()) as bed:
            for number in range(100):
                await bed.say(f"event {number}")
                await asyncio.sleep(0.1)
            await asyncio.sleep(HOUR + 120)
            return looks, bed.messages()

    looks, left = clock.run(main())

    assert left == []
    assert looks <= 4


@pytest.mark.parametrize(
    ("event", "moment"),
    [
        ({"metadata": {"creationTimestamp": "1970-01-01T00:01:00Z"}}, 60.0),
        ({"metadata": {"creationTimestamp": "1970-01-01T00:01:00Z"}, "lastTimestamp": "1970-01-01T00:02:00Z"}, 120.0),
        ({"metadata": {}, "lastTimestamp": None, "eventTime": "1970-01-01T00:01:00.5Z"}, 60.5),
        ({"metadata": {}, "series": {"lastObservedTime": "1970-01-01T00:03:00Z"}}, 180.0),
        ({"metadata": {}, "eventTime": "never"}, 0.0),
        ({"metadata": {}, "eventTime": 7}, 0.0),
        ({"metadata": {}}, 0.0),
    ],
)
def test_the_latest_time_of_an_event_counts(event: dict[str, Any], moment: float) -> None:
    import msgspec

    assert last_written(Entry("default/e", 1, msgspec.json.encode(event))) == moment
