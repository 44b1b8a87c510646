"""Which connection an exchange goes over: real sockets to servers on this machine, time is virtual."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import tracemalloc
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trustme

from trainmaster.kube.connections import BUFFER, KEPT, Address, Connections, slim_down
from trainmaster.kube.http1 import Answer, Disconnected, ProxyRefused
from trainmaster.testing.clock import run

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CA = trustme.CA()


class Server:
    """Answers what it is asked, so many times per connection, and counts."""

    def __init__(self, answers: int = 1000) -> None:
        self.answers, self.connections, self.requests = answers, 0, list[bytes]()
        self.open = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            for _ in range(self.answers):
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(ANSWER)
            await reader.readuntil(b"\r\n\r\n")
        self.open -= 1


@contextlib.asynccontextmanager
async def serving(handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Left when all that was served has ended, too."""
    open_: set[asyncio.Task[None]] = set()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_.add(task)
        await handler(reader, writer)
        with contextlib.suppress(OSError):
            writer.close()
            await writer.wait_closed()

    async with await asyncio.start_server(served, "127.0.0.1", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1]
        if open_:
            await asyncio.wait(open_)


@contextlib.asynccontextmanager
async def reaching(port: int, **more: Any) -> AsyncIterator[Connections]:
    connections = Connections(f"http://127.0.0.1:{port}", **more)
    try:
        yield connections
    finally:
        await connections.close()


async def ask(connections: Connections, method: str = "GET", tls: ssl.SSLContext | None = None) -> bytes:
    answer, _ = await connections.send(method, "/x", {}, b"", tls)
    return await body_of(answer)


async def body_of(answer: Answer) -> bytes:
    chunks = []
    while chunk := await answer.chunk():
        chunks.append(chunk)
    return b"".join(chunks)


def test_a_free_connection_is_used_again_and_one_that_is_busy_is_not():
    async def main():
        server = Server()
        async with serving(server.serve) as port, reaching(port) as connections:
            for _ in range(3):
                assert await ask(connections) == b"ok"
            assert server.connections == 1

            async with asyncio.TaskGroup() as group:
                for number in range(2):
                    group.create_task(ask(connections), name=f"{number}")
            assert server.connections == 2

    run(main())


def test_a_connection_that_was_idle_for_long_is_not_used_again():
    async def main():
        server = Server()
        async with serving(server.serve) as port, reaching(port) as connections:
            await ask(connections)
            await asyncio.sleep(KEPT + 1)
            await ask(connections)

        assert server.connections == 2

    run(main())


def test_connections_that_are_no_longer_needed_are_closed_though_another_is_in_use():
    async def main():
        server = Server()
        async with serving(server.serve) as port, reaching(port) as connections:
            async with asyncio.TaskGroup() as group:
                for number in range(3):
                    group.create_task(ask(connections), name=f"{number}")
            assert server.open == 3

            for _ in range(4):
                await asyncio.sleep(KEPT / 3)
                await ask(connections)

            assert (server.connections, server.open) == (3, 1)

    run(main())


def test_free_connections_are_closed_when_nobody_asks_any_more():
    async def main():
        server = Server()
        async with serving(server.serve) as port, reaching(port) as connections:
            await ask(connections)
            await asyncio.sleep(KEPT + 1)

            assert server.open == 0

    run(main())


def test_a_read_is_repeated_when_the_server_hung_up_on_an_old_connection():
    async def main():
        server = Server(answers=1)
        async with serving(server.serve) as port, reaching(port) as connections:
            await ask(connections)

            assert await ask(connections, "GET") == b"ok"

        assert server.connections == 2

    run(main())


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_write_is_not_repeated_behind_the_back_of_those_who_know_whether_it_may_be(method):
    async def main():
        server = Server(answers=1)
        async with serving(server.serve) as port, reaching(port) as connections:
            await ask(connections)
            with pytest.raises(Disconnected):
                await ask(connections, method)

        assert server.connections == 1

    run(main())


def test_another_certificate_gets_another_connection():
    async def main():
        server, tls = Server(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        CA.issue_cert("127.0.0.1").configure_cert(tls)
        first, second = (ssl.create_default_context(cadata=CA.cert_pem.bytes().decode()) for _ in range(2))
        async with serving(server.serve, tls) as port, reaching(port) as connections:
            for context in (first, first, second):
                await ask(connections, tls=context)

        assert server.connections == 2

    run(main())


class Proxy:
    """Lets through those whom it knows."""

    def __init__(self, known: bytes = b"") -> None:
        self.known, self.asked = known, b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked = await reader.readuntil(b"\r\n\r\n")
        if self.known not in self.asked:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return
        port = int(self.asked.split()[1].rpartition(b":")[2])
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        async with asyncio.TaskGroup() as group:
            group.create_task(carry(reader, inner_writer), name="out")
            group.create_task(carry(inner_reader, writer), name="back")


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.close()


def test_a_server_behind_a_proxy_is_reached_through_a_tunnel_and_the_tunnel_kept():
    async def main():
        server, proxy, tls = (
            Server(),
            Proxy(b"Proxy-Authorization: Basic dTpw"),
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        )
        CA.issue_cert("127.0.0.1").configure_cert(tls)
        trusting = ssl.create_default_context(cadata=CA.cert_pem.bytes().decode())
        async with (
            serving(server.serve, tls) as port,
            serving(proxy.serve) as door,
            reaching(port, proxy=f"http://u:p@127.0.0.1:{door}") as connections,
        ):
            for _ in range(2):
                assert await ask(connections, tls=trusting) == b"ok"

        assert proxy.asked.startswith(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n" % port)
        assert server.connections == 1
        assert b"Proxy-Authorization" not in b"".join(server.requests)

    run(main())


def test_a_proxy_that_refuses_says_so():
    async def main():
        proxy, trusting = Proxy(b"nobody"), ssl.create_default_context()
        async with serving(proxy.serve) as door, reaching(1, proxy=f"http://127.0.0.1:{door}") as connections:
            with pytest.raises(ProxyRefused, match="the proxy refused: 407"):
                await ask(connections, tls=trusting)

    run(main())


@pytest.mark.parametrize(
    ("url", "authority", "full"),
    [
        ("https://host", "host", "host:443"),
        ("http://host:80", "host", "host:80"),
        ("https://[::1]:6443/prefix", "[::1]:6443", "[::1]:6443"),
    ],
)
def test_an_address_is_written_as_servers_expect_it(url, authority, full):
    address = Address.of(url)

    assert (address.authority, address.full_authority) == (authority, full)


def test_in_programs_of_ours_a_connection_with_tls_keeps_little_and_carries_much(monkeypatch):
    monkeypatch.setattr(SSLProtocol, "max_size", SSLProtocol.max_size)
    slim_down()
    large = b"x" * 1_000_000
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert("127.0.0.1").configure_cert(context)
    trusting = ssl.create_default_context()
    CA.configure_trust(trusting)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(large) + large)

    async def main():
        async with serving(serve, context) as port:
            connections = Connections(f"https://127.0.0.1:{port}")
            tracemalloc.start()
            answers = [await connections.send("GET", "/x", {}, b"", trusting) for _ in range(10)]
            bodies = {await body_of(answer) for answer, _ in answers}
            held = tracemalloc.get_traced_memory()[0] - len(large)
            tracemalloc.stop()
            await connections.close()
            return bodies, held

    bodies, held = run(main())

    assert bodies == {large}
    assert held < 20 * 2 * BUFFER  # both ends are in this process
