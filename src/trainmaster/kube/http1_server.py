"""HTTP/1.1 as a server needs it for callers that send JSON: one question after the other, whole in, whole out.

What is not here: bodies in pieces, uploads, streams, upgrades; an API server that calls a webhook has no use for them.
A caller who breaks the rules is told so and shown out; one who dawdles, too. Next door: `https` listens, with a
certificate, and knows who answers what; `callers` bounds what all of them together take.

    bytes ─► Visit ─► Question(method, path, headers, body) ─► answer() ─► bytes
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple, TypeAlias

from trainmaster.kube.callers import Callers

LONGEST_HEAD = 64 << 10
LONGEST_NUMBER = 20
"""Digits of a Content-Length. Python does not read numbers of more than 4300."""

PATIENCE = 10.0
"""Seconds in which a question that has begun must have come, and the first one of a connection from its arrival on, the
handshake included; and in which a caller who is shown out may still talk."""

IDLE = 600.0
"""Seconds without a question. Longer than the 90 s after which Go's clients close an idle connection: the end that
sends must close first, or a question may meet a connection that is just being closed."""


class Question(NamedTuple):
    method: str
    path: str
    """Without the query."""

    headers: Mapping[str, str]
    """By name in small letters."""

    body: bytes


Answer: TypeAlias = tuple[int, bytes]
"""Status and JSON."""

Answering: TypeAlias = Callable[[Question], Answer]
Refuse: TypeAlias = Callable[[int, str], Answer]
"""How a question that cannot be read is answered: its status, and why."""


class BadRequest(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Head(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    length: int
    is_last: bool
    """Whether the caller will ask nothing more."""


class Visit(asyncio.Protocol):
    """One connection, from before its handshake on. `bare` is that connection without TLS, where there is a handshake:
    until that is done, it is all there is."""

    def __init__(
        self,
        answer: Answering,
        refuse: Refuse,
        limit: int,
        callers: Callers,
        bare: asyncio.Transport | None = None,
    ) -> None:
        self._answer, self._refuse, self._limit = answer, refuse, limit
        self._callers, self._bare = callers, bare
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._counted = 0  # of its bytes, among those of all callers
        self._head: _Head | None = None
        self._timer: asyncio.TimerHandle | None = None  # while a question is under way, and then while we wait for one
        self._is_leaving = False  # after the question under way
        self._is_over = False  # nothing more is read; what still comes is thrown away
        self.has_asked = False
        self.since = 0.0
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._wait(PATIENCE, self._tire)

    @property
    def held(self) -> int:
        return len(self._buffer)

    @property
    def is_idle(self) -> bool:
        return not self._is_amid

    @property
    def unsent(self) -> int:
        """Bytes of answers that the caller has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def leave(self) -> None:
        """At once, if nothing is under way, in or out; else after that. A handshake is."""
        self._is_leaving = True
        if self._is_amid or self._transport is None:
            return
        if self.unsent:
            self._transport.close()
        else:
            self._transport.abort()

    def abort(self) -> None:
        """Without the goodbye of TLS, which waits for an answer."""
        self._throw_away()
        transport = self._transport or self._bare
        if transport is not None:
            transport.abort()

    def overflow(self, why: str) -> None:
        self._show_out(BadRequest(503, why))

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._is_leaving or self._is_over:
            self.abort()
        elif self._buffer:
            self._read(was_amid=False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._throw_away()
        self._callers.forget(self)
        if not self.ended.done():
            self.ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        was_amid = self._is_amid
        self._buffer += data
        if self._transport is not None:  # after a handshake, the first data may come before the news of it
            self._read(was_amid=was_amid)
        self._count()

    def pause_writing(self) -> None:
        """Who does not take answers may not ask either."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # One question

    def _read(self, *, was_amid: bool) -> None:
        try:
            while self._step():
                was_amid = False
        except BadRequest as error:
            self._show_out(error)
            return
        if not self.has_asked or self._is_over:
            return  # the time for the first question runs on
        if self._is_amid and not was_amid:
            self._wait(PATIENCE, self._tire)
        elif not self._is_amid:
            self.since = self._loop.time()
            self._wait(IDLE, self.abort)

    @property
    def _is_amid(self) -> bool:
        return self._head is not None or bool(self._buffer)

    def _step(self) -> bool:
        """Whether a question was answered, so that another may be at hand."""
        head = self._head or self._read_head()
        if head is None:
            return False
        if len(self._buffer) < head.length:
            self._head = head
            return False
        body = bytes(self._buffer[: head.length])
        del self._buffer[: head.length]
        self._head = None
        self.has_asked = True
        is_last = head.is_last or self._is_leaving
        self._say(*self._answer(Question(head.method, head.path, head.headers, body)), is_last=is_last)
        if is_last and self._transport is not None:
            self._is_over = True
            self._transport.close()
        return not self._is_over

    def _read_head(self) -> _Head | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 and len(self._buffer) <= LONGEST_HEAD:
            return None
        if end < 0 or end > LONGEST_HEAD:
            raise BadRequest(431, f"the head has more than {LONGEST_HEAD} bytes")
        head = _head_of(self._buffer[:end].decode("latin-1"))
        del self._buffer[: end + 4]
        if head.length > self._limit:
            raise BadRequest(413, f"the body has more than {self._limit} bytes")
        if len(self._buffer) < head.length and head.headers.get("expect", "").lower() == "100-continue":
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return head

    def _say(self, status: int, body: bytes, *, is_last: bool) -> None:
        fields = f"Content-Type: application/json\r\nContent-Length: {len(body)}"
        close = "\r\nConnection: close" if is_last else ""
        self._write(f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{fields}{close}\r\n\r\n".encode() + body)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _show_out(self, error: BadRequest) -> None:
        """The caller is to hang up: if we did while it still talks, our last words might be lost to it."""
        self._say(*self._refuse(error.status, str(error)), is_last=True)
        self._throw_away()
        self._wait(PATIENCE, self.abort)

    def _throw_away(self) -> None:
        self._is_over = True
        self._head = None
        self._buffer.clear()
        self._count()

    def _count(self) -> None:
        difference, self._counted = self.held - self._counted, self.held
        if difference:
            self._callers.weigh(difference)

    def _tire(self) -> None:
        if self._is_amid and self._transport is not None:
            self._show_out(BadRequest(408, f"the question did not arrive within {PATIENCE:g} s"))
        else:
            self.abort()

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        self._stop_waiting()
        self._timer = self._loop.call_later(seconds, then)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _head_of(text: str) -> _Head:
    first, *lines = text.split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadRequest(400, f"the request begins with {first[:40]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or not name or name != name.strip() or (name in headers and name == "content-length"):
            raise BadRequest(400, f"the header {line[:40]!r} is none, or one too many")
        headers[name] = value.strip()
    if "transfer-encoding" in headers:
        raise BadRequest(411, "the body must come whole, with a Content-Length")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal() and len(length) <= LONGEST_NUMBER):
        raise BadRequest(400, f"Content-Length: {length[:40]!r} is no length")
    is_last = words[2] == "HTTP/1.0" or headers.get("connection", "").lower() == "close"
    return _Head(words[0], words[1].partition("?")[0], headers, int(length), is_last)
