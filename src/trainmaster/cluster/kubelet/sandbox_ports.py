"""The substitute sandbox for machines that forbid namespaces: all pods share 127.0.0.1, ports are dealt out.

A port of a pod keeps its number while nobody else has it (`port_table`); the next pod with the same port gets another,
and everything in environments and arguments that names it is rewritten (`rewriting`). What it cannot give: names that
resolve, volumes at their paths (texts that mention them are rewritten), and one port for several pods that take it from
one variable.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from trainmaster.cluster.kubelet.inside_api import ACCOUNT
from trainmaster.cluster.kubelet.launcher import ContainerConfig, ExecConfig, Launcher, Process
from trainmaster.cluster.kubelet.port_table import PortTable
from trainmaster.cluster.kubelet.rewriting import HERE, Rewriter, replace_paths
from trainmaster.cluster.kubelet.sandbox import DOOR, PodConfig, PodSandbox, SandboxError
from trainmaster.cluster.kubelet.zygote import HelperError
from trainmaster.objects import selector

_SSH = (22, 2222)


@dataclasses.dataclass(frozen=True, slots=True)
class _Words:
    """Rewrite the arguments of a container and of the commands in it."""

    rewriter: Rewriter
    paths: Mapping[str, str]

    def rewritten(self, word: str) -> str:
        return self.rewriter.text(replace_paths(word, self.paths))


class PortSandbox:
    """Pods side by side in this machine's own network. Make it with `open`."""

    kind: Literal["ports"] = "ports"
    host_ip = HERE

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self.ports = PortTable()
        self._words: dict[str, _Words] = {}  # by the name of a running container

    @classmethod
    async def open(cls, root: Path) -> PortSandbox:
        try:
            return cls(await Launcher.open(root, {"namespaces": False}))
        except HelperError as error:
            raise SandboxError(str(error)) from error

    @property
    def can_limit(self) -> bool:
        return self._launcher.can_limit

    async def create(self, config: PodConfig) -> PodSandbox:
        generation = self._launcher.generation
        try:
            self._launcher.check(generation)
        except HelperError as error:
            raise SandboxError(f"cannot create the pod's sandbox: {error}") from error
        return PodSandbox(config.uid, HERE, config, generation)

    async def start(self, pod: PodSandbox, config: ContainerConfig) -> Process:
        self._launcher.check(pod.helper)
        paths = {mount.target: mount.source for mount in config.mounts if mount.target != "/"}
        words = _Words(self._rewriter(pod.config), paths)
        process = await self._launcher.start(pod.uid, self._rewritten(pod.config, config, words))
        self._words[config.name] = words
        process.exit.add_done_callback(lambda _: self._words.pop(config.name, None))
        return process

    async def exec(self, process: Process, config: ExecConfig) -> Process:
        """The environment is the container's, and so rewritten already."""
        words = self._words.get(process.config.name)
        if words is not None:
            config = dataclasses.replace(config, argv=[words.rewritten(word) for word in config.argv])
        return await self._launcher.exec(process, config)

    async def connect(self, pod: PodSandbox, port: int, *, local: bool = False) -> socket.socket:
        made = socket.socket()
        made.setblocking(False)
        number = self.ports.of(pod.config.namespace, pod.config.name, port)
        try:
            await asyncio.get_running_loop().sock_connect(made, (HERE, number))
        except BaseException:
            made.close()
            raise
        return made

    def name_address(self, pod: PodSandbox) -> str:
        return HERE

    async def open_door(self, port: int) -> socket.socket | None:
        self.ports.fix("default", "kubernetes", DOOR[1], port)
        return None

    async def set_address(self, address: str, is_there: bool) -> None:
        """Nobody can have one here: texts that name it are rewritten."""

    async def relay(self, name: str, address: str, pod: PodSandbox, ports: Sequence[tuple[int, int]]) -> None:
        return

    async def end_relay(self, name: str) -> None:
        return

    async def remove(self, pod: PodSandbox) -> None:
        self.ports.release(pod.config.namespace, pod.config.name)

    async def lost(self) -> None:
        await self._launcher.lost()

    def has_lost(self, pod: PodSandbox) -> bool:
        return self._launcher.has_lost(pod.helper)

    async def restart(self) -> None:
        await self._launcher.restart()

    @property
    def helper_pid(self) -> int:
        return self._launcher.helper_pid

    async def close(self) -> None:
        try:
            await self._launcher.close()
        finally:
            self.ports.close()

    def _rewriter(self, pod: PodConfig) -> Rewriter:
        neighbours = pod.neighbours()
        return Rewriter(
            pod.namespace,
            pod.name,
            {*neighbours.pods, *neighbours.services},
            pod.ports,
            self._resolver(pod),
            neighbours.addresses,
        )

    def _rewritten(self, pod: PodConfig, config: ContainerConfig, words: _Words) -> ContainerConfig:
        rewriter, paths = words.rewriter, words.paths
        env = {name: replace_paths(value, paths) if name != "PATH" else value for name, value in config.env.items()}
        cwd = replace_paths(config.cwd, paths)
        return dataclasses.replace(
            config,
            argv=[words.rewritten(word) for word in config.argv],
            env={**_private(pod), **rewriter.env(env), **self._told(pod, paths)},
            cwd=cwd if cwd and os.path.isdir(cwd) else "",
            mounts=(),
        )

    def _told(self, pod: PodConfig, paths: Mapping[str, str]) -> dict[str, str]:
        """For our own programs inside the pod: which port stands for which, and where its account is."""
        dealt = {port: self.ports.get(pod.namespace, pod.name, port) for port in (*_SSH, *pod.ports)}
        account = {"TRAINMASTER_SERVICE_ACCOUNT": paths[ACCOUNT]} if ACCOUNT in paths else {}
        return {"TRAINMASTER_PORTS": json.dumps(dealt), **account}

    def _resolver(self, pod: PodConfig) -> _Resolver:
        return _Resolver(self.ports, pod)


def _private(pod: PodConfig) -> dict[str, str]:
    """What keeps pods from one another's files, unless a container says otherwise. Pods are several hosts to Open MPI,
    but have one host name and one /dev/shm: it would use the same files for all of them, crash, or wait for ever."""
    scratch = {"TMPDIR": str(pod.scratch)} if pod.scratch is not None else {}
    return {**scratch, "OMPI_MCA_btl": "^sm,vader", "OMPI_MCA_coll": "^han,sm"}


class _Resolver:
    """Ports by the name of a service lead to the pod behind it."""

    def __init__(self, ports: PortTable, pod: PodConfig) -> None:
        self._ports = ports
        self._pod = pod

    def __call__(self, namespace: str, name: str, port: int) -> int:
        neighbours = self._pod.neighbours()
        service = neighbours.services.get(name) if namespace == self._pod.namespace else None
        if service is None or name in neighbours.pods:
            return self._ports.get(namespace, name, port)
        wanted = service["spec"].get("selector") or {}
        behind = sorted(pod for pod, labels in neighbours.pods.items() if wanted and selector.matches(wanted, labels))
        for entry in service["spec"].get("ports") or ():
            if entry.get("port") == port and isinstance(entry.get("targetPort"), int):
                port = entry["targetPort"]
                break
        return self._ports.get(namespace, behind[0] if behind else name, port)
