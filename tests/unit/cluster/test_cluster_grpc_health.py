"""gRPC probes against a peer that says over HTTP/2 what a test has it say."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Any

import pytest

from trainmaster.cluster.kubelet import probes
from trainmaster.cluster.kubelet.grpc_health import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    Frame,
)
from trainmaster.testing.patience import PATIENCE

STATUS_200 = Frame(HEADERS, END_HEADERS, 1, b"\x88")
TRAILERS = Frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\0\x0bgrpc-status\x010")
REFUSAL = Frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x88\0\x0bgrpc-status\x0212")
NO_STATUS = "the server answered grpc.health.v1.Health/Check without a status: it may not "


def message(body: bytes) -> bytes:
    return struct.pack(">BI", 0, len(body)) + body


def answer(body: bytes) -> list[Frame]:
    return [Frame(SETTINGS, 0, 0, b""), STATUS_200, Frame(DATA, 0, 1, message(body)), TRAILERS]


class Peer:
    """Reads the question, says its frames, and reads on until the other closes."""

    def __init__(self, frames: Sequence[Frame | bytes], *, closes: bool = False) -> None:
        self.frames = frames
        self.closes = closes
        self.heard: list[Frame] = []
        self.preface = b""
        self.connected: list[int] = []
        self.address: tuple[str, int] = ("", 0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.preface = await reader.readexactly(len(PREFACE))
            while not (self.heard and self.heard[-1].flags & END_STREAM and self.heard[-1].kind == DATA):
                self.heard.append(await Frame.read(reader))
            for frame in self.frames:
                writer.write(frame if isinstance(frame, bytes) else frame.encode())
            await writer.drain()
            while not self.closes:
                self.heard.append(await Frame.read(reader))
        except (EOFError, ConnectionError):
            return
        finally:
            writer.close()

    async def run(self, argv: Sequence[str]) -> tuple[int, str]:
        raise NotImplementedError

    async def connect(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.connected.append(port)
        async with asyncio.timeout(PATIENCE):
            return await asyncio.open_connection(*self.address)

    def port(self, name: int | str) -> int:
        return int(name)


def asked(peer: Peer, **fields: Any) -> str:
    """The verdict of a probe."""

    async def main() -> str:
        async with await asyncio.start_server(peer.serve, "127.0.0.1", 0) as server:
            peer.address = server.sockets[0].getsockname()
            return await probes.check({"grpc": {"port": 50051, **fields}, "timeoutSeconds": PATIENCE}, peer)

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        pytest.param(b"\x08\x01", "", id="serving"),
        pytest.param(b"\x08\x02", 'service unhealthy (responded with "NOT_SERVING")', id="not serving"),
        pytest.param(b"\x08\x03", 'service unhealthy (responded with "SERVICE_UNKNOWN")', id="unknown service"),
        pytest.param(b"", 'service unhealthy (responded with "UNKNOWN")', id="nothing said"),
        pytest.param(b"\x08\x09", 'service unhealthy (responded with "9")', id="a state of the future"),
        pytest.param(b"\x12\x02hi\x1d1234\x218bytes!!\x08\x01", "", id="beside fields of the future"),
    ],
)
def test_the_state_in_the_answer_decides(body: bytes, verdict: str) -> None:
    assert asked(Peer(answer(body))) == verdict


def test_the_question_is_one_call_of_the_health_service() -> None:
    peer = Peer(answer(b"\x08\x01"))

    asked(peer, service="training.Worker")

    settings, headers, data = peer.heard[:3]
    assert peer.preface == PREFACE
    assert peer.connected == [50051]
    assert (settings.kind, settings.stream) == (SETTINGS, 0)
    assert (headers.kind, headers.stream, headers.flags) == (HEADERS, 1, END_HEADERS)
    for text in (b"\x07:method\x04POST", b"\x1c/grpc.health.v1.Health/Check", b"\x10application/grpc", b"\x08trailers"):
        assert text in headers.body
    assert (data.kind, data.stream, data.flags) == (DATA, 1, END_STREAM)
    assert data.body == message(b"\x0a\x0ftraining.Worker")


def test_without_a_service_the_server_as_a_whole_is_asked_about() -> None:
    peer = Peer(answer(b"\x08\x01"))

    asked(peer)

    assert peer.heard[2].body == message(b"")


def test_a_long_name_of_a_service_is_sent_whole() -> None:
    peer = Peer(answer(b"\x08\x01"))

    asked(peer, service="s" * 300)

    assert peer.heard[2].body == message(b"\x0a\xac\x02" + b"s" * 300)


def test_settings_and_pings_are_answered() -> None:
    ping, [settings, *rest] = Frame(PING, 0, 0, b"01234567"), answer(b"\x08\x01")
    peer = Peer([settings, ping, *rest])

    verdict = asked(peer)

    assert verdict == ""
    assert peer.heard[3:] == [Frame(SETTINGS, ACK, 0, b""), Frame(PING, ACK, 0, b"01234567")]


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(
            [Frame(DATA, 0, 1, message(b"\x08\x01")[:3]), Frame(DATA, 0, 1, b"\0\x02\x08\x01")], id="in parts"
        ),
        pytest.param([Frame(DATA, PADDED, 1, b"\x03" + message(b"\x08\x01") + b"\0\0\0")], id="padded"),
        pytest.param([Frame(DATA, END_STREAM, 1, message(b"\x08\x01"))], id="without trailers"),
        pytest.param([Frame(GOAWAY, 0, 0, bytes([0, 0, 0, 1, 0, 0, 0, 0])), *answer(b"\x08\x01")], id="as the last"),
        pytest.param([Frame(DATA, 0, 3, b"???"), *answer(b"\x08\x01")], id="beside another's"),
    ],
)
def test_an_answer_may_come(frames: list[Frame]) -> None:
    assert asked(Peer([STATUS_200, *frames])) == ""


@pytest.mark.parametrize(
    ("frames", "verdict"),
    [
        pytest.param([REFUSAL], f"{NO_STATUS}implement it", id="an error of gRPC"),
        pytest.param(
            [Frame(RST_STREAM, 0, 1, struct.pack(">I", 7))],
            "the server refused the call: HTTP/2 error 7",
            id="a stream that is reset",
        ),
        pytest.param(
            [Frame(GOAWAY, 0, 0, struct.pack(">II", 0, 11))],
            "the server refused the connection: HTTP/2 error 11",
            id="a connection that is refused",
        ),
        pytest.param(
            [b"HTTP/1.1 400 Bad Request\r\n\r\n"],
            "the server does not speak HTTP/2 without TLS, which gRPC probes need",
            id="another protocol",
        ),
        pytest.param(
            [Frame(DATA, 0, 1, b"\x01\0\0\0\x01?")],
            "the server's answer is not a status of grpc.health.v1.Health",
            id="compression that nobody asked for",
        ),
        pytest.param(
            [Frame(DATA, 0, 1, message(b"\x0b"))],
            "the server's answer is not a status of grpc.health.v1.Health",
            id="no message",
        ),
        pytest.param(
            [Frame(DATA, 0, 1, message(b"\x08\x80"))],
            "the server's answer is not a status of grpc.health.v1.Health",
            id="half a number",
        ),
    ],
)
def test_a_failure_says_what_the_server_did(frames: list[Frame | bytes], verdict: str) -> None:
    assert asked(Peer(frames)) == verdict


def test_a_service_that_the_server_does_not_know_is_named() -> None:
    assert asked(Peer([REFUSAL]), service="nosuch") == f"{NO_STATUS}know the service 'nosuch'"


def test_a_connection_that_breaks_off_is_a_failure() -> None:
    assert asked(Peer([], closes=True)) == "the server closed the connection before it answered"


@pytest.mark.parametrize("frames", [[], [Frame(SETTINGS, 0, 0, b""), STATUS_200]], ids=["nothing", "half of it"])
def test_a_server_that_does_not_answer_in_time_has_failed(frames: list[Frame]) -> None:
    async def main() -> str:
        peer = Peer(frames)
        async with await asyncio.start_server(peer.serve, "127.0.0.1", 0) as server:
            peer.address = server.sockets[0].getsockname()
            return await probes.check({"grpc": {"port": 50051}, "timeoutSeconds": 0.1}, peer)

    assert asyncio.run(main()) == "timed out after 0.1s"
