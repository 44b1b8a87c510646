"""The verbs: what is sent, what comes back, what is tried again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import pytest

import trainmaster
from trainmaster.kube import errors
from trainmaster.kube.client import Client, WatchEvent
from trainmaster.kube.transport import Headers, Request, Response
from trainmaster.objects.meta import Object
from trainmaster.objects.pod import Pod
from trainmaster.objects.resource import CONFIG_MAPS, PODS, PRIORITY_CLASSES

T = TypeVar("T")
Answer = tuple[int, Any] | tuple[int, Any, dict[str, str]] | Exception

POD = {"kind": "Pod", "metadata": {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "7"}}
NO_ANSWER = errors.Unreachable("no connection")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


@dataclass
class Script:
    """A transport that gives the answers it was told to give."""

    answers: list[Answer]
    requests: list[Request] = field(default_factory=list)
    released: int = 0
    is_closed: bool = False

    async def send(self, request: Request) -> Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        status, body, *headers = answer
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return Response(status, Headers(headers[0].items() if headers else ()), in_pieces(content), self.release)

    async def release(self) -> None:
        self.released += 1

    async def close(self) -> None:
        self.is_closed = True

    @property
    def sent(self) -> Request:
        return self.requests[-1]


async def in_pieces(content: bytes) -> AsyncGenerator[bytes, None]:
    yield content[:5]
    yield content[5:]


@dataclass
class Waits:
    """A sleep that only takes notes."""

    seconds: list[float] = field(default_factory=list)

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def connect(*answers: Answer, **options: Any) -> tuple[Client, Script, Waits]:
    script, waits = Script(list(answers)), Waits()
    return Client(script, sleep=waits, random=lambda: 1.0, **options), script, waits


def test_get_decodes_into_the_type_asked_for() -> None:
    client, script, _ = connect((200, POD), (200, POD))

    pod = run(client.get(PODS, "a", "default", type=Pod))
    as_dict = run(client.get(PODS, "a", "default"))

    assert pod.metadata.resource_version == "7"
    assert as_dict == POD
    assert str(script.sent) == "GET /api/v1/namespaces/default/pods/a"


def test_requests_say_who_we_are_and_what_we_speak() -> None:
    client, script, _ = connect((200, POD), (201, POD))

    run(client.get(PODS, "a", "default"))
    read = script.sent
    run(client.create(PODS, POD))

    assert read.headers == {"Accept": "application/json", "User-Agent": f"trainmaster/{trainmaster.__version__}"}
    assert script.sent.headers["Content-Type"] == "application/json"


def test_raw_parts_do_not_pin_the_page_they_came_in() -> None:
    big = [{**POD, "spec": {"n": number}, "padding": "x" * 1000} for number in range(3)]
    client, _, _ = connect((200, {"metadata": {}, "items": big}))

    page = run(client.list(PODS, type=Object))

    assert [bytes(item.spec) for item in page.items] == [b'{"n":0}', b'{"n":1}', b'{"n":2}']
    assert all(len(bytes(memoryview(item.spec).obj)) == 7 for item in page.items)


def test_list_passes_selectors_and_page() -> None:
    client, script, _ = connect(
        (200, {"metadata": {"resourceVersion": "9", "continue": "c2", "remainingItemCount": 4}, "items": [POD]})
    )

    page = run(client.list(PODS, "ns", label_selector="a=b", field_selector="c=d", limit=5, continue_="c1", type=Pod))

    assert script.sent.path == "/api/v1/namespaces/ns/pods"
    assert script.sent.params == (
        ("labelSelector", "a=b"),
        ("fieldSelector", "c=d"),
        ("limit", "5"),
        ("continue", "c1"),
    )
    assert (page.resource_version, page.continue_, page.remaining) == ("9", "c2", 4)
    assert [pod.name for pod in page.items] == ["a"]


@pytest.mark.parametrize("body", [{"items": None}, {"items": []}, {}])
def test_empty_list_in_every_form(body: dict[str, Any]) -> None:
    client, _, _ = connect((200, body))

    assert run(client.list(PODS)).items == ()


def test_list_of_a_version_passes_it() -> None:
    client, script, _ = connect((200, {}))

    run(client.list(PODS, resource_version="0"))

    assert script.sent.params == (("resourceVersion", "0"),)


def test_object_that_does_not_fit_is_named() -> None:
    odd = {"kind": "Pod", "metadata": {"name": "odd", "namespace": "default", "generation": 1}, "status": {"phase": 3}}
    client, _, _ = connect((200, {"items": [POD, odd]}), (200, b"<html>"))

    with pytest.raises(errors.Undecodable, match=r"Pod default/odd is not a Pod: .*status\.phase"):
        run(client.list(PODS, type=Pod))
    with pytest.raises(errors.Undecodable, match="the answer is not a dict"):
        run(client.get(PODS, "a"))


def test_writes_find_name_and_namespace_in_the_object() -> None:
    client, script, _ = connect((201, POD), (200, POD), (200, POD))

    run(client.create(PODS, {"metadata": {"name": "a", "namespace": "ns"}}))
    created = str(script.sent)
    run(client.update(PODS, msgspec.json.encode({"metadata": {"name": "a", "namespace": "ns"}})))
    updated = str(script.sent)
    run(client.update(PODS, {"metadata": {"name": "a"}}, "other", "status"))

    assert created == "POST /api/v1/namespaces/ns/pods"
    assert updated == "PUT /api/v1/namespaces/ns/pods/a"
    assert str(script.sent) == "PUT /api/v1/namespaces/other/pods/a/status"


def test_update_without_a_name_is_a_mistake_of_ours() -> None:
    client, script, _ = connect()

    with pytest.raises(ValueError, match=r"metadata\.name"):
        run(client.update(PODS, {"metadata": {}}))

    assert script.requests == []


def test_patch_says_its_sort() -> None:
    client, script, _ = connect((200, POD), (200, POD))

    run(client.patch(PODS, "a", {"spec": {}}, "default", "status"))
    merge = script.sent
    run(client.patch(PODS, "a", b"[]", "default", content_type="application/json-patch+json"))

    assert merge.headers["Content-Type"] == "application/merge-patch+json"
    assert str(merge) == "PATCH /api/v1/namespaces/default/pods/a/status"
    assert script.sent.headers["Content-Type"] == "application/json-patch+json"
    assert script.sent.body == b"[]"


def test_delete_sends_options_and_preconditions() -> None:
    client, script, _ = connect((200, {"kind": "Status"}), (200, {"kind": "Status"}))

    run(client.delete(PODS, "a", "default"))
    plain = msgspec.json.decode(script.sent.body)
    run(client.delete(PODS, "a", "default", uid="u", resource_version="7", propagation="Orphan", grace_seconds=0))

    assert plain == {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    assert msgspec.json.decode(script.sent.body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Orphan",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u", "resourceVersion": "7"},
    }


@pytest.mark.parametrize(
    ("answer", "lives_on"),
    [
        pytest.param({"kind": "Status", "status": "Success"}, False, id="status"),
        pytest.param(POD, False, id="object-as-it-was"),
        pytest.param({"metadata": {"deletionTimestamp": "t", "deletionGracePeriodSeconds": 0}}, False, id="at-once"),
        pytest.param({"metadata": {"deletionTimestamp": "t", "deletionGracePeriodSeconds": 30}}, True, id="graceful"),
        pytest.param(
            {"metadata": {"deletionTimestamp": "t", "deletionGracePeriodSeconds": 0, "finalizers": ["f"]}},
            True,
            id="finalizers",
        ),
    ],
)
def test_delete_tells_gone_from_going(answer: dict[str, Any], lives_on: bool) -> None:
    client, _, _ = connect((200, answer))

    assert (run(client.delete(PODS, "a", "default")) is not None) is lives_on


def test_refusal_is_raised_with_request_and_words() -> None:
    client, _, _ = connect((403, {"reason": "Forbidden", "message": "you may not"}))

    with pytest.raises(errors.Forbidden, match=r"^GET /api/v1/configmaps: 403 Forbidden: you may not$"):
        run(client.list(CONFIG_MAPS))


def test_redirect_is_a_refusal() -> None:
    client, _, _ = connect((302, b""))

    with pytest.raises(errors.ApiError, match="302"):
        run(client.list(PODS))


BUSY: Answer = (429, {"reason": "TooManyRequests"})
BROKEN: Answer = (500, {"reason": "InternalError"})
AWAY: Answer = (503, b"away")
NAMED = {"metadata": {"name": "a", "namespace": "default"}}
VERSIONED = {"metadata": {"name": "a", "namespace": "default", "resourceVersion": "7"}}
GENERATED = {"metadata": {"generateName": "a-", "namespace": "default"}}


async def verb(client: Client, name: str) -> None:
    match name:
        case "get":
            await client.get(PODS, "a", "default")
        case "list":
            await client.list(PODS)
        case "raw get":
            await client.request("GET", "/version")
        case "raw post":
            await client.request("POST", "/x", body=b"{}")
        case "create":
            await client.create(PODS, NAMED)
        case "create generated":
            await client.create(PODS, GENERATED)
        case "update":
            await client.update(PODS, VERSIONED)
        case "update blindly":
            await client.update(PODS, NAMED)
        case "patch":
            await client.patch(PODS, "a", VERSIONED, "default")
        case "patch blindly":
            await client.patch(PODS, "a", {"spec": {}}, "default")
        case "delete":
            await client.delete(PODS, "a", "default", uid="u")
        case _:
            await client.delete(PODS, "a", "default")


READS = ("get", "list", "raw get")
REPEATABLE = ("create", "update", "patch", "delete")
ONCE = ("create generated", "update blindly", "patch blindly", "delete blindly", "raw post")


@pytest.mark.parametrize(
    ("names", "failures"),
    [
        pytest.param(READS, (BUSY, BROKEN, AWAY, NO_ANSWER), id="reads-after-anything"),
        pytest.param(
            REPEATABLE, (BUSY, AWAY, NO_ANSWER, (502, b""), (504, b"")), id="guarded-writes-after-lost-answers"
        ),
        pytest.param(ONCE, (BUSY,), id="all-others-when-nothing-was-done"),
    ],
)
def test_tried_again(names: Sequence[str], failures: Sequence[Answer]) -> None:
    for name in names:
        for failure in failures:
            client, script, waits = connect(failure, (200, POD))

            run(verb(client, name))

            assert len(script.requests) == 2, (name, failure)
            assert script.requests[0] == script.requests[1]
            assert waits.seconds == [0.1]


@pytest.mark.parametrize(
    ("names", "failures"),
    [
        pytest.param(READS + REPEATABLE, ((404, b""), (409, b""), (403, b"")), id="answers-are-answers"),
        pytest.param(REPEATABLE, (BROKEN,), id="guarded-writes-after-500"),
        pytest.param(ONCE, (BROKEN, AWAY, NO_ANSWER), id="all-others-when-in-doubt"),
    ],
)
def test_not_tried_again(names: Sequence[str], failures: Sequence[Answer]) -> None:
    for name in names:
        for failure in failures:
            client, script, _ = connect(failure, (200, POD))

            with pytest.raises(errors.KubeError):
                run(verb(client, name))

            assert len(script.requests) == 1, (name, failure)


def test_create_whose_answer_was_lost_may_find_its_own_object() -> None:
    client, _, _ = connect(NO_ANSWER, (409, {"reason": "AlreadyExists"}))

    with pytest.raises(errors.AlreadyExists):
        run(client.create(PODS, NAMED))


def test_backoff_doubles_up_to_its_cap_and_ends() -> None:
    client, script, waits = connect(*[NO_ANSWER] * 9, max_retries=8)

    with pytest.raises(errors.Unreachable):
        run(client.get(PODS, "a"))

    assert waits.seconds == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert script.answers == []


def test_retry_after_is_obeyed_before_the_jitter() -> None:
    client, _, waits = connect((429, b"", {"retry-after": "3"}), (200, POD))

    run(client.get(PODS, "a"))

    assert waits.seconds == [3.1]


def test_server_that_wants_much_patience_gets_it_from_the_caller() -> None:
    client, _, waits = connect((429, b"", {"Retry-After": "3600"}))

    with pytest.raises(errors.TooManyRequests) as caught:
        run(client.get(PODS, "a"))

    assert caught.value.retry_after == 3600.0
    assert waits.seconds == []


class Deposed(errors.KubeError):
    """Another may write by now."""


@pytest.mark.parametrize("failure", [(429, {}), NO_ANSWER], ids=["too many requests", "no answer"])
def test_who_lost_the_right_to_write_does_not_repeat_a_write(failure: Answer) -> None:
    client, script, _ = connect(failure, (200, POD), (200, POD))
    asked = 0

    def permit() -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise Deposed

    async def main() -> Any:
        fenced = client.fenced(permit)
        with pytest.raises(Deposed):
            await fenced.create(PODS, POD)
        return await fenced.get(PODS, "a", "default")

    assert run(main()) == POD
    assert [request.method for request in script.requests] == ["POST", "GET"]


def test_every_attempt_is_observed() -> None:
    seen: list[tuple[str, str, int | str]] = []
    client, _, _ = connect(
        NO_ANSWER, AWAY, (200, {}), observer=lambda method, plural, code, seconds: seen.append((method, plural, code))
    )

    run(client.list(PRIORITY_CLASSES))

    assert seen == [
        ("GET", "priorityclasses", "unreachable"),
        ("GET", "priorityclasses", 503),
        ("GET", "priorityclasses", 200),
    ]


def test_cancellation_passes_through() -> None:
    class Stuck:
        async def send(self, request: Request) -> Response:
            await asyncio.Event().wait()
            raise AssertionError

        async def close(self) -> None: ...

    async def main() -> None:
        async with asyncio.timeout(0):
            await Client(Stuck()).list(PODS)

    with pytest.raises(TimeoutError):
        run(main())


def lines(*events: dict[str, Any]) -> bytes:
    return b"".join(msgspec.json.encode(event) + b"\n" for event in events)


def test_watch_gives_events_and_bookmarks() -> None:
    bookmark = {"metadata": {"resourceVersion": "9", "creationTimestamp": None}}
    stream = lines({"type": "ADDED", "object": POD}, {"type": "BOOKMARK", "object": bookmark}) + b"\n  \n"
    client, script, _ = connect((200, stream))

    async def main() -> list[WatchEvent[Pod]]:
        watch = client.watch(PODS, "ns", resource_version="5", timeout_seconds=60, label_selector="a=b", type=Pod)
        return [event async for event in watch]

    added, marked = run(main())

    assert (added.type, added.object and added.object.name, added.resource_version) == ("ADDED", "a", "7")
    assert marked == WatchEvent[Pod]("BOOKMARK", None, "9")
    assert script.sent.stream
    assert script.sent.idle > 60
    assert script.sent.params == (
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("resourceVersion", "5"),
        ("timeoutSeconds", "60"),
        ("labelSelector", "a=b"),
    )


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(
            (200, lines({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}})), errors.Gone, id="event"
        ),
        pytest.param((410, {"reason": "Expired"}), errors.Gone, id="answer"),
        pytest.param((200, lines({"type": "ERROR", "object": {"code": 500}})), errors.ServerError, id="other-event"),
        pytest.param((200, b'{"type": "ADD'), errors.Undecodable, id="cut-in-the-middle"),
        pytest.param(NO_ANSWER, errors.Unreachable, id="no-answer"),
    ],
)
def test_watch_raises_what_ends_it(answer: Answer, kind: type[errors.KubeError]) -> None:
    client, script, _ = connect(answer)

    async def main() -> None:
        async for _ in client.watch(PODS, resource_version="5", timeout_seconds=60):
            pass

    with pytest.raises(kind):
        run(main())
    assert len(script.requests) == 1


def test_leaving_a_watch_closes_its_stream() -> None:
    client, script, _ = connect((200, lines({"type": "ADDED", "object": POD}, {"type": "ADDED", "object": POD})))

    async def main() -> None:
        async with aclosing(client.watch(PODS, resource_version="5", timeout_seconds=60)) as events:
            await anext(events)

    run(main())

    assert script.released == 1


def test_close_closes_the_transport() -> None:
    client, script, _ = connect()

    run(client.close())

    assert script.is_closed


@pytest.mark.parametrize(("insists", "first", "then"), [(True, 0.1, 0.1), (False, None, 0.1)])
def test_who_does_not_insist_sees_the_first_page_fail_and_later_ones_are_repeated(insists, first, then) -> None:
    pages = [{"metadata": {"resourceVersion": "9", "continue": token}, "items": []} for token in ("more", "")]

    async def main(client: Client) -> list[str]:
        async with aclosing(client.pages(PODS, "ns", limit=500, insists=insists)) as contents:
            return [head.continue_ or "" async for head, _ in contents]

    early, _, waits = connect((503, {}), *((200, page) for page in pages))
    if first is None:
        with pytest.raises(errors.ServerError):
            run(main(early))
    else:
        assert run(main(early)) == ["more", ""]
        assert waits.seconds == [first]
    late, script, waits = connect((200, pages[0]), (503, {}), (200, pages[1]))

    assert run(main(late)) == ["more", ""]
    assert waits.seconds == [then]
    assert script.sent.params == (("limit", "500"), ("continue", "more"))
