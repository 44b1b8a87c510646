"""HTTP/1.1 as a client needs it for an API server: one connection, one exchange after the other.

An exchange is a request out and an answer back, whose body comes whole or as it arrives. What is not here: redirects,
cookies, pipelining, uploads in pieces; Kubernetes has no use for them. Next door: `connections` opens and keeps
connections, `transport` says in words what went wrong.

    Connection.exchange(request) ─► Answer(status, headers) ─► Answer.chunk() … b"" ─► the connection is free again
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from asyncio.trsock import TransportSocket
from collections import deque
from collections.abc import Callable, Iterable, Mapping

LONGEST_HEAD = 64 << 10
READ_AHEAD = 1 << 18
"""Bytes of a body that nobody has read yet, before the sender is held back."""

_BODILESS = (204, 304)
_GZIP = 31  # zlib's word for a gzip wrapping


class HttpError(Exception):
    """The exchange came to nothing."""


class Disconnected(HttpError):
    """The peer hung up before it began to answer."""


class Broken(HttpError):
    """The peer hung up in the middle of its answer."""


class Malformed(HttpError):
    """What came is not HTTP as it should be."""


class ProxyRefused(HttpError):
    """A proxy that will not let us through."""


def encode(method: str, target: str, host: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """A whole request."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *(f"{name}: {value}" for name, value in headers.items())]
    if body or method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(body)}")
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header holds a line break")
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1") + body


