"""`make demo`: three ranks of PyTorch train one model on this machine, through `trainmaster run`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.environments import Unavailable, environment

ROOT = Path(__file__).parent.parent
NEXT = """
Three things to try next:
  .venv/bin/trainmaster run examples/01-ring            # four ranks in plain Python: read its train.py
  .venv/bin/trainmaster plan examples/02-pytorch-ddp    # every object that this job had
  .venv/bin/trainmaster up -d                           # a cluster that stays; then use kubectl as on any other
"""

INSTEAD = (
    "make demo: PyTorch could not be installed: check the network, or name a mirror in PIP_INDEX_URL. "
    "Without PyTorch: .venv/bin/trainmaster run examples/01-ring"
)


def main() -> int:
    try:
        torch = environment("torch")
    except Unavailable as error:
        sys.stderr.write(f"make demo: {error}\n{INSTEAD}\n")
        return 1
    program = Path(sys.executable).with_name("trainmaster")
    command = [str(program), "run", "examples/02-pytorch-ddp", "--image", f"registry.example/ddp={torch}"]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code == 0:
        sys.stdout.write(NEXT)
    return code


if __name__ == "__main__":
    sys.exit(main())
