"""Where a pod's containers run: what the kubelet asks for, and the sandbox of namespaces that gives it.

Every pod has its own network (an address in a world of its own), host name and file system view; all of it lives
in one helper process (`spawn`), needs no root, and is gone when that process is. `sandbox_ports` is the substitute for
machines that forbid namespaces, `launcher` what both share.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from trainmaster.cluster.kubelet.launcher import ContainerConfig, ExecConfig, Launcher, Process
from trainmaster.cluster.kubelet.zygote import HelperError
from trainmaster.cluster.registry import addresses
from trainmaster.objects.meta import Json

log = logging.getLogger(__name__)

Kind = Literal["auto", "namespaces", "ports"]

DEFAULT_NETWORK = "10.244.0.0/16"
DOOR = (str(addresses.NETWORK[1]), 443)
"""Where pods reach the API server: the address of the Service `kubernetes`."""

INSIDE = "/.trainmaster"
"""Where pods see the cluster's own tools (`toolbox`)."""

LOOPBACK = "127.0.0.1"
SCRATCH = "/.scratch"
"""TMPDIR of pods. They share /tmp, but not their process ids, after which many programs name what they put there."""


class SandboxError(Exception):
    """A pod's sandbox cannot be made; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Who else is in a pod's namespace, by name: the labels of pods, and services."""

    pods: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    services: Mapping[str, Json] = field(default_factory=dict)
    addresses: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Cluster addresses, of services in all namespaces: whose they are, as namespace and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodConfig:
    uid: str
    namespace: str
    name: str
    hostname: str
    hosts: Path  # its /etc/hosts, rewritten in place while the pod lives
    host_network: bool = False
    ports: tuple[int, ...] = ()  # declared by its containers
    neighbours: Callable[[], Neighbours] = Neighbours
    memory_volumes: Mapping[str, int] = field(default_factory=dict)  # directory -> bytes, 0 for no limit
    tools: Path | None = None  # shown to it at INSIDE
    scratch: Path | None = None  # its own directory for temporary files, shown at SCRATCH


@dataclass(frozen=True, slots=True)
class PodSandbox:
    uid: str
    ip: str
    config: PodConfig
    helper: int = 0
    """Generation of the helper that holds it."""


class Sandbox(Protocol):
    """What the kubelet needs of a sandbox. Methods raise SandboxError, `start` and `exec` also HelperError."""

    @property
    def kind(self) -> Literal["namespaces", "ports"]: ...

    @property
    def host_ip(self) -> str: ...

    @property
    def can_limit(self) -> bool: ...

    async def create(self, config: PodConfig) -> PodSandbox: ...

    async def start(self, pod: PodSandbox, config: ContainerConfig) -> Process: ...

    async def exec(self, process: Process, config: ExecConfig) -> Process: ...

    async def connect(self, pod: PodSandbox, port: int, *, local: bool = False) -> socket.socket:
        """A connected, non-blocking socket to the pod's address, or to the pod's own 127.0.0.1."""

    async def open_door(self, port: int) -> socket.socket | None:
        """Lets pods reach the API server, which listens on that port of this machine.

        A listening socket in their network, where they have one of their own, for the API server to serve as well.
        """

    def name_address(self, pod: PodSandbox) -> str:
        """What the pod's names resolve to."""

    async def set_address(self, address: str, is_there: bool) -> None:
        """The address of a service exists for pods; without a relay, connections to it are refused."""

    async def relay(self, name: str, address: str, pod: PodSandbox, ports: Sequence[tuple[int, int]]) -> None:
        """Carries connections to the address to a pod; `ports` are pairs of the service's and the pod's."""

    async def end_relay(self, name: str) -> None: ...

    async def remove(self, pod: PodSandbox) -> None: ...

    async def lost(self) -> None:
        """Returns when the helper process has died. All pods and what was set up for services are gone with it."""

    def has_lost(self, pod: PodSandbox) -> bool:
        """Whether the pod has gone with its helper: it can only be removed, and created again."""

    async def restart(self) -> None:
        """Starts another helper in place of the one that died. HelperError or OSError if that fails."""

    async def close(self) -> None: ...


