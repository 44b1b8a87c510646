"""exec, attach and port-forward for clients that speak WebSocket: kubectl from 1.31 on and the client libraries.

A message's first byte says which channel it belongs to; the base64 protocols, made for browsers, write it as a digit
before base64 text. Version 5 adds the only way to close one channel, which is how a client ends its standard input.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from asyncio import StreamReader, StreamWriter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from aiohttp import WSMsgType, web

from trainmaster.cluster.registry.status_error import ApiError, bad_request
from trainmaster.cluster.streams.session import STDERR, STDIN, STDOUT, Runtime
from trainmaster.cluster.streams.streams_forward import CHUNK
from trainmaster.cluster.streams.streams_spdy import size_of
from trainmaster.objects import meta

ERROR, RESIZE, CLOSE = 3, 4, 255
EXEC_PROTOCOLS = (
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "channel.k8s.io",
    "base64.channel.k8s.io",
)
TUNNEL_PROTOCOL = "SPDY/3.1+portforward.k8s.io"
CHANNEL_FORWARD_PROTOCOLS = ("v4.channel.k8s.io", "v4.base64.channel.k8s.io")

_MAX_MESSAGE = 16 << 20
_MAX_WAITING = 64
_CLOSE_SECONDS = 5.0


def is_upgrade(request: web.Request) -> bool:
    return request.headers.get("Upgrade", "").lower() == "websocket"


def negotiate(request: web.Request, served: Sequence[str]) -> str:
    """The first of the client's protocols that we serve; one that names none gets the oldest, as in Kubernetes."""
    lists = request.headers.getall("Sec-WebSocket-Protocol", [])
    offered = [name.strip() for names in lists for name in names.split(",") if name.strip()]
    if not offered and "channel.k8s.io" in served:
        return ""
    for name in offered:
        if name in served:
            return name
    raise bad_request(f"unable to upgrade: client supports [{' '.join(offered)}], server accepts [{' '.join(served)}]")


async def upgrade(request: web.Request, protocol: str) -> web.WebSocketResponse:
    websocket = web.WebSocketResponse(
        protocols=(protocol,) if protocol else (), max_msg_size=_MAX_MESSAGE, compress=False, timeout=_CLOSE_SECONDS
    )
    await websocket.prepare(request)
    return websocket


class Channels:
    """Numbered channels in one WebSocket."""

    def __init__(self, websocket: web.WebSocketResponse, protocol: str) -> None:
        self._websocket = websocket
        self._is_text = "base64" in protocol

    async def send(self, channel: int, data: bytes) -> None:
        if self._is_text:
            await self._websocket.send_str(f"{channel}{base64.b64encode(data).decode()}")
        else:
            await self._websocket.send_bytes(bytes((channel,)) + data)

    async def receive(self) -> tuple[int, bytes] | None:
        """(channel, bytes), or None when the client is gone or no longer makes sense."""
        while True:
            message = await self._websocket.receive()
            if message.type not in (WSMsgType.BINARY, WSMsgType.TEXT):
                return None
            data = message.data.encode() if message.type is WSMsgType.TEXT else message.data
            if data:
                return self._split(data)

    def _split(self, data: bytes) -> tuple[int, bytes] | None:
        if not self._is_text:
            return data[0], data[1:]
        try:
            return int(data[:1]), base64.b64decode(data[1:], validate=True)
        except (ValueError, binascii.Error):
            return None


