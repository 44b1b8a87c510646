"""Pod networks by rtnetlink: interfaces, addresses and routes. Runs inside the helper of `spawn`.

Talking to the kernel directly costs well under a millisecond a pod; `ip` would be started four times for each.
"""

from __future__ import annotations

import os
import socket
import struct

_NEWLINK, _NEWADDR, _DELADDR, _NEWROUTE, _ERROR = 16, 20, 21, 24, 2
_REQUEST, _ACK, _EXCL, _CREATE = 0x1, 0x4, 0x200, 0x400
_HARDWARE, _IFNAME, _LINK, _MASTER, _LINKINFO, _NET_NS_FD = 1, 3, 5, 10, 18, 28
_INFO_KIND, _INFO_DATA, _VETH_INFO_PEER = 1, 2, 1
_MACVLAN_MODE, _MACVLAN_BRIDGE, _BRIDGE_SNOOPING = 1, 4, 23
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DST, _RTA_OIF, _RTA_PREFSRC = 1, 4, 7
_TABLE_MAIN, _PROTO_BOOT, _SCOPE_LINK, _UNICAST = 254, 3, 253, 1
_UP, _NO_ARP = 0x1, 0x80


class Netlink:
    """Requests to the network namespace the socket was opened in, each answered before the next."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._sequence = 0

    def close(self) -> None:
        self._socket.close()

    def add_bridge(self, name: str, hardware: bytes) -> None:
        """It does not look for listeners to multicasts: nobody sends any, and the look delays every packet."""
        self._add(name, _attribute(_HARDWARE, hardware), "bridge", _attribute(_BRIDGE_SNOOPING, b"\0"))

    def add_veth(self, name: str, peer: str, *, bridge: int = 0, namespace: int | None = None) -> None:
        """`name` joins the bridge, if there is one, and is up; the other end is `peer`, down, there or here."""
        far = _link_header(0, 0) + _attribute(_IFNAME, _text(peer)) + _in(namespace)
        near = _attribute(_MASTER, _number(bridge)) if bridge else b""
        self._add(name, near, "veth", _attribute(_VETH_INFO_PEER, far), _UP)

    def add_macvlan(self, name: str, wire: int, *, hardware: bytes = b"", namespace: int | None = None) -> None:
        """One more interface on the wire, for itself and those beside it; it is down."""
        own = _attribute(_HARDWARE, hardware) if hardware else b""
        mode = _attribute(_MACVLAN_MODE, _number(_MACVLAN_BRIDGE))
        self._add(name, own + _attribute(_LINK, _number(wire)) + _in(namespace), "macvlan", mode)

    def up(self, name: str, *, is_mute: bool = False) -> None:
        """Who is mute does not say whose its machine's addresses are."""
        self._link(0, _UP | _NO_ARP if is_mute else _UP, b"", socket.if_nametoindex(name))

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

    def _add(self, name: str, own: bytes, kind: str, data: bytes, state: int = 0) -> None:
        info = _attribute(_INFO_KIND, _text(kind)) + _nested(_INFO_DATA, data)
        self._link(_CREATE | _EXCL, state, _attribute(_IFNAME, _text(name)) + own + _nested(_LINKINFO, info))

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
    return struct.pack("BxHiII", socket.AF_UNSPEC, 0, index, state, state)


def _in(namespace: int | None) -> bytes:
    return b"" if namespace is None else _attribute(_NET_NS_FD, _number(namespace))


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def _nested(kind: int, value: bytes) -> bytes:
    return _attribute(kind | 0x8000, value)


def _text(value: str) -> bytes:
    return value.encode() + b"\0"


def _number(value: int) -> bytes:
    return struct.pack("I", value)
