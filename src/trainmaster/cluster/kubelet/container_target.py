"""A running container as probes and lifecycle hooks see it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

from trainmaster.cluster.kubelet import probes
from trainmaster.cluster.kubelet.commands import CommandSession
from trainmaster.cluster.kubelet.launcher import ExecConfig, Process
from trainmaster.cluster.kubelet.podscene import Scene
from trainmaster.cluster.kubelet.zygote import HelperError
from trainmaster.objects.meta import Json

_MAX_OUTPUT = 10 << 10
_numbers = itertools.count(1)


def exec_config(process: Process, argv: Sequence[str], *, stdin: bool = False, tty: bool = False) -> ExecConfig:
    """A command with the environment and the rights of the container's own."""
    own = process.config
    env = {**own.env, "TERM": own.env.get("TERM", "xterm")} if tty else own.env
    return ExecConfig(
        name=f"{own.name}/exec-{next(_numbers)}",
        argv=argv,
        env=env,
        cwd=own.cwd,
        user=own.user,
        group=own.group,
        groups=own.groups,
        no_new_privileges=own.no_new_privileges,
        stdin=stdin,
        tty=tty,
    )


class ContainerTarget:
    def __init__(self, scene: Scene, container: Json, process: Process) -> None:
        self._scene = scene
        self._container = container
        self._process = process

    async def run(self, argv: Sequence[str]) -> tuple[int, str]:
        sandbox = self._scene.house.sandbox
        try:
            process = await sandbox.exec(self._process, exec_config(self._process, argv))
        except HelperError as error:
            return 126, str(error)
        session = CommandSession(process)
        output = b""
        try:
            async for _, data in session.output:
                output = (output + data)[:_MAX_OUTPUT]
            return await session.wait(), output.decode(errors="replace")
        finally:
            await session.kill()

    async def connect(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        box = self._scene.box
        if box is None:
            raise ConnectionError("the pod has no network yet")
        connected = await self._scene.house.sandbox.connect(box, port)
        return await asyncio.open_connection(sock=connected)

    def port(self, name: int | str) -> int:
        if isinstance(name, int) or name.isdigit():
            return int(name)
        for port in self._container.get("ports") or ():
            if port.get("name") == name:
                return int(port["containerPort"])
        raise ValueError(f"the container declares no port named {name!r}")

    async def hook(self, handler: Json) -> str:
        """Runs a lifecycle hook; empty when it went well."""
        if (action := handler.get("exec")) is not None:
            code, output = await self.run(action.get("command") or ())
            return "" if code == 0 else (output.strip() or f"exited with code {code}")
        if (action := handler.get("sleep")) is not None:
            await asyncio.sleep(float(action.get("seconds") or 0))
            return ""
        try:
            if (action := handler.get("httpGet")) is not None:
                status = await probes.http_get(action, self)
                return "" if 200 <= status < 400 else f"HTTP status {status}"
        except (OSError, ValueError) as error:
            return str(error)
        return "hooks of this kind are not supported here"
