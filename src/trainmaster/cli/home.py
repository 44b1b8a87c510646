"""Where the cluster of `trainmaster up` lives, and whether it runs: known without importing the cluster itself.

While it runs, `cluster.json` in its directory says which process it is: its id and the moment it started, for an id
alone may by now be another's.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Running:
    """The process that a directory's cluster is."""

    pid: int
    started: str

    @property
    def is_alive(self) -> bool:
        return start_of(self.pid) == self.started


def default_home() -> Path:
    root = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(root) / "trainmaster" / "cluster"


def running_in(home: Path) -> Running | None:
    try:
        known = Running(**json.loads((home / "cluster.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return known if known.is_alive else None


def start_of(pid: int) -> str:
    """When a process started, in the kernel's ticks; empty when there is none, or a dead one that nobody has reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return fields[19] if fields[0] not in ("Z", "X") else ""
