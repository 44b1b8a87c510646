"""Every example with its real framework: it trains, all ranks agree, and nothing is left behind.

    python -m pytest tests/e2e/test_frameworks.py -k jax

Each framework has an environment of its own (`tools.environments`), which stands for the example's image.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tests.e2e.results import RESULTS, Result
from tools.environments import environment

EXAMPLES = Path(__file__).parents[2] / "examples"
ENDED = {"Succeeded", "Stopped", "Terminating", "Running"}
"""What may be read of a rank when its job has succeeded: the leader does not wait for the others."""

PLAIN = "python"
"""The environment of an example that needs no framework: this very one."""

pytestmark = pytest.mark.timeout(1200)


@dataclass(frozen=True)
class Example:
    name: str
    job: str
    environment: str
    package: str
    ranks: int
    tellers: int
    """How many ranks tell a result at their end."""

    drop: float = 0.01
    """The last loss is less than this part of the first."""

    stopped: tuple[str, ...] = ()
    """Ranks that never end by themselves."""

    manifest: str = ""
    """One of several in the example's directory."""

    @property
    def image(self) -> str:
        """What stands for the example's image, as `--image` takes it."""
        [found] = re.findall(r"match: (\S+)", (EXAMPLES / self.name / "trainmaster.yaml").read_text())
        return f"{found}={self._home}"

    @property
    def _home(self) -> Path:
        return Path(sys.prefix) if self.environment == PLAIN else environment(self.environment)

    @property
    def version(self) -> str:
        if self.environment == PLAIN:
            return f"Python {platform.python_version()}"
        code = f"from importlib.metadata import version; print(version('{self.package}'))"
        python = self._home / "bin" / "python"
        told = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
        return f"{self.package} {told.stdout.strip()}"


WORKERS = ("worker-0", "worker-1")
SERVERS = ("ps-0", "worker-0", "worker-1", "evaluator-0")
PADDLE_SERVERS = ("ps-0", "ps-1")
TRAINED = (
    Example("02-pytorch-ddp", "ddp", "torch", "torch", ranks=3, tellers=3, drop=0.1),
    Example("03-pytorch-elastic", "elastic", "torch", "torch", ranks=2, tellers=2, drop=0.1),
    Example("04-tensorflow-mwms", "tf-mirrored", "tensorflow", "tensorflow-cpu", ranks=3, tellers=3),
    Example("05-tensorflow-ps", "tf-ps", "tensorflow", "tensorflow-cpu", ranks=5, tellers=1, stopped=SERVERS),
    Example("06-mpi", "mpi", "openmpi", "mpi4py", ranks=3, tellers=4, manifest="job.yaml"),
    Example("06-mpi", "mpi-v1", "openmpi", "mpi4py", ranks=3, tellers=4, stopped=WORKERS, manifest="job-v1.yaml"),
    Example("06-mpi", "mpi-v1", "mpich", "mpich", ranks=3, tellers=4, stopped=WORKERS, manifest="job-v1.yaml"),
    Example("06-mpi", "mpi-v1", "openmpi5", "openmpi", ranks=3, tellers=4, stopped=WORKERS, manifest="job-v1.yaml"),
    Example("07-horovod", "horovod", "horovod", "horovod", ranks=3, tellers=2, drop=0.1, manifest="job.yaml"),
    Example("08-xgboost", "xgboost", "xgboost", "xgboost-cpu", ranks=3, tellers=3, drop=0.2),
    Example("09-lightgbm", "lightgbm", "lightgbm", "lightgbm", ranks=3, tellers=3, drop=0.2),
    Example("10-mxnet", "mxnet", "mxnet", "mxnet", ranks=4, tellers=2),
    Example("11-jax", "jax", "jax", "jax", ranks=3, tellers=3),
    Example("12-paddle-collective", "paddle", "paddle", "paddlepaddle", ranks=2, tellers=2, manifest="job.yaml"),
    Example(
        "12-paddle-collective", "paddle-batch", "paddle", "paddlepaddle", ranks=3, tellers=3, manifest="job-batch.yaml"
    ),
    Example("13-paddle-ps", "paddle-ps", PLAIN, "", ranks=4, tellers=2, stopped=PADDLE_SERVERS, manifest="job.yaml"),
    Example(
        "13-paddle-ps",
        "paddle-ps-service",
        PLAIN,
        "",
        ranks=4,
        tellers=2,
        stopped=PADDLE_SERVERS,
        manifest="job-service.yaml",
    ),
    Example("14-mindspore", "mindspore", "mindspore", "mindspore", ranks=3, tellers=2),
)


