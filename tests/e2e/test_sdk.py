"""The unmodified kubeflow-training SDK, in an environment of its own, against a cluster that `up` started."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.environments import environment

from trainmaster.testing.patience import PATIENCE

PROGRAM = Path(__file__).parent / "programs" / "sdk.py"
UP = (sys.executable, "-m", "trainmaster")

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def python() -> Path:
    return environment("sdk") / "bin" / "python"


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("sdk") / "cluster"
    subprocess.run([*UP, "up", "-d", "--data-dir", str(home)], check=True, timeout=PATIENCE)
    yield home / "kubeconfig"
    subprocess.run([*UP, "down", "--data-dir", str(home)], check=True, timeout=PATIENCE)


@pytest.mark.parametrize(
    "what",
    ["TFJob", "PyTorchJob", "XGBoostJob", "PaddleJob", "JAXJob", "events", "function", "suspension", "failure"],
)
def test_the_sdk_works_as_it_is(python, kubeconfig, what):
    command = [str(python), str(PROGRAM), str(kubeconfig), what]

    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(f"{what} done\n")
