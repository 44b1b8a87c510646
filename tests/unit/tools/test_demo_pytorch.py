"""A PyTorch that is installed is found by the interpreter that has it, and used only if the example could import it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tools import demo_pytorch
from tools.environments import location

GLOO = "def is_available(): return True\ndef is_gloo_available(): return {gloo}\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(demo_pytorch, "NAMED_PYTHON", tmp_path / "named" / "python")


def interpreter(directory: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    return directory / "bin" / "python"


def with_torch(directory: Path, *, gloo: bool = True, broken: str = "") -> Path:
    """An interpreter with a package of the name and the shape that the example imports."""
    python = interpreter(directory)
    [libraries] = directory.glob("lib/python*/site-packages")
    package = libraries / "torch"
    (package / "nn").mkdir(parents=True)
    (package / "__init__.py").write_text(broken)
    (package / "distributed.py").write_text(GLOO.format(gloo=gloo))
    (package / "nn" / "__init__.py").touch()
    (package / "nn" / "parallel.py").write_text("DistributedDataParallel = object\n")
    return python


def test_the_interpreter_that_was_given_is_used_if_it_has_pytorch(tmp_path):
    python = with_torch(tmp_path / "given")

    assert demo_pytorch.installed_pytorch(str(python.with_name("python3"))) == python


def test_an_interpreter_of_another_name_is_started_by_the_name_that_pods_use(tmp_path):
    python = with_torch(tmp_path / "my given")
    target = python.resolve()
    python.unlink()
    other = python.with_name("python3")
    other.unlink()
    other.symlink_to(target)

    found = demo_pytorch.installed_pytorch(str(other))

    assert found == demo_pytorch.NAMED_PYTHON
    assert found.name == "python"
    said = subprocess.run([found, "-c", "import torch; print(torch.__file__)"], capture_output=True, text=True)
    assert said.stdout.startswith(str(tmp_path / "my given"))


def test_the_environment_that_was_made_before_is_used_if_the_interpreter_has_none(tmp_path):
    python = with_torch(location("torch"))
    (location("torch") / ".whole").touch()

    assert demo_pytorch.installed_pytorch(str(interpreter(tmp_path / "given"))) == python


def test_an_environment_that_is_not_whole_is_not_used(tmp_path):
    with_torch(location("torch"))

    assert demo_pytorch.installed_pytorch(str(interpreter(tmp_path / "given"))) is None


@pytest.mark.parametrize(
    ("gloo", "broken", "reason"),
    [
        pytest.param(True, "raise ImportError('libcudart.so.13')", "ImportError: libcudart.so.13", id="library"),
        pytest.param(False, "", "it was built without gloo, by which its ranks talk", id="gloo"),
    ],
)
def test_a_pytorch_that_does_not_work_is_named_and_not_used(tmp_path, capsys, gloo, broken, reason):
    python = with_torch(tmp_path / "given", gloo=gloo, broken=broken)

    assert demo_pytorch.installed_pytorch(str(python)) is None
    assert capsys.readouterr().err == f"the PyTorch of {python} is not used: {reason}\n"


def test_no_pytorch_is_no_complaint(tmp_path, capsys):
    assert demo_pytorch.installed_pytorch(str(interpreter(tmp_path / "given"))) is None
    assert capsys.readouterr().err == ""


def test_a_pytorch_that_only_a_variable_leads_to_is_not_used_because_pods_do_not_get_it(tmp_path, monkeypatch):
    with_torch(tmp_path / "elsewhere")
    [libraries] = (tmp_path / "elsewhere").glob("lib/python*/site-packages")
    monkeypatch.setenv("PYTHONPATH", str(libraries))

    assert demo_pytorch.installed_pytorch(str(interpreter(tmp_path / "given"))) is None


def test_an_interpreter_that_is_not_there_has_no_pytorch(tmp_path):
    assert demo_pytorch.installed_pytorch(str(tmp_path / "none")) is None
