"""OpenSSH from Debian's packages, arranged as an image has it whose `sshd` serves ranks: host keys, settings and users.

What the packages' scripts would do on a machine is done inside the environment; `files` says what a pod sees of it.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from tools.environments_debian import TREE, libraries
from tools.environments_step import run

USER = 1000
"""The one besides root that images of MPI know, as mpiuser."""

HOME = "/home/mpiuser"
PORT = 2222
"""An ordinary user may listen on it."""

_IMAGE = "image"
_USERS = {
    "passwd": "root:x:0:0::/root:/bin/sh\n"
    "sshd:x:100:65534::/run/sshd:/bin/false\n"
    f"mpiuser:x:{USER}:{USER}::{HOME}:/bin/sh\n",
    "group": f"root:x:0:\nmpiuser:x:{USER}:\nnogroup:x:65534:\n",
    "shadow": "root:*:::::::\n",  # no password, but not locked either: sshd would turn such a user away
}
_SERVER = f"Port {PORT}\nStrictModes no\n"
_CLIENT = f"Host *\n  Port {PORT}\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
_OWN = f"{_SERVER}HostKey {HOME}/.ssh/id_rsa\nPidFile none\n"
_PROGRAMS = {"/usr/sbin/sshd": "sbin/sshd", "/usr/bin/ssh": "bin/ssh"}


def arrange(name: str, directory: Path, wanted: str) -> None:
    """`image/` gets what `files` lists."""
    image = directory / _IMAGE
    for folder in ("etc/ssh", "run/sshd", "usr/sbin", "usr/bin", f"{HOME[1:]}/.ssh"):
        (image / folder).mkdir(parents=True)
    for path, program in _PROGRAMS.items():
        _write(image / path[1:], _script(directory, directory / TREE / "usr" / program), 0o755)
    for file, text in _USERS.items():
        _write(image / "etc" / file, text)
    _write(image / "etc" / "ssh" / "sshd_config", _SERVER)
    _write(image / "etc" / "ssh" / "ssh_config", _CLIENT)
    _write(image / HOME[1:] / ".sshd_config", _OWN)
    keygen = directory / "bin" / "ssh-keygen"
    _write(keygen, _script(directory, directory / TREE / "usr" / "bin" / "ssh-keygen"), 0o755)
    key = image / "etc" / "ssh" / "ssh_host_ed25519_key"
    run(name, [str(keygen), "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)])


def files(directory: Path) -> dict[str, str]:
    """Paths of a pod, and what lies there; the same as in an image's entry of trainmaster.yaml."""
    shown = ("/etc/ssh", "/run/sshd", HOME, *_PROGRAMS, *(f"/etc/{file}" for file in _USERS))
    return {path: f"{directory / _IMAGE}{path}" for path in shown}


def _script(directory: Path, program: Path) -> str:
    """With its own libraries. It goes by its full path, under which sshd starts itself again."""
    found = libraries(directory)
    path = f"{found}:{directory / TREE / 'lib' / found.name}"
    return f'#!/bin/sh\nLD_LIBRARY_PATH={shlex.quote(path)} exec {shlex.quote(str(program))} "$@"\n'


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.write_text(text)
    path.chmod(mode)
