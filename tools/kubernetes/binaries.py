"""Where Kubernetes' binaries are: named by KUBEBUILDER_ASSETS, else built once and kept in the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

NAMES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
NODE_NAMES = ("kubelet", "kube-proxy", "kubectl")
"""What a real node needs beside them, and is built only where there is to be one."""

BUILD = Path(__file__).parent / "build.sh"


class Unavailable(Exception):
    """There is no control plane to be had here; says why, and what would help."""


def binaries() -> dict[str, Path]:
    """etcd and the three, by name."""
    given = os.environ.get("KUBEBUILDER_ASSETS")
    directory = Path(given) if given else _built()
    found = {name: directory / name for name in NAMES}
    missing = [name for name, path in found.items() if not path.exists()]
    etcd = directory / "etcd" if (directory / "etcd").exists() else shutil.which("etcd")
    if missing or etcd is None:
        absent = ", ".join([*missing, *(["etcd"] if etcd is None else [])])
        raise Unavailable(f"{directory} holds no {absent}; unset KUBEBUILDER_ASSETS to have them built")
    return {**found, "etcd": Path(etcd)}


def node_binaries() -> dict[str, Path]:
    """kubelet, kube-proxy and kubectl, by name: of the version that we build, whatever the control plane is."""
    directory = cache()
    if not _holds(directory, NODE_NAMES):
        _build(directory, NODE_NAMES)
    return {name: directory / name for name in NODE_NAMES}


def cache_root() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainmaster"


def cache() -> Path:
    """A directory per version of the build script: a changed script builds anew."""
    digest = hashlib.sha256(BUILD.read_bytes()).hexdigest()[:12]
    return cache_root() / f"kubernetes-1.20.2-{digest}"


def _built() -> Path:
    directory = cache()
    if not _holds(directory, NAMES) or not shutil.which("etcd"):
        _build(directory, NAMES)
    return directory


def _holds(directory: Path, names: Sequence[str]) -> bool:
    return all((directory / name).exists() for name in names)


def _build(directory: Path, names: Sequence[str]) -> None:
    try:
        subprocess.run(["bash", str(BUILD), str(directory), *names], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"building Kubernetes from Debian's source package failed: {error}") from error


if __name__ == "__main__":
    # Before the tests: a build takes longer than any test may.
    try:
        binaries()
    except Unavailable as error:
        sys.exit(str(error))
