"""Name service for the pods of a real node: what CoreDNS answers for Services and their pods, from watches.

    python -m tools.kubernetes.dns KUBECONFIG ADDRESS

`service.namespace.svc.cluster.local` is the Service's address, or those of its pods when it has none of its own;
`hostname.service.namespace.svc.cluster.local` is the pod of that host name. Nothing else exists: there is no world
outside to ask.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from msgspec import Struct, field

from trainmaster.kube import config
from trainmaster.kube.cache import Cache
from trainmaster.kube.client import Client
from trainmaster.kube.reflector import Reflector
from trainmaster.kube.transport import HttpTransport
from trainmaster.objects.meta import Meta
from trainmaster.objects.resource import SERVICES, Resource

DOMAIN = ("svc", "cluster", "local")
PORT = 53
SECONDS = 1
"""How long an answer may be kept: pods come and go."""

ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints")
HEADER = struct.Struct("!6H")
ADDRESSES = (1, 255)
"""Types of question that an address answers: A, and any."""

AUTHORITATIVE, NO_SUCH_NAME = 0x8580, 3


class ServiceSpec(Struct, frozen=True, rename="camel"):
    cluster_ip: str = field(default="", name="clusterIP")


class Service(Struct, frozen=True):
    metadata: Meta
    spec: ServiceSpec


class Address(Struct, frozen=True):
    ip: str
    hostname: str = ""


class Subset(Struct, frozen=True):
    addresses: tuple[Address, ...] = ()


class Endpoints(Struct, frozen=True):
    """Who stands behind a Service. One that publishes what is not ready has that among the addresses, too."""

    metadata: Meta
    subsets: tuple[Subset, ...] | None = None


def addresses(name: str, services: Cache[Service], endpoints: Cache[Endpoints]) -> list[str] | None:
    """None where there is no such name."""
    labels = name.lower().rstrip(".").split(".")
    if tuple(labels[-3:]) != DOMAIN or not 2 <= len(labels) - 3 <= 3:
        return None
    *host, service, namespace = labels[:-3]
    found = services.get(f"{namespace}/{service}")
    if found is None:
        return None
    own = found.spec.cluster_ip
    if own and own != "None" and not host:
        return [own]
    behind = endpoints.get(f"{namespace}/{service}")
    members = [address for subset in (behind.subsets or () if behind else ()) for address in subset.addresses]
    return [each.ip for each in members if not host or each.hostname == host[0]] or None


def question(message: bytes) -> tuple[str, int, bytes]:
    """The name that is asked for, the type, and the question as it stands."""
    labels, at = [], HEADER.size
    while length := message[at]:
        labels.append(message[at + 1 : at + 1 + length].decode("ascii"))
        at += 1 + length
    (kind,) = struct.unpack_from("!H", message, at + 1)
    return ".".join(labels), kind, message[HEADER.size : at + 5]


def answer(message: bytes, lookup: Callable[[str], Sequence[str] | None]) -> bytes:
    name, kind, asked = question(message)
    found = lookup(name)
    given = tuple(found or ()) if kind in ADDRESSES else ()
    flags = AUTHORITATIVE | (0 if found else NO_SUCH_NAME)
    (identity,) = struct.unpack_from("!H", message)
    return HEADER.pack(identity, flags, 1, len(given), 0, 0) + asked + b"".join(_records(given))


def _records(given: Sequence[str]) -> Iterator[bytes]:
    for address in given:
        # The name is the question's, which begins right after the header.
        yield struct.pack("!HHHIH4s", 0xC000 | HEADER.size, 1, 1, SECONDS, 4, socket.inet_aton(address))


class Resolver(asyncio.DatagramProtocol):
    def __init__(self, lookup: Callable[[str], Sequence[str] | None]) -> None:
        self._lookup = lookup
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Python 3.11's own is no instance of what it documents.
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | int, int]) -> None:
        try:
            reply = answer(data, self._lookup)
        except (IndexError, UnicodeDecodeError, struct.error):
            return  # not a question; who sends such a thing expects no answer
        if self._transport is not None:
            self._transport.sendto(reply, addr)


async def serve(client: Client, address: str) -> None:
    """Until cancelled. Nothing is answered before everything is known, lest what exists be denied."""
    services: Cache[Service] = Cache()
    endpoints: Cache[Endpoints] = Cache()
    sources = (
        Reflector(client, SERVICES, Service, services),
        Reflector(client, ENDPOINTS, Endpoints, endpoints),
    )
    async with asyncio.TaskGroup() as group:
        for source in sources:
            group.create_task(source.run(), name="watch")
            await source.synced.wait()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: Resolver(lambda name: addresses(name, services, endpoints)), local_addr=(address, PORT)
        )
        try:
            await loop.create_future()
        finally:
            transport.close()


async def main(kubeconfig: str, address: str) -> None:
    client = Client(HttpTransport(config.load(kubeconfig)))
    try:
        await serve(client, address)
    finally:
        await client.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
