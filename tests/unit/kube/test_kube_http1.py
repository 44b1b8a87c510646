"""An answer is read the same however the network cuts it; what is no answer is told apart from one."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.kube import http1
from trainmaster.kube.http1 import Answer, Broken, Connection, Disconnected, Malformed, encode

SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Odd:  a: b \r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: t\r\n\r\n"
TO_THE_END = b"HTTP/1.1 200 OK\r\n\r\nhello"
PACKED = gzip.compress(b"hello")
GZIPPED = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (len(PACKED), PACKED)
FIRST_A_WORD = b"HTTP/1.1 100 Continue\r\n\r\n" + SIZED


class Line(asyncio.Transport):
    """A transport that says what the test wants to be said."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.is_cut = self.is_paused = False

    def write(self, data: Any) -> None:
        self.sent += bytes(data)

    def is_closing(self) -> bool:
        return self.is_cut

    def close(self) -> None:
        self.is_cut = True

    def abort(self) -> None:
        self.is_cut = True

    def is_reading(self) -> bool:
        return not self.is_paused

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


class Talk:
    """One connection, and whether it was free again."""

    def __init__(self) -> None:
        self.line, self.freed = Line(), 0
        self.connection = Connection(self._free)
        self.connection.connection_made(self.line)

    def _free(self, connection: Connection) -> None:
        self.freed += 1

    async def answer(self, *pieces: bytes, ends: bool = False) -> Answer:
        asyncio.get_running_loop().call_soon(self._say, pieces, ends)
        return await self.connection.exchange(encode("GET", "/", "host", {}))

    def _say(self, pieces: Sequence[bytes], ends: bool) -> None:
        for piece in pieces:
            self.connection.data_received(piece)
        if ends:
            self.connection.connection_lost(None)


async def body_of(answer: Answer) -> bytes:
    chunks = []
    while chunk := await answer.chunk():
        chunks.append(chunk)
    return b"".join(chunks)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())


@pytest.mark.parametrize(
    ("raw", "ends", "is_free"),
    [(SIZED, False, 1), (CHUNKED, False, 1), (GZIPPED, False, 1), (FIRST_A_WORD, False, 1), (TO_THE_END, True, 0)],
    ids=["by its length", "in chunks", "compressed", "after an interim answer", "to the end of the connection"],
)
@given(cuts=st.lists(st.integers(0, 120), max_size=8))
def test_a_body_is_read_however_it_is_framed_and_cut(raw, ends, is_free, cuts):
    marks = [0, *sorted(cut for cut in cuts if cut < len(raw)), len(raw)]
    pieces = [raw[start:end] for start, end in zip(marks, marks[1:], strict=False)]

    async def main():
        talk = Talk()
        answer = await talk.answer(*pieces, ends=ends)

        assert answer.status == 200
        assert await body_of(answer) == b"hello"
        assert talk.freed == is_free

    run(main)


def test_one_connection_serves_one_exchange_after_the_other():
    async def main():
        talk = Talk()
        for number in range(3):
            assert await body_of(await talk.answer(SIZED)) == b"hello"
            assert talk.freed == number + 1

        assert talk.line.sent == encode("GET", "/", "host", {}) * 3

    run(main)


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=["it says so", "an old server"],
)
def test_a_connection_that_will_not_be_kept_is_closed(raw):
    async def main():
        talk = Talk()

        assert await body_of(await talk.answer(raw)) == b""
        assert talk.line.is_cut
        assert talk.freed == 0

    run(main)


def test_an_answer_without_a_body_ends_at_once():
    async def main():
        talk = Talk()

        assert await body_of(await talk.answer(b"HTTP/1.1 204 No Content\r\n\r\n")) == b""
        assert talk.freed == 1

    run(main)


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 many OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n",
        b"x" * (http1.LONGEST_HEAD + 1),
    ],
    ids=["another protocol", "no status", "negative length", "no length", "endless head"],
)
def test_what_is_not_http_is_refused_and_the_connection_given_up(raw):
    async def main():
        talk = Talk()

        with pytest.raises(Malformed):
            await talk.answer(raw)
        assert talk.line.is_cut

    run(main)


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
    ],
    ids=["a chunk without a size", "a chunk too long", "not compressed"],
)
def test_a_body_that_cannot_be_read_is_refused(raw):
    async def main():
        answer = await Talk().answer(raw)

        with pytest.raises(Malformed):
            await body_of(answer)

    run(main)


def test_a_peer_that_hangs_up_before_its_answer_is_told_from_one_that_does_in_the_middle():
    async def main():
        with pytest.raises(Disconnected):
            await Talk().answer(ends=True)
        with pytest.raises(Broken):
            await Talk().answer(b"HTTP/1.1 200", ends=True)
        answer = await Talk().answer(SIZED[:-1], ends=True)
        with pytest.raises(Broken):
            await body_of(answer)

    run(main)


def test_a_server_that_speaks_unasked_loses_the_connection():
    async def main():
        talk = Talk()
        await body_of(await talk.answer(SIZED))
        talk.connection.data_received(SIZED)

        assert talk.line.is_cut

    run(main)


def test_a_sender_is_held_back_until_somebody_reads():
    async def main():
        talk, size = Talk(), http1.READ_AHEAD * 2
        answer = await talk.answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size, b"x" * (size - 1))
        assert talk.line.is_paused

        await answer.chunk()
        assert not talk.line.is_paused

    run(main)


def test_an_answer_given_up_costs_the_connection_and_a_whole_one_does_not():
    async def main():
        talk = Talk()
        (await talk.answer(SIZED)).close()
        assert not talk.line.is_cut

        (await talk.answer(SIZED[:-1])).close()
        assert talk.line.is_cut

    run(main)


def test_a_request_that_nobody_waits_for_any_more_costs_the_connection():
    async def main():
        talk = Talk()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await talk.connection.exchange(b"")

        assert talk.line.is_cut

    run(main)


def test_requests_say_how_long_they_are():
    assert encode("GET", "/a", "h", {"A": "b"}) == b"GET /a HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n"
    assert encode("POST", "/", "h", {}, b"{}") == b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"
    assert encode("PUT", "/", "h", {}).endswith(b"Content-Length: 0\r\n\r\n")


@pytest.mark.parametrize("value", ["a\nX: y", "a\r\n\r\nGET /"])
def test_a_header_cannot_smuggle_another(value):
    with pytest.raises(ValueError, match="line break"):
        encode("GET", "/", "h", {"Authorization": value})
