"""Whole sessions of the guides, typed as they stand."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.docs.pages import DOCS, ROOT, blocks

pytestmark = pytest.mark.sandbox

GUIDE = DOCS / "guide"


def block_with(page, words):
    return next(block for block in blocks((GUIDE / page).read_text(), "sh") if words in block)


def typed(block, home):
    """By somebody who has nothing but this package and a home."""
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
    }
    return subprocess.run(
        ["bash", "-euc", block], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_the_session_of_a_cluster_that_stays_works_as_written(tmp_path):
    block = block_with("ml-engineer.md", "trainmaster up -d")

    result = typed(block, tmp_path)
    typed("trainmaster down", tmp_path)

    assert result.returncode == 0, result.stderr
    assert "pytorchjob.kubeflow.org/ring condition met" in result.stdout
    assert "[worker-2] rank 3 final loss 0.000000" in result.stdout


def test_the_session_of_a_laboratory_works_as_written(tmp_path):
    block = block_with("platform-engineer.md", "/tmp/lab").replace("/tmp/lab", str(tmp_path / "lab"))

    result = typed(block, tmp_path)
    typed(f"trainmaster down --data-dir {tmp_path}/lab", tmp_path)

    assert result.returncode == 0, result.stderr
    assert f"up in {tmp_path}/lab" in result.stdout


def test_the_first_job_of_the_guide_succeeds(tmp_path):
    result = typed(block_with("ml-engineer.md", "examples/01-ring\n"), tmp_path)

    assert result.returncode == 0, result.stderr
    assert "PyTorchJob ring: Succeeded" in result.stdout
