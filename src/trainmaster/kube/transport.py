"""The one door out: a request goes in, a response comes back, whatever lies between.

`client` builds requests and reads responses without knowing who carries them. `HttpTransport` carries them over
HTTP/1.1 (`connections`, `http1`); `testing.fakeapi` answers them from memory. A transport maps every way of
not getting an answer to `errors.Unreachable`; what an answer means is `client`'s business. Credentials are
added here, request by request, and never travel further up.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import ssl
import urllib.parse
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from trainmaster.kube import errors, http1
from trainmaster.kube.config import Config
from trainmaster.kube.connections import ConnectFailed, Connections, Dial
from trainmaster.kube.http1 import Answer, Connection

LONGEST_LINE = 64 << 20
"""Objects end at a few MiB (etcd's limit); a longer line is not Kubernetes talking."""

_IN_PATH = "/:@!$&'()*+,;=~-._"  # what RFC 3986 lets stand unquoted in a path
_GZIP = {"Accept-Encoding": "gzip"}  # lists of thousands shrink to a tenth; servers leave small answers as they are


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    params: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    timeout: float = 60.0
    """Seconds for the whole exchange; for a stream, until its first byte."""
    stream: bool = False
    idle: float = 600.0
    """Seconds a stream may stay silent."""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Headers(Mapping[str, str]):
    """Looked up without regard to case; the last of several of one name counts."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._values = {name.lower(): value for name, value in pairs}

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Response:
    """An answer: its body at once (`read`) or line by line as it comes (`lines`), one of the two, once."""

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        chunks: AsyncGenerator[bytes, None],
        release: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.status = status
        self.headers = headers
        self._chunks = chunks
        self._release = release

    @classmethod
    def whole(cls, status: int, headers: Mapping[str, str], body: bytes) -> Response:
        return cls(status, headers, _one(body))

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self._chunks])

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """Lines without their newline, however the chunks cut them; what follows the last newline is a line too."""
        start: list[bytes] = []  # of a line whose end has not come yet; joined once, so a long line is not copied twice
        size = 0
        async for chunk in self._chunks:
            first, *others = chunk.split(b"\n")
            start.append(first)
            size += len(first)
            if others:
                yield b"".join(start)
                for line in others[:-1]:
                    yield line
                start, size = [others[-1]], len(others[-1])
            if size > LONGEST_LINE:
                raise errors.Undecodable(f"the server sent a line of more than {LONGEST_LINE >> 20} MiB")
        if size:
            yield b"".join(start)

    async def close(self) -> None:
        """Gives the connection back; a stream's ends here. Harmless when repeated."""
        await self._chunks.aclose()
        release, self._release = self._release, None
        if release is not None:
            await release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Transport(Protocol):
    async def send(self, request: Request) -> Response:
        """The answer, whatever its status; errors.Unreachable when there is none."""
        ...

    async def close(self) -> None: ...


class HttpTransport:
    """One connection pool to one API server. Bind it to one event loop; close it there."""

    def __init__(self, config: Config, *, dial: Dial | None = None) -> None:
        """With `dial` the server is reached that way, in the clear, and not by its address."""
        self._config = config
        self._dial = dial
        self._server = config.server.rstrip("/")
        self._path = urllib.parse.urlsplit(self._server).path
        self._connections: Connections | None = None

    async def send(self, request: Request) -> Response:
        response = await self._attempt(request)
        if response.status == 401 and await self._config.credentials.refresh():
            await response.close()
            return await self._attempt(request)
        return response

    async def close(self) -> None:
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close()

    async def _attempt(self, request: Request) -> Response:
        headers = {**request.headers, **_GZIP, **await self._config.credentials.headers()}
        with self._in_words(request, request.timeout):
            async with asyncio.timeout(request.timeout):
                answer, connection = await self._open(request, headers)
                if request.stream:
                    return self._streaming(request, answer, connection)
                return Response.whole(answer.status, Headers(answer.headers.items()), await _whole(answer))

    async def _open(self, request: Request, headers: Mapping[str, str]) -> tuple[Answer, Connection]:
        config = self._config
        if self._connections is None:
            name = config.tls_server_name
            self._connections = Connections(self._server, proxy=config.proxy, server_name=name, dial=self._dial)
        is_secret = self._server.startswith("https:") and self._dial is None
        tls = (config.credentials.tls() or config.tls or _trusting()) if is_secret else None
        return await self._connections.send(request.method, self._target(request), headers, request.body, tls)

    def _target(self, request: Request) -> str:
        path = self._path + urllib.parse.quote(request.path, safe=_IN_PATH)
        return f"{path}?{urllib.parse.urlencode(request.params)}" if request.params else path

    def _streaming(self, request: Request, answer: Answer, connection: Connection) -> Response:
        _probe_when_silent(connection)

        async def release() -> None:
            answer.close()

        return Response(answer.status, Headers(answer.headers.items()), self._chunks(request, answer), release)

    async def _chunks(self, request: Request, answer: Answer) -> AsyncGenerator[bytes, None]:
        while True:
            with self._in_words(request, request.idle):
                async with asyncio.timeout(request.idle):
                    chunk = await answer.chunk()
            if not chunk:
                return
            yield chunk

    @contextlib.contextmanager
    def _in_words(self, request: Request, seconds: float) -> Iterator[None]:
        """Turns whatever the network did to us into one error that says it."""
        try:
            yield
        except TimeoutError:
            what = f"nothing came for {seconds:g} s"
        except (http1.HttpError, OSError) as error:
            what = _cause(error)
        else:
            return
        raise errors.Unreachable(f"{request} at {self._server}: {what}") from None


async def _one(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body


async def _whole(answer: Answer) -> bytes:
    chunks = []
    try:
        while chunk := await answer.chunk():
            chunks.append(chunk)
    finally:
        answer.close()
    return b"".join(chunks)


@functools.cache
def _trusting() -> ssl.SSLContext:
    """Whoever this machine trusts."""
    return ssl.create_default_context()


def _cause(error: Exception) -> str:
    match error:
        case ConnectFailed(__cause__=ssl.SSLCertVerificationError() as cause):
            return (
                f"the server's certificate is not trusted: {_in_short(cause)}; "
                "check certificate-authority and tls-server-name in the kubeconfig"
            )
        case ConnectFailed(__cause__=OSError() as cause):
            return f"no connection: {_in_short(cause)}"
        case http1.Disconnected():
            return "the server closed the connection without an answer"
        case http1.Broken():
            return "the connection broke in the middle of the answer"
    return _in_short(error)


def _in_short(error: BaseException) -> str:
    """The system's own words where there are any: asyncio's and OpenSSL's say less in more."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__


def _probe_when_silent(connection: Connection) -> None:
    """TCP keepalive: a peer that vanished without a word ends a silent watch in a minute, not at its timeout."""
    sock = connection.socket
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):  # not everywhere but on Linux
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
