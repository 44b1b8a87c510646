"""Cluster addresses of services: which pod is behind which.

Names of services lead straight to pods (`hosts`). Who uses the literal address of a service, as MindSpore's workers do,
is carried to one of its pods by a relay, and to another when that one ends or is no longer ready. Where pods have no
network of their own, addresses are rewritten instead (`rewriting`) and this does nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from trainmaster.cluster.kubelet.sandbox import PodSandbox, Sandbox
from trainmaster.cluster.kubelet.zygote import HelperError
from trainmaster.objects import selector
from trainmaster.objects.meta import Json

log = logging.getLogger(__name__)

REASON = "ClusterIPProtocolNotForwarded"

Warn = Callable[[Json, str, str], Awaitable[None]]
"""Tells (service, reason, message)."""

Ports = tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Seat:
    """A pod with a sandbox."""

    pod: Json
    box: PodSandbox

    @property
    def uid(self) -> str:
        return self.box.uid


@dataclass(frozen=True, slots=True)
class Relay:
    name: str
    holder: str
    ports: Ports


def address_of(service: Json) -> str:
    """Empty for a service without one, or whose address is somebody else's business."""
    spec = service["spec"]
    address = spec.get("clusterIP")
    return str(address) if spec.get("selector") and address not in (None, "", "None") else ""


def holder_of(service: Json, seats: Iterable[Seat], current: str = "") -> str:
    """The uid of the pod that answers for the service: the one that does already, else the oldest; empty for none."""
    early = bool(service["spec"].get("publishNotReadyAddresses"))
    behind = [seat for seat in seats if _is_behind(service, seat.pod, early)]
    chosen = [seat for seat in behind if _is_ready(seat.pod)] or (behind if early else [])
    if any(seat.uid == current for seat in chosen):
        return current
    return min(chosen, key=_age).uid if chosen else ""


def ports_of(service: Json, pod: Json) -> Ports:
    """Pairs of the service's port and the pod's; a name that no container has given to a port leads nowhere."""
    declared = [port for container in pod["spec"].get("containers") or () for port in container.get("ports") or ()]
    named = {port.get("name"): int(port["containerPort"]) for port in declared}
    pairs = []
    for port in service["spec"].get("ports") or ():
        target = port.get("targetPort") or port["port"]
        number = target if isinstance(target, int) else named.get(target)
        if number is not None and _is_tcp(port):
            pairs.append((int(port["port"]), int(number)))
    return tuple(pairs)


def unforwarded(service: Json) -> str:
    """What to tell about ports that are not carried; empty if there are none."""
    for index, port in enumerate(service["spec"].get("ports") or ()):
        if not _is_tcp(port):
            return (
                f"spec.ports[{index}].protocol: {port['protocol']} is not forwarded from the cluster IP here: "
                f"use the name {service['metadata']['name']}, which leads to the pod, or TCP"
            )
    return ""


def _is_tcp(port: Json) -> bool:
    return (port.get("protocol") or "TCP") == "TCP"


def _is_behind(service: Json, pod: Json, early: bool) -> bool:
    metadata = pod["metadata"]
    if metadata["namespace"] != service["metadata"]["namespace"] or pod["spec"].get("hostNetwork"):
        return False
    is_leaving = bool(metadata.get("deletionTimestamp")) and not early
    return not is_leaving and selector.matches(service["spec"]["selector"], metadata.get("labels") or {})


def _is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _age(seat: Seat) -> tuple[str, str]:
    metadata = seat.pod["metadata"]
    return str(metadata.get("creationTimestamp") or ""), str(metadata["name"])


class ClusterIPs:
    """Tell it about services and pods; `run` starts and ends relays accordingly."""

    def __init__(self, sandbox: Sandbox, warn: Warn) -> None:
        self._sandbox = sandbox
        self._warn = warn
        self._services: dict[str, Json] = {}
        self._seats: dict[str, Seat] = {}
        self._addresses: set[str] = set()
        self._relays: dict[str, Relay] = {}
        self._numbers = itertools.count(1)
        self._told: set[str] = set()
        self._changed = asyncio.Event()

    def set_service(self, service: Json) -> None:
        uid = service["metadata"]["uid"]
        if address_of(service):
            self._services[uid] = service
            self._changed.set()
        else:
            self.remove_service(service)

    def remove_service(self, service: Json) -> None:
        if self._services.pop(service["metadata"]["uid"], None) is not None:
            self._changed.set()

    def enter(self, pod: Json, box: PodSandbox) -> None:
        self._seats[box.uid] = Seat(pod, box)
        self._notice()

    def see(self, pod: Json) -> None:
        """What has become of a pod; of no interest before it has a sandbox."""
        seat = self._seats.get(pod["metadata"]["uid"])
        if seat is not None:
            seat.pod = pod
            self._notice()

    def leave(self, uid: str) -> None:
        if self._seats.pop(uid, None) is not None:
            self._notice()

    def begin_again(self) -> None:
        """Of what was set up nothing is left: the helper that had it has died, and there is another."""
        self._addresses.clear()
        self._relays.clear()
        self._changed.set()

    def _notice(self) -> None:
        if self._services:
            self._changed.set()

    async def run(self) -> None:
        if self._sandbox.kind != "namespaces":
            return
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._settle()
            except HelperError as error:
                log.warning("the addresses of services could not be set up: %s", error)

    async def _settle(self) -> None:
        services = {address_of(service): service for service in self._services.values()}
        for address in sorted(self._addresses - services.keys()):
            await self._end(address)
            self._addresses.remove(address)
            await self._sandbox.set_address(address, False)
        for address in sorted(services.keys() - self._addresses):
            self._addresses.add(address)
            await self._sandbox.set_address(address, True)
        for address, service in services.items():
            await self._lead(address, service)
        await self._tell()

    async def _lead(self, address: str, service: Json) -> None:
        running = self._relays.get(address)
        seat = self._seats.get(holder_of(service, self._seats.values(), running.holder if running else ""))
        ports = ports_of(service, seat.pod) if seat is not None else ()
        if running is not None and seat is not None and (running.holder, running.ports) == (seat.uid, ports):
            return
        await self._end(address)
        if seat is not None and ports:
            relay = self._relays[address] = Relay(f"relay/{address}/{next(self._numbers)}", seat.uid, ports)
            await self._sandbox.relay(relay.name, address, seat.box, ports)

    async def _end(self, address: str) -> None:
        if (running := self._relays.pop(address, None)) is not None:
            await self._sandbox.end_relay(running.name)

    async def _tell(self) -> None:
        for uid, service in list(self._services.items()):
            message = unforwarded(service)
            if message and uid not in self._told:
                self._told.add(uid)
                await self._warn(service, REASON, message)
