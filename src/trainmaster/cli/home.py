"""Where the cluster of `trainmaster up` lives, and whether it runs: known without importing the cluster itself.

While it runs, `cluster.json` in its directory says which process it is: its id and the moment it started, for an id
alone may by now be another's.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from trainmaster.cluster.storage import private


@dataclass(frozen=True, slots=True)
class Running:
    """The process that a directory's cluster is."""

    pid: int
    started: str
    containers: int = 0
    """That it waits for, once it has been told to end and they take long."""

    seconds: float = 0.0
    """That these have left."""

    @property
    def is_alive(self) -> bool:
        return start_of(self.pid) == self.started


def default_home() -> Path:
    root = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(root) / "trainmaster" / "cluster"


def log_file(home: Path) -> Path:
    return home / "cluster.log"


def record_of(home: Path) -> Path:
    return home / "cluster.json"


def write_record(home: Path, containers: int = 0, seconds: float = 0.0) -> None:
    """Of this process. Replaced in one step: somebody may be reading it."""
    running = Running(os.getpid(), start_of(os.getpid()), containers, seconds)
    private.replace(record_of(home), json.dumps(asdict(running)).encode())


def ending_in_words(containers: int, remedy: str) -> str:
    """What is waited for, and what makes that shorter."""
    what, them = ("1 container", "it") if containers == 1 else (f"{containers} containers", "them")
    return f"ending {what}; {remedy} ends {them} at once"


def running_in(home: Path) -> Running | None:
    """UntrustedError if another user wrote who that is: it could be any process, with any kubeconfig."""
    try:
        known = Running(**json.loads(private.read(record_of(home))))
    except (OSError, ValueError, TypeError):
        return None
    return known if known.is_alive else None


def trouble_in(home: Path) -> str:
    """Why the cluster that runs there starts no containers now, in words of its own; empty where it does."""
    try:
        return private.read(home / "helper.trouble").decode()
    except OSError:
        return ""


def unusable(home: Path, error: OSError, elsewhere: str) -> str:
    """In words: why a cluster cannot live there, and what to do. Empty if the error is about something else."""
    place, home = Path(error.filename or home).absolute(), home.absolute()
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    if not (error.filename or is_full) or not (place.is_relative_to(home) or home.is_relative_to(place)):
        return ""
    if is_full:
        return f"{place} cannot be written, the disk is full: free some space, or {elsewhere}"
    in_the_way = next(
        (path for path in (home, *home.parents) if os.path.exists(path) and not os.path.isdir(path)), None
    )
    if in_the_way is not None:
        return f"{in_the_way} is not a directory: {elsewhere}"
    return f"{place} cannot be used ({error.strerror}): check the path and its permissions, or {elsewhere}"


def start_of(pid: int) -> str:
    """When a process started, in the kernel's ticks; empty when there is none, or a dead one that nobody has reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return fields[19] if fields[0] not in ("Z", "X") else ""
