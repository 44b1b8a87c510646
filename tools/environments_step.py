"""What the steps in the making of an environment share: commands are run the same way, and fail the same way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


class Unavailable(Exception):
    """The environment cannot be made here; says why."""


def run(
    name: str, command: Sequence[str], *, variables: Mapping[str, str] | None = None, folder: Path | None = None
) -> None:
    """Runs the command for the environment `name`; what it prints is progress, and stdout is kept for the answer."""
    environment = {**os.environ, **(variables or {})}
    silent, progress = subprocess.DEVNULL, sys.stderr.fileno()
    try:
        subprocess.run(
            command,
            check=True,
            stdin=silent,
            stdout=progress,
            env=environment,
            cwd=folder,
            close_fds=False,  # what can be inherited is meant to be: the lock on the environment
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"the environment {name} could not be made: {error}") from error


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
