"""Virtual time for asyncio: a test of a ten minute timeout takes no second.

`run(main())` runs a coroutine on a fresh loop whose `time()` starts at zero and stands still while anything is
ready; when all tasks wait, it jumps to the next timer. Sockets and threads are real: while a thread works, time
waits for it, and before each jump open sockets get a moment to deliver. When nothing is left to wait for, `run`
raises `Deadlock` and names the tasks and the lines they wait at, instead of hanging.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeVar, TypeVarTuple

from trainmaster.testing.patience import PATIENCE

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

DAY = 86400.0

_GRACE = 0.002
"""Real seconds for open sockets before time jumps. Both ends live in this process, so bytes arrive at once."""


class Deadlock(Exception):
    """Every task waits, and nothing that could wake one is scheduled."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Wall time to inject where production passes `time.time`: it moves with the running loop."""

    epoch: float = 1704067200.0  # 2024-01-01T00:00:00Z

    def now(self) -> float:
        return self.epoch + asyncio.get_running_loop().time()


def run(main: Coroutine[Any, Any, T], *, timeout: float = DAY) -> T:
    """The coroutine's result; TimeoutError when more than `timeout` virtual seconds pass before it is there."""
    loop = VirtualLoop(limit=timeout)
    try:
        return loop.run_until_complete(loop.create_task(main, name="main"))
    finally:
        _close(loop)


def leap(seconds: float) -> None:
    """Lets time pass while nothing runs, as for a process that was stopped and continued."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), "leap() needs a loop made by clock.run()"
    loop.leap(seconds)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that owns its time. `limit` is the moment at which a test has gone on for too long."""

    def __init__(self, limit: float = math.inf) -> None:
        self.limit = limit
        self._now = 0.0
        self._threads = 0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self._now

    def leap(self, seconds: float) -> None:
        if self._now + seconds > self.limit:
            raise TimeoutError(f"{self.limit:g} virtual seconds have passed; {_waiting(self)}")
        self._now += seconds

    @property
    def has_threads(self) -> bool:
        return self._threads > 0

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self._threads += 1
        future.add_done_callback(self._thread_ended)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        # The thread that joins the executor's threads is none of run_in_executor's.
        self._threads += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self._threads -= 1

    def _thread_ended(self, _: asyncio.Future[Any]) -> None:
        self._threads -= 1


class _Selector(selectors.DefaultSelector):
    """Asked to wait, moves its loop's time instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        if self._loop.has_threads or (self._has_sockets and timeout is None):
            events = super().select(PATIENCE)
        elif self._has_sockets:
            events = super().select(_GRACE)
        if events:
            return events
        if timeout is None or self._loop.has_threads:
            raise Deadlock(f"nothing is scheduled; {_waiting(self._loop)}")
        self._loop.leap(timeout)
        return []

    @property
    def _has_sockets(self) -> bool:
        return len(self.get_map()) > 1  # one is the loop's own wake-up pipe


def _waiting(loop: asyncio.AbstractEventLoop) -> str:
    """`main at test_queue.py:12, worker-0 at queue.py:80`."""
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    return "waiting: " + (", ".join(f"{task.get_name()} at {_place(task)}" for task in tasks) or "no task")


def _place(task: asyncio.Task[Any]) -> str:
    """The innermost line a task waits at; Task.get_stack() knows the outermost only."""
    frame: FrameType | None = None
    inner: object = task.get_coro()
    while inner is not None:
        frame = getattr(inner, "cr_frame", None) or frame
        inner = getattr(inner, "cr_await", None)
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}" if frame else "its start"


def _close(loop: VirtualLoop) -> None:
    loop.limit = math.inf  # leftovers may need time to clean up
    try:
        leftovers = asyncio.all_tasks(loop)
        for task in leftovers:
            task.cancel()
        if leftovers:
            loop.run_until_complete(asyncio.wait(leftovers))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
