"""The name service of a real node's pods: what it says of Services and pods, and how."""

import asyncio
import socket
import struct

import pytest
from tools.kubernetes import dns
from tools.kubernetes.dns import Address, Endpoints, Service, ServiceSpec, Subset

from trainmaster.kube.cache import Cache
from trainmaster.objects.meta import Meta

HEADLESS = Meta(name="ring", namespace="team", resource_version="1")
PLAIN = Meta(name="door", namespace="team", resource_version="1")


@pytest.fixture
def lookup():
    services: Cache[Service] = Cache()
    endpoints: Cache[Endpoints] = Cache()
    services.replace(
        [
            Service(HEADLESS, ServiceSpec(cluster_ip="None")),
            Service(PLAIN, ServiceSpec(cluster_ip="10.96.0.7")),
            Service(Meta(name="lonely", namespace="team", resource_version="1"), ServiceSpec(cluster_ip="None")),
        ],
        "1",
    )
    members = (Address("10.88.0.2", "ring-0"), Address("10.88.0.3", "ring-1"))
    endpoints.replace([Endpoints(HEADLESS, (Subset(members),)), Endpoints(PLAIN, None)], "1")
    return lambda name: dns.addresses(name, services, endpoints)


def asked(name, kind=1):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!6H", 0xBEEF, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", kind, 1)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        pytest.param("ring.team.svc.cluster.local", ["10.88.0.2", "10.88.0.3"], id="all pods of a headless service"),
        pytest.param("ring-1.ring.team.svc.cluster.local", ["10.88.0.3"], id="one pod by its host name"),
        pytest.param("RING.Team.svc.cluster.local.", ["10.88.0.2", "10.88.0.3"], id="in any case, with a dot"),
        pytest.param("door.team.svc.cluster.local", ["10.96.0.7"], id="the address of a service that has one"),
        pytest.param("lonely.team.svc.cluster.local", None, id="no pods yet"),
        pytest.param("ring.other.svc.cluster.local", None, id="another namespace"),
        pytest.param("team.svc.cluster.local", None, id="a namespace is no name"),
        pytest.param("ring.team.example", None, id="nothing outside the cluster"),
    ],
)
def test_a_name_is_its_services_address_or_its_pods(lookup, name, found):
    assert lookup(name) == found


def test_an_answer_repeats_the_question_and_carries_every_address(lookup):
    question = asked("ring.team.svc.cluster.local")

    reply = dns.answer(question, lookup)

    identity, flags, questions, answers, *_ = struct.unpack_from("!6H", reply)
    assert (identity, flags, questions, answers) == (0xBEEF, 0x8580, 1, 2)
    assert reply[12 : len(question)] == question[12:]
    assert [socket.inet_ntoa(reply[at - 4 : at]) for at in (len(question) + 16, len(question) + 32)] == [
        "10.88.0.2",
        "10.88.0.3",
    ]


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        pytest.param("ring.team.svc.cluster.local", 28, 0, id="a known name has no IPv6 address"),
        pytest.param("nobody.team.svc.cluster.local", 1, 3, id="an unknown name does not exist"),
    ],
)
def test_an_answer_without_addresses_says_whether_the_name_exists(lookup, name, kind, code):
    reply = dns.answer(asked(name, kind), lookup)

    _, flags, _, answers, *_ = struct.unpack_from("!6H", reply)
    assert (flags & 0xF, answers) == (code, 0)


class Wire(asyncio.DatagramTransport):
    def __init__(self):
        super().__init__()
        self.sent = []

    def sendto(self, data, addr=None):
        self.sent.append((data, addr))


@pytest.mark.parametrize("noise", [b"", b"\0" * 5, asked("ring.team.svc.cluster.local")[:20], b"\xff" * 40])
def test_noise_is_not_answered_and_the_next_question_is(lookup, noise):
    wire, resolver = Wire(), dns.Resolver(lookup)
    resolver.connection_made(wire)

    resolver.datagram_received(noise, ("10.88.0.9", 4))
    resolver.datagram_received(asked("door.team.svc.cluster.local"), ("10.88.0.9", 5))

    assert [address for _, address in wire.sent] == [("10.88.0.9", 5)]
