import asyncio
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.cluster.streams import spdy, spdy_stream
from trainmaster.cluster.streams.spdy import (
    Data,
    Framer,
    GoAway,
    Headers,
    Ping,
    RstStream,
    Settings,
    SynReply,
    SynStream,
    WindowUpdate,
)
from trainmaster.testing import clock

WINDOW = spdy.INITIAL_WINDOW


class Peer:
    """A client at the other end, frame by frame. It reads nothing while `is_stuck` is set."""

    def __init__(self):
        self.framer = Framer()
        self.towards_server: asyncio.Queue[bytes] = asyncio.Queue()
        self.received = []
        self.news = asyncio.Condition()
        self.reads = asyncio.Event()
        self.reads.set()

    async def send(self, data):
        await self.reads.wait()
        async with self.news:
            self.received += self.framer.feed(data)
            self.news.notify_all()

    async def receive(self):
        return await self.towards_server.get()

    def say(self, *frames):
        self.towards_server.put_nowait(b"".join(self.framer.encode(frame) for frame in frames))

    def hang_up(self):
        self.towards_server.put_nowait(b"")

    async def until(self, condition):
        async with self.news:
            await self.news.wait_for(condition)

    async def until_received(self, frame):
        await self.until(lambda: frame in self.received)

    def bytes_of(self, stream_id):
        return sum(len(f.data) for f in self.received if isinstance(f, Data) and f.stream_id == stream_id)


@asynccontextmanager
async def a_connection():
    peer = Peer()
    async with spdy_stream.serving(peer) as connection, asyncio.timeout(60):
        yield peer, connection


async def an_open_stream(peer, connection, stream_id=1, *before, **headers):
    peer.say(*before, SynStream(stream_id, headers))
    stream = await connection.accept()
    stream.reply()
    return stream


def test_a_stream_is_answered_and_carries_data_both_ways():
    async def main():
        async with a_connection() as (peer, connection):
            stream = await an_open_stream(peer, connection, streamtype="data")
            peer.say(Data(1, b"up"), Data(1, b"", fin=True))
            up = [await stream.read(), await stream.read()]
            await stream.write(b"down")
            stream.close()
            await peer.until_received(Data(1, b"", fin=True))
            return stream.headers, up, peer.received

    headers, up, received = clock.run(main())

    assert headers == {"streamtype": "data"}
    assert up == [b"up", b""]
    assert received == [SynReply(1), Data(1, b"down"), Data(1, b"", fin=True)]


def test_what_was_said_is_sent_before_the_connection_is_left():
    async def main():
        async with a_connection() as (peer, connection):
            stream = await an_open_stream(peer, connection)
            await stream.write(b"last")
            stream.close()
        return peer.received[-2:]

    assert clock.run(main()) == [Data(1, b"last"), Data(1, b"", fin=True)]


def test_pings_are_answered():
    async def main():
        async with a_connection() as (peer, _):
            peer.say(Ping(7), Ping(8))
            peer.say(Ping(9))
            await peer.until_received(Ping(9))
            return peer.received

    assert clock.run(main()) == [Ping(7), Ping(9)]


def test_a_peer_that_speaks_of_no_windows_is_not_held_to_them():
    async def main():
        async with a_connection() as (peer, connection):
            stream = await an_open_stream(peer, connection)
            await stream.write(bytes(10 * WINDOW))
            await peer.until(lambda: peer.bytes_of(1) == 10 * WINDOW)

    clock.run(main())


@pytest.mark.parametrize(
    ("announcement", "allowed"),
    [
        pytest.param(Settings(1000), 1000, id="settings"),
        pytest.param(WindowUpdate(0, 10), WINDOW, id="window update"),
    ],
)
def test_windows_are_heeded_once_the_peer_shows_them(announcement, allowed):
    async def main():
        async with a_connection() as (peer, connection), asyncio.TaskGroup() as group:
            stream = await an_open_stream(peer, connection, 1, announcement)
            group.create_task(stream.write(bytes(allowed + 500)))
            await peer.until(lambda: peer.bytes_of(1) == allowed)
            peer.say(Ping(1))
            await peer.until_received(Ping(1))
            before = peer.bytes_of(1)
            peer.say(WindowUpdate(1, 10_000), WindowUpdate(0, 10_000))
            await peer.until(lambda: peer.bytes_of(1) == allowed + 500)
            return before

    assert clock.run(main()) == allowed


