"""The first process of a container: starts its command, keeps its log, reaps, and ends with the command's exit code.

It is forked from the helper of `spawn` and never returns. In a PID namespace it is process 1, so the kernel ends the
whole tree with it; without one it adopts orphans and ends them itself. Unlike a bare command as process 1 it passes
SIGTERM on, so a script without a handler stops at once instead of at the end of its grace period. When the command
exits while it is being terminated, what it left behind gets SIGTERM too and the rest of the grace period.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import resource
import select
import signal
import struct
import termios
import time
from collections.abc import Iterable
from typing import Any, NoReturn

from trainmaster.cluster.kubelet import linux, spawn_mounts
from trainmaster.cluster.kubelet.spawn_log import LogWriter

KILL_ALL = signal.SIGRTMIN + 5
"""Ends the container at once where no PID namespace does it for us."""

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
_PARTIAL_AFTER_MS = 100
_DRAIN_SECONDS = 1.0
_SETUP_FAILED = 128
_NUMBERS = range(300, 30_000)
"""Of processes: above those the kernel passes over when it starts again from below, and within any limit."""

Request = dict[str, Any]


def run(request: Request, stdio: dict[str, int], report: int, cgroups: list[int]) -> NoReturn:
    """`stdio` may hold "stdin", or "tty" with its "master" in place of pipes; `report` gets what goes wrong."""
    try:
        log = LogWriter(request["log"])
        if request["namespaces"]:
            _mount(request)
        else:
            linux.adopt_orphans()
        init = _Init(log)
        init.start(request, stdio, report, cgroups)
        os.close(report)
    except OSError as error:
        tell(report, "setup", error)
        os._exit(_SETUP_FAILED)
    os._exit(init.supervise())


def tell(report: int, stage: str, error: OSError) -> None:
    os.write(report, json.dumps({"stage": stage, "errno": error.errno or 0, "error": _reason(error)}).encode())


def _reason(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def _mount(request: Request) -> None:
    linux.unshare(linux.NEWNS)
    directories = [request["cwd"]] if request["cwd"] else []
    spawn_mounts.mount_volumes(request["mounts"], directories)
    if request["pid_namespace"]:
        linux.mount("proc", "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
        _start_numbers_anywhere()


def _start_numbers_anywhere() -> None:
    """Open MPI names a run, and its files on all workers, after mpirun's host and process number. Were that number the
    same in every attempt, the daemons of a run that was killed would take away the files of the one after it."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/ns_last_pid", "w") as last:
        last.write(str(_NUMBERS.start + int.from_bytes(os.urandom(4)) % len(_NUMBERS)))


class _Init:
    def __init__(self, log: LogWriter) -> None:
        self._log = log
        self._command = 0
        self._code: int | None = None
        self._is_ending = self._is_killed = self._has_told_rest = False
        self._streams: dict[int, bytes] = {}
        self._speaking = -1
        self._poll = select.poll()
        self._wakeup, sender = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(sender, warn_on_full_buffer=False)
        self._poll.register(self._wakeup, select.POLLIN)

    def start(self, request: Request, stdio: dict[str, int], report: int, cgroups: list[int]) -> None:
        """Signals are held back until there is a command to pass them to."""
        signals = {*_FORWARDED, signal.SIGCHLD, KILL_ALL}
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        streams, reads = _open_streams(stdio)
        self._command = os.fork()
        if self._command == 0:
            become(request, streams, report, cgroups)
        _set_streams(streams[1:], first=1)  # on a cluster process 1 is the command, and hooks write to its /proc/1/fd/1
        for fd in {*streams, *cgroups}:
            os.close(fd)
        self._watch(reads)
        for number in _FORWARDED:
            signal.signal(number, self._forward)
        signal.signal(KILL_ALL, self._kill)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)

    def supervise(self) -> int:
        while not self._is_over():
            self._pump(_PARTIAL_AFTER_MS if self._log.has_open_line else None)
            self._reap()
        self._end_all()
        _leave_streams()
        self._drain()
        self._log.close()
        return self._code if self._code is not None else 128 + signal.SIGKILL

    def _watch(self, reads: dict[int, bytes]) -> None:
        self._streams = reads
        for fd in reads:
            os.set_blocking(fd, False)
            self._poll.register(fd, select.POLLIN | select.POLLHUP)

    def _forward(self, number: int, _frame: object) -> None:
        self._is_ending = self._is_ending or number in _ENDING
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._command, number)

    def _kill(self, *_: object) -> None:
        self._is_killed = True

    def _is_over(self) -> bool:
        if self._is_killed:
            return True
        if self._code is None:
            return False
        if not self._is_ending or not _has_children():
            return True
        if not self._has_told_rest:
            self._has_told_rest = True
            _signal_others(signal.SIGTERM)
        return False

    def _pump(self, timeout: int | None) -> None:
        ready = self._poll.poll(timeout)
        if not ready:
            self._log.flush()
        # Which of two streams was written to first cannot be told. That the one just read goes on is likelier, and
        # keeps tracebacks whole.
        for fd in sorted((fd for fd, _ in ready), key=lambda fd: fd != self._speaking):
            data = _read(fd)
            if fd == self._wakeup:
                continue
            if data:
                self._speaking = fd
                self._log.write(self._streams[fd], data)
            elif data is not None:
                self._poll.unregister(fd)
                del self._streams[fd]

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._command:
                    self._code = code_of(status)

    def _end_all(self) -> None:
        while _has_children():
            _signal_others(signal.SIGKILL)
            self._pump(10)
            self._reap()

    def _drain(self) -> None:
        until = time.monotonic() + _DRAIN_SECONDS
        while self._streams and time.monotonic() < until:
            self._pump(50)


