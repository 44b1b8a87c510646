"""Virtual environments with real frameworks in them, made once and kept in the user's cache.

    python -m tools.environments               # which there are, and which of them are made
    python -m tools.environments torch jax     # makes them where they are missing, prints where they are
    python -m tools.environments light         # the same for all that are installed in a minute or two

`environments.toml` says what is in each. A directory is named after its recipe, so that a changed one makes another.
A file in it, written last, says that it is whole: one whose making was broken off is made again. Whoever comes while
another is at it waits for a lock, which the kernel takes back when the maker and all that it has started are gone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools import environments_debian, environments_horovod, environments_openmpi, environments_openssh
from tools.environments_step import Unavailable, megabytes, pip, require, run, tell

__all__ = [
    "BUILDS",
    "LIGHT",
    "RECIPES",
    "Build",
    "Recipe",
    "Unavailable",
    "environment",
    "is_whole",
    "location",
    "main",
    "recipe",
]

RECIPES = Path(__file__).with_suffix(".toml")
LIGHT = ("torch", "tensorflow", "jax", "xgboost", "lightgbm", "mxnet", "openmpi", "paddle")
"""Those of the tests that run before anything lands."""

_WHOLE = ".whole"


@dataclass(frozen=True)
class Build:
    make: Callable[[str, Path, str], None]
    """Takes the environment's name, its directory, and what the recipe asks for."""

    needs: tuple[str, ...] = ()
    """Programs that the machine must have."""


BUILDS: Mapping[str, Build] = {
    "openmpi": Build(environments_openmpi.arrange),
    "horovod": Build(environments_horovod.build, environments_horovod.NEEDS),
    "openssh": Build(environments_openssh.arrange),
}


@dataclass(frozen=True)
class Recipe:
    """What an environment is made of, in the order of its making."""

    pip: tuple[str, ...] = ()
    """Lines of a pip requirements file."""

    debian: tuple[str, ...] = ()
    """Debian packages, unpacked inside the environment."""

    suite: str = ""
    """Of which Debian they are; empty: of this machine's."""

    build: tuple[str, ...] = ()
    """What is done last, by name: `horovod==0.28.1` is the build horovod of that version."""

    def __add__(self, other: Recipe) -> Recipe:
        suite = other.suite or self.suite
        return Recipe(self.pip + other.pip, self.debian + other.debian, suite, self.build + other.build)


def environment(name: str) -> Path:
    """The directory of that environment, whole: `bin/python` in it has what `environments.toml` lists."""
    directory = location(name)
    with _locked(directory.with_suffix(".lock")):
        if not is_whole(directory):
            _make(name, directory)
    return directory


def is_whole(directory: Path) -> bool:
    return (directory / _WHOLE).exists()


def location(name: str) -> Path:
    made_of = recipe(name)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    suite = [made_of.suite] if made_of.suite else []
    lines = [version, *made_of.pip, *made_of.debian, *suite, *made_of.build]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "trainmaster" / "envs" / f"{name}-{digest}"


def recipe(name: str) -> Recipe:
    known = _known()
    if name not in known:
        raise Unavailable(f"{RECIPES} knows no {name}; it has {', '.join(known)}")
    return _parsed(name, known[name])


def _known() -> dict[str, object]:
    return tomllib.loads(RECIPES.read_text())


def _parsed(name: str, entry: object) -> Recipe:
    if isinstance(entry, list):
        return Recipe(pip=tuple(entry))
    if not isinstance(entry, dict):
        raise Unavailable(f"{RECIPES}: {name} is {entry!r}; it should be a list for pip, or a table")
    fields = dict(entry)
    base = recipe(fields.pop("extends")) if "extends" in fields else Recipe()
    if unknown := fields.keys() - Recipe.__dataclass_fields__.keys():
        known = "extends, pip, debian, suite and build"
        raise Unavailable(f"{RECIPES}: {name}.{min(unknown)} is not known; there are {known}")
    suite = str(fields.pop("suite", ""))
    return base + Recipe(suite=suite, **{key: tuple(lines) for key, lines in fields.items()})


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("w")
    except OSError as error:
        raise Unavailable(
            f"environments cannot be kept in {path.parent}: {error.strerror}; name another place in XDG_CACHE_HOME"
        ) from error
    with lock:
        os.set_inheritable(lock.fileno(), True)  # pip may outlive us when we are killed: the lock is its as well
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(name: str, directory: Path) -> None:
    started = time.monotonic()
    made_of = recipe(name)
    builds = [(_build(name, wanted), wanted) for wanted in made_of.build]
    require(name, environments_debian.NEEDS if made_of.debian else ())
    require(name, [program for build, _ in builds for program in build.needs])
    parts = [line for line in (*made_of.pip, *made_of.debian, *made_of.build) if not line.startswith("-")]
    tell(f"{name}: installing {', '.join(parts)} in {directory} …")
    _install(name, made_of.pip, directory)
    if made_of.debian:
        environments_debian.unpack(name, made_of.debian, directory, made_of.suite)
    for build, wanted in builds:
        build.make(name, directory, wanted)
    (directory / _WHOLE).touch()
    tell(f"{name}: ready after {time.monotonic() - started:.0f} s")


def _install(name: str, lines: Sequence[str], directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    listed = directory / "requirements.txt"
    run(name, [sys.executable, "-m", "venv", str(directory)])
    listed.write_text("\n".join(lines) + "\n")
    downloads = directory / "downloads"  # below the directory, so that they are counted; and /tmp may be small
    downloads.mkdir()
    command = pip(directory, "install", "--quiet", "--retries", "2", "--requirement", str(listed))
    run(name, command, variables={"TMPDIR": str(downloads)}, grows=directory)
    shutil.rmtree(downloads)


def _build(name: str, wanted: str) -> Build:
    known, _, _ = wanted.partition("==")
    if known not in BUILDS:
        raise Unavailable(f"{RECIPES}: {name}.build has {known}, which is not known; there are {', '.join(BUILDS)}")
    return BUILDS[known]


def main(words: Sequence[str]) -> int:
    try:
        if not words:
            _list()
        names = _names(words)
        for number, name in enumerate(names, 1):
            _announce(f"{number}/{len(names)} {name}", location(name))
            sys.stdout.write(f"{environment(name)}\n")
            sys.stdout.flush()
    except Unavailable as error:
        tell(str(error))
        return 1
    return 0


def _names(words: Sequence[str]) -> list[str]:
    groups = {"light": LIGHT, "all": tuple(_known())}
    return list(dict.fromkeys(name for word in words for name in groups.get(word, (word,))))


def _announce(title: str, directory: Path) -> None:
    """Who waits for minutes wants to know what for."""
    tell(f"{title}: {'cached' if is_whole(directory) else 'not there yet, or not whole'}")


def _list() -> None:
    names = list(_known())
    width = max(map(len, names))
    for name in names:
        directory = location(name)
        state = f"cached, {megabytes(directory)} MB in {directory}" if is_whole(directory) else "not made"
        sys.stdout.write(f"{name.ljust(width)}  {'light' if name in LIGHT else '     '}  {state}\n")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
