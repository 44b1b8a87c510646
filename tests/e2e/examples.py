"""The examples with their real frameworks: how each is run, and what has to come out of it.

    run = ran_example(example)
    assert shortcomings(example, run) == []

Each framework has an environment of its own (`tools.environments`), which stands for the example's image.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from tools.environments import LIGHT, environment

from trainmaster.testing.patience import PATIENCE

EXAMPLES = Path(__file__).parents[2] / "examples"
ENDED = {"Succeeded", "Stopped", "Terminating", "Running"}
"""What may be read of a rank when its job has succeeded: the leader does not wait for the others."""

PLAIN = "python"
"""The environment of an example that needs no framework: this very one."""

LIMIT = 2 * PATIENCE
"""Seconds for what real frameworks do, which takes long to import."""


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

    def __str__(self) -> str:
        return f"{self.job} on {self.environment}"

    @property
    def directory(self) -> Path:
        return EXAMPLES / self.name

    @property
    def is_light(self) -> bool:
        return self.environment in (PLAIN, *LIGHT)

    @property
    def pattern(self) -> str:
        """The image, as the example's trainmaster.yaml names it."""
        [found] = re.findall(r"match: (\S+)", (self.directory / "trainmaster.yaml").read_text())
        return str(found)

    @property
    def home(self) -> Path:
        return Path(sys.prefix) if self.environment == PLAIN else environment(self.environment)

    @property
    def version(self) -> str:
        if self.environment == PLAIN:
            return f"Python {platform.python_version()}"
        code = f"from importlib.metadata import version; print(version('{self.package}'))"
        told = f"{self.package} {_said(str(self.home / 'bin' / 'python'), '-c', code)}"
        if self.environment != "openmpi":
            return told
        [number] = re.findall(r"\d+\.\d+\.\d+", _said(str(self.home / "bin" / "mpirun"), "--version"))
        return f"Open MPI {number}, {told}"


