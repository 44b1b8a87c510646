"""The reflector keeps its cache true through everything a server can do to it. Time is virtual."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from trainmaster.kube.cache import Cache
from trainmaster.kube.client import Client
from trainmaster.kube.reflector import Reflector
from trainmaster.objects.pod import Pod
from trainmaster.objects.resource import PODS
from trainmaster.testing import clock
from trainmaster.testing.fakeapi import FakeApi, Fault

run = clock.run


@dataclass
class Scene:
    api: FakeApi
    cache: Cache[Pod]
    reflector: Reflector[Pod]
    waits: list[float]
    told: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return sorted(pod.name for pod in self.cache.values())

    def count(self, *, watch: bool) -> int:
        """Lists or watches asked for."""
        return sum(request.stream is watch for request in self.api.sent)

    def note(self, old: Pod | None, new: Pod | None) -> None:
        self.told += [f"+{new.name}"] if new is not None else [f"-{old.name}"] if old is not None else []


@asynccontextmanager
async def running(api: FakeApi, **options: Any) -> AsyncIterator[Scene]:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.sleep(seconds)

    client = Client(api, max_retries=0, sleep=sleep)
    cache = Cache[Pod]()
    scene = Scene(api, cache, Reflector(client, PODS, Pod, cache, sleep=sleep, random=lambda: 1.0, **options), waits)
    cache.subscribe(scene.note)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(scene.reflector.run(), name="reflector")
        try:
            yield scene
        finally:
            task.cancel()


async def until(claim: Callable[[], bool]) -> None:
    """Turns of the loop, none of them a second; a claim that never comes true is a failure."""
    for _ in range(1000):
        if claim():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")


def a_pod(name: str, **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **meta}}


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_synced_after_all_pages_and_told_of_each_object_once() -> None:
    async def main() -> None:
        api = FakeApi()
        for name in "abcde":
            api.put(PODS, a_pod(name))

        async with running(api, page_size=2) as scene:
            await scene.reflector.synced.wait()

            assert scene.told == ["+a", "+b", "+c", "+d", "+e"]
            assert scene.count(watch=False) == 3

    run(main())


def test_events_reach_the_cache() -> None:
    async def main() -> None:
        api = FakeApi()
        api.put(PODS, a_pod("a"))

        async with running(api) as scene:
            await scene.reflector.synced.wait()
            api.put(PODS, a_pod("b"))
            api.set_pod_phase("default", "a", "Running")
            api.remove(PODS, "default", "b")
            await until(lambda: len(scene.told) == 4)

            assert scene.told == ["+a", "+b", "+a", "-b"]
            assert scene.cache.resource_version == api.resource_version

    run(main())


def test_selectors_and_namespace_are_passed_on() -> None:
    async def main() -> None:
        api = FakeApi()
        for name, namespace, app in (("a", "x", "1"), ("b", "x", "2"), ("c", "y", "1")):
            api.put(PODS, a_pod(name, namespace=namespace, labels={"app": app}))

        async with running(api, namespace="x", label_selector="app=1", field_selector="metadata.name!=z") as scene:
            await scene.reflector.synced.wait()
            api.put(PODS, a_pod("d", namespace="y", labels={"app": "1"}))
            api.put(PODS, a_pod("z", namespace="x", labels={"app": "1"}))
            api.put(PODS, a_pod("e", namespace="x", labels={"app": "1"}))
            await until(lambda: len(scene.told) == 2)

            assert scene.names == ["a", "e"]

    run(main())


def test_watch_that_ends_in_good_time_resumes_at_once_from_where_it_was() -> None:
    async def main() -> None:
        api = FakeApi()
        api.put(PODS, a_pod("a"))

        async with running(api) as scene:
            await scene.reflector.synced.wait()
            await asyncio.sleep(481)
            api.put(PODS, a_pod("b"))
            await until(lambda: scene.names == ["a", "b"])

            assert scene.count(watch=False) == 1
            assert scene.count(watch=True) == 2
            assert scene.waits == []

    run(main())


def test_bookmark_moves_the_place_to_resume_from() -> None:
    async def main() -> None:
        api = FakeApi()

        async with running(api) as scene:
            await until(lambda: api.watching == 1)
            api.put(PODS, a_pod("a"))
            api.remove(PODS, "default", "a")
            api.send_bookmarks()
            await until(lambda: scene.cache.resource_version == "2")
            api.compact()
            api.drop_watches()
            await asyncio.sleep(1)

            assert ("resourceVersion", "2") in api.sent[-1].params
            assert scene.count(watch=False) == 1

    run(main())


def test_dropped_watch_resumes_and_misses_nothing() -> None:
    async def main() -> None:
        api = FakeApi()

        async with running(api) as scene:
            await until(lambda: api.watching == 1)
            api.put(PODS, a_pod("a"))
            api.drop_watches(broken=True)
            api.put(PODS, a_pod("b"))
            await asyncio.sleep(1)

            assert scene.names == ["a", "b"]
            assert scene.count(watch=False) == 1

    run(main())


def test_forgotten_history_leads_to_a_new_list_and_only_differences_are_told() -> None:
    async def main() -> None:
        api = FakeApi()
        for name in ("gone", "same"):
            api.put(PODS, a_pod(name))

        async with running(api) as scene:
            await until(lambda: api.watching == 1)
            scene.told.clear()
            api.hold_watches()
            api.remove(PODS, "default", "gone")
            api.put(PODS, a_pod("new"))
            api.compact()
            api.drop_watches()
            api.hold_watches(False)
            await asyncio.sleep(3)

            assert scene.told == ["-gone", "+new"]
            assert scene.count(watch=False) == 2

    run(main())


def test_gone_as_an_answer_is_the_same_as_gone_as_an_event() -> None:
    async def main() -> None:
        api = FakeApi()
        api.put(PODS, a_pod("a"))

        async with running(api) as scene:
            await until(lambda: api.watching == 1)
            api.fail_next("GET *", 410)
            api.drop_watches()
            await asyncio.sleep(3)

            assert scene.count(watch=False) == 2
            assert api.watching == 1

    run(main())


def test_list_that_expires_between_pages_begins_anew() -> None:
    async def main() -> None:
        api = FakeApi()
        for name in "abc":
            api.put(PODS, a_pod(name))

        def compact_before_the_second_page(method: str, path: str, body: bytes) -> None:
            if len(api.requests) == 2:
                api.compact()

        api.on_request(compact_before_the_second_page)

        async with running(api, page_size=2) as scene:
            await scene.reflector.synced.wait()

            assert scene.names == ["a", "b", "c"]
            assert scene.told == ["+a", "+b", "+c"]

    run(main())


def test_cache_stays_as_it_is_while_the_server_is_away() -> None:
    async def main() -> None:
        api = FakeApi()
        api.put(PODS, a_pod("a"))

        async with running(api) as scene:
            await until(lambda: api.watching == 1)
            outage: list[Fault] = [Fault()]
            api.on_request(lambda method, path, body: outage[0] if outage else None)
            api.drop_watches(broken=True)
            await asyncio.sleep(300)
            during = scene.names
            outage.clear()
            api.put(PODS, a_pod("b"))
            await asyncio.sleep(31)

            assert during == ["a"]
            assert scene.names == ["a", "b"]
            assert scene.told == ["+a", "+b"]

    run(main())


def test_backoff_doubles_to_its_cap_and_begins_anew_after_a_good_watch() -> None:
    async def main() -> None:
        api = FakeApi()
        api.fail_next("GET *", 500, times=8)

        async with running(api) as scene:
            await scene.reflector.synced.wait()
            await asyncio.sleep(60)
            first = scene.waits.copy()
            api.drop_watches(broken=True)
            await asyncio.sleep(1)

            assert first == [0.5, 1, 2, 4, 8, 16, 30, 30]
            assert scene.waits[8:] == [0.5]

    run(main())


def test_server_that_ends_every_watch_at_once_is_not_besieged() -> None:
    async def main() -> None:
        api = FakeApi()

        async def drop(times: int) -> None:
            await until(lambda: api.watching == 1)
            api.drop_watches()
            await until(lambda: len(scene.waits) == times)
            await asyncio.sleep(scene.waits[-1])

        async with running(api) as scene:
            for times in range(1, 7):
                await drop(times)

            assert scene.waits == [0.5, 1, 2, 4, 8, 16]

    run(main())


def test_place_in_history_is_given_up_when_watching_from_it_fails_again_and_again() -> None:
    async def main() -> None:
        api = FakeApi()
        api.put(PODS, a_pod("a"))

        async with running(api) as scene:
            await until(lambda: api.watching == 1)
            api.fail_next(lambda method, path, body: api.sent[-1].stream, Fault(504, message="too large"), times=3)
            api.drop_watches()
            await asyncio.sleep(30)

            assert scene.count(watch=False) == 2
            assert api.watching == 1

    run(main())


def test_kind_that_is_not_served_is_warned_of_once_and_found_when_it_comes(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        api = FakeApi()
        api.resources.discard(PODS)

        async with running(api) as scene:
            await asyncio.sleep(300)
            before = scene.reflector.synced.is_set()
            api.resources.add(PODS)
            await asyncio.sleep(31)

            assert not before
            assert scene.reflector.synced.is_set()

    with caplog.at_level(logging.INFO):
        run(main())

    assert warnings_in(caplog) == ["watch interrupted"]


def test_single_cut_is_not_worth_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        api = FakeApi()

        async with running(api):
            await until(lambda: api.watching == 1)
            api.drop_watches(broken=True)
            await asyncio.sleep(60)

    with caplog.at_level(logging.INFO):
        run(main())

    assert warnings_in(caplog) == []


def test_object_that_cannot_be_read_is_named_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        api = FakeApi()
        api.put(PODS, {**a_pod("odd"), "status": {"phase": 3}})
        api.put(PODS, a_pod("a"))

        async with running(api) as scene:
            await until(lambda: api.watching == 1)
            listed = scene.names
            api.put(PODS, {**a_pod("a"), "status": {"phase": ["odd"]}})
            api.put(PODS, a_pod("b"))
            await until(lambda: scene.names == ["a", "b"])

            assert listed == ["a"]
            assert scene.cache.resource_version == api.resource_version

    run(main())

    errors_told = [str(getattr(record, "fields", {}).get("error")) for record in caplog.records]
    assert len(errors_told) == 2
    assert "default/odd" in errors_told[0]
    assert "default/a" in errors_told[1]


def test_deletion_that_cannot_be_read_is_a_deletion(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        api = FakeApi()
        api.put(PODS, a_pod("a"))

        async with running(api) as scene:
            await until(lambda: api.watching == 1)
            api.put(PODS, {**a_pod("a"), "status": {"phase": 3}})
            api.remove(PODS, "default", "a")
            await until(lambda: scene.names == [])
            api.put(PODS, a_pod("a"))
            await until(lambda: scene.names == ["a"])

    run(main())


def test_odd_object_in_a_new_list_stays_as_it_was() -> None:
    async def main() -> None:
        api = FakeApi()
        api.put(PODS, a_pod("a"))

        async with running(api) as scene:
            await until(lambda: api.watching == 1)
            api.hold_watches()
            api.put(PODS, {**a_pod("a"), "status": {"phase": 3}})
            api.compact()
            api.drop_watches()
            api.hold_watches(False)
            await asyncio.sleep(3)

            assert scene.count(watch=False) == 2
            assert scene.names == ["a"]

    run(main())


def test_handler_that_raises_is_a_defect_and_ends_the_reflector() -> None:
    async def main() -> None:
        api = FakeApi()
        api.put(PODS, a_pod("a"))
        cache = Cache[Pod]()

        def handler(old: Pod | None, new: Pod | None) -> None:
            raise ZeroDivisionError

        cache.subscribe(handler)
        await Reflector(Client(api), PODS, Pod, cache).run()

    with pytest.raises(ZeroDivisionError):
        run(main())


def test_stream_that_says_nothing_sensible_is_watched_anew() -> None:
    async def main() -> None:
        api = FakeApi()

        async with running(api) as scene:
            await until(lambda: api.watching == 1)
            api.fail_next(lambda method, path, body: api.sent[-1].stream, Fault(200))
            api.drop_watches()
            await asyncio.sleep(3)
            api.put(PODS, a_pod("a"))
            await until(lambda: scene.names == ["a"])

    run(main())


def test_no_refusal_ends_the_reflector() -> None:
    async def main() -> None:
        api = FakeApi()
        for status in (400, 401, 403, 405, 429, 500):
            api.fail_next("GET *", status)
        api.fail_next("GET *", Fault())

        async with running(api) as scene:
            await scene.reflector.synced.wait()

            assert len(scene.waits) == 7

    run(main())
