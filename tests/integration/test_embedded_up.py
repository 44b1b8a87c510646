"""`trainmaster up`: where it cannot start, and what is there when it was interrupted."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trainmaster.cli.home import running_in, start_of
from trainmaster.cluster.storage.store_log import Log
from trainmaster.testing.patience import PATIENCE

pytestmark = pytest.mark.sandbox

TRAINMASTER = (sys.executable, "-m", "trainmaster")


def trainmaster(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*TRAINMASTER, *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=PATIENCE)


def no_database(home: Path) -> str:
    home.mkdir()
    (home / "objects.db").write_text("just text, longer than sixteen bytes")
    return f"{home}/objects.db is not a Trainmaster store (it is no SQLite database): choose another place"


def another_programs(home: Path) -> str:
    home.mkdir()
    with sqlite3.connect(home / "objects.db") as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    return f"{home}/objects.db is not a Trainmaster store (another program's SQLite database): choose another place"


def overwritten(home: Path) -> str:
    Log.open(home / "objects.db").close()
    content = (home / "objects.db").read_bytes()
    (home / "objects.db").write_bytes(content[:4096] + bytes(len(content) - 4096))
    return f"{home}/objects.db is damaged (*** in database main *** "


def truncated(home: Path) -> str:
    Log.open(home / "objects.db").close()
    os.truncate(home / "objects.db", 50)
    return f"{home}/objects.db is damaged (it ends after 50 bytes): restore it from a copy"


def a_file(home: Path) -> str:
    home.touch()
    return f"{home} is not a directory: choose another place with --data-dir"


@pytest.mark.parametrize("detach", [(), ("-d",)], ids=["foreground", "detached"])
@pytest.mark.parametrize("spoil", [no_database, another_programs, overwritten, truncated, a_file])
def test_a_directory_that_cannot_be_used_is_told_in_one_line(
    tmp_path: Path, spoil: Callable[[Path], str], detach: tuple[str, ...]
) -> None:
    told = spoil(tmp_path / "cluster")

    done = trainmaster("up", *detach, "--data-dir", "cluster", cwd=tmp_path)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"trainmaster up: {told}")
    assert "Traceback" not in done.stderr
    assert detach == () or len(done.stderr.splitlines()) == 1  # in the foreground there is the log as well


def test_of_two_that_start_at_once_the_later_is_told_of_the_first(tmp_path: Path) -> None:
    command = [*TRAINMASTER, "up", "-d", "--data-dir", str(tmp_path / "cluster")]

    both = [subprocess.Popen(command, stdout=-1, stderr=-1, text=True) for _ in range(2)]
    told = [process.communicate(timeout=PATIENCE)[1] for process in both]

    try:
        assert sorted(process.returncode for process in both) == [0, 1]
        [loser] = [words for process, words in zip(both, told, strict=True) if process.returncode]
        assert loser.splitlines() == [
            f"trainmaster up: {tmp_path}/cluster/objects.db is in use by another process: stop that cluster "
            "(trainmaster down), or choose another place"
        ] or loser.startswith(f"a cluster is already up in {tmp_path}/cluster")
    finally:
        assert trainmaster("down", "--data-dir", "cluster", cwd=tmp_path).returncode == 0


def test_an_interrupted_start_leaves_nothing_running(tmp_path: Path) -> None:
    home = tmp_path / "cluster"
    with subprocess.Popen([*TRAINMASTER, "up", "-d", "--data-dir", str(home)], stderr=-1, text=True) as process:
        [child] = _children(process)
        _until((home / "objects.db").exists)

        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=PATIENCE)

    try:
        assert process.returncode == 130
        assert told == "interrupted: nothing was started\n"
        assert start_of(child) == ""
        assert running_in(home) is None
    finally:
        trainmaster("down", "--data-dir", home, cwd=tmp_path)


def test_the_line_for_kubectl_holds_in_every_directory(tmp_path: Path) -> None:
    brought = trainmaster("up", "-d", "--data-dir", "my cluster", cwd=tmp_path)
    told = trainmaster("status", "--data-dir", "my cluster", cwd=tmp_path)
    lowered = trainmaster("down", "--data-dir", "my cluster", cwd=tmp_path)

    line = f"  export KUBECONFIG='{tmp_path}/my cluster/kubeconfig'"
    assert [done.returncode for done in (brought, told, lowered)] == [0, 0, 0]
    assert [done.stdout.splitlines()[1] for done in (brought, told)] == [line, line]


def _children(process: subprocess.Popen[str]) -> list[int]:
    file = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    _until(lambda: bool(file.read_text()))
    return [int(child) for child in file.read_text().split()]


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)