WORKERS = ("worker-0", "worker-1")
SERVERS = ("ps-0", "worker-0", "worker-1", "evaluator-0")
PADDLE_SERVERS = ("ps-0", "ps-1")
TRAINED = (
    Example("01-ring", "ring", PLAIN, "", ranks=4, tellers=4),
    Example("02-pytorch-ddp", "ddp", "torch", "torch", ranks=3, tellers=3, drop=0.1),
    Example("03-pytorch-elastic", "elastic", "torch", "torch", ranks=2, tellers=2, drop=0.1),
    Example("04-tensorflow-mwms", "tf-mirrored", "tensorflow", "tensorflow-cpu", ranks=3, tellers=3),
    Example("05-tensorflow-ps", "tf-ps", "tensorflow", "tensorflow-cpu", ranks=5, tellers=1, stopped=SERVERS),
    Example("06-mpi", "mpi", "openmpi", "mpi4py", ranks=3, tellers=4, manifest="job.yaml"),
    Example("06-mpi", "mpi-v1", "openmpi", "mpi4py", ranks=3, tellers=4, stopped=WORKERS, manifest="job-v1.yaml"),
    Example("06-mpi", "mpi-v1", "mpich", "mpich", ranks=3, tellers=4, stopped=WORKERS, manifest="job-v1.yaml"),
    Example("06-mpi", "mpi-v1", "openmpi5", "openmpi", ranks=3, tellers=4, stopped=WORKERS, manifest="job-v1.yaml"),
    Example("07-horovod", "horovod", "horovod", "horovod", ranks=3, tellers=2, drop=0.1, manifest="job.yaml"),
    Example(
        "07-horovod",
        "horovod-elastic",
        "horovod",
        "horovod",
        ranks=3,
        tellers=2,
        drop=0.1,
        stopped=WORKERS,
        manifest="job-elastic.yaml",
    ),
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


def example_of(job: str) -> Example:
    """The first of that name."""
    return next(example for example in TRAINED if example.job == job)


def light(environment: str, *values: Any, id: str) -> Any:
    """A parameter set, marked if what it needs is installed quickly."""
    is_light = environment in (PLAIN, *LIGHT)
    return pytest.param(*values, id=id, marks=[pytest.mark.light] if is_light else [])


@dataclass(frozen=True)
class Run:
    code: int
    seconds: float
    text: str

    @property
    def rows(self) -> dict[str, list[str]]:
        """By rank, from the table at the end."""
        _, _, table = self.text.partition("JOB ")
        rows = takewhile(lambda line: ": " not in line, table.splitlines()[1:])
        return {words[1]: words for line in rows if (words := line.split())}

    @property
    def states(self) -> dict[str, str]:
        return {rank: row[2] for rank, row in self.rows.items()}


def command(*words: str, limit: float = LIMIT) -> list[str]:
    return [sys.executable, "-m", "trainmaster", "run", "--sandbox", "namespaces", *words, "--timeout", str(limit)]


def ran(*words: str, limit: float = LIMIT, around: tuple[str, ...] = ()) -> Run:
    """`around` is a command that runs the other one."""
    started = time.monotonic()
    whole = [*around, *command(*words, limit=limit)]
    done = subprocess.run(whole, capture_output=True, text=True, timeout=limit + 60)
    return Run(done.returncode, time.monotonic() - started, done.stdout + done.stderr)


def ran_example(example: Example, directory: Path | None = None) -> Run:
    """As it is, or what has become of it in another directory."""
    return ran(*words_of(example, directory or example.directory))


def words_of(example: Example, directory: Path) -> list[str]:
    return [str(directory / example.manifest), "--image", f"{example.pattern}={example.home}"]


def changed(example: Example, directory: Path, *changes: tuple[str, str], file: str = "train.py") -> Path:
    """A copy with each text, which must be there once, replaced by the other. Its job bears another name, because the
    example itself may be running beside it."""
    copy = Path(shutil.copytree(example.directory, directory / example.name))
    manifest = copy / (example.manifest or "job.yaml")
    manifest.write_text(manifest.read_text().replace(f"  name: {example.job}\n", f"  name: copy-of-{example.job}\n", 1))
    text = (copy / file).read_text()
    for old, new in changes:
        assert text.count(old) == 1, f"{file} of {example.name} has {text.count(old)} times: {old}"
        text = text.replace(old, new)
    (copy / file).write_text(text)
    return copy


def meeting(place: Path, ranks: int, indent: str = "") -> str:
    """Lines of a program that are passed once all ranks have come to them, with all that they printed before."""
    lines = (
        "import os, pathlib, sys, time",
        "sys.stdout.flush()",
        f"pathlib.Path({str(place)!r}, os.environ['HOSTNAME']).touch()",
        f"while len(os.listdir({str(place)!r})) < {ranks}:",
        "    time.sleep(0.05)",
    )
    place.mkdir()
    return "".join(f"{indent}{line}\n" for line in lines)


def shortcomings(example: Example, run: Run) -> list[str]:
    """What is missing from real, joint training to a good end; nothing if all is well."""
    return list(_shortcomings(example, run))


def _shortcomings(example: Example, run: Run) -> Iterator[str]:
    if run.code:
        yield {1: "failed", 124: "too slow"}.get(run.code, f"exit code {run.code}")
    losses = [float(loss) for loss in re.findall(r"(?:\d+|\[\w+-\d+\]) loss ([\d.]+)", run.text)]
    final = re.findall(r"final loss ([\d.]+) (?:weights|trees) (.+)", run.text)
    if len(final) != example.tellers:
        yield f"{len(final)} of {example.tellers} results"
    if losses and final and not max(float(loss) for loss, _ in final) < example.drop * losses[0]:
        yield "the loss did not fall"
    if len({agreed for _, agreed in final}) > 1:
        yield "the ranks do not agree"
    if len(run.states) != example.ranks or not set(run.states.values()) <= ENDED:
        yield f"the ranks are {run.states}"
    if not {run.states.get(rank, "missing") for rank in example.stopped} <= {"Stopped", "Terminating"}:
        yield f"{', '.join(example.stopped)} were not stopped"


def left_running(job: str) -> list[int]:
    """Processes that think that they are a rank of the job."""
    return list(_ranks(f"HOSTNAME={job}-"))


def process_of(pod: str) -> int:
    """The first process of a pod: the one that its container started."""
    return min(_ranks(f"HOSTNAME={pod}\0"))


def _ranks(setting: str) -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if f"\0{setting}".encode() in b"\0" + Path(f"/proc/{name}/environ").read_bytes():
                    yield int(name)


def _said(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
