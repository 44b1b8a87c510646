"""The helper that starts every container: a small process inside the cluster's namespaces that forks on request.

Starting Python anew, or `unshare` and `nsenter`, would cost tens of milliseconds a container; a fork of this costs one.
Namespaces of pods are held open by descriptors of this process alone, containers are told by the kernel to die with it,
and it ends when its socket does: nothing can outlive the process that holds the other end (`zygote`).

Each message is one packet. Requests are `{"id", "op", ...}` in a memory file passed along, answers `{"id", "ok"}` or
`{"id", "error", "errno", "stage"}`, and `{"exit": container, "code": n}` comes when something ended. Only the standard
library is imported here.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from trainmaster.cluster.kubelet import linux, spawn_init, spawn_lan, spawn_mounts, spawn_namespaces, spawn_relay
from trainmaster.cluster.kubelet.spawn_namespaces import Namespaces
from trainmaster.cluster.kubelet.spawn_net import Netlink

Request = dict[str, Any]

_MAX_FDS = 16
_END_SECONDS = 5.0


class Helper:
    def __init__(self, channel: socket.socket, settings: Request) -> None:
        self._channel = channel
        self._settings = settings
        self._has_namespaces = bool(settings["namespaces"])
        self._pods: dict[str, Namespaces] = {}
        self._processes: dict[int, str] = {}
        self._pids: dict[str, int] = {}
        self._commands: dict[str, str] = {}  # what runs in which container beside its own
        self._starting: dict[int, tuple[int, str]] = {}
        self._poll = select.poll()
        self._operations: dict[str, Callable[[Request, list[int]], object]] = {
            "create_pod": self._create_pod,
            "remove_pod": self._remove_pod,
            "start": self._start,
            "exec": self._exec,
            "signal": self._signal,
            "socket": self._socket,
            "address": self._address,
            "relay": self._relay,
        }

    def set_up(self) -> Request:
        """Enters the cluster's namespaces and says what works here."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._open_files = self._settings["open_files"]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # four descriptors hold a pod's namespaces
        self._has_pids = False
        self._host_net = -1
        if self._has_namespaces:
            self._enter_cluster()
        else:
            linux.adopt_orphans()
        return {"pid_namespaces": self._has_pids}

    def _enter_cluster(self) -> None:
        if self._settings["user_namespace"]:
            spawn_namespaces.enter_user_namespace()
        else:
            self._host_net = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        linux.unshare(linux.NEWNET | linux.NEWNS | linux.NEWUTS | linux.NEWIPC)
        linux.mount("", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
        self._link = Netlink()
        own = self._settings
        self._lan = spawn_lan.set_up_cluster(self._link, own["address"], own["prefix"], own["services"], own["door"])
        linux.die_with_parent(signal.SIGKILL)
        if os.getppid() != self._settings["parent"]:
            raise OSError(0, "the process that started this one is gone")
        if spawn_namespaces.can_have_pids():
            spawn_namespaces.enter_pid_namespace()
            self._home_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
            self._has_pids = True
        self._home = Namespaces.of("self")

    def _fork_into_pids(self, namespace: int | None = None) -> int:
        """A fork whose child is process 1 of a new PID namespace, or a member of the given one."""
        if namespace is None:
            linux.unshare(linux.NEWPID)
        else:
            linux.setns(namespace, linux.NEWPID)
        pid = os.fork()
        if pid:
            linux.setns(self._home_pids, linux.NEWPID)
        return pid

    def serve(self) -> None:
        wakeup, sender = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(sender, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for fd in (self._channel.fileno(), wakeup):
            self._poll.register(fd, select.POLLIN)
        while True:
            ready = [fd for fd, _ in self._poll.poll()]
            for fd in [fd for fd in ready if fd in self._starting]:
                self._started(fd)
            if wakeup in ready:
                os.read(wakeup, 4096)
                self._reap()
            if self._channel.fileno() in ready and not self._answer():
                return

    def _answer(self) -> bool:
        data, fds = _receive(self._channel)
        if not data:
            return False
        request: Request = {}
        try:
            request = _read_request(fds.pop(0))
            result = self._operations[request["op"]](request, fds)
            if result is not None:
                self._send({"id": request["id"], "ok": result})
        except OSError as error:
            self._fail(request["id"], error)
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _fail(self, number: int, error: OSError) -> None:
        text = error.strerror or str(error)
        self._send({"id": number, "error": text, "errno": error.errno or 0, "stage": "setup"})

    def _send(self, message: Request, fds: tuple[int, ...] = ()) -> None:
        socket.send_fds(self._channel, [json.dumps(message).encode()], list(fds))

    def _create_pod(self, request: Request, _fds: list[int]) -> object:
        flags = linux.NEWUTS | linux.NEWIPC | linux.NEWNS | (0 if request["host_network"] else linux.NEWNET)
        created: Namespaces | None = None
        try:
            linux.unshare(flags)
            if request["host_network"]:
                linux.setns(self._host_net, linux.NEWNET)
            created = Namespaces.of("self")
            if not request["host_network"]:
                self._connect_pod(created.fds["net"], request["address"])
            linux.set_hostname(request["hostname"])
            spawn_mounts.build_pod_root(self._settings["scratch"], request["mounts"], request["memory"])
            self._pods[request["pod"]] = created
        except OSError:
            if created is not None:
                self._home.enter()  # a namespace that is still entered would not be freed
                created.close()
            raise
        finally:
            self._home.enter()
        return {}

    def _connect_pod(self, namespace: int, address: str) -> None:
        spawn_lan.prepare()
        self._lan.plug(namespace)
        spawn_lan.set_up_pod(address, self._settings["prefix"], self._settings["services"])

    def _remove_pod(self, request: Request, _fds: list[int]) -> object:
        """The last descriptor closed, the kernel takes the interfaces and mounts down."""
        created = self._pods.pop(request["pod"], None)
        if created is not None:
            created.close()
        return {}

    def _start(self, request: Request, fds: list[int]) -> None:
        request = self._completed(request)
        if self._has_namespaces and request["pod"] not in self._pods:
            raise ProcessLookupError(0, f"pod {request['pod']} has no sandbox")
        cgroups = _open_cgroups(request["cgroups"])
        reader, report = os.pipe2(os.O_CLOEXEC)
        pid = self._fork_into_pids() if self._has_pids else os.fork()
        if pid == 0:
            with _never_returning(report):
                stdio = dict(zip(request["stdio"], fds, strict=True))
                self._in_child({report, *fds, *cgroups}, self._pods.get(request["pod"]))
                _leave_if_abandoned(report)
                spawn_init.run(request, stdio, report, cgroups)
        self._note_start(request, pid, reader, [report, *cgroups])

    def _exec(self, request: Request, fds: list[int]) -> None:
        """Another command in a running container: in its namespaces, its tree and its limits."""
        request = self._completed(request)
        container = self._pids.get(request["container"])
        if container is None:
            raise ProcessLookupError(0, f"container {request['container']} is not running")
        cgroups = _open_cgroups(request["cgroups"])
        reader, report = os.pipe2(os.O_CLOEXEC)
        inside = Namespaces.of(str(container)) if self._has_namespaces else None
        pids = os.open(f"/proc/{container}/ns/pid", os.O_RDONLY | os.O_CLOEXEC) if self._has_pids else None
        pid = self._fork_into_pids(pids) if pids is not None else os.fork()
        if pid == 0:
            with _never_returning(report):
                self._in_child({report, *fds, *cgroups}, inside)
                _leave_if_abandoned(report)
                spawn_init.become(request, fds, report, cgroups)
        if inside is not None:
            inside.close()
        self._commands[request["name"]] = request["container"]
        self._note_start(request, pid, reader, [report, *cgroups, *([] if pids is None else [pids])])

    def _completed(self, request: Request) -> Request:
        """With what every forked process needs to know of this one."""
        own = {"namespaces": self._has_namespaces, "pid_namespace": self._has_pids, "open_files": self._open_files}
        return {**request, **own}

    def _in_child(self, keep: set[int], inside: Namespaces | None) -> None:
        """A forked child must not hold other pods' namespaces, nor our socket, open."""
        linux.die_with_parent(signal.SIGKILL if self._has_namespaces else spawn_init.KILL_ALL)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if inside is not None:
            inside.enter()
        spawn_namespaces.close_all_but({0, 1, 2, *keep})

    def _note_start(self, request: Request, pid: int, reader: int, close: list[int]) -> None:
        for fd in close:
            os.close(fd)
        self._processes[pid] = request["name"]
        self._pids[request["name"]] = pid
        self._starting[reader] = (request["id"], request["name"])
        self._poll.register(reader, select.POLLIN)

    def _started(self, reader: int) -> None:
        number, name = self._starting.pop(reader)
        told = os.read(reader, 65536)
        self._poll.unregister(reader)
        os.close(reader)
        answer = json.loads(told) if told else {"ok": {"pid": self._pids.get(name, 0)}}
        self._send({"id": number, **answer})

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                name = self._processes.pop(pid, None)
                if name is not None:
                    self._pids.pop(name, None)
                    self._end_commands(name)
                    self._send({"exit": name, "code": spawn_init.code_of(status)})

    def _end_commands(self, container: str) -> None:
        """A PID namespace takes them with its container; elsewhere they are children of ours."""
        for command in [one for one, host in self._commands.items() if host == container]:
            if (pid := self._pids.get(command)) is not None and not self._has_pids:
                spawn_init.kill_tree(pid)
        self._commands.pop(container, None)

    def _signal(self, request: Request, _fds: list[int]) -> object:
        """SIGKILL ends the tree: by the kernel in a PID namespace, by the container's init elsewhere."""
        pid, number = self._pids.get(request["name"]), request["signal"]
        if pid is None:
            return {}
        if number == signal.SIGKILL and not self._has_pids and not request["is_exec"]:
            number = spawn_init.KILL_ALL
        with contextlib.suppress(ProcessLookupError):
            if request["is_exec"] and number == signal.SIGKILL:
                spawn_init.kill_tree(pid)
            elif request["is_exec"]:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)
        return {}

    def _socket(self, request: Request, _fds: list[int]) -> None:
        """A TCP socket in a pod's network, or in the cluster's: whoever holds it connects or listens there.

        One that is to be bound is bound here: a low port may be closed to the user that we are outside.
        """
        with self._in_network(request["pod"]):
            made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        with made:
            if request["bind"]:
                made.bind(tuple(request["bind"]))
            self._send({"id": request["id"], "ok": {}}, (made.fileno(),))

    def _address(self, request: Request, _fds: list[int]) -> object:
        """The address of a service comes to us, or goes: without a relay, connections to it are refused."""
        change = self._link.add_address if request["give"] else self._link.remove_address
        change(spawn_lan.OURS, request["address"], 32)
        return {}

    def _relay(self, request: Request, _fds: list[int]) -> object:
        """Starts to carry connections for a service to one of its pods; ended as a container is."""
        with self._in_network(request["pod"]):
            tables = spawn_relay.open_tables()
        own = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._in_child(set(tables), None)
            if os.getppid() == own:
                spawn_relay.run(request["address"], request["target"], request["ports"], tables)
            os._exit(1)
        for table in tables:
            os.close(table)
        self._processes[pid] = request["name"]
        self._pids[request["name"]] = pid
        return {}

    @contextlib.contextmanager
    def _in_network(self, pod: str) -> Iterator[None]:
        inside = self._pods.get(pod)
        try:
            if inside is not None:
                linux.setns(inside.fds["net"], linux.NEWNET)
            yield
        finally:
            if inside is not None:
                linux.setns(self._home.fds["net"], linux.NEWNET)

    def end(self) -> None:
        """Kills every container and waits for it, though not for ever."""
        for pid in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if self._has_pids else spawn_init.KILL_ALL)
        until = time.monotonic() + _END_SECONDS
        with contextlib.suppress(ChildProcessError):
            while time.monotonic() < until:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    select.poll().poll(5)
        for pid in spawn_init.descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    data, fds, _, _ = socket.recv_fds(channel, 4096, _MAX_FDS)
    return data, fds


