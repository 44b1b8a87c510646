"""What the steps in the making of an environment share: commands are run the same way, and fail the same way."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

BEAT = 15.0
"""Seconds of silence, at most, while an environment is made."""


class Unavailable(Exception):
    """The environment cannot be made here; says why."""


def run(
    name: str,
    command: Sequence[str],
    *,
    variables: Mapping[str, str] | None = None,
    folder: Path | None = None,
    grows: Path | None = None,
) -> None:
    """Runs the command for the environment `name`; what it prints is progress, and stdout is kept for the answer.

    Now and then it is told that the command still runs, and how large the directory `grows` has become by it.
    """
    silent, progress = subprocess.DEVNULL, sys.stderr.fileno()
    try:
        with subprocess.Popen(
            command,
            stdin=silent,
            stdout=progress,
            env={**os.environ, **(variables or {})},
            cwd=folder,
            close_fds=False,  # what can be inherited is meant to be: the lock on the environment
        ) as running:
            code = _watched(name, running, grows)
    except OSError as error:
        raise Unavailable(f"the environment {name} could not be made: {error}") from error
    if code:
        raise Unavailable(f"the environment {name} could not be made: {command[0]} ended with exit code {code}")


def _watched(name: str, running: subprocess.Popen[bytes], grows: Path | None) -> int:
    """Its exit code. What is broken off here, as by Ctrl-C, does not go on by itself."""
    started = time.monotonic()
    try:
        while True:
            try:
                return running.wait(BEAT)
            except subprocess.TimeoutExpired:
                size = f", {megabytes(grows)} MB so far" if grows is not None else ""
                tell(f"{name}: {time.monotonic() - started:.0f} s{size} …")
    except BaseException:
        running.kill()
        raise


def megabytes(directory: Path) -> int:
    return round(sum(_sizes(directory)) / 1e6)


def _sizes(directory: Path) -> Iterator[int]:
    """Of the files that are there, while others come and go."""
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _sizes(Path(entry.path))
                continue
            with contextlib.suppress(FileNotFoundError):
                yield entry.stat(follow_symlinks=False).st_size


def require(name: str, programs: Sequence[str]) -> None:
    """Says which program is missing before anything long is begun."""
    if missing := [program for program in programs if shutil.which(program) is None]:
        raise Unavailable(f"the environment {name} cannot be made without {missing[0]}, and there is none on PATH")


def tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def pip(directory: Path, *words: str) -> list[str]:
    """A pip command of that environment."""
    python = str(directory / "bin" / "python")
    return [python, "-m", "pip", "--disable-pip-version-check", "--no-input", *words]
