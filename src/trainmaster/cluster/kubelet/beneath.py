"""Paths that come from objects, taken below a directory of ours and never out of it.

Admission refuses such paths too, but an older store may hold some, and a pod can change the links in its volumes while
we look at them. So every step is opened on its own, without following a link, from the directory before it.

Used inside the helper process of `spawn` as well: nothing but the standard library here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Sequence
from urllib.parse import quote

_CLOSED = os.O_NOFOLLOW | os.O_CLOEXEC


class OutsideError(OSError):
    """A path that leads, or may lead, out of its directory."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(errno.EXDEV, f"path {path!r} {why}")


def step(name: str) -> str:
    """The name as one step of a path: unchanged where it is one already, else encoded."""
    encoded = quote(name, safe=" !#$&'()*+,:;=?@[]~")
    return encoded if encoded.strip(".") else encoded.replace(".", "%2E") or "%"


def steps_of(path: str) -> list[str]:
    """The steps of a relative path that names a file of ours; OutsideError for any other path."""
    steps = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/"):
        raise OutsideError(path, "must be relative")
    if ".." in steps:
        raise OutsideError(path, "must not contain '..'")
    if not steps or steps[0].startswith(".."):
        raise OutsideError(path, "must not start with '..'" if steps else "names no file")
    return steps


def write_file(directory: int, steps: Sequence[str], content: bytes, mode: int, owner: tuple[int, int]) -> None:
    """Make a new file below an open directory. `owner` is a user and a group; -1 leaves that one as it is."""
    above = _entered(directory, steps[:-1], makes=True)
    try:
        file = os.open(steps[-1], os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOSED, 0o600, dir_fd=above)
    finally:
        os.close(above)
    with os.fdopen(file, "wb") as opened:
        opened.write(content)
        if owner != (-1, -1):
            os.fchown(file, *owner)
        os.fchmod(file, mode)


def make_directories(root: str, steps: Sequence[str]) -> None:
    """Whatever of the path is missing; what is there already may end in a file."""
    above = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        inner = _entered(above, steps[:-1], makes=True)
    finally:
        os.close(above)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(steps[-1], dir_fd=inner)
        if stat.S_ISLNK(os.lstat(steps[-1], dir_fd=inner).st_mode):
            raise OutsideError("/".join(steps), "is a link")
    finally:
        os.close(inner)


def open_path(root: str, steps: Sequence[str]) -> int:
    """A descriptor (O_PATH) of what lies below `root`; OSError if a step has become a link."""
    above = os.open(root, os.O_PATH | os.O_CLOEXEC)
    try:
        inner = _entered(above, steps[:-1], makes=False)
    finally:
        os.close(above)
    try:
        found = os.open(steps[-1], os.O_PATH | _CLOSED, dir_fd=inner)
    finally:
        os.close(inner)
    if stat.S_ISLNK(os.fstat(found).st_mode):
        os.close(found)
        raise OutsideError("/".join(steps), "has become a link")
    return found


def _entered(directory: int, steps: Sequence[str], *, makes: bool) -> int:
    """A descriptor of the innermost directory, which the caller closes."""
    current = os.dup(directory)
    for name in steps:
        try:
            if makes:
                _make(name, current)
            inner = os.open(name, os.O_PATH | os.O_DIRECTORY | _CLOSED, dir_fd=current)
        finally:
            os.close(current)
        current = inner
    return current


def _make(name: str, above: int) -> None:
    """Make the directory if it is missing. A container of another user may enter it, whatever our umask."""
    try:
        os.mkdir(name, dir_fd=above)
    except FileExistsError:
        return
    made = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _CLOSED, dir_fd=above)
    try:
        os.fchmod(made, 0o755)
    finally:
        os.close(made)
