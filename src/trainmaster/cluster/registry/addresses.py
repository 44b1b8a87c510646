"""Cluster IPs and node ports: handed out in memory, and known again after a restart from the Services themselves."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

NETWORK = ipaddress.IPv4Network("10.96.0.0/16")
NODE_PORTS = range(30000, 32768)
_FIRST = (
    int(NETWORK.network_address) + 256
)  # the first block stays free for addresses people choose, such as 10.96.0.10
_LAST = int(NETWORK.broadcast_address) - 1


class Refused(ValueError):
    """An address or port that cannot be had; the text says why."""


class Addresses:
    """What is taken; asked when a Service is written, told when one is gone."""

    def __init__(self) -> None:
        self._ips: set[str] = set()
        self._ports: set[int] = set()
        self._next = _FIRST

    def load(self, services: Iterable[Mapping[str, Any]]) -> None:
        for service in services:
            spec = service.get("spec") or {}
            self._ips.update(ip for ip in spec.get("clusterIPs") or () if ip != "None")
            self._ports.update(port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort"))

    def release(self, service: Mapping[str, Any]) -> None:
        spec = service.get("spec") or {}
        self._ips.difference_update(spec.get("clusterIPs") or ())
        self._ports.difference_update(port.get("nodePort", 0) for port in spec.get("ports") or ())

    def take_ip(self, wanted: str = "") -> str:
        if wanted:
            if ipaddress.ip_address(wanted) not in NETWORK:
                raise Refused(f"provided IP is not in the valid range. The range of valid IPs is {NETWORK}")
            if wanted in self._ips:
                raise Refused("provided IP is already allocated")
            self._ips.add(wanted)
            return wanted
        for _ in range(_LAST - _FIRST + 1):
            found = str(ipaddress.IPv4Address(self._next))
            self._next = self._next + 1 if self._next < _LAST else _FIRST
            if found not in self._ips:
                self._ips.add(found)
                return found
        raise Refused("range is full")

    def take_port(self, wanted: int = 0) -> int:
        if wanted and wanted not in NODE_PORTS:
            raise Refused(f"provided port is not in the valid range. The range of valid ports is {_range_text()}")
        if wanted and wanted in self._ports:
            raise Refused("provided port is already allocated")
        found = wanted or next((port for port in NODE_PORTS if port not in self._ports), 0)
        if not found:
            raise Refused("range is full")
        self._ports.add(found)
        return found


def _range_text() -> str:
    return f"{NODE_PORTS.start}-{NODE_PORTS.stop - 1}"
