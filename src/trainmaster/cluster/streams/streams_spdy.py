"""exec, attach and port-forward for clients that upgrade HTTP to SPDY/3.1, as every kubectl before 1.31 does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec
from aiohttp import web

from trainmaster.cluster.registry.status_error import ApiError, bad_request
from trainmaster.cluster.streams.session import STDERR, STDOUT
from trainmaster.cluster.streams.spdy_stream import Connection, Stream
from trainmaster.objects import meta

PROTOCOL_HEADER = "X-Stream-Protocol-Version"
EXEC_PROTOCOLS = ("v4.channel.k8s.io",)
FORWARD_PROTOCOLS = ("portforward.k8s.io",)

_MAX_RECEIVED = 1 << 20
_OPEN_SECONDS = 30.0
_CLOSE_SECONDS = 2.0


def is_upgrade(request: web.Request) -> bool:
    return "spdy/3.1" in request.headers.get("Upgrade", "").lower()


def negotiate(request: web.Request, served: Iterable[str]) -> str:
    """The first of the client's protocols that we serve too."""
    lists = request.headers.getall(PROTOCOL_HEADER, [])
    offered = [name.strip() for names in lists for name in names.split(",") if name.strip()]
    if not offered:
        raise bad_request(f"unable to upgrade: {PROTOCOL_HEADER} is required")
    known = list(served)
    for name in offered:
        if name in known:
            return name
    message = f"client supports [{' '.join(offered)}], server accepts [{' '.join(known)}]"
    raise ApiError(403, "Forbidden", f"unable to upgrade: unable to negotiate protocol: {message}")


class UpgradedConnection:
    """The bare TCP (or TLS) connection below an aiohttp request, after a 101 response.

    aiohttp hands the connection's bytes to whatever is set as the parser of its protocol; that is how its own WebSocket
    works, and how this gets them. Reading from the socket pauses while too much waits here.
    """

    def __init__(self, request: web.Request, protocol: str) -> None:
        self._request = request
        headers = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1", PROTOCOL_HEADER: protocol}
        self.response = web.StreamResponse(status=101, headers=headers)
        self._received = bytearray()
        self._has_ended = False
        self._news = asyncio.Event()

    async def start(self) -> None:
        self._request.protocol.set_parser(cast(Any, self))  # cast: the parameter is typed as aiohttp's own reader
        self.response.force_close()
        await self.response.prepare(self._request)

    async def send(self, data: bytes) -> None:
        await self.response.write(data)

    async def receive(self) -> bytes:
        while not self._received and not self._has_ended:
            self._news.clear()
            await self._news.wait()
        data = bytes(self._received)
        self._received.clear()
        self._pause(False)
        return data

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Called by aiohttp; the answer says that the connection goes on and nothing is left for others to parse."""
        self._received += data
        self._news.set()
        if len(self._received) > _MAX_RECEIVED:
            self._pause(True)
        return False, b""

    def feed_eof(self) -> None:
        self._has_ended = True
        self._news.set()

    def _pause(self, paused: bool) -> None:
        transport = self._request.transport
        if transport is not None and not transport.is_closing():
            (transport.pause_reading if paused else transport.resume_reading)()


class SpdyRemote:
    """A client with one stream for each of stdin, stdout, stderr, its terminal's size, and the final status."""

    def __init__(self, connection: Connection, streams: Mapping[str, Stream]) -> None:
        self._connection = connection
        self._streams = streams
        self._sizes = bytearray()

    async def stdin(self) -> bytes:
        return await self._streams["stdin"].read()

    async def size(self) -> tuple[int, int] | None:
        while b"}" not in self._sizes:
            data = await self._streams["resize"].read()
            if not data:
                return None
            self._sizes += data
        text, _, rest = bytes(self._sizes).partition(b"}")
        self._sizes = bytearray(rest)
        return size_of(text + b"}") or await self.size()

    async def write(self, channel: int, data: bytes) -> None:
        stream = self._streams.get({STDOUT: "stdout", STDERR: "stderr"}[channel])
        if stream is not None:
            await stream.write(data)

    async def finish(self, status: Mapping[str, Any]) -> None:
        await self._streams["error"].write(meta.encode(status))
        if stdin := self._streams.get("stdin"):
            stdin.reset()  # input still under way is thrown away instead of filling our buffers
        for stream in self._streams.values():
            stream.close()

    async def gone(self) -> None:
        await self._connection.closed.wait()


def size_of(text: bytes) -> tuple[int, int] | None:
    """(columns, rows) of `{"Width":80,"Height":24}`; None for anything else."""
    try:
        size = msgspec.json.decode(text.strip(), type=dict[str, int])
        columns, rows = size["Width"], size["Height"]
    except (msgspec.DecodeError, KeyError):
        return None
    return (columns, rows) if 0 < columns < 1 << 16 and 0 < rows < 1 << 16 else None


async def open_streams(connection: Connection, expected: Iterable[str]) -> dict[str, Stream] | None:
    """The streams by their type, once the client has opened all; None when it does not."""
    missing = set(expected)
    streams: dict[str, Stream] = {}
    try:
        async with asyncio.timeout(_OPEN_SECONDS):
            while missing:
                stream = await connection.accept()
                if stream is None:
                    return None
                kind = stream.headers.get("streamtype", "")
                if kind not in missing:
                    stream.reset(1)
                    continue
                stream.reply()
                missing.discard(kind)
                streams[kind] = stream
    except TimeoutError:
        return None
    return streams


async def let_client_close(connection: Connection) -> None:
    """Waits a little for the client to hang up.

    Closing a socket while input is unread makes the kernel reset it, and the client could lose its last output.
    """
    await connection.flush()
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            await connection.closed.wait()
    except TimeoutError:
        return
