"""Another user of this machine, for tests of what such a one can do. Root becomes one in a child process; an ordinary
user reads the modes, and takes what belongs to root for another's."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

OTHER = 65534 if Path("/proc/self/uid_map").read_text().split()[2] == "4294967295" else 1
"""A user that exists for the kernel, and is not us."""

IS_ROOT = os.geteuid() == 0


@contextmanager
def a_common_directory() -> Iterator[Path]:
    """One that others can enter, as they cannot those of pytest."""
    directory = Path(tempfile.mkdtemp(prefix="common-")).resolve()
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def as_other(work: Callable[[], str]) -> str:
    """What it returns in a process of the other user. For root alone."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(OTHER, OTHER, OTHER)
            os.setresuid(OTHER, OTHER, OTHER)
            os.write(writer, work().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        told = answer.read()
    os.waitpid(child, 0)
    return told


def readable_by_others(root: Path) -> list[str]:
    """Every file below, itself included, that another user can read or directory that one can list or enter."""
    if IS_ROOT:
        return as_other(lambda: "\n".join(_opened(root))).splitlines()
    return list(_open_by_mode(root))


def _opened(root: Path) -> Iterator[str]:
    for path in (root, *(Path(parent, name) for parent, *names in os.walk(root) for name in (*names[0], *names[1]))):
        if os.access(path, os.R_OK) or (path.is_dir() and os.access(path, os.X_OK)):
            yield str(path)


def _open_by_mode(path: Path) -> Iterator[str]:
    mode = path.lstat().st_mode
    if path.is_symlink() or not mode & 0o077:
        return
    yield str(path)
    if path.is_dir():
        for below in path.iterdir():
            yield from _open_by_mode(below)
