"""What a pod sees as its file system: this machine's, with a private root and /dev, and its volumes laid over.

Runs inside the helper of `spawn`, in a mount namespace of its own. Nothing is written to the machine's own directories:
where a mount point is missing, the nearest existing directory is replaced, for this pod only, by a memory file system
that shows the same entries, and the mount point is made there.

A directory that this user may not enter, as /root is to most, is to its pods an empty one of their own: in a user
namespace we are the superuser of our own files alone. Nothing is hidden by that which anyone in the pod could read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import NotRequired, TypedDict

from trainmaster.cluster.kubelet import beneath, linux

_DEVICES = (
    "null",
    "zero",
    "full",
    "random",
    "urandom",
    "tty",
    "ptmx",
    "pts",
    "mqueue",
    "fuse",
    "dri",
    "kfd",
    "infiniband",
)
_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}
_HOST = "/.host"
"""Where a pod's root keeps the machine's own /dev, for volumes that name something in it."""


class Mount(TypedDict):
    source: str
    target: str
    read_only: bool
    within: NotRequired[str]


class MemoryVolume(TypedDict):
    path: str
    size: int  # bytes; 0 for the kernel's default, half the memory


@contextlib.contextmanager
def _for_every_user() -> Iterator[None]:
    """Directories that are made here may be entered by a container of another user, whatever our umask."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


