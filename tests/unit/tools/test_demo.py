"""`make demo` takes a PyTorch that is there, or a small download, and says which and how much before it begins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tools import demo
from tools.environments import Unavailable

ROOT = Path(__file__).parents[3]


class Machine:
    """What the demo finds on a machine, and what it runs there."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pytorch: Path | None = None
        self.asked: list[str] = []
        self.ran: list[list[str]] = []
        self._envs = tmp_path
        monkeypatch.setattr(demo, "installed_pytorch", self._installed)
        monkeypatch.setattr(demo, "location", self.place)
        monkeypatch.setattr(demo, "environment", self.make)
        monkeypatch.setattr(demo, "finished", self._finish)

    def place(self, name: str) -> Path:
        return self._envs / name

    def make(self, name: str) -> Path:
        directory = self.place(name)
        directory.mkdir(exist_ok=True)
        (directory / ".whole").touch()
        return directory

    def made(self) -> list[str]:
        return sorted(path.name for path in self._envs.iterdir())

    def _installed(self, python: str) -> Path | None:
        self.asked.append(python)
        return self.pytorch

    def _finish(self, command: list[str]) -> int:
        self.ran.append(command[1:])
        return 0


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_the_demo_runs_before_the_development_tools_are_installed():
    # -S: nothing of site-packages can be imported
    subprocess.run([sys.executable, "-S", "-c", "import tools.demo"], cwd=ROOT, check=True)


def test_without_pytorch_three_ranks_train_with_xgboost(machine, capsys):
    code = demo.main(["--python", "python3.12"])

    assert code == 0
    assert machine.asked == ["python3.12"]
    assert machine.made() == ["xgboost"]
    assert machine.ran == [
        ["run", "examples/08-xgboost", "--image", f"registry.example/xgboost={machine.place('xgboost')}"]
    ]
    assert "plan examples/08-xgboost" in capsys.readouterr().out


def test_a_pytorch_that_is_installed_is_used_and_nothing_is_downloaded(machine, capsys):
    machine.pytorch = Path("/opt/conda/bin/python")

    code = demo.main([])

    assert code == 0
    assert machine.made() == []
    assert machine.ran == [["run", "examples/02-pytorch-ddp", "--image", "registry.example/ddp=/opt/conda/bin/python"]]
    assert "/opt/conda/bin/python has PyTorch: nothing to download" in capsys.readouterr().err


def test_xgboost_is_used_where_it_is_asked_for_though_pytorch_is_installed(machine):
    machine.pytorch = Path("/opt/conda/bin/python")

    demo.main(["--framework", "xgboost"])

    assert machine.asked == []
    assert machine.made() == ["xgboost"]


@pytest.mark.parametrize(
    ("words", "size"),
    [
        pytest.param([], "downloading XGBoost, 58 MB, into ", id="xgboost"),
        pytest.param(["--framework", "pytorch"], "downloading PyTorch, 2.8 GB, into ", id="pytorch"),
    ],
)
def test_the_size_is_printed_before_the_download_begins(machine: Machine, monkeypatch, capsys, words, size):
    printed: list[str] = []

    def make(name: str) -> Path:
        printed.append(capsys.readouterr().err)
        return machine.make(name)

    monkeypatch.setattr(demo, "environment", make)

    demo.main(words)

    [before] = printed
    assert size in before


def test_what_was_downloaded_before_is_not_announced_again(machine, capsys):
    machine.make("xgboost")

    demo.main(["--framework", "xgboost"])

    assert "downloading" not in capsys.readouterr().err


def test_an_unknown_framework_is_refused_with_those_that_are_known(machine, capsys):
    code = demo.main(["--framework", "tensorflow"])

    assert code == 2
    assert "FRAMEWORK=tensorflow is not known; choose one of pytorch, xgboost" in capsys.readouterr().err
    assert machine.ran == []


def test_a_framework_that_cannot_be_downloaded_is_reported_with_what_to_do(machine, monkeypatch, capsys):
    def fail(name: str) -> Path:
        raise Unavailable("no index")

    monkeypatch.setattr(demo, "environment", fail)

    code = demo.main([])

    assert code == 1
    assert capsys.readouterr().err.endswith(f"make demo: no index\n{demo.INSTEAD.format(name='XGBoost')}\n")


def test_an_interrupted_download_is_reported_and_no_job_is_started(machine, monkeypatch, capsys):
    def interrupted(name: str) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "environment", interrupted)

    code = demo.main([])

    assert code == demo.INTERRUPTED
    assert demo.BROKEN_OFF in capsys.readouterr().err
    assert machine.ran == []
