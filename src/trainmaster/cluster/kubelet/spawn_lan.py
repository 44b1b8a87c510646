"""The network that a cluster's pods share, and an interface in it for every pod. Runs inside the helper of `spawn`.

Two ways to connect them. With macvlan a packet goes from one pod to the other in one step, and two ranks talk almost
as fast as on the loopback; over a bridge, for kernels without it, it passes through two interfaces and a table more.
"""

from __future__ import annotations

import socket
from typing import Protocol

from trainmaster.cluster.kubelet.spawn_net import Netlink

OURS, INSIDE = "pods", "eth0"
"""The interfaces of the cluster's own namespace, where the API server and Services have their addresses, and of a
pod."""

_HARDWARE = bytes.fromhex("020000000001")
"""A bridge without one of its own takes that of a pod, another whenever pods come and go, and those who knew the last
one reach neither the API server nor addresses of services for half a minute."""

_WIRE, _LOOSE_END = "wire", "loose"


class Lan(Protocol):
    def plug(self, namespace: int) -> None:
        """Gives the namespace its interface, which is down."""


class Macvlan:
    """All sit on one end of a cable whose other end leads nowhere."""

    def __init__(self, link: Netlink) -> None:
        self._link = link
        link.add_veth(_WIRE, _LOOSE_END)
        link.up(_LOOSE_END, is_mute=True)  # else it would answer for the addresses of OURS, which has its own hardware
        self._wire = socket.if_nametoindex(_WIRE)
        link.add_macvlan(OURS, self._wire, hardware=_HARDWARE)

    def plug(self, namespace: int) -> None:
        self._link.add_macvlan(INSIDE, self._wire, namespace=namespace)


class Bridge:
    """A cable from every pod into one switch."""

    def __init__(self, link: Netlink) -> None:
        self._link = link
        self._cables = 0
        _pass_filters_by()
        link.add_bridge(OURS, _HARDWARE)
        self._bridge = socket.if_nametoindex(OURS)

    def plug(self, namespace: int) -> None:
        self._cables += 1
        self._link.add_veth(f"v{self._cables}", INSIDE, bridge=self._bridge, namespace=namespace)


def set_up_cluster(link: Netlink, address: str, prefix: int, services: str, door: str) -> Lan:
    """In a fresh network namespace: the loopback, and the network of pods with us in it.

    `door` is the one address of the network of services that is ours: the API server's.
    """
    prepare()
    link.up("lo")
    lan = _fastest(link)
    link.add_address(OURS, address, prefix)
    link.add_address(OURS, door, 32)
    link.up(OURS)
    link.add_route(OURS, services, address)
    return lan


def _fastest(link: Netlink) -> Lan:
    try:
        return Macvlan(link)
    except OSError:  # kernels, and what pretends to be one, differ in how they say that they do not know it
        return Bridge(link)


def _pass_filters_by() -> None:
    """Where the kernel shows bridged packets to the machine's packet filters, which are empty here, ranks need not wait
    for that."""
    for family in ("iptables", "ip6tables", "arptables"):
        _write(f"/proc/sys/net/bridge/bridge-nf-call-{family}", "0")


def prepare() -> None:
    """In a fresh namespace, before it has an interface.

    IPv6 stays off outside the loopback: nobody would route it, and link-local addresses mislead rendezvous code. Low
    ports are open to every user, as container runtimes have it.
    """
    _write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")
    _write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")


def set_up_pod(address: str, prefix: int, services: str) -> None:
    """No default route: a look-up of an unknown name must fail at once instead of waiting for a server out of reach.

    Addresses of services are neighbours, for they are ours.
    """
    link = Netlink()
    try:
        link.up("lo")
        link.add_address(INSIDE, address, prefix)
        link.up(INSIDE)
        link.add_route(INSIDE, services, address)
    finally:
        link.close()


def _write(path: str, value: str) -> None:
    try:
        with open(path, "w") as file:
            file.write(value)
    except OSError:
        return  # a kernel without it, or a read-only /proc/sys: the pod works without
