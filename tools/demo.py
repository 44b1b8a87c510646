"""`make demo`: three ranks of PyTorch train one model on this machine, through `trainmaster run`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.environments import Unavailable, environment

ROOT = Path(__file__).parent.parent
INTERRUPTED = 130
NEXT = """
Three things to try next:
  .venv/bin/trainmaster run examples/01-ring            # four ranks in plain Python: read its train.py
  .venv/bin/trainmaster plan examples/02-pytorch-ddp    # every object that this job had
  .venv/bin/trainmaster up -d                           # a cluster that stays; then use kubectl as on any other
"""

INSTEAD = (
    "make demo: PyTorch could not be installed: check the network (PIP_INDEX_URL names a mirror) and the room on disk "
    "(XDG_CACHE_HOME names another place). Without PyTorch: .venv/bin/trainmaster run examples/01-ring"
)
BROKEN_OFF = "make demo: interrupted while PyTorch was being installed; make demo goes on with it"


def main() -> int:
    try:
        torch = environment("torch")
    except Unavailable as error:
        sys.stderr.write(f"make demo: {error}\n{INSTEAD}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{BROKEN_OFF}\n")
        return INTERRUPTED
    program = Path(sys.executable).with_name("trainmaster")
    code = finished([str(program), "run", "examples/02-pytorch-ddp", "--image", f"registry.example/ddp={torch}"])
    if code == 0:
        sys.stdout.write(NEXT)
    return code


def finished(command: Sequence[str]) -> int:
    """Its exit code. Ctrl-C reaches it as well as us: it is left to end, and to say so, by itself."""
    with subprocess.Popen(command, cwd=ROOT) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue


if __name__ == "__main__":
    sys.exit(main())
