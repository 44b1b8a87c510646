"""A few pages over real sockets, and visitors of every kind. Time is virtual."""

from __future__ import annotations

import asyncio

import pytest

from trainmaster.kube import pages
from trainmaster.kube.pages import Page
from trainmaster.testing import clock

SHOWN = {"/a": lambda query: Page(f"a {query}".encode()), "/big": lambda query: Page(b"x" * (4 << 20))}


async def say(port: int, words: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(words)
    try:
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


def ask(words: bytes) -> tuple[int, bytes]:
    """Status and body."""

    async def main() -> bytes:
        async with pages.serving(SHOWN, "127.0.0.1", 0) as port:
            return await say(port, words)

    head, _, body = clock.run(main()).partition(b"\r\n\r\n")
    return int(head.split()[1]) if head else 0, body


@pytest.mark.parametrize(
    ("words", "status", "body"),
    [
        (b"GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n", 200, b"a b=c"),
        (b"HEAD /a HTTP/1.1\r\n\r\n", 200, b""),
        (b"POST /a HTTP/1.1\r\n\r\n", 405, b"ask with GET\n"),
        (b"GET /c HTTP/1.1\r\n\r\n", 404, b"no such page; there is /a, /big\n"),
        (b"\r\n\r\n", 405, b"ask with GET\n"),
    ],
    ids=["asked for", "its head alone", "another verb", "another page", "no words"],
)
def test_a_visitor_gets(words, status, body):
    assert ask(words) == (status, body)


def test_a_large_page_comes_whole():
    assert len(ask(b"GET /big HTTP/1.1\r\n\r\n")[1]) == 4 << 20


def test_a_head_without_an_end_is_not_listened_to():
    assert ask(b"GET /" + b"x" * pages.LONGEST_HEAD + b"\r\n\r\n") == (0, b"")


def test_a_visitor_who_does_not_ask_is_shown_out():
    async def main():
        async with pages.serving(SHOWN, "127.0.0.1", 0) as port:
            assert await say(port, b"GET /a") == b""
            assert asyncio.get_running_loop().time() >= pages.PATIENCE

    clock.run(main())


def test_the_server_is_left_when_the_last_answer_is_out():
    async def main():
        async with pages.serving(SHOWN, "127.0.0.1", 0) as port, asyncio.TaskGroup() as group:
            visits = [group.create_task(say(port, b"GET /a HTTP/1.1\r\n\r\n"), name=f"{n}") for n in range(5)]
        assert all(visit.result().endswith(b"a ") for visit in visits)

    clock.run(main())
