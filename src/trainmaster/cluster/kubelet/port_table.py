"""Which port of this machine stands for which port of a pod, where pods share the machine's network.

Between the moment a port is dealt out and the moment a program listens on it, nobody but us knows that it is taken. So
clusters divide the ports of a machine among themselves, block by block. A block is held by a socket in the abstract
namespace: it belongs to the same network as the ports do, is the same for all users, and goes with its process.
"""

from __future__ import annotations

import errno
import logging
import random
import socket
from collections.abc import Collection, Iterator

from trainmaster.cluster.kubelet.rewriting import HERE

log = logging.getLogger(__name__)

_SIZE = 100
_DEALT = range(10_000 // _SIZE, 32_700 // _SIZE)
"""Blocks below the ports that Linux gives to whoever connects to somewhere: those may be gone the next moment."""

_GAP = 4
"""Between ports that are dealt out: programs are known to take the ports after their own as well."""

_Endpoint = tuple[str, str, int]  # namespace, name of a pod or service, port


class Blocks:
    """Those that this cluster holds."""

    def __init__(self) -> None:
        self._held: dict[int, socket.socket | None] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._held))

    def take(self, block: int) -> bool:
        """Whether it is ours. Where nothing can be held, it is, as if no other cluster were there."""
        if block not in self._held:
            holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                holder.bind(f"\0trainmaster-ports-{block}")
            except OSError as error:
                holder.close()
                if error.errno == errno.EADDRINUSE:
                    return False
                log.debug("ports cannot be held against other clusters: %s", error)
                self._held[block] = None
            else:
                self._held[block] = holder
        return True

    def keep(self, wanted: Collection[int]) -> None:
        """Gives back the others."""
        for block in [block for block in self._held if block not in wanted]:
            holder = self._held.pop(block)
            if holder is not None:
                holder.close()


class PortTable:
    """To be closed."""

    def __init__(self) -> None:
        self._ports: dict[_Endpoint, int] = {}
        self._blocks = Blocks()

    def get(self, namespace: str, name: str, port: int) -> int:
        """Given out when it is first asked for, so that a pod may name a peer that has not started yet."""
        endpoint = (namespace, name, port)
        if endpoint not in self._ports:
            self._ports[endpoint] = self._free(port)
        return self._ports[endpoint]

    def of(self, namespace: str, name: str, port: int) -> int:
        """Where a running pod listens: a port that was never dealt out was never rewritten either."""
        return self._ports.get((namespace, name, port), port)

    def fix(self, namespace: str, name: str, port: int, number: int) -> None:
        """Of a service that is no pod's."""
        self._ports[namespace, name, port] = number

    def release(self, namespace: str, name: str) -> None:
        for endpoint in [e for e in self._ports if e[:2] == (namespace, name)]:
            del self._ports[endpoint]
        self._blocks.keep({port // _SIZE for port in self._ports.values()})

    def close(self) -> None:
        self._blocks.keep(())

    def _free(self, wanted: int) -> int:
        taken = set(self._ports.values())
        if wanted not in taken and self._blocks.take(wanted // _SIZE) and _is_free(wanted):
            return wanted
        for block in self._candidates():
            for port in range(block * _SIZE, (block + 1) * _SIZE, _GAP) if self._blocks.take(block) else ():
                if port not in taken and _is_free(port):
                    return port
        with socket.socket() as probe:  # more clusters than blocks: most likely nobody else gets this one
            probe.bind((HERE, 0))
            return int(probe.getsockname()[1])

    def _candidates(self) -> Iterator[int]:
        """Ours first; then from anywhere, so that clusters that start at once do not try the same one by one."""
        yield from (block for block in self._blocks if block in _DEALT)
        yield from random.sample(_DEALT, len(_DEALT))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HERE, port))
        except (OSError, OverflowError):
            return False
    return True
