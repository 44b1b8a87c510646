"""Horovod, built from source: its wheels do not exist, and its source asks for an older C++ than today's torch.

It is built against the torch and the Open MPI of the same environment, with MPI and with gloo.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tools.environments_debian import libraries
from tools.environments_step import Unavailable, pip, run, tell

NEEDS = ("g++", "make", "tar")
LISTS = ("CMakeLists.txt", "horovod/torch/CMakeLists.txt")
OLD, NEW = "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 17)"
FEATURES = ("WITH_MPI", "WITH_GLOO", "WITH_PYTORCH", "WITHOUT_TENSORFLOW", "WITHOUT_MXNET")
RUNTIME = (
    "libopen-rte.so.40",
    "libopen-pal.so.40",
    "libhwloc.so.15",
    "libevent_core-2.1.so.7",
    "libevent_pthreads-2.1.so.7",
)


def build(name: str, directory: Path, wanted: str) -> None:
    """Installs `wanted`, such as `horovod==0.28.1`, in the environment."""
    work = directory / "build"
    source = _source(name, directory, wanted, work)
    for place in LISTS:
        _renew(name, source / place)
    tell(f"{name}: compiling {wanted}, which takes some minutes …")
    command = pip(directory, "install", "--quiet", "--no-build-isolation", "--no-deps", str(source))
    run(name, command, variables=_variables(directory))
    shutil.rmtree(work)


def _source(name: str, directory: Path, wanted: str, work: Path) -> Path:
    download = ("download", "--quiet", "--no-deps", "--no-build-isolation", "--no-binary", ":all:")
    run(name, pip(directory, *download, "--dest", str(work), wanted))
    [archive] = work.glob("*.tar.gz")
    run(name, ["tar", "--extract", "--file", str(archive), "--directory", str(work)])
    return work / archive.name.removesuffix(".tar.gz")


def _renew(name: str, path: Path) -> None:
    text = path.read_text()
    if OLD not in text:
        raise Unavailable(f"the environment {name} could not be made: {path} lacks {OLD}; is it another version?")
    path.write_text(text.replace(OLD, NEW))


def _variables(directory: Path) -> dict[str, str]:
    found = libraries(directory)
    # A process that no mpirun has started, as under gloo, loads libmpi too. Debian's libmpi looks for its own libraries
    # in /usr only; named here, they are loaded from the environment before it asks for them.
    named = [f"-l:{library}" for library in RUNTIME]
    flags = [f"-L{found}", "-Wl,--disable-new-dtags", f"-Wl,-rpath,{found}", "-Wl,--no-as-needed", *named]
    return {
        "PATH": f"{directory / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "LDFLAGS": " ".join(flags),
        "MAKEFLAGS": f"-j{len(os.sched_getaffinity(0))}",
        **{f"HOROVOD_{feature}": "1" for feature in FEATURES},
    }