def code_of(status: int) -> int:
    """An exit status as Kubernetes shows it: killed by signal n is 128 + n."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _open_streams(stdio: dict[str, int]) -> tuple[tuple[int, int, int], dict[int, bytes]]:
    """What the command gets as descriptors 0, 1 and 2, and what we read, by the name of the stream."""
    if "tty" in stdio:
        return (stdio["tty"],) * 3, {stdio["master"]: b"stdout"}
    stdin = stdio["stdin"] if "stdin" in stdio else os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    (out, out_end), (err, err_end) = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
    return (stdin, out_end, err_end), {out: b"stdout", err: b"stderr"}


def _read(fd: int) -> bytes | None:
    """None when there is nothing to read just now; empty at the end."""
    try:
        return os.read(fd, 1 << 16)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno == errno.EIO:  # a terminal nobody holds open any more
            return b""
        raise


def _has_children() -> bool:
    """Orphans are adopted by us, so no child means that the whole tree is gone."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _signal_others(number: int) -> None:
    everyone = [-1] if os.getpid() == 1 else descendants(os.getpid())
    for pid in everyone:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def descendants(root: int) -> list[int]:
    """Every process below one, parents before children."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found = list(children.get(root, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def kill_tree(root: int) -> None:
    """Also what has left its group: mpirun's daemons put every rank into one of its own."""
    for pid in (*descendants(root), root):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def become(request: Request, streams: Iterable[int], report: int, cgroups: list[int]) -> NoReturn:
    """Turns this process into the command; what prevents it goes to `report`, which a successful exec closes."""
    try:
        linux.die_with_parent(signal.SIGKILL)
        os.setsid()
        for group in cgroups:
            os.write(group, b"0")
        _set_streams(streams)
        if request["tty"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        _set_identity(request)
        _reset_signals()
        os.chdir(request["cwd"] or "/")
        _execute(request, report)
    except OSError as error:
        tell(report, "setup", error)
    except BaseException as error:  # a forked process must not run on into its parent's code
        tell(report, "setup", OSError(0, f"{type(error).__name__}: {error}"))
    os._exit(_SETUP_FAILED)


def _execute(request: Request, report: int) -> None:
    argv = request["argv"]
    try:
        os.execvpe(argv[0], argv, request["env"])
    except OSError as error:
        tell(report, "exec", _not_executed(argv[0], error))


def _not_executed(program: str, error: OSError) -> OSError:
    """As a kubelet says it, to which a directory of PATH that may not be entered is one without the program."""
    if "/" not in program and error.errno in (errno.ENOENT, errno.EACCES):
        return OSError(errno.ENOENT, f'exec: "{program}": executable file not found in $PATH')
    return OSError(error.errno, f'exec: "{program}": {error.strerror}')


def _set_streams(streams: Iterable[int], first: int = 0) -> None:
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in streams]
    for number, fd in enumerate(copies, first):
        os.dup2(fd, number)
        os.close(fd)


def _leave_streams() -> None:
    """Whoever reads them sees their end."""
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    _set_streams((nowhere, nowhere), first=1)
    os.close(nowhere)


def _set_identity(request: Request) -> None:
    os.umask(0o022)
    limit = request["open_files"]
    if limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, tuple(limit))
    if request["groups"]:
        os.setgroups(request["groups"])
    if request["group"] is not None:
        os.setresgid(*(request["group"],) * 3)
    if request["user"] is not None:
        os.setresuid(*(request["user"],) * 3)
        linux.die_with_parent(signal.SIGKILL)  # a change of user clears it
    if request["no_new_privileges"]:
        linux.no_new_privileges()


def _reset_signals() -> None:
    """Python ignores SIGPIPE, and our parent blocked some; a command expects neither."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def resize(terminal: int, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
