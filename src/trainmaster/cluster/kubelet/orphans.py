"""Ends what a cluster that was killed left behind, by recorded identity: process id, start time, a random mark.

With namespaces the kernel has ended everything already and this finds nothing. Without them, a process that outlived
both the cluster and its helper still carries the mark of its cluster in its environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

from trainmaster.cluster.kubelet.cgroups import remove_tree
from trainmaster.cluster.storage import private

MARK = "TRAINMASTER_SANDBOX"


def record(path: Path, pid: int, token: str, cgroups: list[Path]) -> None:
    """Replaced in one step: a crash leaves the old record or the new one."""
    fields = {"pid": pid, "started": started(pid), "token": token, "cgroups": [str(group) for group in cgroups]}
    private.replace(path, json.dumps(fields).encode())


def end_recorded(path: Path) -> list[int]:
    """Kills what the record names, if it is still the same process; the process ids it killed."""
    try:
        fields = json.loads(private.read(path))
        pid, start, token = int(fields["pid"]), str(fields["started"]), str(fields["token"])
    except (OSError, ValueError, KeyError, TypeError, private.UntrustedError):
        return []
    ended = [pid] if start and _kill(pid, start) else []
    ended += [found for found, at in _marked(token) if _kill(found, at)]
    for group in fields.get("cgroups", ()):
        remove_tree(Path(group))
    return ended


def started(pid: int) -> str:
    """When a process began, in clock ticks since boot; empty if there is none. With the id, it names one process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def cgroup_name(token: str) -> str:
    """It says whose it is, so that any later cluster can tell that nobody needs it any more."""
    return f"trainmaster-{os.getpid()}-{started(os.getpid())}-{token}"


def is_stale_cgroup(name: str) -> bool:
    match name.split("-"):
        case ["trainmaster", pid, start, _] if pid.isdigit():
            return started(int(pid)) != start
    return False


def _marked(token: str) -> list[tuple[int, str]]:
    wanted = f"{MARK}={token}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    found.append((int(name), started(int(name))))
    return found


def _kill(pid: int, start: str) -> bool:
    """By a descriptor of the process, so that the id cannot have passed to another in between."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if started(pid) != start:
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
