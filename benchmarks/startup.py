"""How long `trainmaster run` takes to its first training process, and in all, beside the same ranks started by hand."""

from __future__ import annotations

import compileall
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tools.environments import environment

from benchmarks.measure import ROOT, Result, median

STARTED = re.compile(r"TRAINING-STARTED (\d+\.\d+)")
_FIRST_LINE = 'import time; print(f"TRAINING-STARTED {time.time()}", flush=True)\n'
_LIMIT = 300
PAIRS = 5
"""A run and the same by hand, one after the other: what else the machine does changes from minute to minute."""

LONG = 3000
"""Steps of a training that takes about half a minute: what is added once should not count for much there."""


@dataclass(frozen=True, slots=True)
class Case:
    """An example, as it is or long enough to be training; `python` is who trains."""

    example: str
    steps: int
    python: str


def run() -> Result:
    compileall.compile_dir(ROOT / "src", quiet=1)  # as pip leaves what it installs; else every start may compile anew
    cases = {"01-ring": Case("01-ring", 60, sys.executable)}
    cases["01-ring, longer"] = Case("01-ring", LONG * 10, sys.executable)
    torch = str(environment("torch") / "bin" / "python")
    cases["02-pytorch-ddp"] = Case("02-pytorch-ddp", 150, torch)
    cases["02-pytorch-ddp, longer"] = Case("02-pytorch-ddp", LONG, torch)
    return {name: _compared(case) for name, case in cases.items()}


def _compared(case: Case) -> Result:
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as directory:
        place = Path(directory) / case.example
        ranks = _prepare(case, place)
        rounds = [(_run(case, place), _by_hand(case, place, ranks)) for _ in range(PAIRS)]
    first, whole = (median([one[0][index] for one in rounds]) for index in (0, 1))
    hand = median([one[1] for one in rounds])
    return {
        "to the first process, s": first,
        "whole run, s": whole,
        "by hand, s": hand,
        "whole / by hand": median([one[0][1] / one[1] for one in rounds]),
        "whole - by hand, s": whole - hand,
    }


def _prepare(case: Case, place: Path) -> int:
    """A copy that tells when it starts and takes the steps that we want; gives the number of its ranks."""
    shutil.copytree(ROOT / "examples" / case.example, place)
    script = place / "train.py"
    docstring, rest = script.read_text().split('"""\n', 1)
    script.write_text(f'{docstring}"""\n{_FIRST_LINE}{rest}')
    job = yaml.safe_load((place / "job.yaml").read_text())
    roles = job["spec"]["pytorchReplicaSpecs"].values()
    for role in roles:
        role["template"]["spec"]["containers"][0]["env"] = [{"name": "STEPS", "value": str(case.steps)}]
    (place / "job.yaml").write_text(yaml.safe_dump(job))
    config: dict[str, Any] = yaml.safe_load((place / "trainmaster.yaml").read_text())
    config["images"][0]["python"] = str(Path(case.python).parent.parent)
    (place / "trainmaster.yaml").write_text(yaml.safe_dump(config))
    return sum(role.get("replicas", 1) for role in roles)


def _run(case: Case, place: Path) -> tuple[float, float]:
    """Seconds to the first process of training, and in all."""
    command = [str(Path(sys.executable).parent / "trainmaster"), "run", str(place)]
    began = time.time()
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, check=False)
    ended = time.time()
    if done.returncode != 0:
        raise RuntimeError(f"trainmaster run ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return min(float(moment) for moment in STARTED.findall(done.stdout)) - began, ended - began


def _by_hand(case: Case, place: Path, ranks: int) -> float:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = door.getsockname()[1]
    shared = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "STEPS": str(case.steps),
        "PYTHONUNBUFFERED": "1",
    }
    began = time.perf_counter()
    processes = [
        subprocess.Popen(
            [case.python, str(place / "train.py")], env={**shared, "RANK": str(rank)}, stdout=subprocess.DEVNULL
        )
        for rank in range(ranks)
    ]
    codes = [process.wait(_LIMIT) for process in processes]
    if any(codes):
        raise RuntimeError(f"ranks started by hand ended with {codes}")
    return time.perf_counter() - began
