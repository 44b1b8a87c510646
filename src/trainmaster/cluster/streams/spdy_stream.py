"""SPDY streams over any carrier of bytes: the server's side of kubectl's multiplexed connections.

`serving(carrier)` runs one connection: a reader turns frames into streams and data, a writer sends what streams and
the reader have to say. They are two tasks so that a peer that does not read is still heard: two ends that both wait for
room to write would wait for ever.

Flow control. Kubernetes' own SPDY library neither sends window updates nor heeds them, so towards it a strict sender
would stop for good after 64 KiB. We heed windows from the first sign that the peer has them (a window in its SETTINGS,
or a WINDOW_UPDATE); until then only the carrier's own back-pressure holds us. We always grant windows as data is
consumed, and stop reading the carrier while too much of it is unread, so memory stays bounded whatever the peer does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from trainmaster.cluster.streams import spdy

MAX_UNREAD = 8 << 20
MAX_STREAMS = 2048
MAX_QUEUED = 10_000
"""Control frames that wait for a peer that does not read; a flood of pings ends the connection, not our memory."""

_GRANT = spdy.INITIAL_WINDOW // 2
_BATCH = 1 << 16
_DATA_IN_FLIGHT = 8
_FLUSH_SECONDS = 10.0
_GONE = "the client has closed the stream"


class Carrier(Protocol):
    async def send(self, data: bytes) -> None:
        """Returns when there is room for more; ConnectionError when the peer is gone."""

    async def receive(self) -> bytes:
        """Whatever came, b"" at the end."""


class Stream:
    """One of the client's streams. Reading ends at its FIN, writing at ours; a reset ends both."""

    def __init__(self, connection: Connection, stream_id: int, headers: Mapping[str, str], window: int) -> None:
        self.stream_id = stream_id
        self.headers = headers
        self.window = window
        self.is_reset = False
        self.has_ended = False
        self.is_closed = False
        self._connection = connection
        self._unread: deque[bytes] = deque()
        self._ungranted = 0
        self._news = asyncio.Event()

    async def read(self) -> bytes:
        """The next bytes; b"" at the end."""
        while not self._unread and not self.has_ended:
            self._news.clear()
            await self._news.wait()
        if not self._unread:
            return b""
        data = self._unread.popleft()
        self._ungranted += len(data)
        if self._ungranted >= _GRANT and not self.has_ended:
            self._connection.queue(spdy.WindowUpdate(self.stream_id, self._ungranted))
            self._ungranted = 0
        self._connection.consumed(len(data))
        return data

    async def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            size = await self._connection.take_window(self, min(len(view), spdy.MAX_DATA))
            await self._connection.send_data(self, bytes(view[:size]))
            view = view[size:]

    def reply(self) -> None:
        self._connection.queue(spdy.SynReply(self.stream_id))

    def close(self) -> None:
        """No more from us. What was written before goes out first."""
        if not self.is_closed:
            self.is_closed = True
            self._connection.queue(spdy.Data(self.stream_id, b"", fin=True))
            self._connection.forget_if_done(self)

    def reset(self, status: int = spdy.RstStream.CANCEL) -> None:
        if not (self.is_reset or (self.is_closed and self.has_ended)):
            self._connection.queue(spdy.RstStream(self.stream_id, status))
        self.drop()

    def drop(self) -> None:
        """Ended without another word from either side; what is unread is thrown away."""
        self.is_reset = self.is_closed = True
        self._connection.consumed(sum(map(len, self._unread)))
        self._unread.clear()
        self.end()

    def end(self) -> None:
        self.has_ended = True
        self._news.set()
        self._connection.forget_if_done(self)

    def feed(self, data: bytes) -> None:
        self._unread.append(data)
        self._news.set()


