"""A limit on the processor time that a coroutine may take between two waits.

While it computes, nothing else of its event loop goes on: no other key, no health check, no signal handler of asyncio.
The kernel counts, and interrupts even regular expressions. Only in the main thread, for only there signals are heard.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Awaitable, Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class TooLong(Exception):
    """Raised in the middle of the computation."""


class Limited(Generic[T]):
    """Awaits another awaitable, each step of which may take so many seconds."""

    def __init__(self, awaited: Awaitable[T], seconds: float) -> None:
        self._awaited, self._seconds = awaited, seconds

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._awaited.__await__()
        thrown: BaseException | None = None
        while True:
            try:
                with _limit(self._seconds):
                    waits_for = _throw(steps, thrown) if thrown is not None else next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            thrown = None
            try:
                yield waits_for
            except BaseException as error:  # a cancellation above all: it is for the coroutine to see
                thrown = error


def _throw(steps: Generator[Any, Any, Any], error: BaseException) -> Any:
    return steps.throw(error)


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if signal.getsignal(signal.SIGVTALRM) is not _interrupt:
        signal.signal(signal.SIGVTALRM, _interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise TooLong