def _read_request(fd: int) -> Request:
    with os.fdopen(fd, "rb") as file:
        file.seek(0)
        request: Request = json.load(file)
    return request


def _open_cgroups(paths: list[str]) -> list[int]:
    return [os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path in paths]


@contextlib.contextmanager
def _never_returning(report: int) -> Iterator[None]:
    """A forked child must not run on into its parent's code, whatever goes wrong in it."""
    try:
        yield
    except BaseException as error:
        known = error if isinstance(error, OSError) else OSError(0, f"{type(error).__name__}: {error}")
        with contextlib.suppress(OSError):
            spawn_init.tell(report, "setup", known)
    os._exit(1)


def _leave_if_abandoned(report: int) -> None:
    """The reader of the pipe, our parent, may have died before it could take us with it."""
    poll = select.poll()
    poll.register(report, 0)
    if poll.poll(0):
        os._exit(1)


def main() -> NoReturn:
    """`main` of the helper's own interpreter: the socket's number and the settings are its arguments."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    settings = json.loads(sys.argv[2])
    helper = Helper(channel, settings)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the cluster ends its pods in order
    try:
        able = helper.set_up()
    except OSError as error:
        channel.send(json.dumps({"error": error.strerror or str(error)}).encode())
        sys.exit(1)
    channel.send(json.dumps({"ok": able}).encode())
    gc.collect()
    gc.disable()
    gc.freeze()  # forked children share these pages as long as nobody writes to them
    try:
        helper.serve()
    except OSError as error:
        sys.stderr.write(f"the cluster is gone: {error}\n")
    finally:
        helper.end()
    sys.exit(0)
