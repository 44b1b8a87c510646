"""Ports that are still free when they are used.

A port that the kernel chose, and that is let go so that another process may take it, may by then be one end of a
connection of somebody else: the kernel gives it to whoever comes next. These are above all that it gives by itself, and
above what clusters deal out to pods that share the network of this machine.
"""

from __future__ import annotations

import itertools
import os
import socket
from pathlib import Path

_END = 65_536
_given = itertools.count(os.getpid() * 61)  # processes that are tested at once have numbers that are near one another


def free_port() -> int:
    """Another one with every call, on which nothing of this machine listens."""
    last = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[1])
    ports = range(last + 1, _END) or range(10_000, _END)
    for number in itertools.islice(_given, len(ports)):
        port = ports[number % len(ports)]
        with socket.socket() as door:
            try:
                door.bind(("", port))
            except OSError:
                continue
        return port
    raise AssertionError(f"no port of {ports} is free")
