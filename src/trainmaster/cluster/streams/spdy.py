"""SPDY/3.1 frames to and from bytes: what kubectl speaks for exec, attach and port-forward.

Pure: bytes in, frames out, and back. kubectl before 1.31 knows nothing else, and later ones still tunnel it through a
WebSocket for port-forward. `spdy_stream` makes streams with flow control of these frames.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

VERSION = 3
FIN = 1
INITIAL_WINDOW = 65536
MAX_DATA = 32768
"""Bytes of ours per data frame: small enough that parallel streams take turns."""

_MAX_CONTROL = 1 << 20
_MAX_HEADERS = 1 << 18  # decompressed; a block of zeros must not become gigabytes
_HEAD = struct.Struct(">HHI")
_PAIR = struct.Struct(">II")
_INITIAL_WINDOW_SETTING = 7

_WORDS = """
options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow
authorization cache-control connection content-base content-encoding content-language content-length content-location
content-md5 content-range content-type date etag expect expires from host if-match if-modified-since if-none-match
if-range if-unmodified-since last-modified location max-forwards pragma proxy-authenticate proxy-authorization range
referer retry-after server te trailer transfer-encoding upgrade user-agent vary via warning www-authenticate method get
status 200_OK version HTTP/1.1 url public set-cookie keep-alive origin
"""
_PHRASES = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden"
    "404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,"
    "publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _dictionary() -> bytes:
    words = (word.replace("_", " ").encode() for word in _WORDS.split())
    return b"".join(len(word).to_bytes(4, "big") + word for word in words) + _PHRASES.encode()


DICTIONARY = _dictionary()
"""What both ends prime zlib with, as the specification lays it down: header names, then common values."""


class ProtocolError(Exception):
    """Bytes that are no SPDY/3.1; the connection cannot go on, for the header compression is out of step."""


@dataclass(frozen=True, slots=True)
class SynStream:
    stream_id: int
    headers: Mapping[str, str] = field(default_factory=dict)
    fin: bool = False


@dataclass(frozen=True, slots=True)
class SynReply:
    stream_id: int
    headers: Mapping[str, str] = field(default_factory=dict)
    fin: bool = False


@dataclass(frozen=True, slots=True)
class RstStream:
    stream_id: int
    status: int

    PROTOCOL_ERROR = 1
    INVALID_STREAM = 2
    REFUSED_STREAM = 3
    CANCEL = 5


@dataclass(frozen=True, slots=True)
class Settings:
    """Only the initial window is of interest; None when the frame does not set it."""

    initial_window: int | None = None


@dataclass(frozen=True, slots=True)
class Ping:
    ping_id: int


@dataclass(frozen=True, slots=True)
class GoAway:
    last_stream_id: int
    status: int = 0


@dataclass(frozen=True, slots=True)
class Headers:
    stream_id: int
    headers: Mapping[str, str] = field(default_factory=dict)
    fin: bool = False


@dataclass(frozen=True, slots=True)
class WindowUpdate:
    """Stream 0 is the whole connection."""

    stream_id: int
    delta: int


@dataclass(frozen=True, slots=True)
class Data:
    stream_id: int
    data: bytes
    fin: bool = False


Frame = SynStream | SynReply | RstStream | Settings | Ping | GoAway | Headers | WindowUpdate | Data


class Framer:
    """Both directions of one connection. Compression has a memory: frames are sent in the order they were encoded."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Frames that are complete now. Kinds of frames that we do not know are passed over, as is laid down."""
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= _HEAD.size:
                high, low, tail = _HEAD.unpack_from(self._buffer, start)
                flags, length = tail >> 24, tail & 0xFFFFFF
                _check_head(high, length)
                end = start + _HEAD.size + length
                if len(self._buffer) < end:
                    break
                payload = bytes(memoryview(self._buffer)[start + _HEAD.size : end])
                start = end
                frame = (
                    self._control(low, flags, payload)
                    if high & 0x8000
                    else Data(high << 16 | low, payload, flags & FIN != 0)
                )
                if frame is not None:
                    yield frame
        finally:
            del self._buffer[:start]

    def encode(self, frame: Frame) -> bytes:
        match frame:
            case Data():
                return _PAIR.pack(frame.stream_id, frame.fin << 24 | len(frame.data)) + frame.data
            case SynStream():
                return _control(1, _PAIR.pack(frame.stream_id, 0) + b"\0\0" + self._pack(frame.headers), frame.fin)
            case SynReply():
                return _control(2, frame.stream_id.to_bytes(4, "big") + self._pack(frame.headers), frame.fin)
            case RstStream():
                return _control(3, _PAIR.pack(frame.stream_id, frame.status))
            case Settings():
                entry = (
                    b"" if frame.initial_window is None else _PAIR.pack(_INITIAL_WINDOW_SETTING, frame.initial_window)
                )
                return _control(4, (len(entry) // 8).to_bytes(4, "big") + entry)
            case Ping():
                return _control(6, frame.ping_id.to_bytes(4, "big"))
            case GoAway():
                return _control(7, _PAIR.pack(frame.last_stream_id, frame.status))
            case Headers():
                return _control(8, frame.stream_id.to_bytes(4, "big") + self._pack(frame.headers), frame.fin)
            case WindowUpdate():
                return _control(9, _PAIR.pack(frame.stream_id, frame.delta))

    def _control(self, kind: int, flags: int, payload: bytes) -> Frame | None:
        read = _READERS.get(kind)
        if read is None:
            return None
        try:
            return read(self, payload, flags & FIN != 0)
        except (struct.error, zlib.error, UnicodeDecodeError, IndexError) as error:
            raise ProtocolError(f"malformed control frame of type {kind}: {error}") from error

    def _pack(self, headers: Mapping[str, str]) -> bytes:
        block = bytearray(len(headers).to_bytes(4, "big"))
        for name, value in headers.items():
            for text in (name.lower().encode("latin-1"), value.encode("latin-1")):
                block += len(text).to_bytes(4, "big") + text
        return self._deflate.compress(bytes(block)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    def unpack(self, block: bytes) -> dict[str, str]:
        """Headers by lower-case name; of a name with several values the first one."""
        plain = self._inflate.decompress(block, _MAX_HEADERS)
        if self._inflate.unconsumed_tail:
            raise ProtocolError(f"headers larger than {_MAX_HEADERS} bytes")
        headers, at = {}, 4
        for _ in range(int.from_bytes(plain[:4], "big")):
            name, at = _text(plain, at)
            value, at = _text(plain, at)
            headers[name.lower()] = value.split("\0")[0]
        return headers


def _check_head(high: int, length: int) -> None:
    if not high & 0x8000:
        return
    if high & 0x7FFF != VERSION:
        raise ProtocolError(f"SPDY version {high & 0x7FFF} instead of {VERSION}")
    if length > _MAX_CONTROL:
        raise ProtocolError(f"a control frame of {length} bytes")


def _control(kind: int, payload: bytes, fin: bool = False) -> bytes:
    return _HEAD.pack(0x8000 | VERSION, kind, fin << 24 | len(payload)) + payload


def _text(block: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">I", block, at)
    end = at + 4 + length
    if end > len(block):
        raise IndexError("a header reaches beyond its block")
    return block[at + 4 : end].decode("latin-1"), end


def _two(payload: bytes) -> tuple[int, int]:
    first, second = _PAIR.unpack(payload)
    return first & 0x7FFFFFFF, second


def _stream_id(payload: bytes) -> int:
    return int(struct.unpack_from(">I", payload)[0]) & 0x7FFFFFFF


def _syn_stream(framer: Framer, payload: bytes, fin: bool) -> SynStream:
    return SynStream(_stream_id(payload), framer.unpack(payload[10:]), fin)


def _syn_reply(framer: Framer, payload: bytes, fin: bool) -> SynReply:
    return SynReply(_stream_id(payload), framer.unpack(payload[4:]), fin)


def _headers(framer: Framer, payload: bytes, fin: bool) -> Headers:
    return Headers(_stream_id(payload), framer.unpack(payload[4:]), fin)


def _settings(_: Framer, payload: bytes, __: bool) -> Settings:
    (count,) = struct.unpack_from(">I", payload)
    window = None
    for index in range(min(count, len(payload) // 8)):
        key, value = _PAIR.unpack_from(payload, 4 + 8 * index)
        if key & 0xFFFFFF == _INITIAL_WINDOW_SETTING:
            window = value & 0x7FFFFFFF
    return Settings(window)


def _window_update(_: Framer, payload: bytes, __: bool) -> WindowUpdate:
    stream_id, delta = _two(payload)
    return WindowUpdate(stream_id, delta & 0x7FFFFFFF)


_READERS: Mapping[int, Callable[[Framer, bytes, bool], Frame]] = {
    1: _syn_stream,
    2: _syn_reply,
    3: lambda _, payload, __: RstStream(*_two(payload)),
    4: _settings,
    6: lambda _, payload, __: Ping(*struct.unpack(">I", payload)),
    7: lambda _, payload, __: GoAway(*_two(payload)),
    8: _headers,
    9: _window_update,
}