class Answer:
    """Read with `chunk` until that gives nothing; or given up with `close`, which costs the connection."""

    def __init__(self, status: int, headers: Mapping[str, str], connection: Connection) -> None:
        self.status, self.headers = status, headers
        self._connection = connection
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._is_whole = False
        self._error: HttpError | None = None
        self._reader: asyncio.Future[None] | None = None
        self._unpack = zlib.decompressobj(_GZIP) if headers.get("content-encoding") == "gzip" else None

    async def chunk(self) -> bytes:
        """What has come since; nothing at the end."""
        while not self._waiting:
            if self._error is not None:
                raise self._error
            if self._is_whole:
                return b""
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        come = b"".join(self._waiting) if len(self._waiting) > 1 else self._waiting[0]
        self._waiting.clear()
        if self._size > READ_AHEAD:
            self._connection.resume()
        self._size = 0
        return come

    def close(self) -> None:
        if not self._is_whole:
            self._connection.abort()

    def feed(self, data: bytes) -> None:
        if self._unpack is not None:
            try:
                data = self._unpack.decompress(data)
            except zlib.error as error:
                raise Malformed("the body is not what its Content-Encoding says") from error
        if not data:
            return
        self._waiting.append(data)
        self._size += len(data)
        if self._size > READ_AHEAD:
            self._connection.pause()
        self._wake()

    def end(self, error: HttpError | None = None) -> None:
        self._is_whole, self._error = error is None, error
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class Connection(asyncio.Protocol):
    """`on_idle` is told whenever it is free for another exchange."""

    def __init__(self, on_idle: Callable[[Connection], None]) -> None:
        self._on_idle = on_idle
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._step: Callable[[], bool] = self._nothing
        self._left = 0  # bytes of the body or chunk at hand
        self._is_kept = True
        self._is_tunnel = False
        self._head: asyncio.Future[Answer] | None = None
        self._answer: Answer | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def socket(self) -> TransportSocket | None:
        return self._transport.get_extra_info("socket") if self._transport is not None else None

    async def exchange(self, request: bytes) -> Answer:
        if self._transport is None or not self.is_open:
            raise Disconnected
        self._head = self._loop.create_future()
        self._step = self._read_head
        self._transport.write(request)
        try:
            return await self._head
        except asyncio.CancelledError:
            self.abort()  # its answer is nobody's any more, and must not become the next one's
            raise

    async def tunnel(self, authority: str, headers: Mapping[str, str], tls: ssl.SSLContext, server_name: str) -> None:
        """Through the proxy at the other end to a server behind it, to which TLS is spoken from then on."""
        on_idle, self._on_idle = self._on_idle, lambda _: None
        self._is_tunnel = True
        answer = await self.exchange(encode("CONNECT", authority, authority, headers))
        if answer.status != 200 or self._transport is None:
            raise ProxyRefused(f"the proxy refused: {answer.status}")
        self._is_tunnel = False
        self._transport = await self._loop.start_tls(self._transport, self, tls, server_hostname=server_name)
        self._on_idle = on_idle

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            while self._step():
                pass
        except Malformed as error:
            self._fail(error)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._step == self._read_on and exc is None:
            self._finish()
        else:
            begun = self._answer is not None or bool(self._buffer)
            self._fail(Broken() if begun else Disconnected())
        if not self.closed.done():
            self.closed.set_result(None)

    # One step each: takes what it can from the buffer, and says whether there may be more to do

    def _nothing(self) -> bool:
        if self._buffer:
            raise Malformed("the server spoke without being asked")
        return False

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > LONGEST_HEAD:
                raise Malformed("the head of the answer has no end")
            return False
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        status = _status_of(first)
        if status < 200:  # a word on the way, and not the answer
            return True
        headers = _headers_of(lines)
        self._is_kept = headers.get("connection", "").lower() != "close" and first.startswith("HTTP/1.1")
        self._begin(status, headers)
        self._answer = Answer(status, headers, self)
        if self._head is not None and not self._head.done():
            self._head.set_result(self._answer)
        return True

    def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        if status in _BODILESS or (self._is_tunnel and status == 200):
            self._left, self._step = 0, self._read_sized
        elif headers.get("transfer-encoding", "").lower() == "chunked":
            self._step = self._read_size
        elif "content-length" in headers:
            self._left, self._step = _number(headers["content-length"], 10), self._read_sized
        else:
            self._is_kept, self._step = False, self._read_on

    def _read_sized(self) -> bool:
        self._pass_on()
        return not self._left and self._finish()

    def _read_on(self) -> bool:
        """A body that ends with the connection."""
        self._left = len(self._buffer)
        self._pass_on()
        return False

    def _read_size(self) -> bool:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            if len(self._buffer) > LONGEST_HEAD:
                raise Malformed("a chunk has no size")
            return False
        size = bytes(self._buffer[:end]).partition(b";")[0].strip()
        del self._buffer[: end + 2]
        self._left = _number(size.decode("latin-1"), 16)
        self._step = self._read_chunk if self._left else self._read_trailer
        return True

    def _read_chunk(self) -> bool:
        self._pass_on()
        if self._left or len(self._buffer) < 2:
            return False
        if self._buffer[:2] != b"\r\n":
            raise Malformed("a chunk is longer than it said")
        del self._buffer[:2]
        self._step = self._read_size
        return True

    def _read_trailer(self) -> bool:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            return False
        del self._buffer[: end + 2]
        return True if end else self._finish()

    def _pass_on(self) -> None:
        taken = min(self._left, len(self._buffer))
        if taken and self._answer is not None:
            self._answer.feed(bytes(self._buffer[:taken]))
        del self._buffer[:taken]
        self._left -= taken

    def _finish(self) -> bool:
        answer, self._answer, self._head = self._answer, None, None
        self._step = self._nothing
        if answer is not None:
            answer.end()
        if self._is_kept and self.is_open:
            self.resume()
            self._on_idle(self)
        elif self._transport is not None:
            self._transport.close()
        return bool(self._buffer)

    def _fail(self, error: HttpError) -> None:
        self._step = self._nothing
        self._buffer.clear()
        head, answer = self._head, self._answer
        self._head = self._answer = None
        if answer is not None:
            answer.end(error)
        elif head is not None and not head.done():
            head.set_exception(error)


def _status_of(line: str) -> int:
    version, _, rest = line.partition(" ")
    if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
        raise Malformed(f"the answer begins with {line[:40]!r}")
    return int(rest[:3])


def _headers_of(lines: Iterable[str]) -> dict[str, str]:
    """By name in small letters; the last of several of one name counts."""
    pairs = (line.partition(":") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _number(text: str, base: int) -> int:
    try:
        number = int(text, base)
    except ValueError:
        number = -1
    if number < 0:
        raise Malformed(f"{text[:40]!r} is no length")
    return number
