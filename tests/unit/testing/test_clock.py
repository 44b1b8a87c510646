"""Virtual time passes at once, waits for what is real, and says where a test hangs."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time

import pytest

from trainmaster.testing import clock


def test_an_hour_of_sleep_takes_no_time() -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    started = time.monotonic()
    elapsed = clock.run(main())

    assert elapsed == pytest.approx(3600)
    assert time.monotonic() - started < 3600


def test_timers_fire_in_order_of_their_time() -> None:
    async def main() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        fired: list[tuple[str, float]] = []

        async def nap(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            fired.append((name, loop.time()))

        async with asyncio.TaskGroup() as group:
            group.create_task(nap("late", 20), name="late")
            group.create_task(nap("early", 10), name="early")
        return fired

    assert clock.run(main()) == [("early", 10), ("late", 20)]


def test_time_stands_still_while_tasks_are_ready() -> None:
    async def main() -> float:
        for _ in range(1000):
            await asyncio.sleep(0)
        return asyncio.get_running_loop().time()

    assert clock.run(main()) == 0


def test_wall_time_moves_with_the_loop() -> None:
    async def main() -> tuple[float, float]:
        wall = clock.Clock(epoch=1000.0)
        before = wall.now()
        await asyncio.sleep(5)
        return before, wall.now()

    assert clock.run(main()) == (1000.0, 1005.0)


def test_a_deadlock_names_the_tasks_and_where_they_wait() -> None:
    async def starve(event: asyncio.Event) -> None:
        await event.wait()

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(starve(asyncio.Event()), name="starving")

    with pytest.raises(clock.Deadlock, match=r"main at .*starving at locks\.py:\d+"):
        clock.run(main())


def test_a_loop_that_never_ends_runs_into_the_timeout() -> None:
    async def main() -> None:
        for _ in itertools.count():
            await asyncio.sleep(1)

    with pytest.raises(TimeoutError, match=r"60 virtual seconds.*main at"):
        clock.run(main(), timeout=60)


def test_leftover_tasks_are_cancelled() -> None:
    ended: list[str] = []

    async def linger() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            ended.append("linger")

    async def main() -> None:
        linger_forever = asyncio.get_running_loop().create_task(linger(), name="linger")
        await asyncio.sleep(0)
        assert not linger_forever.done()

    clock.run(main())

    assert ended == ["linger"]


def test_an_exception_passes_through() -> None:
    async def main() -> None:
        raise LookupError("nowhere")

    with pytest.raises(LookupError, match="nowhere"):
        clock.run(main())


def test_time_waits_for_threads() -> None:
    async def main() -> tuple[str, float]:
        release = threading.Event()

        def work() -> str:
            release.wait(5)
            return "done"

        asyncio.get_running_loop().call_soon(release.set)
        async with asyncio.timeout(1):
            result = await asyncio.to_thread(work)
        return result, asyncio.get_running_loop().time()

    assert clock.run(main()) == ("done", 0)


def test_sockets_deliver_before_time_jumps() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    async def main() -> tuple[bytes, float]:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with server, asyncio.timeout(1):
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"hello\n")
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
        return answer, asyncio.get_running_loop().time()

    assert clock.run(main()) == (b"hello\n", 0)


def test_a_leap_passes_time_without_running_anything() -> None:
    async def main() -> tuple[float, bool]:
        ticks: list[float] = []
        loop = asyncio.get_running_loop()
        loop.call_later(5, lambda: ticks.append(loop.time()))
        clock.leap(30)
        slept_through = not ticks
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return ticks[0], slept_through

    assert clock.run(main()) == (30, True)
