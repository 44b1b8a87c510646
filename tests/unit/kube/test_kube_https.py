"""HTTPS over real sockets: what is refused before any handler sees it, and certificates that change under way."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Awaitable, Callable

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from trainmaster.kube import https
from trainmaster.kube.health import Address, BindError
from trainmaster.kube.http1_server import Answer
from trainmaster.kube.https import BadCertificate, HttpsServer
from trainmaster.testing import clock

HOST = "127.0.0.1"
AUTHORITY = trustme.CA()


def issued(*hosts: str) -> tuple[bytes, bytes]:
    """Certificate and key."""
    leaf = AUTHORITY.issue_cert(*(hosts or (HOST, "webhook.home.svc")))
    return b"".join(blob.bytes() for blob in leaf.cert_chain_pems), leaf.private_key_pem.bytes()


def refuse(status: int, why: str) -> Answer:
    return status, json.dumps(why).encode()


def a_server(port: int = 0, **handlers: https.Handler) -> HttpsServer:
    routes = {f"/{name}": handler for name, handler in handlers.items()} or {"/echo": lambda body: (200, body)}
    return HttpsServer(Address(HOST, port), routes, refuse, flag="--address")


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @property
    def serial(self) -> str:
        """Of the certificate that the server has shown."""
        shown = self._writer.get_extra_info("peercert")
        return str(shown["serialNumber"])

    async def ask(
        self, body: bytes, path: str = "/echo", method: str = "POST", kind: str = "application/json"
    ) -> tuple[int, str]:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        said = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        length = int(said.lower().partition("content-length: ")[2].partition("\r\n")[0])
        return int(said.split()[1]), (await self._reader.readexactly(length)).decode()

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def connect(server: HttpsServer, name: str = "") -> Connection:
    """As the API server does: to one address, maybe under another name."""
    return Connection(*await asyncio.open_connection(HOST, server.port, ssl=trusting(), server_hostname=name or HOST))


def serving(server: HttpsServer, act: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(server.run(), name="server")
            server.present(*issued())
            await server.listening.wait()
            await act()
            running.cancel()

    clock.run(main())


@pytest.mark.parametrize(
    ("asked", "status", "why"),
    [
        pytest.param({"path": "/other"}, 404, "there is no /other here, only /echo", id="path"),
        pytest.param({"method": "PUT"}, 405, "/echo takes POST, not PUT", id="method"),
        pytest.param({"kind": "text/plain"}, 415, "the body must be application/json, not text/plain", id="type"),
    ],
)
def test_what_is_not_asked_properly_is_told_so(asked: dict[str, str], status: int, why: str) -> None:
    server = a_server()

    async def act() -> None:
        connection = await connect(server)
        answer = await connection.ask(b"{}", **asked)
        await connection.close()

        assert answer == (status, json.dumps(why))

    serving(server, act)


def test_a_huge_body_is_refused_and_a_large_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(https, "LIMIT", 100_000)
    server = a_server()

    async def act() -> None:
        large, huge = await connect(server), await connect(server)
        answers = await large.ask(b"x" * 100_000), await huge.ask(b"x" * 100_001)
        await large.close()
        await huge.close()

        assert answers[0] == (200, "x" * 100_000)
        assert answers[1] == (413, '"the body has more than 100000 bytes"')

    serving(server, act)


def test_a_body_that_never_comes_is_not_waited_for_forever() -> None:
    server = a_server()

    async def act() -> None:
        reader, writer = await asyncio.open_connection(HOST, server.port, ssl=trusting())
        writer.write(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{")
        said = await reader.readline()
        writer.close()
        await writer.wait_closed()

        assert said.startswith(b"HTTP/1.1 408")

    serving(server, act)


def test_a_handler_that_breaks_shows_nothing_of_itself_and_the_next_question_is_answered() -> None:
    def broken(body: bytes) -> Answer:
        raise LookupError("secret insides")

    server = a_server(broken=broken, echo=lambda body: (200, body))

    async def act() -> None:
        connection = await connect(server)
        failed = await connection.ask(b"{}", "/broken")
        answered = await connection.ask(b"{}", "/echo")
        await connection.close()

        assert failed == (500, '"this request could not be answered; the operator\'s log says why"')
        assert answered == (200, "{}")

    serving(server, act)


@pytest.mark.parametrize("name", ["webhook.home.svc", HOST], ids=["by name", "by address"])
def test_a_new_certificate_is_shown_to_whoever_connects_and_nobody_is_cut_off(name: str) -> None:
    server = a_server()

    async def act() -> None:
        early = await connect(server, name)
        server.present(*issued())
        late = await connect(server, name)
        answers = [await early.ask(b"1"), await late.ask(b"2")]
        serials = early.serial, late.serial
        await early.close()
        await late.close()

        assert answers == [(200, "1"), (200, "2")]
        assert serials[0] != serials[1]

    serving(server, act)


def test_nobody_is_let_in_before_there_is_a_certificate() -> None:
    server = a_server()

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(server.run(), name="server")
            await asyncio.sleep(60)
            waited = not server.listening.is_set()
            server.present(*issued())
            await server.listening.wait()
            running.cancel()

        assert waited

    clock.run(main())


@pytest.mark.parametrize(
    ("certificate", "key"),
    [
        pytest.param(issued()[0], issued()[1], id="of another"),
        pytest.param(b"", b"", id="nothing"),
        pytest.param(b"nonsense", issued()[1], id="nonsense"),
    ],
)
def test_a_key_that_does_not_belong_to_its_certificate_is_refused(certificate: bytes, key: bytes) -> None:
    async def main() -> None:
        with pytest.raises(BadCertificate, match="cannot be used together"):
            a_server().present(certificate, key)

    clock.run(main())


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL], ids=["PKCS8", "traditional"])
def test_an_encrypted_key_is_refused_with_a_remedy_and_nobody_is_asked_for_its_pass_phrase(form: PrivateFormat) -> None:
    certificate, plain = issued()
    key = load_pem_private_key(plain, None).private_bytes(Encoding.PEM, form, BestAvailableEncryption(b"secret"))

    async def main() -> None:
        with pytest.raises(BadCertificate, match="the key is encrypted; store it without a pass phrase"):
            a_server().present(certificate, key)

    clock.run(main())


def test_an_address_that_is_taken_is_named_with_its_flag() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]

        async def main() -> None:
            server = a_server(port)
            server.present(*issued())
            await server.run()

        with pytest.raises(BindError, match=rf"on 127\.0\.0\.1:{port}: another .* choose .* --address"):
            clock.run(main())


def test_the_end_does_not_wait_for_clients_to_say_goodbye() -> None:
    """Leftover sockets would be warnings, and those are errors."""
    server = a_server()

    async def act() -> None:
        silent = socket.create_connection((HOST, server.port))
        silent.setblocking(False)
        held.append(await shake(trusting(), silent))

    held: list[socket.socket] = []
    serving(server, act)
    held[0].close()


async def shake(context: ssl.SSLContext, silent: socket.socket) -> socket.socket:
    """A client that speaks TLS and then never reads again."""
    wrapped = context.wrap_socket(silent, server_hostname=HOST, do_handshake_on_connect=False)
    for _ in range(100):
        try:
            wrapped.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            await asyncio.sleep(0.01)
        else:
            break
    return wrapped
