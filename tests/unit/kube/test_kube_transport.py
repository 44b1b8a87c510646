"""Over real sockets to a server on this machine. Time is virtual, so that no timeout is waited for."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trustme
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.kube import errors, transport
from trainmaster.kube.config import Config
from trainmaster.kube.credentials import Credentials, Fixed
from trainmaster.kube.transport import Headers, HttpTransport, Request, Response
from trainmaster.testing import clock

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

run = clock.run
GET = Request("GET", "/x")


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The server's URL."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"{'https' if tls else 'http'}://{host}:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def connected(handler: Handler, credentials: Credentials | None = None) -> AsyncIterator[HttpTransport]:
    async with serving(handler) as url, reaching(Config(url, credentials=credentials or Fixed())) as door:
        yield door


@asynccontextmanager
async def reaching(config: Config) -> AsyncIterator[HttpTransport]:
    door = HttpTransport(config)
    try:
        yield door
    finally:
        await door.close()


async def read(door: HttpTransport, request: Request = GET) -> bytes:
    async with await door.send(request) as response:
        return await response.read()


async def ok(request: web.Request) -> web.Response:
    return web.Response(text="ok")


def test_request_arrives_as_it_was_sent() -> None:
    async def main() -> None:
        async def echo(request: web.Request) -> web.Response:
            body = {
                "method": request.method,
                "path": request.raw_path,
                "sort": request.headers["Content-Type"],
                "body": await request.text(),
            }
            return web.json_response(body, status=201, headers={"X-Odd": "1"})

        async with connected(echo) as door:
            params = (("labelSelector", "a in (b,c),d!=é"), ("limit", "5"))
            request = Request("POST", "/apis/a b/c", params, {"Content-Type": "text/odd"}, b'{"x": 1}')
            async with await door.send(request) as response:
                body = await response.read()

        assert response.status == 201
        assert response.headers["x-oDD"] == "1"
        assert body == (
            b'{"method": "POST", "path": "/apis/a%20b/c?labelSelector=a+in+%28b%2Cc%29%2Cd%21%3D%C3%A9&limit=5", '
            b'"sort": "text/odd", "body": "{\\"x\\": 1}"}'
        )

    run(main())


def test_server_behind_a_path_is_reached_there() -> None:
    async def main() -> None:
        async def echo(request: web.Request) -> web.Response:
            return web.Response(text=request.path)

        async with serving(echo) as url, reaching(Config(f"{url}/k8s/clusters/c-1/")) as door:
            assert await read(door, Request("GET", "/api/v1/pods")) == b"/k8s/clusters/c-1/api/v1/pods"

    run(main())


def test_connections_are_kept_and_cookies_are_not() -> None:
    async def main() -> None:
        peers: list[object] = []

        async def handler(request: web.Request) -> web.Response:
            assert request.transport is not None
            peers.append(request.transport.get_extra_info("peername"))
            assert "Cookie" not in request.headers
            return web.Response(headers={"Set-Cookie": "a=b"})

        async with connected(handler) as door:
            for _ in range(3):
                await read(door)

        assert len(set(peers)) == 1

    run(main())


def test_compressed_answers_are_unpacked() -> None:
    async def main() -> None:
        async def handler(request: web.Request) -> web.Response:
            return web.Response(body=gzip.compress(b"x" * 10_000), headers={"Content-Encoding": "gzip"})

        async with connected(handler) as door:
            assert await read(door) == b"x" * 10_000

    run(main())


def test_redirects_are_answers() -> None:
    async def main() -> None:
        async def handler(request: web.Request) -> web.Response:
            return web.Response(status=302, headers={"Location": "http://evil.invalid/"})

        async with connected(handler) as door, await door.send(GET) as response:
            assert response.status == 302

    run(main())


@dataclass
class Rotating:
    """A token that is renewed on demand."""

    can_refresh: bool = True
    number: int = 1
    refreshed: int = 0

    async def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer secret-{self.number}"}

    async def refresh(self) -> bool:
        self.refreshed += 1
        self.number += 1
        return self.can_refresh

    def tls(self) -> ssl.SSLContext | None:
        return None


@dataclass
class Guard:
    accepted: str
    seen: list[str] = field(default_factory=list)

    async def check(self, request: web.Request) -> web.Response:
        self.seen.append(request.headers.get("Authorization", ""))
        return web.Response(status=200 if self.seen[-1] == self.accepted else 401)


def test_refused_credentials_are_refreshed_once() -> None:
    async def main() -> None:
        guard, token = Guard("Bearer secret-2"), Rotating()

        async with connected(guard.check, token) as door, await door.send(GET) as response:
            assert response.status == 200

        assert guard.seen == ["Bearer secret-1", "Bearer secret-2"]

    run(main())


def test_credentials_refused_twice_are_refused() -> None:
    async def main() -> None:
        guard, token = Guard("none will do"), Rotating()

        async with connected(guard.check, token) as door, await door.send(GET) as response:
            assert response.status == 401

        assert len(guard.seen) == 2

    run(main())


def test_credentials_that_cannot_change_are_tried_once() -> None:
    async def main() -> None:
        guard = Guard("none will do")

        async with connected(guard.check, Rotating(can_refresh=False)) as door, await door.send(GET) as response:
            assert response.status == 401

        assert len(guard.seen) == 1

    run(main())


def test_streams_are_refreshed_too() -> None:
    async def main() -> None:
        guard = Guard("Bearer secret-2")

        async with (
            connected(guard.check, Rotating()) as door,
            await door.send(Request("GET", "/", stream=True)) as response,
        ):
            assert response.status == 200

    run(main())


def streaming(*chunks: bytes, then: Callable[[web.Request], Awaitable[None]] | None = None) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if then is not None:
            await then(request)
        return response

    return handler


async def forever(request: web.Request) -> None:
    await asyncio.Event().wait()


async def hang_up(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.abort()


STREAM = Request("GET", "/watch", stream=True, timeout=30, idle=60)


def test_lines_come_whole_however_they_were_cut() -> None:
    async def main() -> None:
        async with (
            connected(streaming(b'{"a"', b": 1}\n{", b'"b": 2}\n\n', b"last")) as door,
            await door.send(STREAM) as response,
        ):
            assert [line async for line in response.lines()] == [b'{"a": 1}', b'{"b": 2}', b"", b"last"]

    run(main())


def test_lines_of_megabytes_pass() -> None:
    async def main() -> None:
        long = b"x" * (3 << 20)

        async with connected(streaming(long + b"\nshort\n")) as door, await door.send(STREAM) as response:
            assert [line async for line in response.lines()] == [long, b"short"]

    run(main())


def test_lines_are_there_before_the_stream_ends() -> None:
    async def main() -> None:
        async with (
            connected(streaming(b"one\ntw", then=forever)) as door,
            await door.send(STREAM) as response,
            aclosing(response.lines()) as lines,
        ):
            assert await anext(lines) == b"one"

    run(main())


def test_silent_stream_is_given_up() -> None:
    async def main() -> None:
        async with (
            connected(streaming(b"one\n", then=forever)) as door,
            await door.send(STREAM) as response,
            aclosing(response.lines()) as lines,
        ):
            assert await anext(lines) == b"one"
            with pytest.raises(errors.Unreachable, match="GET /watch at http://127.*: nothing came for 60 s"):
                await anext(lines)

        assert 59 < asyncio.get_running_loop().time() < 100

    run(main())


def test_broken_stream_is_unreachable() -> None:
    async def main() -> None:
        async with connected(streaming(b"one\n", then=hang_up)) as door, await door.send(STREAM) as response:
            with pytest.raises(errors.Unreachable, match="connection"):
                _ = [line async for line in response.lines()]

    run(main())


def test_server_that_never_answers_is_unreachable() -> None:
    async def main() -> None:
        async def handler(request: web.Request) -> web.Response:
            await forever(request)
            raise AssertionError

        async with connected(handler) as door:
            with pytest.raises(errors.Unreachable, match=r"^GET /x at http://127\S+: nothing came for 5 s$"):
                await door.send(Request("GET", "/x", timeout=5))
            with pytest.raises(errors.Unreachable, match="nothing came for 30 s"):
                await door.send(STREAM)

    run(main())


def test_answer_that_stops_halfway_is_unreachable() -> None:
    async def main() -> None:
        async with connected(streaming(b"half", then=forever)) as door:
            with pytest.raises(errors.Unreachable, match="nothing came for 5 s"):
                await door.send(Request("GET", "/x", timeout=5))

    run(main())


def test_server_that_hangs_up_is_unreachable() -> None:
    async def main() -> None:
        async def handler(request: web.Request) -> web.Response:
            await hang_up(request)
            return web.Response()

        async with connected(handler) as door:
            with pytest.raises(errors.Unreachable, match="closed the connection without an answer|reset"):
                await door.send(Request("POST", "/x", body=b"{}"))

    run(main())


def test_nobody_listening_is_unreachable() -> None:
    async def main() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # bound, and not listening
            url = f"http://127.0.0.1:{taken.getsockname()[1]}"
            async with reaching(Config(url, credentials=Fixed.bearer("secret"))) as door:
                with pytest.raises(errors.Unreachable, match="no connection: connection refused$") as caught:
                    await door.send(GET)

        assert str(caught.value).startswith(f"GET /x at {url}: no connection")
        assert "secret" not in repr(caught.value)

    run(main())


def test_unknown_host_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*arguments: object, **options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    async def main() -> None:
        async with reaching(Config("http://kubernetes.invalid")) as door:
            with pytest.raises(errors.Unreachable, match="no connection: .*not known"):
                await door.send(GET)

    asyncio.run(main())


def test_cancelled_request_leaves_nothing_behind() -> None:
    async def main() -> None:
        async with connected(streaming(b"half", then=forever)) as door:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await door.send(GET)

    run(main())


def test_proxy_of_the_kubeconfig_is_used_and_that_of_the_environment_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async def proxy(request: web.Request) -> web.Response:
            return web.Response(text=f"proxy for {request.host}")

        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        async with serving(proxy) as url:
            async with reaching(Config(url)) as door:
                direct = await read(door)
            async with reaching(Config("http://kubernetes.invalid", proxy=url)) as door:
                proxied = await read(door)

        assert direct.startswith(b"proxy for 127.0.0.1")
        assert proxied == b"proxy for kubernetes.invalid"

    run(main())


CA = trustme.CA()


def server_tls(*, wants_client: bool = False, host: str = "127.0.0.1") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert(host).configure_cert(context)
    if wants_client:
        CA.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_tls(ca: trustme.CA = CA, *, identity: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=ca.cert_pem.bytes().decode())
    if identity:
        CA.issue_cert("operator").configure_cert(context)
    return context


def test_trusted_server_is_reached() -> None:
    async def main() -> None:
        async with serving(ok, server_tls()) as url, reaching(Config(url, client_tls())) as door:
            assert await read(door) == b"ok"

    run(main())


def test_stranger_is_not_trusted() -> None:
    async def main() -> None:
        async with serving(ok, server_tls()) as url, reaching(Config(url, client_tls(trustme.CA()))) as door:
            with pytest.raises(errors.Unreachable, match="certificate is not trusted: .*certificate-authority"):
                await door.send(GET)

    run(main())


def test_server_of_another_name_is_trusted_under_that_name_only() -> None:
    async def main() -> None:
        async with serving(ok, server_tls(host="kubernetes.default.svc")) as url:
            async with reaching(Config(url, client_tls())) as door:
                with pytest.raises(errors.Unreachable, match="not trusted: IP address mismatch"):
                    await door.send(GET)
            async with reaching(Config(url, client_tls(), tls_server_name="kubernetes.default.svc")) as door:
                assert await read(door) == b"ok"

    run(main())


def test_client_certificate_is_shown() -> None:
    async def main() -> None:
        async with serving(ok, server_tls(wants_client=True)) as url:
            async with reaching(Config(url, client_tls(identity=True))) as door:
                assert await read(door) == b"ok"
            async with reaching(Config(url, client_tls())) as door:
                with pytest.raises(errors.Unreachable):
                    await door.send(GET)

    run(main())


def test_certificate_that_came_as_a_credential_is_shown() -> None:
    class Certificate(Fixed):
        def __init__(self) -> None:
            super().__init__()
            self.context: ssl.SSLContext | None = None

        async def refresh(self) -> bool:
            self.context = client_tls(identity=True)
            return True

        def tls(self) -> ssl.SSLContext | None:
            return self.context

    async def main() -> None:
        async def handler(request: web.Request) -> web.Response:
            assert request.transport is not None
            return web.Response(status=200 if request.transport.get_extra_info("peercert") else 401)

        tls = server_tls(wants_client=True)
        tls.verify_mode = ssl.CERT_OPTIONAL
        async with (
            serving(handler, tls) as url,
            reaching(Config(url, client_tls(), Certificate())) as door,
            await door.send(GET) as response,
        ):
            assert response.status == 200

    run(main())


async def in_chunks(*chunks: bytes) -> AsyncGenerator[bytes, None]:
    for chunk in chunks:
        yield chunk


@given(st.lists(st.binary(max_size=5).map(lambda raw: raw.replace(b"x", b"\n"))))
def test_no_cutting_changes_the_lines(chunks: list[bytes]) -> None:
    async def main() -> list[bytes]:
        return [line async for line in Response(200, Headers(), in_chunks(*chunks)).lines()]

    expected = b"".join(chunks).split(b"\n")
    assert asyncio.run(main()) == (expected if expected[-1] else expected[:-1])


def test_endless_line_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "LONGEST_LINE", 10)

    async def main() -> None:
        async for _ in Response(200, Headers(), in_chunks(b"12345", b"67890", b"1")).lines():
            pass

    with pytest.raises(errors.Undecodable, match="a line of more than"):
        asyncio.run(main())


def test_response_is_released_once() -> None:
    released: list[bool] = []

    async def release() -> None:
        released.append(True)

    async def main() -> None:
        response = Response(200, Headers(), in_chunks(b"a"), release)
        async with response:
            await response.read()
        await response.close()

    asyncio.run(main())

    assert released == [True]


def test_headers_are_a_mapping_without_case() -> None:
    headers = Headers([("Content-Type", "a"), ("content-type", "b"), ("X", "y")])

    assert dict(headers) == {"content-type": "b", "x": "y"}
    assert len(headers) == 2
    assert headers.get("CONTENT-TYPE") == "b"
    assert headers.get("none") is None
