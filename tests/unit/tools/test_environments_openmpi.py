"""Programs of Open MPI find themselves in the environment, whoever starts them and with whatever variables."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tools import environments_openmpi

PROGRAM = '#!/bin/sh\necho "$0" "$@"; echo "$OPAL_PREFIX"; echo "$PATH"; echo "$LD_LIBRARY_PATH"\n'


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """An environment with a space in its name, in which a program that tells what it sees was unpacked."""
    directory = tmp_path / "an environment"
    for place in ("bin", "debian/etc/openmpi", "debian/usr/bin", "debian/usr/lib/x86_64-linux-gnu"):
        (directory / place).mkdir(parents=True)
    program = directory / "debian" / "usr" / "bin" / "orterun"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    program.with_name("mpirun.openmpi").symlink_to("orterun")
    return directory


def told(program: Path, variables: dict[str, str]) -> list[str]:
    done = subprocess.run([program, "-n", "2 ranks"], env=variables, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def test_a_program_started_with_nothing_but_a_path_finds_itself(directory):
    environments_openmpi.arrange("openmpi", directory, "openmpi")

    started, prefix, path, libraries = told(directory / "bin" / "mpirun", {"PATH": "/usr/bin:/bin"})

    assert started == f"{directory}/debian/usr/programs/mpirun.openmpi -n 2 ranks"
    assert prefix == f"{directory}/debian/usr"
    assert path == f"{directory}/bin:/usr/bin:/bin"
    assert libraries == f"{directory}/debian/usr/lib/x86_64-linux-gnu"


def test_what_the_caller_had_on_its_library_path_stays_there(directory):
    environments_openmpi.arrange("openmpi", directory, "openmpi")

    *_, libraries = told(directory / "bin" / "mpirun", {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": "/opt/lib"})

    assert libraries == f"{directory}/debian/usr/lib/x86_64-linux-gnu:/opt/lib"


def test_the_program_that_mpirun_starts_elsewhere_is_a_script_too(directory):
    environments_openmpi.arrange("openmpi", directory, "openmpi")

    elsewhere = directory / "debian" / "usr" / "bin" / "orterun"

    assert told(elsewhere, {"PATH": "/usr/bin:/bin"})[1] == f"{directory}/debian/usr"
