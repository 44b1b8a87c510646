"""Directories of clusters that live as long as their process, and the removal of those that a killed one left behind.

A living one holds a lock on a file in its directory, which the kernel gives back however it ends. Only a directory with
such a file, unlocked and our own, is removed; its name alone says nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
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
    home = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    lock = _take(home)
    try:
        yield home
    finally:
        try:
            _remove(home)
        finally:
            os.close(lock)


def remove_dead(parent: Path) -> list[Path]:
    """What was removed. Whatever still runs for it, where no namespace has ended it, is ended first."""
    removed = []
    for directory in parent.glob(f"{_PREFIX}*"):
        lock = _lock_of_the_dead(directory)
        if lock is not None:
            orphans.end_recorded(directory / "sandbox.json")
            if _remove(directory):
                removed.append(directory)
            os.close(lock)
    return removed


def _remove(directory: Path) -> bool:
    """Whether all of it went. The lock goes last: what is left, whoever was interrupted or refused, is found by it."""
    if not directory.exists():
        return True
    _make_writable(directory)
    lock = directory / _LOCK
    for path in [path for path in directory.iterdir() if path != lock]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
    if any(path != lock for path in directory.iterdir()):
        return False
    lock.unlink(missing_ok=True)
    directory.rmdir()
    return True


def _make_writable(directory: Path) -> None:
    """What programs in pods have closed to others they have closed to us: we are who they run as."""
    for path, names, _ in os.walk(directory):
        for below in [Path(path, name) for name in names]:
            if not below.is_symlink():
                with contextlib.suppress(OSError):
                    below.chmod(stat.S_IRWXU)


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
        if _is_own(os.fstat(lock)) and _is_own(directory.lstat()):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
    os.close(lock)
    return None


def _is_own(status: os.stat_result) -> bool:
    """Another user's directory may hold a link to a file of ours, and name processes for us to end."""
    return status.st_uid == os.geteuid() and not stat.S_ISLNK(status.st_mode)
