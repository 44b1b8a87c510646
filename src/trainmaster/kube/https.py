"""A small HTTPS server that others call with JSON: a path, a function from body to answer, a certificate.

The certificate may change while the server runs. Every handshake is given the newest one; connections that are open
keep the one they began with, so nobody is cut off. The server listens once there is a certificate to show. A connection
counts from its first byte on, for `callers` bounds those that are still to shake hands, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from trainmaster.kube import logs
from trainmaster.kube.callers import Callers
from trainmaster.kube.errors import KubeError
from trainmaster.kube.health import Address, bind_error
from trainmaster.kube.http1_server import Answer, Question, Refuse, Visit

log = logs.get(__name__)

Handler: TypeAlias = Callable[[bytes], Answer]
"""Decides at once: it runs on the event loop and shares it with everybody."""

LIMIT = 8 * 2**20
"""Bytes of a body. The API server itself takes objects of 3 MB, and sends an old and a new one."""

_HANDSHAKE_SECONDS = 10.0
_SHUTDOWN_SECONDS = 2.0


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
        self._callers = Callers()

    def present(self, certificate: bytes, key: bytes) -> None:
        """From now on. Both as PEM; the certificate may be a chain."""
        self._newest = _context(certificate, key)
        self._presented.set()

    async def run(self) -> None:
        await self._presented.wait()
        handshakes = asyncio.TaskGroup()
        server = await self._bind(handshakes)
        async with handshakes:
            try:
                await server.start_serving()
                self.listening.set()
                log.info("listening", host=self._address.host or "*", port=self.port, paths=list(self._routes))
                await asyncio.Event().wait()  # until cancelled
            finally:
                self.listening.clear()
                server.close()
                await _see_off([visit for visit in self._callers if isinstance(visit, Visit)])

    async def _bind(self, handshakes: asyncio.TaskGroup) -> asyncio.Server:
        host, port = self._address
        try:
            server = await asyncio.get_running_loop().create_server(
                lambda: _Arrival(lambda bare: self._welcome(bare, handshakes)), host, port, start_serving=False
            )
        except OSError as error:
            raise bind_error(error, self._address, self._flag) from error
        self.port = server.sockets[0].getsockname()[1]
        return server

    def _welcome(self, bare: asyncio.Transport, handshakes: asyncio.TaskGroup) -> Visit:
        visit = Visit(self._answer, self._refuse, LIMIT, self._callers, bare)
        if self.listening.is_set() and self._callers.admit(visit):
            handshakes.create_task(self._shake_hands(bare, visit), name="handshake")
        else:
            visit.abort()
        return visit

    async def _shake_hands(self, bare: asyncio.Transport, visit: Visit) -> None:
        if bare.is_closing() or self._newest is None:
            return
        loop = asyncio.get_running_loop()
        try:
            secured = await loop.start_tls(
                bare, visit, self._newest, server_side=True, ssl_handshake_timeout=_HANDSHAKE_SECONDS
            )
        except OSError:  # nobody we could tell
            visit.abort()
            return
        if secured is not None:
            visit.connection_made(secured)

    def _answer(self, question: Question) -> Answer:
        handler = self._routes.get(question.path)
        if handler is None:
            return self._refuse(404, f"there is no {question.path} here, only {', '.join(self._routes)}")
        if question.method != "POST":
            return self._refuse(405, f"{question.path} takes POST, not {question.method}")
        kind = question.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return self._refuse(415, f"the body must be application/json, not {kind or 'of no type'}")
        try:
            return handler(question.body)
        except Exception:  # a mistake of ours must not close the connection, nor show our insides to the caller
            log.exception("handler raised", path=question.path)
            return self._refuse(500, "this request could not be answered; the operator's log says why")


class _Arrival(asyncio.Protocol):
    """A caller before its handshake."""

    def __init__(self, welcome: Callable[[asyncio.Transport], Visit]) -> None:
        self._welcome = welcome
        self._visit: Visit | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()  # whatever comes is TLS
        self._visit = self._welcome(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._visit is not None:
            self._visit.connection_lost(exc)


async def _see_off(visits: Iterable[Visit]) -> None:
    """Who is being answered gets the answer; nobody else is waited for."""
    here = [visit for visit in visits if not visit.ended.done()]
    for visit in here:
        visit.leave()
    if here:
        await asyncio.wait([visit.ended for visit in here], timeout=_SHUTDOWN_SECONDS)
    for visit in here:
        visit.abort()
    await asyncio.sleep(0)


def _context(certificate: bytes, key: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with _in_memory(certificate) as public, _in_memory(key) as private:
        try:
            context.load_cert_chain(
                public, private, password=b""
            )  # an encrypted key must fail, not ask on the terminal
        except (OSError, ValueError) as error:
            why = "the key is encrypted; store it without a pass phrase" if b"ENCRYPTED" in key else str(error)
            raise BadCertificate(f"the certificate and its key cannot be used together: {why}") from error
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
