"""One connection of a caller who sends JSON, over real sockets: what is answered, what is refused, and when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable

import pytest

from trainmaster.kube import http1_server
from trainmaster.kube.callers import Callers
from trainmaster.kube.http1_server import Answer, Question, Visit
from trainmaster.testing import clock

LIMIT = 1000


def echo(question: Question) -> Answer:
    return 200, b" ".join((question.method.encode(), question.path.encode(), question.body))


def refuse(status: int, why: str) -> Answer:
    return status, json.dumps(why).encode()


class Caller:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, visit: Visit) -> None:
        self._reader, self._writer, self.visit = reader, writer, visit

    def say(self, text: str) -> None:
        self._writer.write(text.encode("latin-1"))

    async def hear(self) -> tuple[int, str]:
        """One answer."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.partition("Content-Length: ")[2].partition("\r\n")[0] or 0)
        return int(head.split()[1]), (await self._reader.readexactly(length)).decode()

    async def is_hung_up_on(self) -> bool:
        return await self._reader.read() == b""

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):  # who hangs up in the middle of an answer
            await self._writer.wait_closed()


def visiting(act: Callable[[Caller], Awaitable[None]]) -> None:
    async def main() -> None:
        visits: asyncio.Queue[Visit] = asyncio.Queue()

        def visit() -> Visit:
            visits.put_nowait(arrived := Visit(echo, refuse, LIMIT, Callers()))
            return arrived

        server = await asyncio.get_running_loop().create_server(visit, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            caller = Caller(reader, writer, await visits.get())
            await act(caller)
            await caller.close()
            caller.visit.abort()
            await caller.visit.ended

    clock.run(main())


def asking(body: str = "{}", *headers: str, path: str = "/echo", version: str = "HTTP/1.1") -> str:
    lines = [f"POST {path} {version}", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", body])


def test_questions_are_answered_in_order_also_when_they_come_at_once_or_in_pieces() -> None:
    async def act(caller: Caller) -> None:
        caller.say(asking("1") + asking("2", path="/other?timeout=5s") + asking("3")[:-20])
        answers = [await caller.hear(), await caller.hear()]
        caller.say(asking("3")[-20:])
        answers.append(await caller.hear())

        assert answers == [(200, "POST /echo 1"), (200, "POST /other 2"), (200, "POST /echo 3")]

    visiting(act)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64, 1000])
def test_however_the_bytes_are_cut_the_questions_are_the_same(size: int) -> None:
    said = (asking('{"a": 1}') + asking("") + asking("\r\n\r\n", "Expect: nothing")).encode()

    async def act(caller: Caller) -> None:
        for start in range(0, len(said), size):
            caller.visit.data_received(said[start : start + size])

        assert [await caller.hear() for _ in range(3)] == [
            (200, 'POST /echo {"a": 1}'),
            (200, "POST /echo "),
            (200, "POST /echo \r\n\r\n"),
        ]

    visiting(act)


@pytest.mark.parametrize("said", [asking("1", "Connection: close"), asking("1", version="HTTP/1.0")])
def test_who_says_that_it_is_the_last_question_is_answered_and_hung_up_on(said: str) -> None:
    async def act(caller: Caller) -> None:
        caller.say(said)

        assert await caller.hear() == (200, "POST /echo 1")
        assert await caller.is_hung_up_on()

    visiting(act)


def test_who_waits_for_leave_to_send_the_body_gets_it() -> None:
    head, body = asking("1", "Expect: 100-continue")[:-1], "1"

    async def act(caller: Caller) -> None:
        caller.say(head)
        leave = await caller.hear()
        caller.say(body)

        assert leave == (100, "")
        assert await caller.hear() == (200, "POST /echo 1")

    visiting(act)


