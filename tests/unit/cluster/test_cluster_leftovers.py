"""Directories of clusters that were killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from trainmaster.cluster.kubelet.leftovers import remove_dead, temporary_home

HOLD = """
import sys
sys.path[:0] = {path!r}
from trainmaster.cluster.kubelet.leftovers import temporary_home
with temporary_home() as home:
    print(home, flush=True)
    sys.stdin.read()
"""


def a_home(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    """One that another process holds."""
    command = [sys.executable, "-c", HOLD.format(path=sys.path)]
    env = {**os.environ, "TMPDIR": str(parent)}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_the_directory_of_a_killed_cluster_is_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    process, dead = a_home(tmp_path)
    with process:
        process.send_signal(signal.SIGKILL)
    was_there = dead.is_dir()

    with temporary_home() as home:
        found = list(tmp_path.iterdir())

    assert was_there
    assert found == [home]
    assert not home.exists()


def test_what_is_alive_or_only_looks_alike_stays(tmp_path):
    process, alive = a_home(tmp_path)
    alike = tmp_path / "trainmaster-data"
    (alike / "pki").mkdir(parents=True)

    with process:
        removed = remove_dead(tmp_path)
        found = sorted(tmp_path.iterdir())
        process.communicate("")

    assert removed == []
    assert found == sorted([alive, alike])
