"""Debian packages with all that they need, unpacked into the user's cache: nothing is installed on the machine.

apt resolves them as for an empty machine, so that the tree is whole whatever this machine has. Their scripts do not
run: users, keys and alternatives are the business of who uses the tree.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from tools.environments_step import tell
from tools.kubernetes.binaries import Unavailable, cache_root

NODE = ("containerd", "runc", "containernetworking-plugins", "iptables", "conntrack", "iproute2")
IMAGE = ("python3", "dash", "libc-bin", "busybox-static", "openssh-server", "openssh-client", "openmpi-bin")
"""What pods run on: a shell and its tools, Python, and both halves of how mpirun reaches other hosts."""

MOVED = ("bin", "sbin", "lib", "lib64")
"""What older packages put beside /usr, and Debian keeps below it."""

UNREAD = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian")
FORM = "1"
"""Of the trees; a tree of another form is made anew."""


def tree(packages: Sequence[str]) -> Path:
    """The root directory of a machine that has these packages and no others."""
    digest = hashlib.sha256("\n".join((FORM, *packages)).encode()).hexdigest()[:12]
    home = cache_root() / f"debian-{digest}"
    if not home.exists():
        tell(f"node: fetching {', '.join(packages)} and what they need …")
        home.parent.mkdir(parents=True, exist_ok=True)
        with workshop(home.parent) as work:
            _make(packages, work)
            (work / "root").rename(home)
    return home


@contextlib.contextmanager
def workshop(parent: Path) -> Iterator[Path]:
    """Beside the cache, so that what is done there appears whole or not at all."""
    work = Path(tempfile.mkdtemp(prefix="making-", dir=parent))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _make(packages: Sequence[str], work: Path) -> None:
    root, spool = work / "root", work / "packages"
    (spool / "partial").mkdir(parents=True)
    (work / "lists" / "partial").mkdir(parents=True)
    (work / "status").touch()
    apt = _apt(work)
    _run([*apt, "update"])
    _run([*apt, "--yes", "--download-only", "--no-install-recommends", "install", *packages])
    root.mkdir(mode=0o755)
    for name in MOVED:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in sorted(spool.glob("*.deb")):
        _unpack(package, root)
    for name in UNREAD:
        shutil.rmtree(root / name, ignore_errors=True)


def _unpack(package: Path, root: Path) -> None:
    """Through tar, since dpkg itself would lay a directory `lib` in the place of the link."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as reading:
        _run(["tar", "--extract", "--keep-directory-symlink", "--directory", str(root)], stdin=reading.stdout)
    if reading.returncode:
        raise Unavailable(f"{package.name} could not be read: dpkg-deb ended with {reading.returncode}")


def _apt(work: Path) -> list[str]:
    settings = (
        "APT::Sandbox::User=root",  # else apt gives up root's rights, and cannot write to a directory of root's
        f"Dir::State::status={work / 'status'}",
        f"Dir::State::Lists={work / 'lists'}",
        f"Dir::Cache={work}",
        f"Dir::Cache::archives={work / 'packages'}",
        "Acquire::Languages=none",
        "Debug::NoLocking=true",
    )
    return ["apt-get", "--quiet=2", *(word for setting in settings for word in ("--option", setting))]


def _run(command: Sequence[str], stdin: IO[bytes] | int | None = subprocess.DEVNULL) -> None:
    try:
        subprocess.run(command, check=True, stdin=stdin, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"the packages of the node could not be had: {error}") from error