@dataclass(frozen=True)
class Run:
    code: int
    seconds: float
    text: str

    @property
    def states(self) -> dict[str, str]:
        """By rank, from the table at the end."""
        _, _, table = self.text.partition("JOB ")
        rows = [line.split() for line in table.splitlines()[1:-1]]
        return {row[1]: row[2] for row in rows}


def ran(*words: str) -> Run:
    command = [sys.executable, "-m", "trainmaster", "run", *words, "--timeout", "180"]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    return Run(done.returncode, time.monotonic() - started, done.stdout + done.stderr)


def trained(example: Example) -> Run:
    run = ran(str(EXAMPLES / example.name / example.manifest), "--image", example.image)
    result = {0: "trained", 1: "failed", 124: "too slow"}.get(run.code, f"exit code {run.code}")
    RESULTS.append(
        Result(f"{example.name}/{example.manifest}".rstrip("/"), example.version, example.ranks, run.seconds, result)
    )
    return run


def left_running(job: str) -> list[int]:
    """Processes that think that they are a rank of the job."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if f"\0HOSTNAME={job}-".encode() in b"\0" + Path(f"/proc/{name}/environ").read_bytes():
                    found.append(int(name))
    return found


@pytest.mark.parametrize("example", TRAINED, ids=lambda example: f"{example.job} on {example.environment}")
def test_an_example_trains(example):
    run = trained(example)

    assert run.code == 0, run.text
    first = [float(loss) for loss in re.findall(r"(?:\d+|\[\w+-\d+\]) loss ([\d.]+)", run.text)]
    final = re.findall(r"final loss ([\d.]+) (?:weights|trees) (.+)", run.text)
    assert len(final) == example.tellers, run.text
    assert max(float(loss) for loss, _ in final) < example.drop * first[0], run.text
    assert len({agreed for _, agreed in final}) == 1, run.text
    assert len(run.states) == example.ranks
    assert set(run.states.values()) <= ENDED, run.text
    assert {run.states[rank] for rank in example.stopped} <= {"Stopped", "Terminating"}, run.text
    assert left_running(example.job) == []


def test_two_pytorch_jobs_at_once_do_not_see_each_other(tmp_path):
    """Both on port 23456. One trains for longer, so that their weights tell them apart."""
    [example] = [one for one in TRAINED if one.name == "02-pytorch-ddp"]
    folder = EXAMPLES / example.name
    for name, steps in (("short", "50"), ("long", "100")):
        job = yaml.safe_load((folder / "job.yaml").read_text())
        for role in job["spec"]["pytorchReplicaSpecs"].values():
            role["template"]["spec"]["containers"][0]["env"] = [{"name": "STEPS", "value": steps}]
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({**job, "metadata": {"name": name}}))

    run = ran(str(tmp_path), "--config", str(folder / "trainmaster.yaml"), "--image", example.image)

    assert run.code == 0, run.text
    told = {job: re.findall(rf"\[{job}/.*final loss (.+)", run.text) for job in ("short", "long")}
    assert [len(results) for results in told.values()] == [3, 3], run.text
    assert [len(set(results)) for results in told.values()] == [1, 1], run.text
    assert told["short"][0] != told["long"][0]
    assert run.text.count("of 3 has joined") == 6
