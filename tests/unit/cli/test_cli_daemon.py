"""A service in the background, and what its parent hears of it; both are real processes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainmaster.testing.patience import PATIENCE

PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from trainmaster.cli.daemon import Outcome, detach

here, log, patience = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])

def wait_for(name):
    while not (here / name).exists():
        time.sleep(0.01)

def service(up):
    (here / "draft").write_text(str(os.getpid()))
    (here / "draft").rename(here / "pid")
    {service}

outcome = detach(service, log, patience)
print(outcome.code, outcome.words)
"""


class Parent:
    """A process that detaches a service and prints what it hears."""

    def __init__(self, here: Path) -> None:
        self.here = here
        self.log = here / "log"

    def start(self, service: str, *, patience: float = PATIENCE, log: Path | None = None) -> subprocess.Popen[str]:
        program = PROGRAM.replace("{service}", service.replace("\n", "\n    "))
        command = [sys.executable, "-c", program, str(self.here), str(log or self.log), str(patience)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, service: str, *, patience: float = PATIENCE, log: Path | None = None) -> str:
        with self.start(service, patience=patience, log=log) as parent:
            return parent.communicate(timeout=PATIENCE)[0].strip()

    @property
    def is_child_alive(self) -> bool:
        return (self.here / "pid").exists() and not has_ended(self.child, 0)

    @property
    def child(self) -> int:
        until((self.here / "pid").exists)
        return int((self.here / "pid").read_text())


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Parent]:
    started = Parent(tmp_path)
    yield started
    if started.is_child_alive:
        os.kill(started.child, signal.SIGKILL)


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def has_ended(pid: int, patience: float = PATIENCE) -> bool:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], patience)[0])
    finally:
        os.close(handle)


def test_a_service_that_is_up_goes_on_in_a_session_of_its_own(parent):
    told = parent.run("up()\nsignal.pause()")

    assert told == "0"
    assert not has_ended(parent.child, 0)
    assert os.getsid(parent.child) == parent.child


def test_why_it_is_not_up_is_told_and_logged(parent):
    told = parent.run("return Outcome(2, 'a flag is wrong')")

    assert told == "2 a flag is wrong"
    assert parent.log.read_text() == "a flag is wrong\n"


def test_why_it_is_not_up_is_told_even_if_the_log_cannot_be_written(parent):
    told = parent.run("return Outcome(1, 'the disk is full')", log=Path("/dev/full"))

    assert told == "1 the disk is full"


def test_a_defect_is_named_and_its_traceback_is_in_the_log(parent):
    told = parent.run("{}['nosuch']")

    assert told == f"1 KeyError: 'nosuch'; {parent.log} has the details"
    assert "Traceback" in parent.log.read_text()


@pytest.mark.parametrize(
    ("service", "told"),
    [
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", "1 killed by SIGKILL before it was up", id="killed"),
        pytest.param("return Outcome(0)", "1 stopped before it was up", id="stopped"),
    ],
)
def test_one_that_ends_without_a_word_is_not_taken_to_be_up(parent, service, told):
    assert parent.run(service) == f"{told}; {parent.log} may say why"


def test_one_that_takes_too_long_is_ended(parent):
    told = parent.run("signal.pause()", patience=0.3)

    assert told == f"1 not up within 0.3 s, so it was stopped; {parent.log} may say why"
    assert not parent.is_child_alive  # also where it was stopped before it could say who it is


def test_an_interrupted_parent_lets_the_service_end_in_order_and_waits_for_it(parent):
    service = "signal.signal(signal.SIGTERM, lambda *_: ((here / 'in order').touch(), os._exit(0)))\nsignal.pause()"

    with parent.start(f"(here / 'ready').touch()\n{service}") as process:
        until((parent.here / "ready").exists)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PATIENCE)

    assert "KeyboardInterrupt" in stderr
    assert has_ended(parent.child, 0)
    assert (parent.here / "in order").exists()


def test_a_second_interruption_ends_a_service_that_does_not_end(parent):
    service = "signal.signal(signal.SIGTERM, lambda *_: (here / 'told').touch())\n(here / 'ready').touch()"

    with parent.start(f"{service}\nwhile True: signal.pause()") as process:
        until((parent.here / "ready").exists)
        process.send_signal(signal.SIGINT)
        until((parent.here / "told").exists)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)

    assert has_ended(parent.child, 0)


def test_interruptions_that_come_all_at_once_leave_nothing_running(parent):
    with parent.start(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n(here / 'ready').touch()\nsignal.pause()"
    ) as process:
        until((parent.here / "ready").exists)
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)

    assert has_ended(parent.child, 0)


def test_a_service_whose_parent_was_killed_is_not_kept(parent):
    with parent.start("wait_for('gate')\nup()\nsignal.pause()") as process:
        child = parent.child
        process.kill()
        process.communicate(timeout=PATIENCE)
    (parent.here / "gate").touch()

    assert has_ended(child)
    assert "whoever started it has gone" in parent.log.read_text()


def test_the_log_is_its_owners_and_no_link_in_its_place_is_followed(parent: Parent) -> None:
    parent.run("return Outcome(0)")
    mode = parent.log.stat().st_mode & 0o777
    parent.log.rename(parent.here / "victim")
    parent.log.symlink_to(parent.here / "victim")
    before = (parent.here / "victim").read_bytes()

    with parent.start("up(); return Outcome(0)") as process:
        told = process.communicate(timeout=PATIENCE)[1]

    assert mode == 0o600
    assert "Too many levels of symbolic links" in told
    assert (parent.here / "victim").read_bytes() == before
