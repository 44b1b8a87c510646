"""A service in the background: a child that goes on in a session of its own, while its parent hears how it began.

The child reports through a pipe, for the disk with its log may be just what fails. Until it says that it is up it is
its parent's: it ends if the parent is interrupted, loses patience, or goes.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn, TypeAlias

from trainmaster.cluster.storage import private

PATIENCE = 30.0
_UP, _INTERRUPTED = b"\0", b"\1"


class Outcome(NamedTuple):
    """An exit code, and what is to be said of it."""

    code: int
    words: str = ""


class Abandoned(Exception):
    """Nobody waits for the service any more."""


Service: TypeAlias = Callable[[Callable[[], None]], Outcome]
"""Calls what it is given as soon as it is up, and returns when it has ended."""


def detach(service: Service, log_file: Path, patience: float = PATIENCE) -> Outcome:
    """Returns when the service is up, or has ended. An interruption ends one that is not up yet, and is passed on."""
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    with os.fdopen(private.open_private(log_file, append), "ab") as log:
        heard, told = os.pipe()
        # Whoever is interrupted between the fork and its own code would take itself for the other.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        child = os.fork()
        if child == 0:
            os.close(heard)
            _be_the_child(service, log, log_file, told, mask)
    os.close(told)
    with _interruptions(mask) as interruptions:
        report = _report(heard, patience, interruptions)
        code = 0 if report == _UP else _end(child, interruptions)
    os.close(heard)
    if report == _UP:
        return Outcome(0)
    if report is None:
        return Outcome(1, f"not up within {patience:g} s, so it was stopped; {log_file} may say why")
    if report == _INTERRUPTED:
        raise KeyboardInterrupt
    return Outcome(max(code, 1), report.decode() or f"{_ended(code)} before it was up; {log_file} may say why")


@contextmanager
def _interruptions(mask: set[int | signal.Signals]) -> Iterator[int]:
    """Something to read from whenever the user presses Ctrl-C; `mask` is what holds within.

    As an exception, which comes anywhere, a second one might come just where the child is to be ended, and leave it.
    """
    pressed, press = os.pipe()
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: os.write(press, b"."))
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
        os.close(pressed)
        os.close(press)


def _ended(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else "stopped"


def _be_the_child(
    service: Service, log: BinaryIO, log_file: Path, told: int, mask: set[int | signal.Signals]
) -> NoReturn:
    outcome = Outcome(1)
    try:
        os.setsid()
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        outcome = service(lambda: _say_that_it_is_up(told))
        _explain(told, outcome.words)
    except BaseException as error:  # above are the parent's frames, which must not go on in this process
        _explain(told, f"{type(error).__name__}: {error}; {log_file} has the details")
        traceback.print_exc()
    finally:
        os._exit(outcome.code)


def _say_that_it_is_up(told: int) -> None:
    try:
        os.write(told, _UP)
    except BrokenPipeError:
        raise Abandoned("whoever started it has gone without waiting for it") from None


def _explain(told: int, words: str) -> None:
    with suppress(BrokenPipeError):  # it has been up, and nobody has listened since
        os.write(told, words.encode())
    if words:
        with suppress(OSError):  # the log may be on a disk that is full
            print(words, file=sys.stderr)


def _report(heard: int, patience: float, interruptions: int) -> bytes | None:
    """That it is up, or why not, which is empty where it ended without a word. None: it takes too long."""
    deadline, report = time.monotonic() + patience, b""
    while report != _UP:
        ready, _, _ = select.select([heard, interruptions], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            return None
        if heard not in ready:
            os.read(interruptions, 1)
            return _INTERRUPTED
        words = os.read(heard, 1 << 16)
        if not words:
            break
        report += words
    return report


def _end(child: int, interruptions: int) -> int:
    """Its exit code. In order if it can, at once if it takes too long or the user insists."""
    handle = os.pidfd_open(child)
    os.kill(child, signal.SIGTERM)
    if handle not in select.select([handle, interruptions], [], [], PATIENCE)[0]:
        os.kill(child, signal.SIGKILL)
    os.close(handle)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
