"""Directories of clusters that live as long as their process, and the removal of those that a killed one left behind.

A living one holds a lock on a file in its directory, which the kernel gives back however it ends. Only a directory with
such a file, unlocked and our own, is removed; its name alone says nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainmaster.cluster.kubelet import orphans

_PREFIX = "trainmaster-"
_LOCK = "temporary.lock"


@contextmanager
def temporary_home() -> Iterator[Path]:
    """A directory that is gone after the block; those of the dead are removed first."""
    parent = Path(tempfile.gettempdir())
    remove_dead(parent)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent) as name:
        lock = _take(Path(name))
        try:
            yield Path(name)
        finally:
            os.close(lock)


def remove_dead(parent: Path) -> list[Path]:
    """What was removed. Whatever still runs for it, where no namespace has ended it, is ended first."""
    removed = []
    for directory in parent.glob(f"{_PREFIX}*"):
        lock = _lock_of_the_dead(directory)
        if lock is not None:
            orphans.end_recorded(directory / "sandbox.json")
            shutil.rmtree(directory, ignore_errors=True)
            os.close(lock)
            removed.append(directory)
    return removed


def _take(directory: Path) -> int:
    """Locked before it has its name, so that nobody ever sees it unlocked."""
    draft = directory / f"{_LOCK}.new"
    lock = os.open(draft, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    draft.rename(directory / _LOCK)
    return lock


def _lock_of_the_dead(directory: Path) -> int | None:
    """The lock, now ours, if nobody held it."""
    try:
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        if os.fstat(lock).st_uid == os.geteuid() and not directory.is_symlink():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
    os.close(lock)
    return None