class NamespaceSandbox:
    """Pods in namespaces. Make it with `open`."""

    kind: Literal["namespaces"] = "namespaces"

    def __init__(self, launcher: Launcher, root: Path, network: ipaddress.IPv4Network) -> None:
        self._launcher = launcher
        self._root = root
        self._network = network
        self._used: set[str] = set()
        self._addresses = _cycle(network)
        self.host_ip = str(network[1])

    @classmethod
    async def open(
        cls, root: Path, *, network: str = DEFAULT_NETWORK, user_namespace: bool | None = None
    ) -> NamespaceSandbox:
        """SandboxError where this machine forbids namespaces. Root needs no user namespace, but may ask for one."""
        parsed = ipaddress.IPv4Network(network)
        scratch = root / "newroot"
        scratch.mkdir(parents=True, exist_ok=True)
        _write_system_files(root / "etc")
        settings = {
            "namespaces": True,
            "address": str(parsed[1]),
            "prefix": parsed.prefixlen,
            "services": str(addresses.NETWORK),
            "door": DOOR[0],
            "scratch": str(scratch.resolve()),
        }
        refused: list[str] = []
        choices = (False, True) if os.geteuid() == 0 else (True,)
        for choice in choices if user_namespace is None else (user_namespace,):
            try:
                launcher = await Launcher.open(root, {**settings, "user_namespace": choice})
            except HelperError as error:
                refused.append(str(error))
            else:
                return cls(launcher, root, parsed)
        log.debug("namespaces refused: %s", "; ".join(refused))
        raise SandboxError(_no_namespaces("; ".join(refused)))

    @property
    def can_limit(self) -> bool:
        return self._launcher.can_limit

    @property
    def helper_pid(self) -> int:
        return self._launcher.helper_pid

    @property
    def is_rootless(self) -> bool:
        return bool(self._launcher.settings["user_namespace"])

    async def create(self, config: PodConfig) -> PodSandbox:
        on_host = config.host_network and not self.is_rootless
        # The network of pods is a world of its own: on this machine's network pods meet at its loopback alone.
        address = LOOPBACK if on_host else self._allocate()
        generation = self._launcher.generation
        body = {
            "pod": config.uid,
            "address": address,
            "hostname": os.uname().nodename if on_host else config.hostname,
            "host_network": on_host,
            "mounts": [*(_names(config) if on_host else self._system_files(config)), *_own_directories(config)],
            "memory": [{"path": path, "size": size} for path, size in config.memory_volumes.items()],
        }
        try:
            await self._launcher.ask("create_pod", body)
        except HelperError as error:
            self._used.discard(address)
            raise SandboxError(f"cannot create the pod's namespaces: {error}") from error
        return PodSandbox(config.uid, address, config, generation)

    async def start(self, pod: PodSandbox, config: ContainerConfig) -> Process:
        self._launcher.check(pod.helper)
        return await self._launcher.start(pod.uid, config)

    async def exec(self, process: Process, config: ExecConfig) -> Process:
        return await self._launcher.exec(process, config)

    async def connect(self, pod: PodSandbox, port: int, *, local: bool = False) -> socket.socket:
        made = await self._socket(pod.uid if local or pod.ip == LOOPBACK else "")
        try:
            await asyncio.get_running_loop().sock_connect(made, (LOOPBACK if local else pod.ip, port))
        except BaseException:
            made.close()
            raise
        return made

    async def open_door(self, port: int) -> socket.socket | None:
        made = await self._socket("", DOOR)
        try:
            made.listen(512)
        except OSError:
            made.close()
            raise
        return made

    async def set_address(self, address: str, is_there: bool) -> None:
        await self._launcher.ask("address", {"address": address, "give": is_there})

    async def relay(self, name: str, address: str, pod: PodSandbox, ports: Sequence[tuple[int, int]]) -> None:
        body = {"name": name, "pod": pod.uid, "address": address, "target": pod.ip, "ports": list(ports)}
        await self._launcher.ask("relay", body)

    async def end_relay(self, name: str) -> None:
        await self._launcher.ask("signal", {"name": name, "signal": signal.SIGKILL, "is_exec": False})

    def name_address(self, pod: PodSandbox) -> str:
        return pod.ip

    async def remove(self, pod: PodSandbox) -> None:
        try:
            if not self.has_lost(pod):
                await self._launcher.ask("remove_pod", {"pod": pod.uid})
        finally:
            self._used.discard(pod.ip)

    async def lost(self) -> None:
        await self._launcher.lost()

    def has_lost(self, pod: PodSandbox) -> bool:
        return self._launcher.has_lost(pod.helper)

    async def restart(self) -> None:
        await self._launcher.restart()

    async def close(self) -> None:
        await self._launcher.close()

    async def _socket(self, pod: str, bind: tuple[str, int] | None = None) -> socket.socket:
        _, fds = await self._launcher.ask("socket", {"pod": pod, "bind": bind})
        made = socket.socket(fileno=fds[0])
        made.setblocking(False)
        return made

    def _allocate(self) -> str:
        """Addresses go round, so that one is not reused while the kernel still takes its last interface down."""
        for _ in range(self._network.num_addresses):
            address = next(self._addresses)
            if address not in self._used:
                self._used.add(address)
                return address
        raise SandboxError(f"every address of {self._network} is in use")

    def _system_files(self, config: PodConfig) -> list[Json]:
        files = {f"/etc/{name}": self._root / "etc" / name for name in ("nsswitch.conf", "resolv.conf")}
        return [*(_bound(source, target) for target, source in files.items()), *_names(config)]


