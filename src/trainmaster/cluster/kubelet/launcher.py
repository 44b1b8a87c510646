"""Starts containers through the helper process and keeps account of them; what both kinds of sandbox have in common.

The helper's identity (process id and start time) and our control groups are recorded in a file. When a cluster comes up
after a crash, or the helper has died, what the record names and is still there is ended; nothing is ever looked for by
name. Then there is another helper, of which earlier pods know nothing: `generation` tells whose a pod is.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import os
import secrets
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainmaster.cluster.kubelet import orphans
from trainmaster.cluster.kubelet.cgroups import Cgroup, Cgroups
from trainmaster.cluster.kubelet.zygote import HelperError, HelperGone, Zygote
from trainmaster.cluster.storage import private

_RECORD, _ERRORS = "sandbox.json", "helper.log"
_SWEEPS = 10


@dataclass(frozen=True, slots=True)
class Mount:
    source: str
    target: str
    read_only: bool = False
    within: str = ""
    """The volume that the source is a part of: links there are the pod's to change, so none is followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecConfig:
    """A command to run in a container that runs already."""

    name: str  # unique in the cluster
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str = ""
    user: int | None = None
    group: int | None = None
    groups: Sequence[int] = ()
    no_new_privileges: bool = False
    stdin: bool = False
    tty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerConfig(ExecConfig):
    log: Path
    mounts: Sequence[Mount] = ()
    memory: int | None = None  # bytes
    cpu: float | None = None  # cores
    processes: int | None = None  # and threads


@dataclass(slots=True)
class Process:
    """A container's tree of processes, or a command in one."""

    config: ExecConfig
    pid: int
    exit: asyncio.Future[int]
    launcher: Launcher
    helper: Zygote
    cgroup: Cgroup
    streams: Streams
    container: str = ""  # the container a command runs in; empty for a container itself

    async def wait(self) -> int:
        """The exit code; 128 + n for an end by signal n."""
        return await asyncio.shield(self.exit)

    @property
    def is_running(self) -> bool:
        return not self.exit.done()

    async def signal(self, number: int) -> None:
        """SIGKILL ends the whole tree, any other signal goes to the command alone."""
        if self.is_running:
            body = {"name": self.config.name, "signal": int(number), "is_exec": bool(self.container)}
            with contextlib.suppress(HelperError):
                await self.launcher.ask("signal", body)

    async def kill(self) -> None:
        await self.signal(signal.SIGKILL)
        if self.is_running and not self.container and not self.launcher.has_pid_namespaces:
            self.cgroup.kill()  # a command's group is its container's

    def was_lost(self) -> bool:
        """Whether it ended because the helper died: its exit code says nothing of the command."""
        return self.config.name in self.helper.taken

    def was_oom_killed(self) -> bool:
        return self.cgroup.was_oom_killed()

    def close(self) -> None:
        """Frees what we hold of it; called once, after it has ended."""
        self.streams.close()
        if not self.container:
            self.cgroup.remove()


@dataclass(slots=True)
class Streams:
    """Our ends of a process's standard streams; -1 for one that is not there."""

    stdin: int = -1
    stdout: int = -1
    stderr: int = -1
    terminal: int = -1
    theirs: dict[str, int] = field(default_factory=dict)  # by the helper's name for it, in order; closed once passed

    @classmethod
    def for_container(cls, config: ExecConfig) -> Streams:
        """A container's output goes to its log; we hold its input, or its terminal, if it asked for one."""
        if config.tty:
            master, slave = os.openpty()
            return cls(terminal=master, theirs={"tty": slave, "master": os.dup(master)})
        if config.stdin:
            reader, writer = os.pipe()
            return cls(stdin=writer, theirs={"stdin": reader})
        return cls()

    @classmethod
    def for_command(cls, config: ExecConfig) -> Streams:
        if config.tty:
            master, slave = os.openpty()
            return cls(terminal=master, theirs={"0": slave, "1": os.dup(slave), "2": os.dup(slave)})
        made = cls()
        if config.stdin:
            reader, made.stdin = os.pipe()
        else:
            reader = os.open("/dev/null", os.O_RDONLY)
        made.stdout, out = os.pipe()
        made.stderr, err = os.pipe()
        made.theirs = {"0": reader, "1": out, "2": err}
        return made

    def release(self) -> None:
        for fd in self.theirs.values():
            os.close(fd)
        self.theirs = {}

    def take(self, name: str) -> int:
        """The descriptor, now the caller's to close."""
        fd: int = getattr(self, name)
        setattr(self, name, -1)
        return fd

    def close(self) -> None:
        self.release()
        for name in ("stdin", "stdout", "stderr", "terminal"):
            if (fd := self.take(name)) >= 0:
                os.close(fd)