@pytest.mark.parametrize(
    ("said", "status", "why"),
    [
        pytest.param("hello\r\n\r\n", 400, "the request begins with 'hello'", id="no HTTP"),
        pytest.param(asking(version="HTTP/2.0"), 400, "the request begins with 'POST /echo HTTP/2.0'", id="HTTP/2"),
        pytest.param(
            asking("{}", "Content-Length: 3"),
            400,
            "the header 'Content-Length: 3' is none, or one too many",
            id="two lengths",
        ),
        pytest.param(asking("", "Host : x"), 400, "the header 'Host : x' is none, or one too many", id="blank in name"),
        pytest.param(asking("", " folded"), 400, "the header ' folded' is none, or one too many", id="folded"),
        pytest.param(
            "POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400, "Content-Length: '-1' is no length", id="negative"
        ),
        pytest.param(
            f"POST /echo HTTP/1.1\r\nContent-Length: {'9' * 5000}\r\n\r\n",
            400,
            f"Content-Length: '{'9' * 40}' is no length",
            id="a length that Python does not read",
        ),
        pytest.param(
            f"POST /echo HTTP/1.1\r\nContent-Length: {'9' * 20}\r\n\r\n",
            413,
            "the body has more than 1000 bytes",
            id="a length that no machine has",
        ),
        pytest.param(
            "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            411,
            "the body must come whole, with a Content-Length",
            id="in pieces",
        ),
        pytest.param(asking("x" * 1001), 413, "the body has more than 1000 bytes", id="long body"),
        pytest.param("POST /" + "x" * 70_000, 431, "the head has more than 65536 bytes", id="long head"),
        pytest.param(
            asking("", f"X: {'x' * 70_000}"), 431, "the head has more than 65536 bytes", id="long head that ends"
        ),
    ],
)
def test_what_cannot_be_read_is_told_so_and_the_caller_is_heard_no_more(said: str, status: int, why: str) -> None:
    async def act(caller: Caller) -> None:
        caller.say(said)
        answer = await caller.hear()
        caller.say(asking())

        assert answer == (status, json.dumps(why))
        assert await caller.is_hung_up_on()

    visiting(act)


@pytest.mark.parametrize("said", ["POST", asking("{}")[:-1]], ids=["head", "body"])
def test_a_question_that_never_ends_is_given_up(said: str) -> None:
    async def act(caller: Caller) -> None:
        caller.say(said)

        assert await caller.hear() == (408, '"the question did not arrive within 10 s"')

    visiting(act)


@pytest.mark.parametrize("said", ["", "P", asking("{}")[:-1]], ids=["nothing", "little", "nearly all"])
def test_the_first_question_must_be_complete_ten_seconds_after_the_arrival(said: str) -> None:
    loop_time: list[float] = []

    async def act(caller: Caller) -> None:
        clock_of = asyncio.get_running_loop().time
        loop_time.append(clock_of())
        await asyncio.sleep(9)
        caller.say(said)
        if said:
            assert await caller.hear() == (408, '"the question did not arrive within 10 s"')
        else:
            assert await caller.is_hung_up_on()
        loop_time.append(clock_of())

    visiting(act)

    assert loop_time[1] - loop_time[0] == pytest.approx(10, abs=0.5)


def test_a_connection_without_questions_ends_but_not_before_its_callers_would_end_it() -> None:
    loop_time: list[float] = []

    async def act(caller: Caller) -> None:
        clock_of = asyncio.get_running_loop().time
        caller.say(asking())
        await caller.hear()
        await asyncio.sleep(http1_server.IDLE - 1)
        caller.say(asking())
        await caller.hear()
        loop_time.append(clock_of())
        assert await caller.is_hung_up_on()
        loop_time.append(clock_of())

    visiting(act)

    assert loop_time[1] - loop_time[0] == pytest.approx(http1_server.IDLE, abs=1)


def test_who_is_in_the_middle_of_a_question_when_we_leave_is_answered_first() -> None:
    async def act(caller: Caller) -> None:
        caller.say(asking("1") + asking("2")[:-1])
        await caller.hear()
        caller.visit.leave()
        caller.say("2")

        assert await caller.hear() == (200, "POST /echo 2")
        assert await caller.is_hung_up_on()

    visiting(act)


def test_who_asks_nothing_when_we_leave_is_hung_up_on() -> None:
    async def act(caller: Caller) -> None:
        caller.say(asking("1"))
        await caller.hear()
        caller.visit.leave()
        await caller.visit.ended

    visiting(act)


def test_who_takes_no_answers_may_not_ask_either() -> None:
    """Else whoever asks without listening fills our memory."""

    async def act(caller: Caller) -> None:
        for _ in range(30_000):
            caller.say(asking("x" * LIMIT))
        for _ in range(1000):  # turns of the event loop, in which all of it could be read
            await asyncio.sleep(0)

        assert 0 < caller.visit.unsent < 1 << 20

    visiting(act)
