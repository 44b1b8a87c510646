"""Reads image mappings from `trainmaster.yaml` and from `--image`; every problem is told at once, with its place."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

_EXAMPLE = 'images:\n- match: "docker.io/kubeflow/*"\n  python: ./venv'
_KEYS = ("match", "python", "files", "entrypoint", "command", "env", "workdir", "sshd")

T = TypeVar("T")


class ImageError(Exception):
    """What is wrong with the mapping, where, and what to write instead."""


@dataclass(frozen=True, slots=True)
class ImageMapping:
    """One entry. `entrypoint` is None where nothing is said about it; empty says that the image has none."""

    match: str
    path_prefix: tuple[Path, ...] = ()
    overlays: Mapping[str, Path] = field(default_factory=dict)
    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    has_own_ssh: bool | None = None
    """Whether its ssh and sshd are the real ones; None where nothing is said about it."""

    def matches(self, image: str) -> bool:
        return any(fnmatchcase(name, self.match) for name in _names(image))


class _Problem(Exception):
    """(value, remedy) of the field that is being read."""


def mappings_of(data: object, file: Path) -> list[ImageMapping]:
    problems: list[str] = []
    mappings = list(_read(data, file.parent, problems))
    if problems:
        raise ImageError("\n".join(f"{file}: {problem}" for problem in problems))
    return mappings


def parse_option(text: str, base: Path) -> ImageMapping:
    """`--image PATTERN=DIR|VENV|CMD`."""
    pattern, equals, value = text.partition("=")
    pattern, value = pattern.strip(), value.strip()
    if not (equals and pattern and value):
        raise ImageError(f"--image {text!r}: write PATTERN=VALUE, e.g. 'kubeflow/*=./venv' or 'mnist=python train.py'")
    path = absolute(value, base)
    try:
        if path.is_dir() or _is_interpreter(path):
            return ImageMapping(pattern, path_prefix=(_programs(value, base),))
        return ImageMapping(pattern, entrypoint=_command_line(value, base))
    except _Problem as problem:
        raise ImageError(f"--image {text!r}: {_told(problem)}") from None


def _read(data: object, base: Path, problems: list[str]) -> Iterator[ImageMapping]:
    if data is None:
        return
    if not isinstance(data, Mapping):
        problems.append(f"is {_shown(data)}; write a mapping, e.g.\n{_EXAMPLE}")
        return
    entries = data.get("images")
    if entries is None:
        return
    if not isinstance(entries, list):
        problems.append(f"images: is {_shown(entries)}; write a list, e.g.\n{_EXAMPLE}")
        return
    for index, entry in enumerate(entries):
        yield _entry(entry, f"images[{index}]", base, problems)


def _entry(entry: Any, where: str, base: Path, problems: list[str]) -> ImageMapping:
    if not isinstance(entry, Mapping):
        problems.append(f"{where}: is {_shown(entry)}; write a mapping with match, e.g.\n{_EXAMPLE}")
        return ImageMapping("")
    problems.extend(
        f"{where}.{key}: there is no such field; known are {', '.join(_KEYS)}" for key in entry if key not in _KEYS
    )

    def take(key: str, read: Callable[[Any, Path], T], otherwise: T) -> T:
        if entry.get(key) is None:
            if key == "match":
                problems.append(f'{where}.match: is missing; name the image, e.g. match: "docker.io/kubeflow/*"')
            return otherwise
        try:
            return read(entry[key], base)
        except _Problem as problem:
            problems.append(f"{where}.{key}: {_told(problem)}")
            return otherwise

    programs = take("python", _programs, None)
    words: Callable[[Any, Path], tuple[str, ...] | None] = _words
    ssh: Callable[[Any, Path], bool | None] = _ssh
    return ImageMapping(
        match=take("match", _pattern, ""),
        path_prefix=(programs,) if programs else (),
        overlays=take("files", _files, {}),
        entrypoint=take("entrypoint", words, None),
        cmd=take("command", _words, ()),
        env=take("env", _env, {}),
        workdir=take("workdir", _workdir, ""),
        has_own_ssh=take("sshd", ssh, None),
    )


def _pattern(value: Any, _: Path) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Problem(value, 'name the image, e.g. "docker.io/kubeflow/*"')
    return value.strip()


def _programs(value: Any, base: Path) -> Path:
    """The directory whose programs come first: `bin` of an environment, or the one an interpreter lies in."""
    if not isinstance(value, str) or not value:
        raise _Problem(value, "give the path of a virtual environment or of an interpreter, e.g. ./venv")
    path = absolute(value, base)
    if (path / "bin").is_dir():
        return path / "bin"
    if path.is_file() and os.access(path, os.X_OK):
        return path.parent
    state = "has no bin/ directory" if path.is_dir() else "does not exist" if not path.exists() else "is no program"
    raise _Problem(value, f"{path} {state}; make a virtual environment there (python -m venv {path}) or give another")


def _files(value: Any, base: Path) -> dict[str, Path]:
    if not isinstance(value, Mapping):
        raise _Problem(value, 'write the image\'s path and yours, e.g. {"/examples": ./src}')
    files = {}
    for inside, outside in value.items():
        if not (isinstance(inside, str) and inside.startswith("/")):
            raise _Problem(inside, "paths of the image start with /")
        if not isinstance(outside, str) or not outside:
            raise _Problem(outside, f"give the path of a file or directory to lay over {inside}")
        path = absolute(outside, base)
        if not path.exists():
            raise _Problem(outside, f"{path} does not exist; make it, or correct the path to lay over {inside}")
        files[os.path.normpath(inside)] = path
    return files


def _words(value: Any, _: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(word, str | int | float) for word in value):
        raise _Problem(value, 'write a list of words, e.g. ["python", "/examples/train.py"]')
    return tuple(str(word) for word in value)


def _env(value: Any, _: Path) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise _Problem(value, 'write names and values, e.g. {OMP_NUM_THREADS: "1"}')
    for name, text in value.items():
        if isinstance(text, bool) or not isinstance(text, str | int | float):
            raise _Problem(text, f'quote the value of {name}, e.g. {name}: "true"')
    return {str(name): str(text) for name, text in value.items()}


def _workdir(value: Any, _: Path) -> str:
    if not (isinstance(value, str) and value.startswith("/")):
        raise _Problem(value, "paths of the image start with /, e.g. /examples")
    return value


def _ssh(value: Any, _: Path) -> bool:
    if value not in ("real", "builtin"):
        raise _Problem(value, "write real for the programs of this machine, or builtin for those of the cluster")
    return bool(value == "real")


def _command_line(text: str, base: Path) -> tuple[str, ...]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise _Problem(text, f"{error}; quote the words of a command line as in a shell") from None
    if "/" not in words[0]:
        return tuple(words)  # found on the container's PATH
    program = absolute(words[0], base)
    if not program.exists():
        named = "it" if str(program) == words[0] else program
        raise _Problem(words[0], f"{named} does not exist; give a directory with bin/, an environment or a command")
    return (str(program), *words[1:])


def _is_interpreter(path: Path) -> bool:
    return path.name.startswith("python") and path.is_file() and os.access(path, os.X_OK)


def absolute(text: str, base: Path) -> Path:
    """Absolute, without following links: the interpreter of a virtual environment is one."""
    return Path(os.path.normpath(base.absolute() / Path(text).expanduser()))


def _told(problem: _Problem) -> str:
    value, remedy = problem.args
    return f"is {_shown(value)}; {remedy}"


def _shown(value: object) -> str:
    return repr(value)


def _names(image: str) -> list[str]:
    """The spellings under which a pattern may know an image: with and without registry, with and without tag."""
    registry, slash, _ = image.partition("/")
    full = image
    if not slash:
        full = f"docker.io/library/{image}"
    elif "." not in registry and ":" not in registry and registry != "localhost":
        full = f"docker.io/{image}"
    short = full.removeprefix("docker.io/").removeprefix("library/")
    names = dict.fromkeys((image, full, short))
    return [*names, *dict.fromkeys(_untagged(name) for name in names)]


def _untagged(name: str) -> str:
    name = name.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"