class Launcher:
    """Made by `open`; `close` ends everything it started."""

    def __init__(
        self, root: Path, zygote: Zygote, settings: Mapping[str, Any], cgroups: Cgroups, lock: int, token: str
    ) -> None:
        self._root = root
        self._zygote = zygote
        self._cgroups = cgroups
        self._lock = lock
        self.settings = settings
        self.token = token
        self.generation = 0

    @classmethod
    async def open(cls, root: Path, settings: Mapping[str, Any]) -> Launcher:
        lock = _lock(root / "sandbox.lock")
        try:
            record = root / _RECORD
            await asyncio.to_thread(orphans.end_recorded, record)
            zygote = await Zygote.start(settings, root / _ERRORS)
            token = secrets.token_hex(8)
            cgroups = Cgroups.make(orphans.cgroup_name(token), orphans.is_stale_cgroup)
            orphans.record(record, zygote.pid, token, cgroups.directories)
        except BaseException:
            os.close(lock)
            raise
        return cls(root, zygote, settings, cgroups, lock, token)

    async def lost(self) -> None:
        """Returns when the helper has died."""
        await self._zygote.is_lost.wait()

    def has_lost(self, generation: int) -> bool:
        """Whether the helper of that generation has died, and with it whatever it held."""
        return generation != self.generation or self._zygote.is_lost.is_set()

    def check(self, generation: int) -> None:
        """HelperGone if the helper of that generation has died."""
        if self.has_lost(generation):
            raise HelperGone

    async def restart(self) -> None:
        """Start another helper in place of one that died, after what it left has been ended. HelperError, OSError."""
        await self._zygote.close()
        for _ in range(_SWEEPS):  # what is being ended may have forked meanwhile
            if not await asyncio.to_thread(orphans.end_recorded, self._root / _RECORD):
                break
        zygote = await Zygote.start(self.settings, self._root / _ERRORS)
        orphans.record(self._root / _RECORD, zygote.pid, self.token, self._cgroups.directories)
        self._zygote, self.generation = zygote, self.generation + 1

    @property
    def can_limit(self) -> bool:
        return self._cgroups.can_limit

    @property
    def helper_pid(self) -> int:
        return self._zygote.pid

    @property
    def has_pid_namespaces(self) -> bool:
        return bool(self._zygote.able["pid_namespaces"])

    async def ask(
        self, operation: str, body: Mapping[str, Any], fds: Sequence[int] = ()
    ) -> tuple[dict[str, Any], list[int]]:
        return await self._zygote.ask(operation, body, fds)

    async def start(self, pod: str, config: ContainerConfig) -> Process:
        """Returns when the command has been executed; HelperError when it could not be."""
        name = config.name.replace("/", "_")
        cgroup = self._cgroups.create(name, config.memory, config.cpu, config.processes)
        mounts = [dataclasses.asdict(mount) for mount in config.mounts]
        body = {"pod": pod, "log": str(config.log), "mounts": mounts}
        try:
            return await self._launch("start", config, body, cgroup, Streams.for_container(config))
        except BaseException:
            cgroup.remove()
            raise

    async def exec(self, container: Process, config: ExecConfig) -> Process:
        body = {"container": container.config.name}
        return await self._launch("exec", config, body, container.cgroup, Streams.for_command(config))

    async def _launch(
        self, operation: str, config: ExecConfig, body: Mapping[str, Any], cgroup: Cgroup, streams: Streams
    ) -> Process:
        helper = self._zygote
        exit_code = helper.expect_exit(config.name)
        request = {**_request(config, self.token), **body, "cgroups": cgroup.joins, "stdio": list(streams.theirs)}
        try:
            answer, _ = await helper.ask(operation, request, list(streams.theirs.values()))
        except BaseException:
            streams.close()
            helper.forget_exit(config.name)
            raise
        streams.release()
        container = str(body.get("container", ""))
        return Process(config, answer["pid"], exit_code, self, helper, cgroup, streams, container)

    async def close(self) -> None:
        try:
            await self._zygote.close()
        finally:
            self._cgroups.close()
            os.close(self._lock)


def _request(config: ExecConfig, token: str) -> dict[str, Any]:
    return {
        "name": config.name,
        "argv": list(config.argv),
        "env": {**config.env, orphans.MARK: token},
        "cwd": config.cwd,
        "user": config.user,
        "group": config.group,
        "groups": list(config.groups),
        "no_new_privileges": config.no_new_privileges,
        "tty": config.tty,
    }


def _lock(path: Path) -> int:
    """Two clusters in one directory would end each other's processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = private.open_private(path, os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise HelperError(f"another cluster runs in {path.parent}") from error
    return fd
