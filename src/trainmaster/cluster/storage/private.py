"""A cluster's directory is its owner's alone: what others could read or plant there is closed, or refused.

It holds the keys that make a caller the administrator, every Secret, and the record of processes that the next start
ends. So `prepare` looks at the way to the directory, at the directory and at the files in it before any is used, and
the other functions open those files without following links.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path, PurePath

_OURS = ("pki", "objects.db", "cluster.log", "cluster.json", "kubeconfig", "sandbox.lock")
"""Files that tell a cluster's directory from any other."""

_KNOWN = ("pki", "hosts", "etc")
"""Directories in it that hold nothing of a pod's; what pods write may belong to the users that they run as."""

_LINKS = 40
_CLOSED = os.O_NOFOLLOW | os.O_CLOEXEC
_OVERFLOW = 65534


class UntrustedError(Exception):
    """What another user has, or may have, in hand. `remedy` is empty where only another place helps."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return self.explained("choose another place")

    def explained(self, elsewhere: str) -> str:
        """With how this program is told of another place."""
        return f"{self.problem}: {f'{self.remedy}, or ' if self.remedy else ''}{elsewhere}"


def prepare(home: Path, *, checks_way: bool = True) -> list[str]:
    """Make the directory, or make sure that it is ours alone. Returns what had to be repaired, as sentences.

    `checks_way`: also the directories above it. A temporary directory has a random name below one that the machine's
    administrator answers for, and a container often has no other.
    """
    whole = home.absolute()
    if checks_way:
        _check_way(whole)
    _make(whole)
    opened = os.open(os.path.realpath(whole), os.O_RDONLY | os.O_DIRECTORY | _CLOSED)
    try:
        return _check_home(whole, opened)
    finally:
        os.close(opened)


def open_private(path: Path, flags: int) -> int:
    """A file for its owner's eyes only. OSError if a link stands in its place."""
    return os.open(path, flags | _CLOSED, 0o600)


def replace(path: Path, content: bytes) -> None:
    """The whole file or none of it, for its owner's eyes only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(open_private(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        file.write(content)
    draft.replace(path)


def read(path: Path) -> bytes:
    """UntrustedError if the file is another user's, OSError if it is a link or not there."""
    with os.fdopen(open_private(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not _is_trusted(status.st_uid):
            raise _foreign(path, status.st_uid)
        return file.read()


def _check_way(path: Path) -> None:
    """Who may replace a directory on the way, or turn a link, decides where the path leads."""
    above, rest, links = Path("/"), list(path.parts[1:]), 0
    while rest:
        _check_above(above, path)
        name = rest.pop(0)
        if name == "..":
            above = above.parent
            continue
        try:
            status = (above / name).lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISLNK(status.st_mode):
            above /= name
        elif not _is_trusted(status.st_uid):
            raise _foreign(above / name, status.st_uid)
        elif (links := links + 1) <= _LINKS:
            target = PurePath((above / name).readlink())
            above = Path("/") if target.is_absolute() else above
            rest = [*(part for part in target.parts if part != "/"), *rest]


def _check_above(directory: Path, path: Path) -> None:
    """Members of a directory's group are those whom its owner lets in; everybody is nobody's choice."""
    status = directory.lstat()
    if not _is_trusted(status.st_uid):
        raise UntrustedError(
            f"{path} lies in {directory}, which belongs to {_name(status.st_uid)}, not to {_name(os.geteuid())}"
        )
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        raise UntrustedError(
            f"{path} lies in {directory}, where every user may replace files (mode {_mode(status)})",
            f"chmod o-w {directory}",
        )


def _make(path: Path) -> None:
    """Missing directories above it are its owner's alone too, whatever the umask."""
    missing = []
    while not os.path.lexists(path):
        missing.append(path)
        path = path.parent
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)


def _check_home(home: Path, opened: int) -> list[str]:
    status, names = os.fstat(opened), os.listdir(opened)
    if status.st_uid != os.geteuid():
        raise _foreign(home, status.st_uid)
    is_open = bool(status.st_mode & 0o077)
    if is_open and names and not set(names) & set(_OURS):
        raise UntrustedError(
            f"{home} is open to other users (mode {_mode(status)}) and holds something else than a cluster"
        )
    os.fchmod(opened, stat.S_IMODE(status.st_mode) & ~0o077)
    for path in _entries(home, names):
        _check_entry(path)
    if not (is_open and "pki" in names):
        return []
    return [
        f"{home} was open to other users (mode {_mode(status)}) and is closed to them now; they may have read its "
        f"tokens. To make new ones, stop the cluster, remove {home / 'pki'}, and start it again"
    ]


def _entries(home: Path, names: list[str]) -> Iterator[Path]:
    for name in names:
        yield home / name
        if name in _KNOWN and not (home / name).is_symlink():
            yield from (home / name).iterdir()


def _check_entry(path: Path) -> None:
    status = path.lstat()
    if not _is_trusted(status.st_uid):
        raise _foreign(path, status.st_uid, f"remove {path}")
    if stat.S_ISLNK(status.st_mode):
        target = path.stat() if path.exists() else status
        if not (stat.S_ISDIR(target.st_mode) and target.st_uid == os.geteuid()):
            raise UntrustedError(f"{path} is a symbolic link to what is not a directory of yours", f"remove {path}")
    elif status.st_mode & 0o077 and status.st_uid == os.geteuid() and _is_secret(path, status):
        opened = open_private(path, os.O_RDONLY | os.O_NONBLOCK)
        os.fchmod(opened, stat.S_IMODE(status.st_mode) & ~0o077)
        os.close(opened)


def _is_secret(path: Path, status: os.stat_result) -> bool:
    """Pods read the other files, as the users that they run as."""
    if stat.S_ISDIR(status.st_mode):
        return path.name == "pki"
    return stat.S_ISREG(status.st_mode) and path.parent.name not in ("hosts", "etc")


def _is_trusted(user: int) -> bool:
    """We, or root. In a user namespace an owner from outside of it has no number, and could be root as well."""
    return user in (0, os.geteuid()) or (user == _OVERFLOW and not _is_mapped(user))


def _is_mapped(user: int) -> bool:
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
    except OSError:
        return True
    ranges = ((int(start), int(count)) for start, _, count in (line.split() for line in lines))
    return any(start <= user < start + count for start, count in ranges)


def _foreign(path: Path, owner: int, remedy: str = "") -> UntrustedError:
    return UntrustedError(f"{path} belongs to {_name(owner)}, not to {_name(os.geteuid())}", remedy)


def _name(user: int) -> str:
    try:
        return f"user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"user {user}"


def _mode(status: os.stat_result) -> str:
    return f"{stat.S_IMODE(status.st_mode):04o}"
