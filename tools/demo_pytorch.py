"""Finds a PyTorch that is installed already, for the demo.

There are two places to look: the interpreter that `make` was given, which need not be the one of this virtual
environment, and the environment that `tools.environments torch` makes. The example's imports are tried, because a
PyTorch that is there may still be broken.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from tools.environments import is_whole, location
from tools.environments_step import tell

PATIENCE = 60.0
"""Seconds for the import of PyTorch, which may come from a slow disk."""

NONE = 3
"""Exit code of an interpreter that has no PyTorch; any other but 0 says that it has one that does not work."""

PROBE = f"""
import importlib.util, sys
if importlib.util.find_spec("torch") is None:
    sys.exit({NONE})
import torch.distributed
from torch.nn.parallel import DistributedDataParallel
if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    sys.exit("it was built without gloo, by which its ranks talk")
print(sys.executable)
"""

NAMED_PYTHON = Path(sys.prefix) / "pytorch" / "python"
"""Starts an interpreter that has another name where it lies, such as Debian's python3."""


def installed_pytorch(python: str) -> Path | None:
    """An interpreter with a PyTorch that works. It is called `python`, because the pods call it so."""
    if program := _with_pytorch(python):
        return _named_python(program)
    directory = location("torch")
    return _with_pytorch(str(directory / "bin" / "python")) if is_whole(directory) else None


def _with_pytorch(python: str) -> Path | None:
    """The interpreter that is behind this name or path, if it has a PyTorch that works."""
    ended = _ran([python, "-c", PROBE])
    if ended.returncode == 0:
        return Path(ended.stdout.strip())
    if ended.returncode != NONE:
        reason = ended.stderr.strip().rpartition("\n")[2]
        tell(f"the PyTorch of {python} is not used: {reason}")
    return None


def _named_python(program: Path) -> Path:
    usual = program.with_name("python")
    if usual.exists() and usual.samefile(program):
        return usual
    NAMED_PYTHON.parent.mkdir(parents=True, exist_ok=True)
    NAMED_PYTHON.write_text(f'#!/bin/sh\nexec {shlex.quote(str(program))} "$@"\n')
    NAMED_PYTHON.chmod(0o755)
    return NAMED_PYTHON


def _ran(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Without the variables of Python: pods do not get them either."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))
