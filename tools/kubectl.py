"""The kubectl that tests use: named by KUBECTL, else that of the PATH, else Debian's, fetched once and kept.

python -m tools.kubectl kubectl-1_20       # fetches that one of environments.toml, and prints where it is
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache

from tools.environments import environment
from tools.environments_debian import TREE
from tools.environments_step import Unavailable

FETCHED = "kubectl-1_32"


@cache
def kubectl() -> str:
    named = os.environ.get("KUBECTL")
    return named or shutil.which("kubectl") or fetched(FETCHED)


@cache
def missing() -> str:
    """Why there is no kubectl, and what to do; empty if there is one."""
    try:
        kubectl()
    except Unavailable as error:
        return f"there is no kubectl on PATH ({error}); install kubectl 1.20 or later, or name one in KUBECTL"
    return ""


def fetched(name: str) -> str:
    return str(environment(name) / TREE / "usr" / "bin" / "kubectl")


@cache
def minor_version() -> int:
    """Of Kubernetes 1."""
    told = subprocess.check_output([kubectl(), "version", "--client", "--output=json"], text=True)
    found = re.search(r'"minor": *"(\d+)', told)
    assert found is not None, told
    return int(found[1])


if __name__ == "__main__":
    sys.stdout.write(f"{fetched(sys.argv[1])}\n")
