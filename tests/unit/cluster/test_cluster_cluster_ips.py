"""Which pod answers for the address of a service."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from trainmaster.cluster.kubelet.cluster_ips import ClusterIPs, Seat, holder_of, ports_of
from trainmaster.cluster.kubelet.sandbox import PodConfig, PodSandbox
from trainmaster.testing.patience import PATIENCE


def a_service(**spec: Any) -> dict[str, Any]:
    defaults = {"clusterIP": "10.96.1.1", "selector": {"app": "x"}, "ports": [{"port": 80, "targetPort": 80}]}
    return {"metadata": {"name": "s", "namespace": "n", "uid": "s"}, "spec": {**defaults, **spec}}


def a_seat(name: str, *, ready: bool = True, **metadata: Any) -> Seat:
    pod = {
        "metadata": {"name": name, "namespace": "n", "uid": name, "labels": {"app": "x"}, **metadata},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }
    config = PodConfig(uid=name, namespace="n", name=name, hostname=name, hosts=Path("/hosts"))
    return Seat(pod, PodSandbox(name, "10.244.0.9", config))


@pytest.mark.parametrize(
    ("seats", "early", "current", "holder"),
    [
        ([a_seat("a"), a_seat("b")], False, "", "a"),
        ([a_seat("b"), a_seat("a")], False, "b", "b"),
        ([a_seat("a", ready=False), a_seat("b")], True, "a", "b"),
        ([a_seat("a", ready=False)], True, "", "a"),
        ([a_seat("a", ready=False)], False, "a", ""),
        ([a_seat("a", deletionTimestamp="now"), a_seat("b")], False, "a", "b"),
        ([a_seat("a", deletionTimestamp="now")], True, "a", "a"),
        ([a_seat("a", labels={"app": "y"})], True, "", ""),
        ([a_seat("a", namespace="other")], True, "", ""),
        ([a_seat("b", creationTimestamp="1"), a_seat("a", creationTimestamp="2")], False, "", "b"),
    ],
    ids=["first", "stays", "ready", "early", "not-early", "leaving", "leaving-early", "label", "namespace", "oldest"],
)
def test_the_pod_that_answers_is_a_ready_one_and_stays_the_same(seats, early, current, holder):
    service = a_service(publishNotReadyAddresses=early)

    assert holder_of(service, seats, current) == holder


@pytest.mark.parametrize(
    ("port", "pair"),
    [
        ({"port": 80, "targetPort": 8080}, (80, 8080)),
        ({"port": 80}, (80, 80)),
        ({"port": 80, "targetPort": "http"}, (80, 7000)),
        ({"port": 80, "targetPort": "nobody"}, None),
        ({"port": 80, "protocol": "UDP"}, None),
    ],
    ids=["number", "same", "name", "unknown", "udp"],
)
def test_a_port_of_a_service_leads_to_one_of_the_pod(port, pair):
    pod = {"spec": {"containers": [{"ports": [{"name": "http", "containerPort": 7000}]}]}}

    assert ports_of(a_service(ports=[port]), pod) == ((pair,) if pair else ())


class Ledger:
    """A sandbox that writes down what leads where."""

    kind = "namespaces"

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.relays: dict[str, tuple[str, str, tuple[tuple[int, int], ...]]] = {}
        self.changed = asyncio.Event()

    async def set_address(self, address: str, is_there: bool) -> None:
        (self.there.add if is_there else self.there.remove)(address)
        self.changed.set()

    async def relay(self, name: str, address: str, box: PodSandbox, ports: tuple[tuple[int, int], ...]) -> None:
        self.relays[name] = (address, box.uid, ports)
        self.changed.set()

    async def end_relay(self, name: str) -> None:
        del self.relays[name]
        self.changed.set()

    async def until(self, *leads: tuple[str, str, int]) -> None:
        """Until these are all: address, pod and its port."""
        async with asyncio.timeout(PATIENCE):
            while {(address, uid, ports[0][1]) for address, uid, ports in self.relays.values()} != set(leads):
                self.changed.clear()
                await self.changed.wait()


def with_addresses(body: Callable[[ClusterIPs, Ledger], Awaitable[None]]) -> list[tuple[str, str]]:
    """Runs it beside the keeper of addresses; gives what was warned of."""
    told: list[tuple[str, str]] = []

    async def warn(service: Any, reason: str, message: str) -> None:
        told.append((reason, message))

    async def main() -> None:
        ledger = Ledger()
        addresses = ClusterIPs(ledger, warn)  # type: ignore[arg-type]  # the part of a sandbox that it uses
        async with asyncio.TaskGroup() as group:
            task = group.create_task(addresses.run())
            await body(addresses, ledger)
            task.cancel()

    asyncio.run(main())
    return told


IP = "10.96.1.1"


def test_an_address_leads_to_another_pod_when_one_leaves_and_goes_with_its_service():
    one, two = a_seat("one"), a_seat("two")

    async def body(addresses: ClusterIPs, ledger: Ledger) -> None:
        addresses.set_service(a_service())
        addresses.enter(one.pod, one.box)
        await ledger.until((IP, "one", 80))
        addresses.enter(two.pod, two.box)
        addresses.leave("one")
        await ledger.until((IP, "two", 80))
        addresses.remove_service(a_service())
        await ledger.until()
        assert ledger.there <= {IP}

    assert with_addresses(body) == []


def test_an_address_leads_to_another_pod_when_one_is_no_longer_ready():
    one, two = a_seat("one"), a_seat("two")

    async def body(addresses: ClusterIPs, ledger: Ledger) -> None:
        addresses.set_service(a_service())
        for seat in (one, two):
            addresses.enter(seat.pod, seat.box)
        await ledger.until((IP, "one", 80))
        addresses.see(a_seat("one", ready=False).pod)
        await ledger.until((IP, "two", 80))

    assert with_addresses(body) == []


def test_a_changed_port_is_followed_and_a_headless_service_is_left_alone():
    one = a_seat("one")

    async def body(addresses: ClusterIPs, ledger: Ledger) -> None:
        addresses.set_service({**a_service(clusterIP="None"), "metadata": {"name": "h", "namespace": "n", "uid": "h"}})
        addresses.set_service(a_service())
        addresses.enter(one.pod, one.box)
        await ledger.until((IP, "one", 80))
        addresses.set_service(a_service(ports=[{"port": 80, "targetPort": 81}]))
        await ledger.until((IP, "one", 81))
        assert ledger.there == {IP}

    assert with_addresses(body) == []


def test_a_protocol_that_is_not_carried_is_warned_of_once():
    one = a_seat("one")
    ports = [{"port": 80}, {"port": 53, "protocol": "UDP"}]

    async def body(addresses: ClusterIPs, ledger: Ledger) -> None:
        addresses.set_service(a_service(ports=ports))
        addresses.enter(one.pod, one.box)
        await ledger.until((IP, "one", 80))
        addresses.set_service(a_service(ports=[{"port": 80, "targetPort": 82}, ports[1]]))
        await ledger.until((IP, "one", 82))

    message = (
        "spec.ports[1].protocol: UDP is not forwarded from the cluster IP here: "
        "use the name s, which leads to the pod, or TCP"
    )
    assert with_addresses(body) == [("ClusterIPProtocolNotForwarded", message)]
