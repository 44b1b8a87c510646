"""What the one list and watch says, whatever the server does. Time is virtual."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from trainmaster.kube import errors
from trainmaster.kube.client import Client
from trainmaster.kube.watch import Away, Back, Changed, Listed, Message, Objects, Reached, Selection, Unread, Watch
from trainmaster.objects.pod import Pod
from trainmaster.objects.resource import PODS, SERVICES
from trainmaster.testing import clock
from trainmaster.testing.fakeapi import FakeApi, Fault

run = clock.run
HOUR = 3600.0


def told(message: Message[Pod]) -> str:
    match message:
        case Listed(items):
            return f"all: {' '.join(pod.name for pod in items)}"
        case Changed(kind, pod):
            return f"{kind} {pod.name}"
        case Unread(kind, head, _):
            return f"{kind} unread {head.name}"
        case Reached():
            return "reached"
        case Away():
            return "away"
        case Back():
            return "back"


class Heard:
    def __init__(self) -> None:
        self.messages: list[Message[Pod]] = []
        self.error: errors.KubeError | None = None

    @property
    def told(self) -> list[str]:
        return [told(message) for message in self.messages if not isinstance(message, Reached)]


@asynccontextmanager
async def watching(api: FakeApi, **options: Any) -> AsyncIterator[Heard]:
    heard = Heard()
    selection = Selection(PODS, labels=options.pop("labels", ""))
    watch = Watch(Client(api), selection, Objects(Pod), random=lambda: 1.0, **options)

    async def listen() -> None:
        try:
            async with aclosing(watch.messages()) as messages:
                async for message in messages:
                    heard.messages.append(message)
        except errors.KubeError as error:
            heard.error = error

    async with asyncio.TaskGroup() as group:
        task = group.create_task(listen(), name="listen")
        await asyncio.sleep(10)
        yield heard
        task.cancel()


def a_pod(name: str, **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **meta}}


def an_api(*names: str) -> FakeApi:
    api = FakeApi()
    for name in names:
        api.put(PODS, a_pod(name))
    return api


class Switch:
    """A server that answers nothing, or only with a status, while it is off."""

    def __init__(self, api: FakeApi, fault: Fault | int | None = None) -> None:
        self.is_off = False
        self._api = api
        api.on_request(lambda method, path, body: (fault or Fault(message="refused")) if self.is_off else None)

    async def off(self, seconds: float) -> None:
        self.is_off = True
        self._api.drop_watches(broken=True)
        await asyncio.sleep(seconds)
        self.is_off = False


def test_everything_there_is_comes_as_one_message_however_many_pages_it_had() -> None:
    async def main() -> None:
        api = an_api("a", "b", "c")

        async with watching(api, page_size=2) as heard:
            assert heard.told == ["all: a b c"]
            assert next(request.params for request in api.sent if not request.stream) == (("limit", "2"),)

    run(main())


def test_a_gap_in_history_is_everything_again() -> None:
    async def main() -> None:
        api = an_api("gone", "same")

        async with watching(api) as heard:
            api.hold_watches()
            api.remove(PODS, "default", "gone")
            api.put(PODS, a_pod("new"))
            api.compact()
            api.drop_watches()
            api.hold_watches(False)
            await asyncio.sleep(3)

            assert heard.told == ["all: gone same", "all: new same"]

    run(main())


def test_a_gap_soon_after_the_list_is_no_outage() -> None:
    async def main() -> None:
        api = an_api("a")

        async with watching(api) as heard:
            api.drop_watches()
            await asyncio.sleep(0.1)
            api.hold_watches()
            api.put(PODS, a_pod("b"))
            api.compact()
            api.drop_watches()
            api.hold_watches(False)
            await asyncio.sleep(3)

            assert heard.told == ["all: a", "all: a b"]

    run(main())


def test_who_has_a_list_already_hears_of_what_came_after_it() -> None:
    async def main() -> None:
        api = an_api("a")
        since = api.resource_version
        api.put(PODS, a_pod("b"))

        async with watching(api, since=since) as heard:
            assert heard.told == ["ADDED b"]

    run(main())


def test_an_outage_is_told_once_and_its_end_as_soon_as_the_server_agrees_to_watch() -> None:
    async def main() -> None:
        api = an_api("a")
        switch = Switch(api)

        async with watching(api) as heard:
            await switch.off(HOUR)
            await asyncio.sleep(30)

            assert heard.told == ["all: a", "away", "all: a", "back"]

    run(main())


def test_a_single_cut_is_no_outage() -> None:
    async def main() -> None:
        api = an_api("a")

        async with watching(api) as heard:
            api.drop_watches(broken=True)
            await asyncio.sleep(HOUR)

            assert heard.told == ["all: a"]

    run(main())


def test_the_next_outage_is_told_again() -> None:
    async def main() -> None:
        api = an_api("a")
        switch = Switch(api)

        async with watching(api) as heard:
            for _ in range(2):
                await switch.off(HOUR)
                await asyncio.sleep(HOUR)

            assert [word for word in heard.told if "all" not in word] == ["away", "back"] * 2

    run(main())


@pytest.mark.parametrize("status", [500, 503, 504, 429, 404, 410])
def test_an_hour_of_refusals_is_some_hundred_requests(status: int) -> None:
    async def main() -> None:
        api = an_api("a")
        switch = Switch(api, status)

        async with watching(api):
            before = len(api.requests)
            await switch.off(HOUR)

            # Of a request that is only refused for now (429) the client makes six.
            assert 100 <= len(api.requests) - before <= (140 if status != 429 else 840)

    run(main())


def test_a_server_that_says_when_to_come_back_is_not_asked_before() -> None:
    async def main() -> None:
        api = an_api("a")
        switch = Switch(api, Fault(503, retry_after=120))

        async with watching(api):
            before = len(api.requests)
            await switch.off(HOUR)

            assert len(api.requests) - before <= 31

    run(main())


def test_two_clients_do_not_come_back_at_the_same_moment() -> None:
    pauses = []
    for random in (0.0, 1.0):
        api = an_api("a")

        async def main(api: FakeApi = api, random: float = random) -> None:
            waits: list[float] = []

            async def sleep(seconds: float) -> None:
                waits.append(seconds)
                await asyncio.sleep(seconds)

            api.fail_next("GET *", 500, times=3)
            watch = Watch(Client(api), Selection(PODS), Objects(Pod), sleep=sleep, random=lambda: random)
            async with aclosing(watch.messages()) as messages:
                while not isinstance(await anext(messages), Listed):
                    pass
            pauses.append(waits)

        run(main())

    assert pauses == [[0.25, 0.5, 1.0], [0.5, 1.0, 2.0]]


def test_what_is_final_ends_it() -> None:
    async def main() -> None:
        api = an_api("a")
        switch = Switch(api, 403)

        async with watching(api, is_final=lambda error, failures: isinstance(error, errors.Forbidden)) as heard:
            await switch.off(1)

            assert isinstance(heard.error, errors.Forbidden)

    run(main())


def test_what_may_only_last_for_a_moment_can_be_final_when_it_lasts() -> None:
    async def main() -> None:
        api = an_api("a")
        switch = Switch(api, 404)

        async with watching(api, is_final=lambda error, failures: failures >= 4) as heard:
            before = len(api.requests)
            await switch.off(HOUR)

            assert isinstance(heard.error, errors.NotFound)
            assert len(api.requests) - before == 4

    run(main())


def test_an_object_that_cannot_be_read_does_not_stop_the_others() -> None:
    async def main() -> None:
        api = an_api("a")

        async with watching(api) as heard:
            api.put(PODS, {**a_pod("odd"), "status": {"phase": 3}})
            api.put(PODS, a_pod("b"))
            await asyncio.sleep(1)
            api.drop_watches()
            await asyncio.sleep(10)

            assert heard.told == ["all: a", "ADDED unread odd", "ADDED b"]

    run(main())


def test_a_watch_resumes_after_what_it_last_heard() -> None:
    async def main() -> None:
        api = an_api("a")

        async with watching(api) as heard:
            api.put(PODS, a_pod("b"))
            await asyncio.sleep(481)
            api.put(PODS, a_pod("c"))
            await asyncio.sleep(1)

            assert heard.told == ["all: a", "ADDED b", "ADDED c"]

    run(main())


def test_a_watch_in_which_nothing_happens_resumes_from_its_bookmark() -> None:
    async def main() -> None:
        api = an_api("a")

        async with watching(api) as heard:
            api.put(SERVICES, a_pod("other"))
            api.send_bookmarks()
            await asyncio.sleep(1)
            api.compact()
            api.drop_watches()
            await asyncio.sleep(1)
            api.put(PODS, a_pod("b"))
            await asyncio.sleep(1)

            assert heard.told == ["all: a", "ADDED b"]

    run(main())
