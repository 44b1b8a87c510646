"""Asks a gRPC server whether it serves: one call of grpc.health.v1.Health/Check, over HTTP/2 without TLS.

Just so much of HTTP/2 as one question needs. Headers are sent without compression, and those that come are not read: of
an answer it matters whether there is a message, and what it says. The caller connects, keeps time and closes.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from dataclasses import dataclass

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PATH = "/grpc.health.v1.Health/Check"

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
ACK, END_STREAM, END_HEADERS, PADDED = 0x1, 0x1, 0x4, 0x8
OUR_STREAM = 1

_MOST = 16384
"""Bytes of a frame, unless one has allowed the other more."""

_NO_PUSH = struct.pack(">HI", 2, 0)
_SERVING = 1
_STATES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")


@dataclass(frozen=True, slots=True)
class Frame:
    kind: int
    flags: int
    stream: int
    body: bytes

    def encode(self) -> bytes:
        length = len(self.body).to_bytes(3, "big")
        return length + struct.pack(">BBI", self.kind, self.flags, self.stream) + self.body

    @classmethod
    async def read(cls, reader: asyncio.StreamReader) -> Frame:
        """ValueError for what no HTTP/2 server says; EOFError at the end."""
        head = await reader.readexactly(9)
        length = int.from_bytes(head[:3], "big")
        if length > _MOST:
            raise ValueError("the server does not speak HTTP/2 without TLS, which gRPC probes need")
        kind, flags, stream = struct.unpack(">BBI", head[3:])
        return cls(kind, flags, stream & 0x7FFFFFFF, await reader.readexactly(length))


async def check(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, authority: str, service: str) -> str:
    """Empty when the service (of that name, or the server as a whole for none) serves; otherwise why it does not."""
    writer.write(PREFACE + Frame(SETTINGS, 0, 0, _NO_PUSH).encode() + b"".join(_question(authority, service)))
    await writer.drain()
    try:
        message = await _answer(reader, writer)
    except EOFError:
        return "the server closed the connection before it answered"
    if message is None:
        whom = f"know the service {service!r}" if service else "implement it"
        return f"the server answered grpc.health.v1.Health/Check without a status: it may not {whom}"
    status = status_of(message)
    told = _STATES[status] if status < len(_STATES) else str(status)
    return "" if status == _SERVING else f'service unhealthy (responded with "{told}")'


def _question(authority: str, service: str) -> Iterator[bytes]:
    headers = (
        *((":method", "POST"), (":scheme", "http"), (":path", PATH), (":authority", authority)),
        *(("te", "trailers"), ("content-type", "application/grpc"), ("user-agent", "kube-probe/1.0")),
    )
    yield Frame(HEADERS, END_HEADERS, OUR_STREAM, b"".join(_literal(*header) for header in headers)).encode()
    name = service.encode()
    message = b"\x0a" + _varint(len(name)) + name if name else b""
    yield Frame(DATA, END_STREAM, OUR_STREAM, struct.pack(">BI", 0, len(message)) + message).encode()


def _literal(name: str, value: str) -> bytes:
    """A header that is neither looked up in a table nor put into one. Ours are short: a length is one byte."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
    """The message of the answer; None when it has none, as an error of gRPC."""
    received = b""
    while True:
        frame = await Frame.read(reader)
        if frame.kind in (SETTINGS, PING) and not frame.flags & ACK:
            writer.write(Frame(frame.kind, ACK, 0, frame.body if frame.kind == PING else b"").encode())
        elif frame.kind == GOAWAY and (_number(frame.body[4:8]) or _number(frame.body[:4]) < OUR_STREAM):
            raise ValueError(f"the server refused the connection: HTTP/2 error {_number(frame.body[4:8])}")
        elif frame.stream == OUR_STREAM:
            if frame.kind == RST_STREAM:
                raise ValueError(f"the server refused the call: HTTP/2 error {_number(frame.body)}")
            if frame.kind == DATA:
                received += _unpadded(frame)
            if (message := _message(received)) is not None:
                return message
            if frame.kind in (DATA, HEADERS) and frame.flags & END_STREAM:
                return None


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _unpadded(frame: Frame) -> bytes:
    if not frame.flags & PADDED:
        return frame.body
    return frame.body[1 : len(frame.body) - frame.body[0]] if frame.body else b""


def _message(received: bytes) -> bytes | None:
    """The first one, when it is whole."""
    if len(received) < 5:
        return None
    is_compressed, length = struct.unpack(">BI", received[:5])
    if is_compressed or length > _MOST:
        raise ValueError("the server's answer is not a status of grpc.health.v1.Health")
    return received[5 : 5 + length] if len(received) >= 5 + length else None


def status_of(message: bytes) -> int:
    """Field 1 of a HealthCheckResponse, an enumeration: 0 when it is not there. ValueError for what is no message."""
    status, rest = 0, message
    while rest:
        tag, rest = _read_varint(rest)
        match tag & 7:
            case 0:
                value, rest = _read_varint(rest)
                status = value if tag >> 3 == 1 else status
            case 1 | 5:
                rest = rest[8 if tag & 7 == 1 else 4 :]
            case 2:
                length, rest = _read_varint(rest)
                rest = rest[length:]
            case _:
                raise ValueError("the server's answer is not a status of grpc.health.v1.Health")
    return status


def _varint(number: int) -> bytes:
    coded = b""
    while number > 0x7F:
        coded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return coded + bytes([number])


def _read_varint(data: bytes) -> tuple[int, bytes]:
    """The number, and what comes after it."""
    number = 0
    for index, byte in enumerate(data):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number, data[index + 1 :]
    raise ValueError("the server's answer is not a status of grpc.health.v1.Health")
