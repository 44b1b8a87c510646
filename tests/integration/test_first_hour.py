"""What a newcomer meets in the first hour says what `docs/first-hour.md` has of it, word for word.

Every row of its table is a mistake that is made here; what stands in it as code must be printed.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from trainmaster.cli import run as run_module
from trainmaster.cli.attention import Attentive
from trainmaster.cli.embedded import EmbeddedOptions
from trainmaster.cli.follow import Follower, JobRef
from trainmaster.cli.run import RunOptions, run
from trainmaster.cli.screen import Screen
from trainmaster.cluster.kubelet.launcher import Launcher
from trainmaster.cluster.kubelet.zygote import HelperError
from trainmaster.testing.patience import PATIENCE

pytestmark = pytest.mark.sandbox

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "first-hour.md").read_text()
PORT = "18765"
"""As the page has it; what is taken here is another, for the tests may run twice on one machine."""

JOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: mnist}
spec:
  pytorchReplicaSpecs:
    Master:
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: pytorch
              image: registry.example/mnist:1
              command: [python, /app/train.py]
"""
MAPPING = 'images: [{match: registry.example/mnist, files: {"/app": .}}]\n'


@dataclass(frozen=True)
class Try:
    """Files that lie in the newcomer's directory, and how the job in it is run."""

    change: tuple[str, str] = ("", "")
    """Of the manifest: what is written, instead of what."""

    program: str = "print('done')"
    mapping: str = MAPPING
    files: tuple[str, ...] = ("job.yaml",)
    options: EmbeddedOptions = field(default_factory=EmbeddedOptions)
    is_stopped: bool = False
    """Time is up as soon as a hint has been printed; the job itself would not end."""

    context: str = ""

    def __call__(self) -> int:
        old, new = self.change
        assert old in JOB
        Path("job.yaml").write_text(JOB.replace(old, new, 1))
        Path("trainmaster.yaml").write_text(self.mapping)
        if self.program:
            Path("train.py").write_text(self.program)
        timeout = PATIENCE if self.is_stopped else None
        return run(RunOptions(self.files, context=self.context, timeout=timeout, embedded=self.options))


def on_a_taken_port() -> int:
    said = io.StringIO()
    with socket.create_server(("127.0.0.1", 0)) as taken, contextlib.redirect_stderr(said):
        port = taken.getsockname()[1]
        code = Try(options=EmbeddedOptions(port=port))()
    sys.stderr.write(said.getvalue().replace(str(port), PORT))
    return code


TWICE = "import socket\na = socket.create_server(('127.0.0.1', 2222))\nsocket.create_server(('127.0.0.1', 2222))\n"
WITHOUT = """
import pathlib, sys, traceback
try:
    import nosuchmodule
except ImportError:
    traceback.print_exc()
starts = pathlib.Path("/app/starts")
count = starts.stat().st_size if starts.exists() else 0
starts.write_text("x" * (count + 1))
print("start", count)
sys.exit(count < 2)
"""
CLAIM = "          volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]\n"
LABEL = "          nodeSelector: {gpu: 'yes'}\n"
NEVER = ("OnFailure", "Never")

TRIES: dict[str, Callable[[], int]] = {
    "no framework": Try(program="import nosuchframework"),
    "no framework, under `python -m`": Try(("/app/train.py", "-m, nosuchframework.launch")),
    "a module that the program can do without": Try(program=WITHOUT),
    "an image that nothing stands for": Try(("command: [python, /app/train.py]", "workingDir: /"), mapping=""),
    "`--image` with a pattern that is misspelt": Try(
        options=EmbeddedOptions(images=("registry.example/mnits=python",))
    ),
    "`--image` with a path that is not there": Try(options=EmbeddedOptions(images=("mnist=/no/such/venv",))),
    "`--port` that is taken": on_a_taken_port,
    "a port that the program finds taken": Try(NEVER, program=TWICE),
    "no namespaces on this machine": Try(),
    "`--sandbox namespaces` without any": Try(options=EmbeddedOptions(sandbox="namespaces")),
    "a misspelt kind": Try(("kind: PyTorchJob", "kind: PytorchJob")),
    "a kind in small letters": Try(("kind: PyTorchJob", "kind: pytorchjob")),
    "a misspelt field": Try(("spec:\n", "spec:\n  cleanPolicy: All\n")),
    "a misspelt field that is needed": Try(("pytorchReplicaSpecs", "pytorchReplicaSpec")),
    "a misspelt role": Try(("Master:", "Mastre:")),
    "a misspelt field of the pod": Try(("command:", "comand:")),
    "a manifest that is not there": Try(files=("mnist.yaml",)),
    "a program that is not there": Try(program=""),
    "a program that nothing stands for": Try(mapping="", change=("/app/train.py", "/opt/mnist/train.py")),
    "a command that is not there": Try(("[python,", "[torchrun,")),
    "a command in one word": Try(("[python, /app/train.py]", '["python /app/train.py"]')),
    "a mapped directory that is not there": Try(mapping=MAPPING.replace(": .", ": ./src")),
    "more CPUs than there are": Try(
        ("command:", "resources: {requests: {cpu: 4000}}\n              command:"), is_stopped=True
    ),
    "a GPU that is not there": Try(
        ("command:", "resources: {limits: {example.com/gpu: 1}}\n              command:"), is_stopped=True
    ),
    "a claim that is not there": Try(("          containers:", f"{CLAIM}          containers:"), is_stopped=True),
    "a label that no node has": Try(("          containers:", f"{LABEL}          containers:"), is_stopped=True),
    "a program that fails": Try(NEVER, program="raise SystemExit(3)"),
    "a program that fails again and again": Try(program="raise SystemExit(3)", is_stopped=True),
    "`--context` without a kubeconfig": Try(context="prod"),
}
PATHS = ("a module that the program can do without", "a program that is not there", "a command in one word")
"""The page has the manifest's paths. Without namespaces they are those of this machine."""

