"""Signals to a command with a cluster in it: the first asks it to end, the next ones not to wait."""

from __future__ import annotations

import asyncio
import contextlib
import signal

import pytest

from trainmaster.cli import interruption
from trainmaster.cli.interruption import Interrupted
from trainmaster.cluster.kubelet.ending import Ending
from trainmaster.testing.patience import PATIENCE

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])


@pytest.fixture(autouse=True)
def _interruptible():
    """Whatever the shell has arranged that these tests were started from."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_what_ends_by_itself_gives_its_result():
    async def main(_: Ending) -> int:
        return 7

    assert interruption.run(main) == 7


@BOTH
def test_the_first_signal_cancels_and_is_told_when_all_has_ended(number):
    ended = []

    async def main(ending: Ending) -> None:
        signal.raise_signal(number)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(ending.hurry.is_set())

    with pytest.raises(Interrupted) as told:
        interruption.run(main)

    assert ended == [False]
    assert interruption.code_of(told.value) == 128 + number


@BOTH
def test_the_second_signal_is_a_hurry(number):
    async def main(ending: Ending) -> None:
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            signal.raise_signal(number)
            async with asyncio.timeout(PATIENCE):
                await ending.hurry.wait()

    with pytest.raises(Interrupted) as told:
        interruption.run(main)

    assert told.value.number == signal.SIGINT


@BOTH
def test_a_signal_while_containers_end_by_themselves_keeps_the_result(number):
    async def main(ending: Ending) -> int:
        ending.is_under_way = True
        signal.raise_signal(number)
        async with asyncio.timeout(PATIENCE):
            await ending.hurry.wait()
        return 7

    assert interruption.run(main) == 7


def test_a_failure_while_it_ends_is_not_hidden_by_the_signal():
    async def main(_: Ending) -> None:
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("the disk is full") from None

    with pytest.raises(OSError, match="the disk is full"):
        interruption.run(main)


def test_a_signal_that_is_ignored_stays_so():
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def main(_: Ending) -> int:
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)
        return 7

    assert interruption.run(main) == 7


@pytest.mark.parametrize(
    ("is_interrupted", "containers", "words"),
    [
        (True, 1, "ending 1 container; Ctrl-C again ends it at once\n"),
        (True, 12, "ending 12 containers; Ctrl-C again ends them at once\n"),
        (False, 2, "ending 2 containers; Ctrl-C ends them at once\n"),
    ],
    ids=["one", "many", "not interrupted"],
)
def test_the_user_hears_what_is_waited_for(is_interrupted, containers, words, capsys):
    heard = []

    async def main(ending: Ending) -> None:
        try:
            if is_interrupted:
                signal.raise_signal(signal.SIGINT)
                await asyncio.Event().wait()
        finally:
            ending.tell(containers, 30.0)

    with contextlib.suppress(Interrupted):
        interruption.run(main, lambda *told: heard.append(told))

    assert capsys.readouterr().err == words
    assert heard == [(containers, 30.0)]


def test_the_end_goes_on_when_nobody_can_be_told():
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def main(ending: Ending) -> int:
        ending.tell(1, 30.0)
        return 7

    assert interruption.run(main, full) == 7
