"""The Linux calls that Python 3.11's os module lacks: namespaces, mounts, prctl. Failures are OSError.

Used inside the helper process of `spawn`, which must start in milliseconds: nothing but the standard library here.
"""

from __future__ import annotations

import ctypes
import os
import struct

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 0x1, 0x2, 0x4, 0x8, 0x20
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MNT_DETACH = 2

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_SYS_MOUNT_SETATTR = 442  # the same on every architecture
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_ATTR_RDONLY = 0x1

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), f"unshare {flags:#x}")


def setns(fd: int, flags: int) -> None:
    _checked(_libc.setns(fd, flags), f"setns {flags:#x}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    result = _libc.mount(
        source.encode() if source else None,
        os.fsencode(target),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        data.encode() if data else None,
    )
    _checked(result, f"mount {kind or source or 'flags'} on {target}")


def bind(source: str, target: str) -> None:
    """With everything mounted below the source: without it, an unprivileged bind of a tree is refused."""
    mount(source, target, flags=MS_BIND | MS_REC)


def make_read_only(target: str) -> None:
    """One mount and all below it; flags a user namespace has locked stay as they are."""
    attributes = struct.pack("QQQQ", _MOUNT_ATTR_RDONLY, 0, 0, 0)
    arguments = (_AT_FDCWD, os.fsencode(target), _AT_RECURSIVE, attributes, ctypes.c_size_t(len(attributes)))
    if _libc.syscall(ctypes.c_long(_SYS_MOUNT_SETATTR), *arguments) == 0:
        return
    locked = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)  # kernels before 5.12
    mount("", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | locked)


def detach(target: str) -> None:
    _checked(_libc.umount2(os.fsencode(target), MNT_DETACH), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    _checked(_libc.pivot_root(os.fsencode(new), os.fsencode(old)), f"pivot_root {new}")


def set_hostname(name: str) -> None:
    encoded = name.encode()
    _checked(_libc.sethostname(encoded, ctypes.c_size_t(len(encoded))), f"sethostname {name}")


def die_with_parent(signal: int) -> None:
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, signal, 0, 0, 0), "prctl PDEATHSIG")


def adopt_orphans() -> None:
    """Descendants whose parent dies become children of this process, not of init."""
    _checked(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl CHILD_SUBREAPER")


def no_new_privileges() -> None:
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl NO_NEW_PRIVS")
