"""What an image has that runs sshd, made without installing anything."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from tools import environments_openssh

PROGRAM = '#!/bin/sh\necho "$0" "$@"; echo "$LD_LIBRARY_PATH"\n'


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Those that would have been run."""
    found: list[Sequence[str]] = []
    monkeypatch.setattr(environments_openssh, "run", lambda name, command: found.append(command))
    return found


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """An environment with a space in its name, in which programs that tell what they see were unpacked."""
    directory = tmp_path / "an environment"
    for place in ("bin", "debian/usr/sbin", "debian/usr/bin", "debian/usr/lib/x86_64-linux-gnu"):
        (directory / place).mkdir(parents=True)
    for program in ("sbin/sshd", "bin/ssh", "bin/ssh-keygen"):
        path = directory / "debian" / "usr" / program
        path.write_text(PROGRAM)
        path.chmod(0o755)
    return directory


def test_everything_that_a_pod_is_to_see_is_there(directory, commands):
    environments_openssh.arrange("openssh", directory, "openssh")

    files = {path: Path(place) for path, place in environments_openssh.files(directory).items()}

    assert {"/usr/sbin/sshd", "/usr/bin/ssh", "/etc/ssh", "/run/sshd", "/etc/passwd"} <= files.keys()
    assert [path for path, place in files.items() if not place.exists()] == []


def test_sshd_goes_by_its_full_path_and_with_its_own_libraries(directory, commands):
    environments_openssh.arrange("openssh", directory, "openssh")
    script = environments_openssh.files(directory)["/usr/sbin/sshd"]

    done = subprocess.run([script, "-De"], env={"PATH": "/usr/bin:/bin"}, check=True, capture_output=True, text=True)

    started, libraries = done.stdout.splitlines()
    assert started == f"{directory}/debian/usr/sbin/sshd -De"
    assert libraries == f"{directory}/debian/usr/lib/x86_64-linux-gnu:{directory}/debian/lib/x86_64-linux-gnu"


def test_the_host_has_a_key_of_its_own(directory, commands):
    environments_openssh.arrange("openssh", directory, "openssh")

    [keygen] = commands
    assert keygen[0] == f"{directory}/bin/ssh-keygen"
    assert keygen[-1] == f"{environments_openssh.files(directory)['/etc/ssh']}/ssh_host_ed25519_key"


def test_both_ends_agree_on_a_port_that_anybody_may_use(directory, commands):
    environments_openssh.arrange("openssh", directory, "openssh")
    files = environments_openssh.files(directory)
    settings = [
        Path(files["/etc/ssh"]) / "sshd_config",
        Path(files["/etc/ssh"]) / "ssh_config",
        Path(files[environments_openssh.HOME]) / ".sshd_config",
    ]

    ports = [
        line.split()[1] for path in settings for line in path.read_text().splitlines() if line.split()[0] == "Port"
    ]

    assert ports == [str(environments_openssh.PORT)] * 3
    assert environments_openssh.PORT > 1024
