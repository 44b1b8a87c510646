"""Ctrl-C and SIGTERM of a command with a cluster in it: the first lets containers end in time, the next does not."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from trainmaster.cli.errors import unwrapped
from trainmaster.cli.home import ending_in_words
from trainmaster.cluster.kubelet.ending import Ending
from trainmaster.kube import connections

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """The command was told to end, and has."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def code_of(interruption: KeyboardInterrupt) -> int:
    """What a shell shows of a command that the signal ended."""
    return 128 + (interruption.number if isinstance(interruption, Interrupted) else signal.SIGINT)


def run(main: Callable[[Ending], Coroutine[Any, Any, T]], waits: Callable[[int, float], None] = lambda *_: None) -> T:
    """`asyncio.run` of a coroutine that hands the `Ending` to its cluster. Interrupted when a signal has ended it.

    `waits` hears, beside the user, of containers that take long to end: how many, and seconds they have left.
    """
    connections.slim_down()
    told: list[int] = []

    async def watched() -> T:
        def tell(containers: int, seconds: float) -> None:
            with contextlib.suppress(OSError):  # the end goes on, whether or not somebody can be told
                print(ending_in_words(containers, "Ctrl-C again" if told else "Ctrl-C"), file=sys.stderr, flush=True)
                waits(containers, seconds)

        ending = Ending(tell=tell)
        _listen(ending, told)
        return await main(ending)

    try:
        with unwrapped():
            return asyncio.run(watched())
    except asyncio.CancelledError:
        if not told:
            raise
        raise Interrupted(told[0]) from None


def _listen(ending: Ending, told: list[int]) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "only a coroutine asks"

    def on_signal(number: int) -> None:
        if told or ending.is_under_way:
            ending.hurry.set()
        else:
            told.append(number)
            task.cancel()

    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as a shell arranges for what it runs in the background
            loop.add_signal_handler(number, on_signal, number)
