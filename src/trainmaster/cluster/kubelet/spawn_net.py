"""Pod networks by rtnetlink: a bridge, and per pod a veth pair with an address. Runs inside the helper of `spawn`.

Talking to the kernel directly costs well under a millisecond a pod; `ip` would be started four times for each.
"""

from __future__ import annotations

import os
import socket
import struct

_NEWLINK, _NEWADDR, _DELADDR, _NEWROUTE, _ERROR = 16, 20, 21, 24, 2
_REQUEST, _ACK, _EXCL, _CREATE = 0x1, 0x4, 0x200, 0x400
_HARDWARE, _IFNAME, _MASTER, _LINKINFO, _NET_NS_FD = 1, 3, 10, 18, 28
_INFO_KIND, _INFO_DATA, _VETH_INFO_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DST, _RTA_OIF, _RTA_PREFSRC = 1, 4, 7
_TABLE_MAIN, _PROTO_BOOT, _SCOPE_LINK, _UNICAST = 254, 3, 253, 1
_UP = 0x1

BRIDGE = "pods"
_BRIDGE_HARDWARE = bytes.fromhex("020000000001")
"""A bridge without one of its own takes that of a pod, another whenever pods come and go, and those who knew the last
one reach neither the API server nor addresses of services for half a minute."""

INSIDE = "eth0"


class Netlink:
    """Requests to the network namespace the socket was opened in, each answered before the next."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._sequence = 0

    def close(self) -> None:
        self._socket.close()

    def add_bridge(self, name: str) -> None:
        own = _attribute(_IFNAME, _text(name)) + _attribute(_HARDWARE, _BRIDGE_HARDWARE)
        self._link(_CREATE | _EXCL, 0, own + _nested(_LINKINFO, _kind("bridge")))

    def add_veth(self, name: str, bridge: int, peer: str, namespace: int) -> None:
        """`name` joins the bridge here and is up; its other end appears as `peer` in the namespace, down."""
        far = _link_header(0, 0) + _attribute(_IFNAME, _text(peer)) + _attribute(_NET_NS_FD, _number(namespace))
        info = _kind("veth") + _nested(_INFO_DATA, _attribute(_VETH_INFO_PEER, far))
        near = _attribute(_IFNAME, _text(name)) + _attribute(_MASTER, _number(bridge))
        self._link(_CREATE | _EXCL, _UP, near + _nested(_LINKINFO, info))

    def up(self, name: str) -> None:
        self._link(0, _UP, b"", socket.if_nametoindex(name))

    def add_address(self, name: str, address: str, prefix: int) -> None:
        self._ask(_NEWADDR, _CREATE | _EXCL, _address(name, address, prefix), f"address {address}")

    def remove_address(self, name: str, address: str, prefix: int) -> None:
        self._ask(_DELADDR, 0, _address(name, address, prefix), f"address {address}")

    def add_route(self, name: str, network: str, source: str) -> None:
        """Everything in the network, such as 10.96.0.0/16, is a neighbour on that link."""
        start, _, prefix = network.partition("/")
        fields = (socket.AF_INET, int(prefix), 0, 0, _TABLE_MAIN, _PROTO_BOOT, _SCOPE_LINK, _UNICAST, 0)
        body = struct.pack("BBBBBBBBI", *fields) + _attribute(_RTA_DST, socket.inet_aton(start))
        body += _attribute(_RTA_OIF, _number(socket.if_nametoindex(name)))
        self._ask(_NEWROUTE, _CREATE, body + _attribute(_RTA_PREFSRC, socket.inet_aton(source)), f"route {network}")

    def _link(self, flags: int, state: int, attributes: bytes, index: int = 0) -> None:
        self._ask(_NEWLINK, flags, _link_header(index, state) + attributes, "link")

    def _ask(self, kind: int, flags: int, body: bytes, what: str) -> None:
        self._sequence += 1
        length = 16 + len(body)
        self._socket.sendall(struct.pack("IHHII", length, kind, flags | _REQUEST | _ACK, self._sequence, 0) + body)
        answer = self._socket.recv(65536)
        _, answered = struct.unpack_from("IH", answer)
        code = struct.unpack_from("i", answer, 16)[0] if answered == _ERROR else 0
        if code:
            raise OSError(-code, f"netlink {what}: {os.strerror(-code)}")


def _address(name: str, address: str, prefix: int) -> bytes:
    packed = socket.inet_aton(address)
    header = struct.pack("BBBBI", socket.AF_INET, prefix, 0, 0, socket.if_nametoindex(name))
    return header + _attribute(_IFA_LOCAL, packed) + _attribute(_IFA_ADDRESS, packed)


def _link_header(index: int, state: int) -> bytes:
    return struct.pack("BxHiII", socket.AF_UNSPEC, 0, index, state, _UP if state else 0)


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def _nested(kind: int, value: bytes) -> bytes:
    return _attribute(kind | 0x8000, value)


def _kind(name: str) -> bytes:
    return _attribute(_INFO_KIND, _text(name))


def _text(value: str) -> bytes:
    return value.encode() + b"\0"


def _number(value: int) -> bytes:
    return struct.pack("I", value)


def set_up_cluster(link: Netlink, address: str, prefix: int, services: str, door: str) -> int:
    """In a fresh network namespace: the loopback and the bridge, which is also how we reach the pods. Its index.

    `door` is the one address of the network of services that is ours: the API server's.
    """
    prepare()
    link.up("lo")
    _pass_filters_by()
    link.add_bridge(BRIDGE)
    link.add_address(BRIDGE, address, prefix)
    link.add_address(BRIDGE, door, 32)
    link.up(BRIDGE)
    link.add_route(BRIDGE, services, address)
    return socket.if_nametoindex(BRIDGE)


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

    Addresses of services are neighbours, for they are the bridge's.
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
