"""Entering and holding namespaces, for the helper of `spawn`."""

from __future__ import annotations

import os
import select
import signal

from trainmaster.cluster.kubelet import linux, spawn_init

_NAMESPACES = {"net": linux.NEWNET, "uts": linux.NEWUTS, "ipc": linux.NEWIPC, "mnt": linux.NEWNS}


class Namespaces:
    """Descriptors that keep a set of namespaces alive; `enter` moves this process into them."""

    def __init__(self, fds: dict[str, int]) -> None:
        self.fds = fds

    @classmethod
    def of(cls, process: str, names: tuple[str, ...] = tuple(_NAMESPACES)) -> Namespaces:
        return cls({name: os.open(f"/proc/{process}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in names})

    def enter(self) -> None:
        for name, fd in self.fds.items():
            linux.setns(fd, _NAMESPACES[name])

    def close(self) -> None:
        for fd in self.fds.values():
            os.close(fd)


def enter_user_namespace() -> None:
    user, group = os.geteuid(), os.getegid()
    linux.unshare(linux.NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def can_have_pids() -> bool:
    """Some machines hide parts of /proc, and then refuse a new one. Tried by a child: there is no way back."""
    pid = os.fork()
    if pid == 0:
        try:
            linux.unshare(linux.NEWPID | linux.NEWNS)
            child = os.fork()
            if child == 0:
                linux.mount("proc", "/proc", "proc")
                os._exit(0)
            os._exit(os.waitpid(child, 0)[1] != 0)
        except OSError:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def enter_pid_namespace() -> None:
    """Goes on as process 1 of the cluster: whatever happens to it, the kernel ends everything below with it.

    Only in a PID namespace that belongs to our own user namespace may an ordinary user make further ones and come back.
    The process left outside waits, so that the cluster has a child to wait for.
    """
    linux.unshare(linux.NEWPID)
    reader, writer = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid:
        close_all_but({2, writer})
        os._exit(spawn_init.code_of(os.waitpid(pid, 0)[1]))
    os.close(writer)
    linux.die_with_parent(signal.SIGKILL)
    if select.select([reader], [], [], 0)[0]:
        os._exit(1)  # the outer process died before the line above
    os.close(reader)
    linux.mount("proc", "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)


def close_all_but(keep: set[int]) -> None:
    start = 0
    for fd in sorted(keep):
        if start < fd:  # an empty range would close everything
            os.closerange(start, fd)
        start = fd + 1
    os.closerange(start, 1 << 20)