FORBIDDEN = ("no namespaces on this machine", "`--sandbox namespaces` without any")


def rows() -> dict[str, tuple[list[str], str]]:
    """By what was done: what is said, and the exit code."""
    cells = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    return {title: (re.findall(r"`([^`]+)`", says), code) for title, says, code, _ in cells[1:]}


ROWS = rows()


async def refuse(root: Path, settings: dict[str, object]) -> Launcher:
    if settings.get("namespaces"):
        raise HelperError("unshare 0x10000000: No space left on device")
    return await OPEN(root, settings)


OPEN = Launcher.open


@pytest.fixture
def newcomer(tmp_path, monkeypatch):
    """Somebody with an empty directory, who has no cluster."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture(autouse=True)
def _time_is_up_after_a_hint(monkeypatch):
    """Of a run whose time is limited."""
    hinted = asyncio.Event()

    def warning(screen: Screen, job: JobRef, reason: str, message: str) -> None:
        WARNING(screen, job, reason, message)
        if reason == "Hint":
            hinted.set()

    async def within(timeout: float | None, follower: Follower, screen: Attentive) -> bool:
        if timeout is None:
            return await WITHIN(timeout, follower, screen)
        async with asyncio.timeout(timeout), asyncio.TaskGroup() as group:
            following = group.create_task(follower.follow(), name="follow")
            await hinted.wait()
            following.cancel()
        return True

    monkeypatch.setattr(Screen, "warning", warning)
    monkeypatch.setattr(run_module, "_within", within)


WARNING, WITHIN = Screen.warning, run_module._within


@pytest.mark.parametrize(
    "title", [pytest.param(title, marks=pytest.mark.namespaces) if title in PATHS else title for title in TRIES]
)
def test_a_mistake_is_told_in_the_words_of_the_page(title, newcomer, monkeypatch, capsys, caplog):
    if title in FORBIDDEN:
        monkeypatch.setattr(Launcher, "open", refuse)

    code = TRIES[title]()

    printed = "".join(capsys.readouterr()) + caplog.text
    told = printed.replace(str(newcomer), "/home/me")
    says, expected = ROWS[title]
    assert says
    assert [words for words in says if words not in told] == [], told
    assert str(code) == expected, told


def interrupted(command: list[str], until: str) -> tuple[int, str]:
    """What it ends with when Ctrl-C is pressed after it has printed that."""
    # What a shell runs in the background ignores Ctrl-C, and so would all that is started from there.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert any(until in line for line in process.stdout)
        os.killpg(process.pid, signal.SIGINT)
        return process.wait(PATIENCE), process.stderr.read()


@pytest.mark.parametrize(
    ("title", "command"),
    [
        ("Ctrl-C", [sys.executable, "-m", "trainmaster", "run", "examples/01-ring"]),
        (
            "Ctrl-C of `make demo`",
            [
                sys.executable,
                "-c",
                "import sys; from tools.demo import finished\n"
                "sys.exit(finished([sys.executable, '-m', 'trainmaster', 'run', 'examples/01-ring']))",
            ],
        ),
    ],
    ids=["run", "demo"],
)
def test_an_interruption_is_told_in_the_words_of_the_page(title, command):
    code, said = interrupted(command, "Created")

    says, expected = ROWS[title]
    assert [words for words in says if words not in said] == []
    assert "Traceback" not in said
    assert str(code) == expected


def test_an_interruption_of_a_job_on_another_cluster_tells_that_it_goes_on(tmp_path):
    trainmaster = [sys.executable, "-m", "trainmaster"]
    flags = ["--kubeconfig", str(tmp_path / "kubeconfig")]
    config = str(ROOT / "examples/01-ring/trainmaster.yaml")
    subprocess.run([*trainmaster, "up", "-d", "--data-dir", str(tmp_path), "--config", config], check=True)
    try:
        code, said = interrupted([*trainmaster, "run", "examples/01-ring/job.yaml", *flags], "Created")
        wait = ["wait", "ring", "--for=condition=Succeeded", f"--timeout={PATIENCE:g}s"]
        waited = subprocess.run([*trainmaster, *wait, *flags], check=False)
    finally:
        subprocess.run([*trainmaster, "down", "--data-dir", str(tmp_path)], check=True)

    says, expected = ROWS["Ctrl-C with `--context` or `--kubeconfig`"]
    told = said.replace(" ".join(flags), "--context prod")
    assert [words for words in says if words not in told] == []
    assert str(code) == expected
    assert waited.returncode == 0


def test_every_row_of_the_page_is_tried():
    interruptions = {"Ctrl-C", "Ctrl-C of `make demo`", "Ctrl-C with `--context` or `--kubeconfig`"}

    assert ROWS.keys() == TRIES.keys() | interruptions