class Connection:
    """Use `serving`; the methods that streams call are not for others."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._framer = spdy.Framer()
        self._streams: dict[int, Stream] = {}
        self._new: asyncio.Queue[Stream | None] = asyncio.Queue()
        self._outbox: deque[spdy.Frame] = deque()
        self._outgoing = asyncio.Event()
        self._idle = asyncio.Event()
        self._room = asyncio.Semaphore(_DATA_IN_FLIGHT)
        self._credit = asyncio.Condition()
        self._has_windows = False
        self._window = spdy.INITIAL_WINDOW
        self._initial_window = spdy.INITIAL_WINDOW
        self._unread = 0
        self._ungranted = 0
        self._consumption = asyncio.Event()
        self.closed = asyncio.Event()

    async def accept(self) -> Stream | None:
        """The next stream that the client opens, to be given a reply or a reset; None once the connection has ended."""
        return await self._new.get() if not (self.closed.is_set() and self._new.empty()) else None

    async def flush(self) -> None:
        """Everything said so far is with the carrier, or the peer is gone."""
        if not self.closed.is_set():
            self._idle.clear()
            self._outgoing.set()  # the writer says so when it finds nothing left
            await self._idle.wait()

    def queue(self, frame: spdy.Frame) -> None:
        """For frames that nobody waits for, in order with the data."""
        if self.closed.is_set():
            return
        if len(self._outbox) >= MAX_QUEUED:
            self.end()
            return
        self._outbox.append(frame)
        self._outgoing.set()

    async def send_data(self, stream: Stream, data: bytes) -> None:
        await self._room.acquire()  # released by the writer once the frame is on its way
        if not self._is_open(stream):
            self._room.release()
            raise ConnectionResetError(_GONE)
        self._outbox.append(spdy.Data(stream.stream_id, data))
        self._outgoing.set()

    async def take_window(self, stream: Stream, wanted: int) -> int:
        async with self._credit:
            while self._is_open(stream) and self._has_windows and min(self._window, stream.window) <= 0:
                await self._credit.wait()
        if not self._is_open(stream):
            raise ConnectionResetError(_GONE)
        size = min(wanted, self._window, stream.window) if self._has_windows else wanted
        self._window -= size
        stream.window -= size
        return size

    def consumed(self, size: int) -> None:
        self._unread -= size
        self._ungranted += size
        if self._ungranted >= _GRANT:
            self.queue(spdy.WindowUpdate(0, self._ungranted))
            self._ungranted = 0
        self._consumption.set()

    def forget_if_done(self, stream: Stream) -> None:
        if stream.is_closed and stream.has_ended:
            self._streams.pop(stream.stream_id, None)

    def end(self) -> None:
        """The peer is gone, or not worth listening to."""
        if self.closed.is_set():
            return
        self.closed.set()
        self._outbox.clear()
        for stream in list(self._streams.values()):
            stream.is_reset = stream.is_closed = True
            stream.end()  # what came before is still to be read
        self._new.put_nowait(None)
        for event in (self._idle, self._outgoing, self._consumption):
            event.set()
        for _ in range(_DATA_IN_FLIGHT):
            self._room.release()

    def _is_open(self, stream: Stream) -> bool:
        return not (self.closed.is_set() or stream.is_closed)

    async def read(self) -> None:
        try:
            while not self.closed.is_set():
                data = await self._carrier.receive()
                if not data:
                    break
                for frame in self._framer.feed(data):
                    await self._handle(frame)
                await self._wait_for_readers()
        except ConnectionError:
            pass
        except spdy.ProtocolError:
            self.queue(spdy.GoAway(0, status=1))
            await _flush(self)
        finally:
            self.end()
            await self._wake_writers()

    async def write(self) -> None:
        try:
            while not self.closed.is_set():
                if not self._outbox:
                    self._idle.set()
                    self._outgoing.clear()
                    await self._outgoing.wait()
                    continue
                await self._carrier.send(self._batch())
        except ConnectionError:
            self.end()

    def _batch(self) -> bytes:
        batch = bytearray()
        while self._outbox and len(batch) < _BATCH:
            frame = self._outbox.popleft()
            batch += self._framer.encode(frame)
            if isinstance(frame, spdy.Data) and frame.data:
                self._room.release()
        return bytes(batch)

    async def _wait_for_readers(self) -> None:
        while self._unread > MAX_UNREAD and not self.closed.is_set():
            self._consumption.clear()
            await self._consumption.wait()

    async def _handle(self, frame: spdy.Frame) -> None:
        match frame:
            case spdy.Data():
                self._receive(frame)
            case spdy.SynStream():
                self._open(frame)
            case spdy.RstStream(stream_id):
                if stream := self._streams.get(stream_id):
                    stream.drop()
                    await self._wake_writers()
            case spdy.Ping(ping_id) if ping_id % 2:  # even ones are answers, and we ask nothing
                self.queue(frame)
            case spdy.Headers(stream_id, _, True):
                if stream := self._streams.get(stream_id):
                    stream.end()
            case spdy.WindowUpdate(stream_id, delta):
                await self._grow_window(stream_id, delta)
            case spdy.Settings(int(size)):
                await self._set_initial_window(size)

    def _open(self, frame: spdy.SynStream) -> None:
        known = frame.stream_id in self._streams
        if known or len(self._streams) >= MAX_STREAMS:
            status = spdy.RstStream.PROTOCOL_ERROR if known else spdy.RstStream.REFUSED_STREAM
            self.queue(spdy.RstStream(frame.stream_id, status))
            return
        stream = Stream(self, frame.stream_id, frame.headers, self._initial_window)
        self._streams[frame.stream_id] = stream
        if frame.fin:
            stream.end()
        self._new.put_nowait(stream)

    def _receive(self, frame: spdy.Data) -> None:
        stream = self._streams.get(frame.stream_id)
        if stream is None or stream.has_ended:
            # Data that crossed our reset or close on its way; it still counts against the connection's window.
            self._unread += len(frame.data)
            self.consumed(len(frame.data))
            return
        if frame.data:
            self._unread += len(frame.data)
            stream.feed(frame.data)
        if frame.fin:
            stream.end()

    async def _grow_window(self, stream_id: int, delta: int) -> None:
        self._has_windows = True
        if stream_id == 0:
            self._window += delta
        elif stream := self._streams.get(stream_id):
            stream.window += delta
        await self._wake_writers()

    async def _set_initial_window(self, size: int) -> None:
        self._has_windows = True
        for stream in self._streams.values():
            stream.window += size - self._initial_window
        self._initial_window = size
        await self._wake_writers()

    async def _wake_writers(self) -> None:
        async with self._credit:
            self._credit.notify_all()


@asynccontextmanager
async def serving(carrier: Carrier) -> AsyncIterator[Connection]:
    """A connection that lives while the block runs; what was said in the block is sent before it is left."""
    connection = Connection(carrier)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(connection.read(), name="spdy-reader"),
            group.create_task(connection.write(), name="spdy-writer"),
        ]
        try:
            yield connection
            await _flush(connection)
        finally:
            connection.end()
            for task in tasks:
                task.cancel()


async def _flush(connection: Connection) -> None:
    try:
        async with asyncio.timeout(_FLUSH_SECONDS):
            await connection.flush()
    except TimeoutError:
        return  # a client that does not read its last words does without them
