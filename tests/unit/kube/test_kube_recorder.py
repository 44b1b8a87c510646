"""Events: said once with a count, muted when too many, lost rather than in anyone's way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from trainmaster.kube.errors import AlreadyExists, Forbidden, KubeError, NotFound, ServerError, Unreachable
from trainmaster.kube.recorder import MAX_KEYS, Recorder, Reference
from trainmaster.objects.resource import EVENTS, Resource
from trainmaster.testing import clock

WIDGET = Reference("example.org/v1", "Widget", "team", "mnist", "uid-1", "7")
WALL = clock.Clock()


class Api:
    """Keeps events; fails as it is told, call by call."""

    def __init__(self, *failures: KubeError | None) -> None:
        self.failures = list(failures)
        self.events: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        self.results: list[str] = []
        self.latency = 0.0

    @property
    def only(self) -> dict[str, Any]:
        (event,) = self.events.values()
        return event

    async def create(self, resource: Resource, body: Mapping[str, Any], namespace: str = "") -> Any:
        await self._call("create")
        assert (resource, namespace) == (EVENTS, body["metadata"]["namespace"])
        if body["metadata"]["name"] in self.events:
            raise AlreadyExists(409, "AlreadyExists")
        self.events[body["metadata"]["name"]] = dict(body)

    async def patch(self, resource: Resource, name: str, body: Mapping[str, Any], namespace: str = "") -> Any:
        await self._call("patch")
        if name not in self.events:
            raise NotFound(404)
        self.events[name].update(body)

    async def _call(self, verb: str) -> None:
        self.calls.append(verb)
        await asyncio.sleep(self.latency)
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure


def recording(api: Api, script: Callable[[Recorder], Awaitable[None]], **settings: Any) -> None:
    """Runs the script with a recorder, then flushes it."""

    async def main() -> None:
        recorder = Recorder(
            api, component="operator", host="node-1", now=WALL.now, on_result=api.results.append, **settings
        )
        await script(recorder)
        await recorder.flush()

    clock.run(main())


def say(recorder: Recorder, message: str = "it broke", *, about: Reference = WIDGET, repeat: bool = True) -> None:
    recorder.event(about, "Warning", "Broken", message, repeat=repeat)


def test_an_event_tells_what_happened_to_whom_and_who_says_so() -> None:
    api = Api()

    async def script(recorder: Recorder) -> None:
        recorder.event(WIDGET, "Normal", "Created", "made 3 pods")

    recording(api, script)

    name = f"mnist.{int(WALL.epoch * 1e9):x}"
    assert api.events == {
        name: {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "team"},
            "involvedObject": {
                "apiVersion": "example.org/v1",
                "kind": "Widget",
                "namespace": "team",
                "name": "mnist",
                "uid": "uid-1",
                "resourceVersion": "7",
            },
            "reason": "Created",
            "message": "made 3 pods",
            "type": "Normal",
            "count": 1,
            "firstTimestamp": "2024-01-01T00:00:00Z",
            "lastTimestamp": "2024-01-01T00:00:00Z",
            "source": {"component": "operator", "host": "node-1"},
            "reportingComponent": "operator",
            "reportingInstance": "node-1",
        }
    }


def test_events_of_cluster_wide_objects_live_in_the_default_namespace() -> None:
    api = Api()

    async def script(recorder: Recorder) -> None:
        say(recorder, about=replace(WIDGET, namespace=""))

    recording(api, script)

    assert api.only["metadata"]["namespace"] == "default"
    assert "namespace" not in api.only["involvedObject"]


def test_the_same_said_again_is_counted() -> None:
    api = Api()

    async def script(recorder: Recorder) -> None:
        for _ in range(3):
            say(recorder)
            await recorder.flush()
            await asyncio.sleep(60)

    recording(api, script)

    assert api.calls == ["create", "patch", "patch"]
    assert api.only["count"] == 3
    assert api.only["firstTimestamp"] == "2024-01-01T00:00:00Z"
    assert api.only["lastTimestamp"] == "2024-01-01T00:02:00Z"
    assert api.results == ["created", "updated", "updated"]


def test_repeats_before_the_first_write_share_it() -> None:
    api = Api()

    async def script(recorder: Recorder) -> None:
        for _ in range(100):
            say(recorder)

    recording(api, script)

    assert api.calls == ["create"]
    assert api.only["count"] == 100


def test_a_repeat_during_the_first_write_follows_it() -> None:
    api = Api()
    api.latency = 1

    async def script(recorder: Recorder) -> None:
        say(recorder)
        async with asyncio.TaskGroup() as group:
            group.create_task(recorder.flush(), name="flush")
            await asyncio.sleep(0.5)
            say(recorder)

    recording(api, script)

    assert api.calls == ["create", "patch"]
    assert api.only["count"] == 2


@pytest.mark.parametrize(
    ("pause", "events"),
    [pytest.param(599, 1, id="within ten minutes"), pytest.param(601, 2, id="after ten minutes")],
)
def test_a_repeat_after_ten_minutes_is_a_new_event(pause: float, events: int) -> None:
    api = Api()

    async def script(recorder: Recorder) -> None:
        say(recorder)
        await recorder.flush()
        await asyncio.sleep(pause)
        say(recorder)

    recording(api, script)

    assert len(api.events) == events


def test_an_observation_made_on_every_pass_is_written_once() -> None:
    api = Api()

    async def script(recorder: Recorder) -> None:
        for _ in range(100):
            say(recorder, repeat=False)
            await recorder.flush()
            await asyncio.sleep(60)

    recording(api, script)

    assert api.calls == ["create"]
    assert api.only["count"] == 1
    assert api.results == ["created"] + ["suppressed"] * 99


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"about": replace(WIDGET, uid="uid-2")}, id="object"),
        pytest.param({"message": "it broke again"}, id="message"),
    ],
)
def test_what_differs_is_another_event(other: dict[str, Any]) -> None:
    api = Api()

    async def script(recorder: Recorder) -> None:
        say(recorder)
        say(recorder, **other)

    recording(api, script)

    assert len(api.events) == 2


def test_an_object_that_talks_too_much_is_muted_and_others_are_not() -> None:
    api = Api()

    async def script(recorder: Recorder) -> None:
        for number in range(30):
            say(recorder, f"message {number}")
        say(recorder, about=replace(WIDGET, uid="uid-2"))

    recording(api, script)

    assert api.results.count("filtered") == 5
    assert len(api.events) == 25 + 1


def test_a_muted_object_may_speak_again_every_five_minutes() -> None:
    api = Api()

    async def script(recorder: Recorder) -> None:
        for number in range(25):
            say(recorder, f"message {number}")
        await asyncio.sleep(299)
        say(recorder, "too early")
        await asyncio.sleep(2)
        say(recorder, "just right")
        say(recorder, "too many")

    recording(api, script)

    messages = {event["message"] for event in api.events.values()}
    assert messages & {"too early", "just right", "too many"} == {"just right"}


def test_a_full_buffer_drops_the_oldest(caplog: pytest.LogCaptureFixture) -> None:
    api = Api()

    async def script(recorder: Recorder) -> None:
        for number in range(5):
            say(recorder, f"message {number}")

    recording(api, script, max_pending=3)

    assert [event["message"] for event in api.events.values()] == ["message 2", "message 3", "message 4"]
    assert api.results.count("dropped") == 2
    assert [record.getMessage() for record in caplog.records] == ["events dropped, too many are waiting"]


def test_what_was_dropped_may_be_said_again() -> None:
    api = Api()

    async def script(recorder: Recorder) -> None:
        say(recorder, "first", repeat=False)
        say(recorder, "second", repeat=False)
        await recorder.flush()
        say(recorder, "first", repeat=False)

    recording(api, script, max_pending=1)

    assert sorted(event["message"] for event in api.events.values()) == ["first", "second"]


def test_memory_is_bounded() -> None:
    async def script(recorder: Recorder) -> None:
        for number in range(MAX_KEYS + 500):
            say(recorder, about=replace(WIDGET, uid=f"uid-{number}"))

        assert len(recorder._known) <= MAX_KEYS
        assert len(recorder._buckets) <= MAX_KEYS
        assert len(recorder._pending) == 1000

    recording(Api(), script)


@pytest.mark.parametrize("failure", [Unreachable("reset"), ServerError(503)])
def test_a_failed_write_is_tried_once_more(failure: KubeError) -> None:
    api = Api(failure)

    async def script(recorder: Recorder) -> None:
        say(recorder)

    recording(api, script)

    assert api.calls == ["create", "create"]
    assert api.results == ["created"]


def test_an_event_that_fails_twice_is_given_up_quietly(caplog: pytest.LogCaptureFixture) -> None:
    api = Api(Unreachable("reset"), Unreachable("reset"))

    async def script(recorder: Recorder) -> None:
        say(recorder)
        await recorder.flush()
        say(recorder, repeat=False)

    recording(api, script)

    assert api.results == ["failed", "created"]
    assert [record.levelname for record in caplog.records if record.levelname != "DEBUG"] == []


def test_a_write_that_hangs_is_given_up() -> None:
    api = Api()
    api.latency = 1000

    async def script(recorder: Recorder) -> None:
        say(recorder)
        await recorder.flush()

        assert asyncio.get_running_loop().time() == pytest.approx(21)

    recording(api, script)

    assert api.results == ["failed"]


def test_a_write_whose_answer_was_lost_is_not_written_twice() -> None:
    class Forgetful(Api):
        async def create(self, resource: Resource, body: Mapping[str, Any], namespace: str = "") -> Any:
            await super().create(resource, body, namespace)
            if len(self.calls) == 1:
                raise Unreachable("reset")

    api = Forgetful()

    async def script(recorder: Recorder) -> None:
        say(recorder)

    recording(api, script)

    assert api.calls == ["create", "create"]
    assert api.results == ["created"]
    assert api.only["count"] == 1


@pytest.mark.parametrize(
    ("failure", "warnings"),
    [
        pytest.param(NotFound(404, "NotFound", 'namespaces "team" not found'), 0, id="namespace gone"),
        pytest.param(Forbidden(403, "Forbidden", "because it is being terminated"), 0, id="namespace going"),
        pytest.param(Forbidden(403, "Forbidden", "cannot create events"), 1, id="no right to"),
    ],
)
def test_a_refused_event_is_dropped(failure: KubeError, warnings: int, caplog: pytest.LogCaptureFixture) -> None:
    api = Api(failure)

    async def script(recorder: Recorder) -> None:
        say(recorder)

    recording(api, script)

    assert api.calls == ["create"]
    assert api.results == ["failed"]
    assert len(caplog.records) == warnings


def test_an_event_that_expired_meanwhile_is_made_anew() -> None:
    api = Api()

    async def script(recorder: Recorder) -> None:
        say(recorder)
        await recorder.flush()
        api.events.clear()
        await asyncio.sleep(60)
        say(recorder)

    recording(api, script)

    assert api.calls == ["create", "patch", "create"]
    assert api.only["count"] == 2


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param("x" * 1024, "x" * 1024, id="just fits"),
        pytest.param("x" * 1025, "x" * 1021 + "...", id="too long"),
        pytest.param("€" * 400, "€" * 340 + "...", id="cut between characters"),
        pytest.param("\ud800", "?", id="broken character"),
    ],
)
def test_messages_are_cut_to_what_the_api_takes(message: str, expected: str) -> None:
    api = Api()

    async def script(recorder: Recorder) -> None:
        say(recorder, message)

    recording(api, script)

    assert api.only["message"] == expected


def test_names_are_unique_and_valid_for_the_longest_object_names() -> None:
    api = Api()

    async def script(recorder: Recorder) -> None:
        for number in range(3):
            say(recorder, f"message {number}", about=replace(WIDGET, name="a" * 235 + "-" + "b" * 17))

    recording(api, script)

    assert len(api.events) == 3
    assert all(len(name) <= 253 and "-." not in name for name in api.events)


def test_run_writes_as_events_come_and_the_rest_when_it_ends() -> None:
    api = Api()
    api.latency = 1

    async def script(recorder: Recorder) -> None:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(recorder.run(), name="recorder")
            say(recorder, "first")
            await asyncio.sleep(60)
            written = len(api.events)
            say(recorder, "second")
            say(recorder, "third")
            await asyncio.sleep(0.5)
            running.cancel()

        assert written == 1

    recording(api, script)

    assert sorted(event["message"] for event in api.events.values()) == ["first", "second", "third"]


def test_run_does_not_wait_for_ever_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    api = Api()
    api.latency = 1000

    async def script(recorder: Recorder) -> None:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(recorder.run(), name="recorder")
            say(recorder)
            await asyncio.sleep(0.5)
            running.cancel()

        assert asyncio.get_running_loop().time() == pytest.approx(3.5)
        api.latency = 0

    recording(api, script)

    assert [record.getMessage() for record in caplog.records] == ["events not written"]
