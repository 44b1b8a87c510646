"""Operators as real processes, each behind a proxy of its own, on a control plane that no other operator serves."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kubernetes.cutting import Proxy, proxied
from tests.kubernetes.installed import NAMESPACE, connected, install, token_of_operator
from tests.kubernetes.lives import RESOURCES
from tests.kubernetes.mirror import Mirror, Node, mirrored
from tools.kubernetes.controlplane import ControlPlane, control_plane

from trainmaster.operator.install import NAME
from trainmaster.testing.patience import PATIENCE

FLAGS = ("--metrics-bind-address=0", "--health-probe-bind-address=0", "--log-format=json")
ELECTING = ("--leader-elect", f"--leader-election-namespace={NAMESPACE}")
PROGRAM = ("-m", "trainmaster", "operator")
CONTROLLERS = ("garbagecollector", "job", "serviceaccount", "serviceaccount-token")
"""What jobs need from others. Endpoints, say, nobody asks for, and they cost more than all the rest."""

COLLECTING = (*CONTROLLERS, "podgc")
"""A server that dies between the two steps of a pod's deletion leaves it to kubelets; of pods without a node, podgc
takes care. Where no server dies it only does harm: see `NODELESS` of the control plane."""

ALTERED = Path(__file__).with_name("alteredoperator.py")


@dataclass(frozen=True)
class Stage:
    """A control plane with all kinds installed, and the operator's own account."""

    plane: ControlPlane
    token: str
    home: Path


@contextlib.contextmanager
def staged(home: Path, flags: Sequence[str] = (), controllers: Sequence[str] = CONTROLLERS) -> Iterator[Stage]:
    async def prepared(plane: ControlPlane) -> str:
        async with connected(plane.kubeconfig) as admin:
            await install(admin)
            return str(await token_of_operator(admin))

    with control_plane(flags=flags, controllers=controllers) as plane:
        yield Stage(plane, asyncio.run(prepared(plane)), home)


class Operator:
    """One process. It is killed at the end of its context, if it has not ended before."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process, self._log = process, log

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    @property
    def words(self) -> str:
        return self._log.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    async def kill(self) -> None:
        self.signal(signal.SIGKILL)
        await self._process.wait()

    async def ended(self) -> int:
        """The exit code."""
        async with asyncio.timeout(PATIENCE):
            return await self._process.wait()

    def cpu_seconds(self) -> float:
        """Used so far, of user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Bed:
    """Everything that a test of faults needs: the proxy's record, the mirror, the node, and operators at will."""

    def __init__(self, stage: Stage, proxy: Proxy, mirror: Mirror, node: Node) -> None:
        self.stage, self.proxy, self.mirror, self.node = stage, proxy, mirror, node
        self._numbers = itertools.count(1)

    @contextlib.asynccontextmanager
    async def operating(
        self, *flags: str, proxy: Proxy | None = None, altered: Mapping[str, str] | None = None
    ) -> AsyncIterator[Operator]:
        """`altered` runs it by way of `alteredoperator.py`, with that in its environment."""
        number = next(self._numbers)
        path, log = (self.stage.home / f"operator-{number}.{end}" for end in ("kubeconfig", "log"))
        self.stage.plane.write_kubeconfig(path, NAME, self.stage.token, (proxy or self.proxy).url)
        program = PROGRAM if altered is None else (str(ALTERED), "operator")
        arguments = (*program, f"--kubeconfig={path}", *FLAGS, *flags)
        with log.open("wb") as sink:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *arguments, stdout=sink, stderr=sink, env={**os.environ, **(altered or {})}
            )
        operator = Operator(process, log)
        try:
            yield operator
        finally:
            if not operator.has_ended:
                operator.signal(signal.SIGCONT)
                await operator.kill()


@contextlib.asynccontextmanager
async def bedded(stage: Stage) -> AsyncIterator[Bed]:
    async with (
        proxied(stage.plane, stage.token) as proxy,
        connected(stage.plane.kubeconfig) as client,
        mirrored(client, RESOURCES) as (mirror, node),
    ):
        yield Bed(stage, proxy, mirror, node)