def _no_namespaces(refusal: str) -> str:
    """In words, with what somebody who administers the machine can do about it."""
    if "No space left" in refusal:
        return (
            "this machine makes no more namespaces: their number is limited, maybe to none. "
            "Root can raise it: sysctl -w user.max_user_namespaces=15000"
        )
    if "not permitted" in refusal or "Permission denied" in refusal:
        return (
            "this machine forbids namespaces to ordinary users. Root can allow them: "
            "sysctl -w kernel.unprivileged_userns_clone=1 (Debian), kernel.apparmor_restrict_unprivileged_userns=0 "
            "(Ubuntu); a container must be started with the right to make them (--privileged)"
        )
    return f"this machine does not allow namespaces: {refusal}"


def _names(config: PodConfig) -> list[Json]:
    return [_bound(config.hosts, "/etc/hosts")]


def _own_directories(config: PodConfig) -> list[Json]:
    tools = [_bound(config.tools, INSIDE)] if config.tools is not None else []
    return [*tools, *([_bound(config.scratch, SCRATCH, read_only=False)] if config.scratch is not None else [])]


def _bound(source: Path, target: str, *, read_only: bool = True) -> Json:
    return {"source": str(source), "target": target, "read_only": read_only}


def _cycle(network: ipaddress.IPv4Network) -> Iterator[str]:
    while True:
        for number in range(2, network.num_addresses - 1):
            yield str(network[number])


def _write_system_files(directory: Path) -> None:
    """Names come from /etc/hosts alone: there is no name server, and asking one out of reach takes seconds."""
    directory.mkdir(parents=True, exist_ok=True)
    try:
        switch = Path("/etc/nsswitch.conf").read_text().splitlines()
    except OSError:
        switch = ["passwd: files", "group: files"]
    kept = [line for line in switch if not line.strip().startswith("hosts:")]
    (directory / "nsswitch.conf").write_text("\n".join([*kept, "hosts: files", ""]))
    (directory / "resolv.conf").write_text("options timeout:1 attempts:1\n")


async def open_sandbox(kind: Kind, root: Path) -> Sandbox:
    """The sandbox asked for; `auto` takes ports where namespaces are forbidden, and says so."""
    from trainmaster.cluster.kubelet.sandbox_ports import PortSandbox  # it builds on the types above

    if kind == "ports":
        return await PortSandbox.open(root)
    try:
        return await NamespaceSandbox.open(root)
    except SandboxError as error:
        if kind == "namespaces":
            raise
        log.warning(
            "pods have no networks of their own: they share this machine's, with ports and addresses rewritten. "
            "Jobs run all the same. Why: %s",
            error,
        )
    return await PortSandbox.open(root)


__all__: Sequence[str] = (
    "ContainerConfig",
    "ExecConfig",
    "Kind",
    "NamespaceSandbox",
    "Neighbours",
    "PodConfig",
    "PodSandbox",
    "Process",
    "Sandbox",
    "SandboxError",
    "open_sandbox",
)
