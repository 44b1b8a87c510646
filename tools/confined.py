"""Run a command as a default container would let it: no new namespaces, no mounts, Docker's capabilities.

    python -m tools.confined [--user NAME] COMMAND…

Many users have no other machine: a Docker container without --privileged, a CI runner, a notebook server. With --user
the command runs as that user, in its home; --allow-namespaces changes the user alone. All of it holds for every child.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import os
import platform
import pwd
import struct
import sys
from collections.abc import Sequence

CAPABILITIES = {
    "chown": 0, "dac_override": 1, "fowner": 3, "fsetid": 4, "kill": 5, "setgid": 6, "setuid": 7, "setpcap": 8,
    "net_bind_service": 10, "net_raw": 13, "sys_chroot": 18, "mknod": 27, "audit_write": 29, "setfcap": 31,
}  # fmt: skip
"""What Docker leaves to root in a container, with the kernel's numbers."""

FORBIDDEN = {
    "x86_64": (272, 308, 165, 166, 155, 250, 321, 304, 430, 429, 428),
    "aarch64": (97, 268, 40, 39, 41, 219, 280, 265, 430, 429, 428),
}
"""unshare setns mount umount2 pivot_root keyctl bpf open_by_handle_at fsopen move_mount open_tree, by machine."""

CLONE = {"x86_64": 56, "aarch64": 220}
CLONE3 = 435  # on every machine
NEW_NAMESPACES = 0x7E020000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 38, 22, 24
_SECCOMP_MODE_FILTER = 2
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in the kernel's seccomp_data, little-endian
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000

_libc = ctypes.CDLL(None, use_errno=True)

Instruction = tuple[int, int, int, int]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def filter_of(machine: str) -> list[Instruction]:
    """The seccomp filter of that machine, as instructions of the kernel's packet filter."""
    refused, unknown = (_RETURN, 0, 0, _ERROR | errno.EPERM), (_RETURN, 0, 0, _ERROR | errno.ENOSYS)
    program = [(_LOAD, 0, 0, _ARCHITECTURE), (_JUMP_IF_EQUAL, 1, 0, ARCHITECTURES[machine]), unknown]
    program.append((_LOAD, 0, 0, _NUMBER))
    for number in FORBIDDEN[machine]:
        program += [(_JUMP_IF_EQUAL, 0, 1, number), refused]
    # Without clone3 the C library falls back to clone, whose flags a filter can see.
    program += [(_JUMP_IF_EQUAL, 0, 1, CLONE3), unknown]
    program += [(_JUMP_IF_EQUAL, 0, 3, CLONE[machine]), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
    program += [(_JUMP_IF_ANY_BIT, 0, 1, NEW_NAMESPACES), refused, (_RETURN, 0, 0, _ALLOW)]
    return program


def confine() -> None:
    """No way back for this process and its children. Root stays root, with the rights that a container gives it."""
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        sys.exit(f"tools.confined knows x86_64 and aarch64; this machine is {machine}")
    if os.geteuid() != 0:
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    packed = b"".join(struct.pack("HBBI", *instruction) for instruction in filter_of(machine))
    program = _Program(len(packed) // 8, packed)
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program))
    if os.geteuid() == 0:
        for number in set(range(_last_capability() + 1)) - set(CAPABILITIES.values()):
            _prctl(_PR_CAPBSET_DROP, number)


def become(user: pwd.struct_passwd) -> None:
    """Groups first: who has given the user away may not change them."""
    os.initgroups(user.pw_name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)


def environment_of(user: pwd.struct_passwd) -> dict[str, str]:
    """Of a fresh login, so that nothing of root's home is looked for."""
    told = {name: os.environ[name] for name in ("CI", "LANG", "TERM") if name in os.environ}
    path = "/usr/local/bin:/usr/bin:/bin"
    return {**told, "PATH": path, "HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.confined", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--user", help="Run as this user (root only).")
    parser.add_argument("--allow-namespaces", action="store_true", help="Change the user alone.")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="The command and its arguments.")
    chosen = parser.parse_args(words)
    if not chosen.command:
        parser.error("which command? for example: python -m tools.confined make test")
    if chosen.user and os.geteuid() != 0:
        parser.error(f"--user {chosen.user}: only root may become another user")
    environment = dict(os.environ)
    if chosen.user:
        user = _user(parser, chosen.user)
        os.chdir(user.pw_dir)
        environment = environment_of(user)
        become(user)
    if not chosen.allow_namespaces:
        confine()
    os.execvpe(chosen.command[0], chosen.command, environment)


def _user(parser: argparse.ArgumentParser, name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        parser.error(f"--user {name}: this machine has no such user; make one: useradd --create-home {name}")


def _last_capability() -> int:
    with open("/proc/sys/kernel/cap_last_cap") as file:
        return int(file.read())


def _prctl(option: int, first: object, second: object = 0) -> None:
    arguments = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in (first, second, 0, 0)]
    if _libc.prctl(option, *arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl {option}: {os.strerror(code)}")


if __name__ == "__main__":
    main()
