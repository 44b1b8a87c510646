"""Virtual environments with real frameworks in them, made once and kept in the user's cache.

    python -m tools.environments torch jax     # prints where they are

`environments.toml` says what is in each. A directory is named after its requirements, so that a changed list makes a
new one. A file in it, written last, says that it is whole: one whose making was broken off is made again. Whoever comes
while another is at it waits for a lock, which the kernel takes back from the dead.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

REQUIREMENTS = Path(__file__).with_suffix(".toml")
_WHOLE = ".whole"


class Unavailable(Exception):
    """The environment cannot be made here; says why."""


def environment(name: str) -> Path:
    """The directory of that environment, whole: `bin/python` in it has what `environments.toml` lists."""
    directory = location(name)
    with _locked(directory.with_suffix(".lock")):
        if not (directory / _WHOLE).exists():
            _make(name, directory)
    return directory


def location(name: str) -> Path:
    lines = requirements(name)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256("\n".join([version, *lines]).encode()).hexdigest()[:12]
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "trainmaster" / "envs" / f"{name}-{digest}"


def requirements(name: str) -> list[str]:
    known = tomllib.loads(REQUIREMENTS.read_text())
    if name not in known:
        raise Unavailable(f"{REQUIREMENTS} knows no {name}; it has {', '.join(known)}")
    return [str(line) for line in known[name]]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(name: str, directory: Path) -> None:
    started = time.monotonic()
    lines = requirements(name)
    _tell(f"{name}: installing {', '.join(line for line in lines if not line.startswith('-'))} in {directory} …")
    shutil.rmtree(directory, ignore_errors=True)
    listed = directory / "requirements.txt"
    _run(name, [sys.executable, "-m", "venv", str(directory)])
    listed.write_text("\n".join(lines) + "\n")
    pip = [str(directory / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    _run(name, [*pip, "install", "--quiet", "--retries", "2", "--requirement", str(listed)])
    (directory / _WHOLE).touch()
    _tell(f"{name}: ready after {time.monotonic() - started:.0f} s")


def _run(name: str, command: Sequence[str]) -> None:
    try:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno())
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"the environment {name} could not be made: {error}") from error


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main(names: Sequence[str]) -> int:
    try:
        for name in names:
            sys.stdout.write(f"{environment(name)}\n")
    except Unavailable as error:
        _tell(str(error))
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
