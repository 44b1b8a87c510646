"""`make demo`: three ranks train one model on this machine with a real framework, through `trainmaster run`.

    python -m tools.demo --python python3 --framework pytorch

The framework is PyTorch where it is installed already, or where it is asked for, and else XGBoost, which is a small
download. Runs before the development tools are there: this module and all that it imports need Python alone.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.demo_pytorch import installed_pytorch
from tools.environments import Unavailable, environment, is_whole, location
from tools.environments_step import tell

ROOT = Path(__file__).parent.parent
INTERRUPTED = 130


@dataclass(frozen=True)
class Framework:
    name: str
    environment: str
    """Name in `environments.toml`."""

    download: str
    """Size of what pip fetches into an empty cache."""

    example: str
    image: str
    """The image that the manifest of the example names."""


PYTORCH = Framework("PyTorch", "torch", "2.8 GB", "examples/02-pytorch-ddp", "registry.example/ddp")
XGBOOST = Framework("XGBoost", "xgboost", "58 MB", "examples/08-xgboost", "registry.example/xgboost")
FRAMEWORKS = {"pytorch": PYTORCH, "xgboost": XGBOOST}

NEXT = """
Three things to try next:
  .venv/bin/trainmaster run examples/01-ring            # four ranks in plain Python: read its train.py
  .venv/bin/trainmaster plan {example:<26} # every object that this job had
  .venv/bin/trainmaster up -d                           # a cluster that stays; then use kubectl as on any other
"""

UNKNOWN = "make demo: FRAMEWORK={name} is not known; choose one of {known}, or leave it out"
FOUND = "{where} has PyTorch: nothing to download"
DOWNLOADING = "downloading {name}, {download}, into {where}"
ABSENT = "no PyTorch was found; to download it ({download}): make demo FRAMEWORK=pytorch"
INSTEAD = (
    "make demo: {name} could not be installed: check the network (PIP_INDEX_URL names a mirror) and the room on disk "
    "(XDG_CACHE_HOME names another place). Without {name}: .venv/bin/trainmaster run examples/01-ring"
)
BROKEN_OFF = "\nmake demo: interrupted before the job was started; make demo starts over, with what it has downloaded"


def main(words: Sequence[str]) -> int:
    arguments = argparse.ArgumentParser(prog="make demo")
    arguments.add_argument("--python", default="python3", help="Python that may have PyTorch")
    arguments.add_argument("--framework", default="", help="pytorch or xgboost (default: what is there)")
    options = arguments.parse_args(words)
    if options.framework and options.framework not in FRAMEWORKS:
        tell(UNKNOWN.format(name=options.framework, known=", ".join(FRAMEWORKS)))
        return 2
    try:
        framework, where = prepared(FRAMEWORKS.get(options.framework), options.python)
    except KeyboardInterrupt:
        tell(BROKEN_OFF)
        return INTERRUPTED
    except Unavailable as error:
        tell(str(error))
        return 1
    return trained(framework, where)


def prepared(wanted: Framework | None, python: str) -> tuple[Framework, Path]:
    """The framework, and the directory or interpreter that has it."""
    if wanted is not XGBOOST:
        if where := installed_pytorch(python):
            tell(FOUND.format(where=where))
            return PYTORCH, where
        if wanted is None:
            tell(ABSENT.format(download=PYTORCH.download))
    framework = wanted or XGBOOST
    return framework, fetched(framework)


def fetched(framework: Framework) -> Path:
    directory = location(framework.environment)
    if not is_whole(directory):
        tell(DOWNLOADING.format(name=framework.name, download=framework.download, where=directory))
    try:
        return environment(framework.environment)
    except Unavailable as error:
        raise Unavailable(f"make demo: {error}\n{INSTEAD.format(name=framework.name)}") from error


def trained(framework: Framework, where: Path) -> int:
    program = Path(sys.executable).with_name("trainmaster")
    command = [str(program), "run", framework.example, "--image", f"{framework.image}={where}"]
    tell(f"$ {shlex.join([os.path.relpath(program, ROOT), *command[1:]])}")
    code = finished(command)
    if code == 0:
        sys.stdout.write(NEXT.format(example=framework.example))
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
    sys.exit(main(sys.argv[1:]))
