"""`down`: how long it waits for a process, and what it says meanwhile."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainmaster.cli import down as down_module
from trainmaster.cli.down import down
from trainmaster.cli.home import running_in, start_of

OBEDIENT = "print(flush=True); import signal; signal.pause()"
DEAF = f"import signal; signal.signal(15, signal.SIG_IGN); {OBEDIENT}"


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        with process:
            process.kill()


def recorded(home: Path, processes: list[subprocess.Popen[str]], program: str, **fields: Any) -> None:
    """As if that process were the cluster of the directory."""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    processes.append(process)
    assert process.stdout is not None
    process.stdout.readline()
    record = {"pid": process.pid, "started": start_of(process.pid), **fields}
    (home / "cluster.json").write_text(json.dumps(record))


def test_nothing_is_to_be_done_where_no_cluster_is_up(tmp_path, capsys):
    code = down(tmp_path)

    assert code == 0
    assert capsys.readouterr().out == f"no cluster is up in {tmp_path}\n"


def test_a_cluster_that_ends_is_down(tmp_path, processes, capsys):
    recorded(tmp_path, processes, OBEDIENT)

    code = down(tmp_path)

    assert code == 0
    assert capsys.readouterr() == (f"the cluster in {tmp_path} is down; its objects are kept\n", "")
    assert running_in(tmp_path) is None


def test_a_process_that_does_not_end_is_killed_after_the_time_that_its_containers_may_take(
    tmp_path, processes, capsys, monkeypatch
):
    monkeypatch.setattr(down_module, "PATIENCE", 0.1)
    recorded(tmp_path, processes, DEAF, containers=3, seconds=0.6)

    code = down(tmp_path)

    out, err = capsys.readouterr()
    waits, kills = err.splitlines()
    assert code == 0
    assert out == f"the cluster in {tmp_path} is down; its objects are kept\n"
    assert running_in(tmp_path) is None
    assert processes[0].wait() == -signal.SIGKILL
    assert waits == "ending 3 containers; Ctrl-C ends them at once; otherwise it takes 1 s at most"
    log = tmp_path / "cluster.log"
    assert kills == f"process {processes[0].pid} did not end within 1 s; killing it; see {log}"