@_for_every_user()
def build_pod_root(scratch: str, mounts: Sequence[Mount], memory: Sequence[MemoryVolume]) -> None:
    """Makes a new root for the current mount namespace and moves into it; `mounts` are what all its containers see."""
    scratch = os.path.realpath(scratch)
    for volume in memory:
        size = f",size={volume['size']}" if volume["size"] else ""
        linux.mount("tmpfs", volume["path"], "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, f"mode=1777{size}")
    linux.mount("tmpfs", scratch, "tmpfs", linux.MS_NOSUID, "mode=755")
    _copy_entries("/", [name for name in os.listdir("/") if name != "dev"], scratch)
    _make_devices(f"{scratch}/dev", f"{scratch}{_HOST}")
    _show_own_network(f"{scratch}/sys", f"{scratch}{_HOST}")
    if os.path.ismount(scratch + scratch):
        linux.detach(scratch + scratch)  # the copy of the new root inside itself
    os.chdir(scratch)
    linux.pivot_root(".", ".")
    linux.detach(".")
    os.chdir("/")
    mount_volumes(mounts)


@_for_every_user()
def mount_volumes(mounts: Sequence[Mount], directories: Sequence[str] = ()) -> None:
    """Binds every source to its target, outer targets first, and makes the directories that are missing.

    Sources are opened before anything is mounted, since a volume may hide the source of another.
    """
    table = _Table()
    ordered = sorted(mounts, key=lambda mount: mount["target"].count("/"))
    sources = [_opened(mount) for mount in ordered]
    try:
        targets = [table.bind(source, mount["target"]) for source, mount in zip(sources, ordered, strict=True)]
    finally:
        for source in sources:
            os.close(source)
    for path in directories:
        table.enter(path)
    for target, mount in zip(targets, ordered, strict=True):
        if mount["read_only"]:
            linux.make_read_only(target)


def _opened(mount: Mount) -> int:
    """Part of a volume is found step by step: whoever shares the volume may put a link in its way at any moment."""
    root = mount.get("within")
    if not root or root == mount["source"]:
        return os.open(_as_seen(mount["source"]), os.O_PATH | os.O_CLOEXEC)
    return beneath.open_path(_as_seen(root), PurePath(mount["source"]).relative_to(root).parts)


class _Table:
    """The mount points of one container, and which directories are its own to change."""

    def __init__(self) -> None:
        self._private = {os.stat(path).st_dev for path in ("/", "/dev") if os.path.ismount(path)}
        self._volumes: list[str] = []

    def bind(self, source: int, target: str) -> str:
        point = self.point(target, is_directory=stat.S_ISDIR(os.fstat(source).st_mode))
        linux.bind(f"/proc/self/fd/{source}", point)
        self._volumes.append(point)
        return point

    def point(self, target: str, *, is_directory: bool) -> str:
        """The real path of the target, which exists when this returns."""
        path = os.path.realpath(target)
        if os.path.lexists(path):
            _check_kind(path, is_directory)
            return path
        ancestor = os.path.dirname(path)
        while not os.path.lexists(ancestor):
            ancestor = os.path.dirname(ancestor)
        if not self._is_own(ancestor):
            self._private.add(_mirror(ancestor))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with contextlib.suppress(FileExistsError):  # another container of the pod may make it at the same time
            _make(path, is_directory)
        _check_kind(path, is_directory)
        return path

    def enter(self, directory: str) -> None:
        """Makes sure that a container can start in the directory."""
        path = self.point(directory, is_directory=True)
        if not os.access(path, os.X_OK):
            self._private.add(_mirror(path))

    def _is_own(self, directory: str) -> bool:
        in_volume = any(directory == volume or directory.startswith(f"{volume}/") for volume in self._volumes)
        may_change = os.access(directory, os.W_OK | os.X_OK)
        return may_change and (in_volume or os.stat(directory).st_dev in self._private)


def _check_kind(path: str, is_directory: bool) -> None:
    if os.path.isdir(path) != is_directory:
        wanted, found = ("a directory", "a file") if is_directory else ("a file", "a directory")
        raise OSError(errno.ENOTDIR, f"cannot mount {wanted} on {path}, which is {found}")


def _mirror(directory: str) -> int:
    """Replaces a directory by a writable one with the same entries; the device number of the new one."""
    source = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        mode = stat.S_IMODE(os.fstat(source).st_mode)
        linux.mount("tmpfs", directory, "tmpfs", linux.MS_NOSUID, f"mode={mode:o}")
        names = names_in(f"/proc/self/fd/{source}", ways_below(directory))
        _copy_entries(f"/proc/self/fd/{source}", names, directory)
    finally:
        os.close(source)
    return os.stat(directory).st_dev


def names_in(directory: str, known: Sequence[str]) -> list[str]:
    """The entries that this user may use. Where they may not be listed, as in a /home with mode 711, the known ones."""
    try:
        names = os.listdir(directory)
    except PermissionError:
        names = list(known)
    return [name for name in names if os.path.lexists(f"{directory}/{name}")]


def ways_below(directory: str) -> list[str]:
    """What leads from a directory to this user's home, Python and Trainmaster."""
    inside = directory.rstrip("/") + "/"
    ours = (os.environ.get("HOME", ""), sys.executable, __file__)
    paths = {path for our in ours if our for path in (os.path.abspath(our), os.path.realpath(our))}
    return sorted({path.removeprefix(inside).split("/")[0] for path in paths if path.startswith(inside)})


def _copy_entries(source: str, names: Sequence[str], into: str) -> None:
    for name in names:
        path, target = f"{source}/{name}", os.path.join(into, name)
        if os.path.islink(path):
            os.symlink(os.readlink(path), target)
        else:
            _make(target, os.path.isdir(path))
            linux.bind(path, target)


def _make(path: str, is_directory: bool) -> None:
    if is_directory:
        os.mkdir(path, 0o755)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


def _make_devices(target: str, host: str) -> None:
    """What a container may expect and this machine's accelerators, in a writable /dev; /dev/shm is the pod's own."""
    os.makedirs(f"{host}/dev", mode=0o700)
    linux.bind("/dev", f"{host}/dev")
    os.mkdir(target)
    linux.mount("tmpfs", target, "tmpfs", linux.MS_NOSUID, "mode=755")
    accelerators = [name for name in os.listdir("/dev") if name.startswith("nvidia")]
    for name in (*_DEVICES, *accelerators):
        if os.path.exists(f"/dev/{name}"):
            _make(f"{target}/{name}", os.path.isdir(f"/dev/{name}"))
            linux.bind(f"/dev/{name}", f"{target}/{name}")
    for name, to in _LINKS.items():
        os.symlink(to, f"{target}/{name}")
    os.mkdir(f"{target}/shm")
    linux.mount("tmpfs", f"{target}/shm", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=1777")


def _show_own_network(sys: str, host: str) -> None:
    """/sys/class/net of the pod's own interfaces; where the kernel refuses, the machine's stay: few programs look."""
    os.mkdir(f"{host}/sys")
    with contextlib.suppress(OSError):
        linux.mount("sysfs", f"{host}/sys", "sysfs", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
        for part in ("class/net", "devices/virtual/net"):
            linux.bind(f"{host}/sys/{part}", f"{sys}/{part}")


def _as_seen(source: str) -> str:
    path = os.path.realpath(source)
    return _HOST + path if path == "/dev" or path.startswith("/dev/") else path
