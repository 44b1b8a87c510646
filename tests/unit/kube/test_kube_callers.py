"""What a crowd that nobody knows may take of a server, over real sockets: connections, bytes and time are bounded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trustme

from trainmaster.kube import https
from trainmaster.kube.callers import Callers
from trainmaster.kube.health import Address
from trainmaster.kube.http1_server import Answer
from trainmaster.kube.https import HttpsServer
from trainmaster.testing import clock
from trainmaster.testing.patience import PATIENCE

HOST = "127.0.0.1"
AUTHORITY = trustme.CA()
HEAD = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
CROWD = Path(__file__).with_name("crowd.py")


def refuse(status: int, why: str) -> Answer:
    return status, json.dumps(why).encode()


def a_server(monkeypatch: pytest.MonkeyPatch, *, most: int = 500, budget: int = 32 << 20) -> HttpsServer:
    monkeypatch.setattr(https, "Callers", lambda: Callers(most, budget))
    return HttpsServer(Address(HOST, 0), {"/echo": lambda body: (200, body)}, refuse)


def serving(server: HttpsServer, act: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        leaf = AUTHORITY.issue_cert(HOST)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(server.run(), name="server")
            server.present(b"".join(pem.bytes() for pem in leaf.cert_chain_pems), leaf.private_key_pem.bytes())
            await server.listening.wait()
            await act()
            running.cancel()

    clock.run(main())


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def begin(self, length: int, sent: bytes = b"") -> None:
        self._writer.write(HEAD.format(length).encode() + sent)

    def go_on(self, sent: bytes) -> None:
        self._writer.write(sent)

    async def hear(self) -> tuple[int, str]:
        said = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        length = int(said.lower().partition("content-length: ")[2].partition("\r\n")[0])
        return int(said.split()[1]), (await self._reader.readexactly(length)).decode()

    async def ask(self, body: bytes) -> tuple[int, str]:
        self.begin(len(body), body)
        return await self.hear()

    async def is_hung_up_on(self) -> bool:
        try:
            return await self._reader.read() == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await self._writer.wait_closed()


async def connect(server: HttpsServer) -> Connection:
    trusting = ssl.create_default_context()
    AUTHORITY.configure_trust(trusting)
    return Connection(*await asyncio.open_connection(HOST, server.port, ssl=trusting))


async def plain(server: HttpsServer) -> Connection:
    """Who never begins its handshake."""
    return Connection(*await asyncio.open_connection(HOST, server.port))


async def closed(*connections: Connection) -> None:
    for connection in connections:
        await connection.close()


def test_where_all_places_are_taken_the_stranger_that_came_first_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = a_server(monkeypatch, most=3)

    async def act() -> None:
        known = await connect(server)
        await known.ask(b"1")
        first = await connect(server)
        await asyncio.sleep(1)
        second = await connect(server)
        newcomer = await connect(server)

        assert await newcomer.ask(b"2") == (200, "2")
        assert await first.is_hung_up_on()
        assert [await known.ask(b"3"), await second.ask(b"4")] == [(200, "3"), (200, "4")]
        await closed(known, first, second, newcomer)

    serving(server, act)


def test_of_those_that_have_asked_the_one_that_is_idle_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    server = a_server(monkeypatch, most=2)

    async def act() -> None:
        first, second = await connect(server), await connect(server)
        await second.ask(b"1")
        await asyncio.sleep(1)
        await first.ask(b"1")
        newcomer = await connect(server)

        assert await newcomer.ask(b"2") == (200, "2")
        assert await second.is_hung_up_on()
        assert await first.ask(b"3") == (200, "3")
        await closed(first, second, newcomer)

    serving(server, act)


@pytest.mark.parametrize("begin", [connect, plain], ids=["half a question", "no handshake"])
def test_strangers_that_dawdle_keep_nobody_out(
    monkeypatch: pytest.MonkeyPatch, begin: Callable[[HttpsServer], Awaitable[Connection]]
) -> None:
    server = a_server(monkeypatch, most=4)

    async def act() -> None:
        crowd = [await begin(server) for _ in range(4)]
        if begin is connect:
            for one in crowd:
                one.begin(9, b"half")
        newcomers = [await connect(server) for _ in range(4)]

        assert [await one.ask(b"1") for one in newcomers] == [(200, "1")] * 4
        assert all([await one.is_hung_up_on() for one in crowd])
        await closed(*crowd, *newcomers)

    serving(server, act)


def test_whoever_is_being_served_is_not_hung_up_on_for_a_newcomer(monkeypatch: pytest.MonkeyPatch) -> None:
    server = a_server(monkeypatch, most=1)

    async def act() -> None:
        served = await connect(server)
        await served.ask(b"1")
        served.begin(4, b"ha")
        await asyncio.sleep(0.1)
        newcomer = await plain(server)

        assert await newcomer.is_hung_up_on()
        served.go_on(b"lf")
        assert await served.hear() == (200, "half")
        await closed(served, newcomer)

    serving(server, act)


def test_the_largest_question_is_given_up_where_all_together_are_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    server = a_server(monkeypatch, budget=100_000)

    async def act() -> None:
        small, large, huge = await connect(server), await connect(server), await connect(server)
        small.begin(1000, b"x" * 500)
        large.begin(60_000, b"x" * 40_000)
        await asyncio.sleep(0.1)
        huge.begin(90_000, b"x" * 80_000)
        status, why = await huge.hear()

        assert (status, "more than 100000 bytes" in why) == (503, True)
        large.go_on(b"x" * 20_000)
        small.go_on(b"x" * 500)
        assert [len((await large.hear())[1]), len((await small.hear())[1])] == [60_000, 1000]
        await closed(small, large, huge)

    serving(server, act)


def test_what_was_dealt_with_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    server = a_server(monkeypatch, budget=100_000)

    async def act() -> None:
        one = await connect(server)
        answers = [await one.ask(b"x" * 90_000) for _ in range(5)]
        gone = await connect(server)
        gone.begin(90_000, b"x" * 80_000)
        await asyncio.sleep(0.1)
        await gone.close()
        answers.append(await one.ask(b"x" * 90_000))

        assert {(status, len(body)) for status, body in answers} == {(200, 90_000)}
        await one.close()

    serving(server, act)


def test_a_crowd_that_asks_nothing_is_gone_after_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    server = a_server(monkeypatch)

    async def act() -> None:
        crowd = [await connect(server) for _ in range(10)] + [await plain(server) for _ in range(10)]
        begun = asyncio.get_running_loop().time()

        assert all([await one.is_hung_up_on() for one in crowd])
        assert asyncio.get_running_loop().time() - begun == pytest.approx(10, abs=1)
        await closed(*crowd)

    serving(server, act)


def test_a_hundred_clients_that_each_send_half_of_the_largest_body_take_little_memory() -> None:
    """In a process of its own, so that only what the server takes is measured."""
    done = subprocess.run(
        [sys.executable, str(CROWD), "100"], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    measured = json.loads(done.stdout)

    assert measured["answered"] == 200  # to who asks something small meanwhile
    assert measured["grown_mib"] < 150, measured
