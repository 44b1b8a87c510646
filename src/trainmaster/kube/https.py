"""A small HTTPS server that others call with JSON: a path, a function from body to answer, a certificate.

The certificate may change while the server runs. Every handshake is given the newest one; connections that are open
keep the one they began with, so nobody is cut off. The server listens once there is a certificate to show.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias
from weakref import WeakSet

from aiohttp import web

from trainmaster.kube import logs
from trainmaster.kube.errors import KubeError
from trainmaster.kube.health import Address, BindError

log = logs.get(__name__)


Answer: TypeAlias = tuple[int, bytes]
"""Status and body."""

Handler: TypeAlias = Callable[[bytes], Answer]
"""Decides at once: it runs on the event loop and shares it with everybody."""

Refuse: TypeAlias = Callable[[int, str], Answer]
"""How a request that reaches no handler is answered: its status, and why."""

LIMIT = 8 * 2**20
"""Bytes of a body. The API server itself takes objects of 3 MB, and sends an old and a new one."""

_BODY_SECONDS = 10.0
_SHUTDOWN_SECONDS = 2.0
_KEEPALIVE_SECONDS = 600.0
"""Longer than the 90 s after which Go's clients close an idle connection: the end that sends must close first, or a
request may meet a connection that is just being closed."""


class BadCertificate(KubeError):
    """A certificate and a key that cannot be used, or do not belong together."""


class HttpsServer:
    """`run` until cancelled; `present` before or while it runs."""

    def __init__(
        self, address: Address, routes: Mapping[str, Handler], refuse: Refuse, *, flag: str = "address"
    ) -> None:
        self._address, self._flag = address, flag
        self._routes, self._refuse = dict(routes), refuse
        self._newest: ssl.SSLContext | None = None
        self._presented = asyncio.Event()
        self.listening = asyncio.Event()
        self.port = 0

    def present(self, certificate: bytes, key: bytes) -> None:
        """From now on. Both as PEM; the certificate may be a chain."""
        self._newest = _context(certificate, key)
        self._presented.set()

    async def run(self) -> None:
        await self._presented.wait()
        assert self._newest is not None
        front = self._newest
        front.sni_callback = self._choose
        server = _Server(self._answer, request_factory=_request, access_log=None, keepalive_timeout=_KEEPALIVE_SECONDS)
        runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_SECONDS)
        try:
            await runner.setup()
            await self._listen(runner, front)
            await asyncio.Event().wait()  # until cancelled
        finally:
            self.listening.clear()
            await runner.cleanup()
            await server.hang_up()

    async def _listen(self, runner: web.ServerRunner, front: ssl.SSLContext) -> None:
        host, port = self._address
        try:
            await web.TCPSite(runner, host, port, ssl_context=front).start()
        except OSError as error:
            why = f"cannot listen on {host or '*'}:{port}, which {self._flag} asks for: {error.strerror or error}"
            raise BindError(why) from error
        self.port = runner.addresses[0][1]
        self.listening.set()
        log.info("listening", host=host or "*", port=self.port, paths=list(self._routes))

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _front: ssl.SSLContext) -> None:
        """Asked in every handshake, whether the client names a host or not."""
        if self._newest is not None:
            connection.context = self._newest

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        status, body = await self._answered(request)
        return web.Response(status=status, body=body, content_type="application/json")

    async def _answered(self, request: web.BaseRequest) -> Answer:
        handler = self._routes.get(request.path)
        if handler is None:
            return self._refuse(404, f"there is no {request.path} here, only {', '.join(self._routes)}")
        if request.method != "POST":
            return self._refuse(405, f"{request.path} takes POST, not {request.method}")
        if request.content_type != "application/json":
            return self._refuse(415, f"the body must be application/json, not {request.content_type}")
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return self._refuse(413, f"the body has more than {LIMIT} bytes")
        except TimeoutError:
            return self._refuse(408, f"the body did not arrive within {_BODY_SECONDS:g} s")
        try:
            return handler(body)
        except Exception:  # a mistake of ours must not close the connection, nor show our insides to the caller
            log.exception("handler raised", path=request.path)
            return self._refuse(500, "this request could not be answered; the operator's log says why")


class _Server(web.Server):
    """Knows its connections until they are closed for good."""

    def __init__(self, handler: Any, **more: Any) -> None:
        super().__init__(handler, **more)
        self._transports: WeakSet[asyncio.BaseTransport] = WeakSet()

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._transports.add(transport)

    async def hang_up(self) -> None:
        """TLS says goodbye and waits for an answer. A process that ends does not, or it would leave sockets open."""
        for transport in self._transports:
            if isinstance(transport, asyncio.WriteTransport):
                transport.abort()
        await asyncio.sleep(0)


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    """What the library makes by itself, but for the limit."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=LIMIT)


def _context(certificate: bytes, key: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with _in_memory(certificate) as public, _in_memory(key) as private:
        try:
            context.load_cert_chain(public, private)
        except (ssl.SSLError, ValueError) as error:
            raise BadCertificate(f"the certificate and its key cannot be used together: {error}") from error
    return context


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """A path to it that leads to no disk: OpenSSL reads files only, and containers often may not write any."""
    descriptor = os.memfd_create("pem")
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
