"""The command line as a process of its own, run to its end or under way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.machine import marked

from trainmaster.testing.patience import PATIENCE

TRAINMASTER = (sys.executable, "-m", "trainmaster")


def trainmaster(*words: object, given: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    command = command_of(words)
    environment = {**os.environ, **env}
    return subprocess.run(command, input=given, env=environment, capture_output=True, text=True, timeout=PATIENCE)


def command_of(words: Sequence[object]) -> list[str]:
    if words[0] in ("run", "up"):
        marked.starts_containers()
    return [*TRAINMASTER, *map(str, words)]


@contextmanager
def started(*words: object, given: str = "", **env: str) -> Iterator[subprocess.Popen[str]]:
    """A command under way; killed if the test does not end it."""
    pipe, command = subprocess.PIPE, command_of(words)
    process = subprocess.Popen(command, env={**os.environ, **env}, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert process.stdin is not None
    process.stdin.write(given)
    process.stdin.close()
    process.stdin = None
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def said(process: subprocess.Popen[str], text: str, times: int = 1) -> None:
    """Waits until it has printed so many lines with that text."""
    assert process.stdout is not None
    for line in process.stdout:
        times -= text in line
        if not times:
            return
    raise AssertionError(f"it ended without saying {text!r}: {process.stderr and process.stderr.read()}")


def warned(process: subprocess.Popen[str], text: str) -> str:
    """The first line with that text of what it says beside its output."""
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return line
    raise AssertionError(f"it ended without saying {text!r}")
