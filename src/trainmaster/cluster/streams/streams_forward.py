"""Port-forwarding over a SPDY connection: a pair of streams, data and error, for each connection of the client."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.cluster.streams.session import Runtime
from trainmaster.cluster.streams.spdy import RstStream
from trainmaster.cluster.streams.spdy_stream import Connection, Stream

CHUNK = 1 << 16
_CONNECT_SECONDS = 30.0

Connect = Callable[[int], Awaitable[tuple[StreamReader, StreamWriter]]]


@dataclass(slots=True)
class _Pairs:
    """Streams whose partner has not come yet, by request."""

    waiting: dict[str, Stream] = field(default_factory=dict)

    def join(self, stream: Stream) -> tuple[Stream, Stream] | None:
        """(data, error) once both are there."""
        request = _request_of(stream)
        other = self.waiting.pop(request, None)
        if other is None:
            self.waiting[request] = stream
            return None
        if _kind(other) == _kind(stream):
            self.waiting[request] = other
            stream.reset(RstStream.PROTOCOL_ERROR)
            return None
        return (stream, other) if _kind(stream) == "data" else (other, stream)


async def forward(connection: Connection, runtime: Runtime, namespace: str, pod: str) -> None:
    """Serves pairs until the client hangs up."""

    async def connect(port: int) -> tuple[StreamReader, StreamWriter]:
        async with asyncio.timeout(_CONNECT_SECONDS):
            return await runtime.connect(namespace, pod, port)

    pairs = _Pairs()
    tasks: set[asyncio.Task[None]] = set()
    async with asyncio.TaskGroup() as group:
        while (stream := await connection.accept()) is not None:
            if port_of(stream) is None or _kind(stream) not in ("data", "error"):
                stream.reset(RstStream.REFUSED_STREAM)
                continue
            stream.reply()
            pair = pairs.join(stream)
            if pair is not None:
                task = group.create_task(_forward_pair(connect, *pair, pod), name=f"forward-{pair[0].stream_id}")
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        for task in tasks:
            task.cancel()


async def _forward_pair(connect: Connect, data: Stream, error: Stream, pod: str) -> None:
    port = port_of(data) or 0
    try:
        reader, writer = await connect(port)
    except (ApiError, OSError) as problem:  # TimeoutError is an OSError
        with suppress(ConnectionError):
            await error.write(f"error forwarding port {port} to pod {pod}: {str(problem) or 'timed out'}".encode())
        error.close()
        data.close()
        return
    try:
        await _join(reader, writer, data, error)
    finally:
        writer.close()
        data.reset()
        error.reset()


async def _join(reader: StreamReader, writer: StreamWriter, data: Stream, error: Stream) -> None:
    """Both directions, each to its own end: either side may close its half and still read."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_upload(data, writer), name="forward-upload")
        await _download(reader, data)
        # kubectl hangs up its local connection only after this, so it cannot wait for the upload to end.
        error.close()


async def _upload(data: Stream, writer: StreamWriter) -> None:
    try:
        while chunk := await data.read():
            writer.write(chunk)
            await writer.drain()
        if data.is_reset:
            writer.transport.abort()
        elif writer.can_write_eof():
            writer.write_eof()
    except ConnectionError:
        data.reset()  # nobody in the pod reads any more


async def _download(reader: StreamReader, data: Stream) -> None:
    try:
        while chunk := await reader.read(CHUNK):
            await data.write(chunk)
        data.close()
    except ConnectionError:
        data.reset()


def port_of(stream: Stream) -> int | None:
    text = stream.headers.get("port", "")
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text) < 1 << 16 else None


def _kind(stream: Stream) -> str:
    return stream.headers.get("streamtype", "")


def _request_of(stream: Stream) -> str:
    """Clients of long ago sent no id but opened the two streams one after the other, the error stream first."""
    first = stream.stream_id if _kind(stream) == "error" else stream.stream_id - 2
    return stream.headers.get("requestid") or str(first)