def test_the_window_of_the_connection_holds_all_its_streams():
    async def main():
        async with a_connection() as (peer, connection), asyncio.TaskGroup() as group:
            first = await an_open_stream(peer, connection, 1, Settings(10 * WINDOW))
            second = await an_open_stream(peer, connection, 3)
            group.create_task(first.write(bytes(WINDOW)))
            group.create_task(second.write(bytes(WINDOW)))
            await peer.until(lambda: peer.bytes_of(1) + peer.bytes_of(3) == WINDOW)
            peer.say(Ping(1))
            await peer.until_received(Ping(1))
            before = peer.bytes_of(1) + peer.bytes_of(3)
            peer.say(WindowUpdate(0, WINDOW))
            await peer.until(lambda: peer.bytes_of(1) + peer.bytes_of(3) == 2 * WINDOW)
            return before

    assert clock.run(main()) == WINDOW


def test_windows_are_granted_as_data_is_consumed():
    async def main():
        async with a_connection() as (peer, connection):
            stream = await an_open_stream(peer, connection)
            peer.say(*(Data(1, bytes(WINDOW // 4)) for _ in range(4)))
            for _ in range(4):
                await stream.read()
            await peer.until(lambda: granted(peer, 0) == granted(peer, 1) == WINDOW)

    clock.run(main())


def granted(peer, stream_id):
    return sum(f.delta for f in peer.received if isinstance(f, WindowUpdate) and f.stream_id == stream_id)


def test_nothing_is_granted_for_what_nobody_reads():
    async def main():
        async with a_connection() as (peer, connection):
            await an_open_stream(peer, connection)
            peer.say(Data(1, bytes(WINDOW)), Ping(1))
            await peer.until_received(Ping(1))
            return granted(peer, 0), granted(peer, 1)

    assert clock.run(main()) == (0, 0)


def test_the_carrier_is_not_read_while_too_much_is_unread():
    chunk = bytes(1 << 20)

    async def main():
        async with a_connection() as (peer, connection):
            stream = await an_open_stream(peer, connection)
            for _ in range(12):
                peer.say(Data(1, chunk))
            await asyncio.sleep(1)
            left = peer.towards_server.qsize()
            for _ in range(12):
                await stream.read()
            return left, peer.towards_server.qsize()

    left, after = clock.run(main())

    assert left == 12 - 9  # eight fill the allowance, the ninth exceeds it
    assert after == 0


def test_a_peer_that_does_not_read_is_still_heard():
    async def main():
        async with a_connection() as (peer, connection), asyncio.TaskGroup() as group:
            writing = await an_open_stream(peer, connection, 1)
            reading = await an_open_stream(peer, connection, 3)
            peer.reads.clear()
            group.create_task(writing.write(bytes(1 << 22)))
            peer.say(Data(3, b"heard"))
            heard = await reading.read()
            peer.reads.set()
            return heard

    assert clock.run(main()) == b"heard"


def test_a_flood_of_pings_ends_the_connection():
    async def main():
        async with a_connection() as (peer, connection):
            peer.reads.clear()
            for _ in range(20):
                peer.say(*(Ping(1) for _ in range(1000)))
            await connection.closed.wait()
            peer.reads.set()

    clock.run(main())


def test_a_reset_ends_reading_and_writing():
    async def main():
        async with a_connection() as (peer, connection):
            stream = await an_open_stream(peer, connection)
            peer.say(Data(1, b"unread"), RstStream(1, RstStream.CANCEL))
            peer.say(Ping(1))
            await peer.until_received(Ping(1))
            with pytest.raises(ConnectionResetError):
                await stream.write(b"late")
            return await stream.read()

    assert clock.run(main()) == b""


@pytest.mark.parametrize("writers", [1, 20])
def test_writers_do_not_wait_for_a_peer_that_has_hung_up(writers):
    async def main():
        async with a_connection() as (peer, connection), asyncio.TaskGroup() as group:
            stream = await an_open_stream(peer, connection)
            peer.reads.clear()
            tasks = [group.create_task(refused(stream)) for _ in range(writers)]
            await asyncio.sleep(1)
            peer.hang_up()
            await connection.closed.wait()
            peer.reads.set()
            return [await task for task in tasks]

    async def refused(stream):
        try:
            await stream.write(bytes(1 << 22))
        except ConnectionResetError:
            return True
        return False

    assert clock.run(main()) == [True] * writers


def test_writers_that_wait_for_a_window_hear_of_the_end():
    async def main():
        async with a_connection() as (peer, connection), asyncio.TaskGroup() as group:
            stream = await an_open_stream(peer, connection, 1, Settings(0))
            writing = group.create_task(expect_reset(stream))
            await asyncio.sleep(1)
            peer.hang_up()
            return await writing

    async def expect_reset(stream):
        with pytest.raises(ConnectionResetError):
            await stream.write(b"never")
        return True

    assert clock.run(main())


def test_what_came_before_the_peer_hung_up_is_still_read():
    async def main():
        async with a_connection() as (peer, connection):
            stream = await an_open_stream(peer, connection)
            peer.say(Data(1, b"last words"))
            peer.hang_up()
            await connection.closed.wait()
            return await stream.read(), await stream.read(), await connection.accept(), await connection.accept()

    assert clock.run(main()) == (b"last words", b"", None, None)


def test_nonsense_is_answered_with_goaway_and_the_end():
    async def main():
        async with a_connection() as (peer, connection):
            peer.towards_server.put_nowait(b"\x80\x02\0\1\0\0\0\0")
            await connection.closed.wait()
            return peer.received

    received = clock.run(main())

    assert GoAway(0, status=1) in received


def test_a_stream_opened_twice_is_refused():
    async def main():
        async with a_connection() as (peer, connection):
            await an_open_stream(peer, connection)
            peer.say(SynStream(1))
            await peer.until_received(RstStream(1, RstStream.PROTOCOL_ERROR))

    clock.run(main())


def test_data_for_a_stream_that_is_gone_is_thrown_away():
    async def main():
        async with a_connection() as (peer, connection):
            stream = await an_open_stream(peer, connection)
            stream.reset()
            peer.say(Data(1, bytes(WINDOW)), Ping(1))
            await peer.until_received(Ping(1))
            return granted(peer, 0), granted(peer, 1)

    assert clock.run(main()) == (WINDOW, 0)


ids = st.integers(0, 5)
any_frames = st.one_of(
    st.builds(SynStream, ids, st.just({}), st.booleans()),
    st.builds(Data, ids, st.binary(max_size=9), st.booleans()),
    st.builds(RstStream, ids, st.integers(0, 12)),
    st.builds(Settings, st.integers(0, 2**31 - 1)),
    st.builds(WindowUpdate, ids, st.integers(0, 2**31 - 1)),
    st.builds(Headers, ids, st.just({}), st.booleans()),
    st.builds(GoAway, ids),
    st.builds(SynReply, ids),
)


@given(st.lists(any_frames, max_size=20))
def test_whatever_a_client_says_its_streams_end_when_it_hangs_up(frames):
    async def main():
        async with a_connection() as (peer, connection):
            peer.say(*frames)
            peer.hang_up()
            ended = []
            while (stream := await connection.accept()) is not None:
                stream.reply()
                while await stream.read():
                    pass
                ended.append(stream.has_ended)
            return ended

    assert all(clock.run(main()))
