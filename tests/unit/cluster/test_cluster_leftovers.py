"""Directories of clusters that were killed."""

from __future__ import annotations

import errno
import os
import shutil
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


def test_what_could_not_be_removed_is_tried_again_by_the_next(tmp_path, monkeypatch):
    process, dead = a_home(tmp_path)
    (dead / "pods" / "busy").mkdir(parents=True)
    for number in range(20):
        (dead / f"file-{number}").touch()
    with process:
        process.send_signal(signal.SIGKILL)
    rmdir = os.rmdir

    def refusing(path, *args, **options):
        if Path(path).name == "busy":
            raise OSError(errno.EBUSY, "Device or resource busy", path)
        rmdir(path, *args, **options)

    with monkeypatch.context() as busy:
        busy.setattr(os, "rmdir", refusing)
        first = remove_dead(tmp_path)
    left = sorted(path.name for path in dead.iterdir())
    second = remove_dead(tmp_path)

    assert (first, left) == ([], ["pods", "temporary.lock"])
    assert second == [dead]
    assert not dead.exists()


def test_what_a_program_closed_to_writing_is_removed_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)

    with temporary_home() as home:
        (home / "closed" / "below").mkdir(parents=True)
        (home / "closed" / "below" / "file").touch()
        (home / "link").symlink_to(outside)
        for path in ("closed/below", "closed"):
            (home / path).chmod(0o500)

    assert list(tmp_path.iterdir()) == [outside]
    assert outside.stat().st_mode & 0o777 == 0o755


def test_a_home_that_somebody_removed_is_no_error_at_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    with temporary_home() as home:
        shutil.rmtree(home)

    assert list(tmp_path.iterdir()) == []