class WebSocketRemote:
    """A client at a session, over those channels that it asked for; what comes on others is ignored.

    Its messages are read by `gone`, which therefore has to run.
    """

    def __init__(self, websocket: web.WebSocketResponse, protocol: str, wanted: Collection[int]) -> None:
        self._channels = Channels(websocket, protocol)
        self._has_status = protocol.startswith(("v4", "v5"))
        self._can_close = protocol.startswith("v5")
        self._wanted = wanted
        self._stdin: asyncio.Queue[bytes] = asyncio.Queue(_MAX_WAITING)
        self._sizes: asyncio.Queue[tuple[int, int]] = asyncio.Queue(_MAX_WAITING)

    async def greet(self) -> None:
        """An empty message says that the session is there; some clients wait for it."""
        outputs = [channel for channel in (STDOUT, STDERR) if channel in self._wanted]
        await self._channels.send(min(outputs, default=ERROR), b"")

    async def stdin(self) -> bytes:
        return await self._stdin.get()

    async def size(self) -> tuple[int, int] | None:
        return await self._sizes.get()

    async def write(self, channel: int, data: bytes) -> None:
        if channel in self._wanted:
            await self._channels.send(channel, data)

    async def finish(self, status: Mapping[str, Any]) -> None:
        """Before version 4 the error channel carries the plain message, and nothing at all for success."""
        if self._has_status:
            await self._channels.send(ERROR, meta.encode(status))
        elif status.get("status") != "Success":
            await self._channels.send(ERROR, str(status.get("message", "")).encode())

    async def gone(self) -> None:
        while (received := await self._channels.receive()) is not None:
            channel, data = received
            if channel == CLOSE and self._can_close and STDIN in self._wanted and data[:1] == bytes((STDIN,)):
                await self._stdin.put(b"")
            elif channel not in self._wanted:
                continue
            elif channel == STDIN and data:
                await self._stdin.put(data)
            elif channel == RESIZE and (size := size_of(data)):
                await self._sizes.put(size)


class Tunnel:
    """SPDY inside a WebSocket: its bytes in binary messages, cut anywhere."""

    def __init__(self, websocket: web.WebSocketResponse) -> None:
        self._websocket = websocket

    async def send(self, data: bytes) -> None:
        await self._websocket.send_bytes(data)

    async def receive(self) -> bytes:
        message = await self._websocket.receive()
        while message.type is WSMsgType.BINARY and not message.data:
            message = await self._websocket.receive()
        return message.data if message.type is WSMsgType.BINARY else b""


async def forward_channels(
    channels: Channels, runtime: Runtime, namespace: str, pod: str, ports: Sequence[int]
) -> None:
    """Port-forwarding without SPDY, as client libraries do it: channels 2i and 2i+1 are data and errors of port i.

    Each channel first carries its port. No connection can be closed by itself; all ends when the last one does.
    """
    readers: dict[int, StreamReader] = {}
    writers: dict[int, StreamWriter] = {}
    try:
        for data, port in zip(range(0, 2 * len(ports), 2), ports, strict=True):
            for channel in (data, data + 1):
                await channels.send(channel, port.to_bytes(2, "little"))
            try:
                readers[data], writers[data] = await runtime.connect(namespace, pod, port)
            except (ApiError, OSError) as problem:
                await channels.send(data + 1, f"error forwarding port {port} to pod {pod}: {problem}".encode())
        if readers:
            await _forward(channels, readers, writers)
    finally:
        for writer in writers.values():
            writer.close()


async def _forward(
    channels: Channels, readers: Mapping[int, StreamReader], writers: Mapping[int, StreamWriter]
) -> None:
    """Until the client has left, or every pod connection has ended."""
    async with asyncio.TaskGroup() as group:
        uploading = group.create_task(_upload(channels, writers), name="forward-upload")
        pending = {uploading}
        for channel, reader in readers.items():
            pending.add(group.create_task(_download(channels, channel, reader), name=f"forward-{channel}"))
        while uploading in pending and len(pending) > 1:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()


async def _download(channels: Channels, channel: int, reader: StreamReader) -> None:
    with suppress(ConnectionError):
        while chunk := await reader.read(CHUNK):
            await channels.send(channel, chunk)


async def _upload(channels: Channels, writers: Mapping[int, StreamWriter]) -> None:
    while (received := await channels.receive()) is not None:
        writer = writers.get(received[0])
        if writer is not None and not writer.is_closing():
            with suppress(ConnectionError):
                writer.write(received[1])
                await writer.drain()
