"""Limits of memory, CPU and processes by control groups, version 1 or 2, where we may make groups near our own.

Version 2 takes limits only below groups that hold no processes, as ours does: there it is the nearest one above it that
is ours to write to, as a desktop's are. Without one (an ordinary user on a server) limits are not enforced;
`Cgroups.can_limit` says so and the kubelet tells it once. Limits of resources are no substitute: training frameworks
reserve far more address space than they use, and processes are counted for the user as a whole, session included.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

_PERIOD = 100_000


@dataclass(slots=True)
class Cgroup:
    """The groups of one container: one directory per hierarchy."""

    directories: dict[str, Path] = field(default_factory=dict)

    @property
    def joins(self) -> list[str]:
        """Files a process writes itself into before it becomes the container's command."""
        return sorted({str(directory / "cgroup.procs") for directory in self.directories.values()})

    def was_oom_killed(self) -> bool:
        directory = self.directories.get("memory")
        if directory is None:
            return False
        for name in ("memory.events", "memory.oom_control"):
            words = _read(directory / name).split()
            if "oom_kill" in words:
                return words[words.index("oom_kill") + 1] != "0"
        return False

    def kill(self) -> None:
        for directory in set(self.directories.values()):
            for pid in _read(directory / "cgroup.procs").split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)

    def remove(self) -> None:
        """The last one out removes the cluster's own directory too."""
        for directory in set(self.directories.values()):
            with contextlib.suppress(OSError):  # a process is still leaving it, or it is not the last
                directory.rmdir()
                directory.parent.rmdir()


class Cgroups:
    """The groups of one cluster, below the group this process is in, with directories only while they are needed."""

    def __init__(self, parents: dict[str, Path]) -> None:
        self._parents = parents

    @property
    def can_limit(self) -> bool:
        return "memory" in self._parents

    @property
    def directories(self) -> list[Path]:
        """Where our groups are, to be recorded for the case that nobody comes to remove them."""
        return sorted(set(self._parents.values()))

    @classmethod
    def make(cls, name: str, is_stale: Callable[[str], bool], proc: Path = Path("/proc/self")) -> Cgroups:
        """Finds out where groups can be made. Other clusters' directories that are stale by their name are removed."""
        parents: dict[str, Path] = {}
        for controller in ("memory", "cpu", "pids"):
            for candidate in _candidates(proc, controller):
                if _make_parent(candidate / name, controller):
                    parents[controller] = candidate / name
                    _sweep(candidate, is_stale)
                    break
        made = cls(parents)
        made.close()
        return made

    def create(self, name: str, memory: int | None, cpu: float | None, processes: int | None = None) -> Cgroup:
        """A group for one container with a limit, if it has one; unlimited containers need none."""
        group = Cgroup()
        wanted = {"memory": memory, "cpu": cpu, "pids": processes}
        for controller, limit in wanted.items():
            parent = self._parents.get(controller)
            if parent is None or limit is None or not _make_parent(parent, controller):
                continue
            directory = parent / name
            with contextlib.suppress(OSError):
                directory.mkdir(exist_ok=True)
                _set_limit(directory, controller, limit)
                group.directories[controller] = directory
                if controller == "pids":
                    _set_limit(parent, controller, _process_room() // 2)  # of all containers together
        return group

    def close(self) -> None:
        for parent in self.directories:
            remove_tree(parent)


def process_limit(asked: int | None) -> int | None:
    """Most processes and threads of one container, where `asked` is None: far more than training needs, and few enough
    for the machine to live on when a program does nothing but fork."""
    if asked is not None:
        return asked if asked > 0 else None
    return min(max(4096, 512 * (os.cpu_count() or 1)), _process_room() // 4)


@functools.cache
def _process_room(kernel: Path = Path("/proc/sys/kernel")) -> int:
    """How many processes and threads the kernel makes in all."""
    limits = [_read(kernel / name).strip() for name in ("pid_max", "threads-max")]
    return min([int(text) for text in limits if text.isdigit()], default=32768)


def _sweep(parent: Path, is_stale: Callable[[str], bool]) -> None:
    for directory in parent.iterdir():
        if directory.is_dir() and is_stale(directory.name):
            remove_tree(directory)


def remove_tree(parent: Path) -> None:
    """Our own directory and the containers' below it, as far as no process is in them."""
    with contextlib.suppress(OSError):
        for child in parent.iterdir():
            if child.is_dir():
                with contextlib.suppress(OSError):
                    child.rmdir()
        parent.rmdir()


def _set_limit(directory: Path, controller: str, limit: float) -> None:
    is_v2 = (directory / "cgroup.controllers").exists()
    if controller == "pids":
        (directory / "pids.max").write_text(str(int(limit)))
        return
    if controller == "memory":
        (directory / ("memory.max" if is_v2 else "memory.limit_in_bytes")).write_text(str(int(limit)))
        swap = directory / ("memory.swap.max" if is_v2 else "memory.memsw.limit_in_bytes")
        with contextlib.suppress(OSError):  # a kernel without swap accounting has no such file
            swap.write_text("0" if is_v2 else str(int(limit)))
        return
    quota = max(1000, int(limit * _PERIOD))
    if is_v2:
        (directory / "cpu.max").write_text(f"{quota} {_PERIOD}")
    else:
        (directory / "cpu.cfs_quota_us").write_text(str(quota))


def _candidates(proc: Path, controller: str) -> list[Path]:
    """Directories below which a group could be made: our own group, then those above it, whose limits hold for us."""
    own = _own_groups(proc)
    found: list[Path] = []
    for mount, kind, options in _mounts(proc):
        if kind == "cgroup" and controller in options:
            found += _upwards(mount, own.get(controller, "/"))
        elif kind == "cgroup2" and controller in _read(mount / "cgroup.controllers").split():
            found += _upwards(mount, own.get("", "/"))
    return found


def _upwards(mount: Path, own: str) -> list[Path]:
    inside = Path(own.lstrip("/"))
    return [mount / above for above in (inside, *inside.parents)]


def _own_groups(proc: Path) -> dict[str, str]:
    groups: dict[str, str] = {}
    for line in _read(proc / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


def _mounts(proc: Path) -> list[tuple[Path, str, list[str]]]:
    found = []
    for line in _read(proc / "mounts").splitlines():
        _, target, kind, options, *_ = line.split()
        if kind in ("cgroup", "cgroup2"):
            found.append((Path(target), kind, options.split(",")))
    return found


def _make_parent(directory: Path, controller: str) -> bool:
    """Whether it is there, able to pass the controller on to its children, and open to processes of ours."""
    procs = directory.parent / "cgroup.procs"  # version 2 asks the group that is above both where one was and will be
    if procs.exists() and not os.access(procs, os.W_OK):
        return False
    try:
        directory.mkdir(exist_ok=True)
        for above in (directory.parent, directory):
            control = above / "cgroup.subtree_control"
            if control.exists() and controller not in control.read_text().split():
                control.write_text(f"+{controller}")
    except OSError:
        with contextlib.suppress(OSError):
            directory.rmdir()
        return False
    return True


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
