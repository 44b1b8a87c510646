"""Probes against a target that does what a test tells it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from trainmaster.cluster.kubelet import probes
from trainmaster.testing import clock
from trainmaster.testing.patience import PATIENCE


class Target:
    """Answers commands with the next code and connections with a canned HTTP answer from a real server."""

    def __init__(self, codes: Sequence[int] = (), answer: bytes = b"", delay: float = 0) -> None:
        self.codes = list(codes)
        self.answer = answer
        self.delay = delay
        self.asked: list[float] = []
        self.requests: list[bytes] = []

    async def run(self, argv: Sequence[str]) -> tuple[int, str]:
        self.asked.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.delay)
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        return code, f"output of {argv[0]}\n" if code else ""

    async def connect(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not self.answer:
            raise ConnectionRefusedError(111, "Connection refused")
        async with asyncio.timeout(PATIENCE):
            return await asyncio.open_connection("127.0.0.1", port)

    def port(self, name: int | str) -> int:
        return int(name)


async def asked(probe: dict[str, Any], answer: bytes) -> tuple[str, bytes]:
    """The verdict about a server with that answer, and what it was asked."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        probe["httpGet"]["port"] = port
        verdict = await probes.check(probe, Target(answer=answer))
    return verdict, seen[0]


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n", "", id="ok"),
        pytest.param(b"HTTP/1.1 302 Found\r\n\r\n", "", id="redirect"),
        pytest.param(b"HTTP/1.1 500 No\r\n\r\n", "HTTP probe failed with statuscode: 500", id="error"),
        pytest.param(b"\r\n", "HTTP probe failed with statuscode: 0", id="nonsense"),
    ],
)
def test_an_http_probe_goes_by_the_status_code(answer: bytes, verdict: str) -> None:
    headers = [{"name": "host", "value": "me"}]
    probe = {"httpGet": {"path": "healthz", "httpHeaders": headers}, "timeoutSeconds": PATIENCE}

    told, request = asyncio.run(asked(probe, answer))

    assert told == verdict
    assert request.startswith(b"GET /healthz HTTP/1.1\r\n")
    assert b"host: me\r\n" in request
    assert b"Host: localhost" not in request


def test_an_exec_probe_tells_the_commands_output() -> None:
    probe = {"exec": {"command": ["check"]}}

    assert clock.run(probes.check(probe, Target([0]))) == ""
    assert clock.run(probes.check(probe, Target([1]))) == "output of check"


def test_a_probe_that_takes_too_long_has_failed() -> None:
    probe = {"exec": {"command": ["check"]}, "timeoutSeconds": 3}

    assert clock.run(probes.check(probe, Target([0], delay=60))) == "timed out after 3s"


def test_a_port_nobody_listens_on_fails_a_tcp_probe() -> None:
    assert clock.run(probes.check({"tcpSocket": {"port": 1}}, Target())) == "[Errno 111] Connection refused"


def test_a_kind_nobody_knows_fails_with_words() -> None:
    assert "not supported" in clock.run(probes.check({"pigeon": {"port": 1}}, Target()))


def test_verdicts_come_after_their_thresholds() -> None:
    target = Target([0, 1, 1, 1, 0, 0, 0])
    probe = {
        "exec": {"command": ["check"]},
        "initialDelaySeconds": 5,
        "periodSeconds": 2,
        "successThreshold": 2,
        "failureThreshold": 3,
    }
    told: list[bool] = []

    async def tell(is_good: bool, _why: str) -> bool:
        told.append(is_good)
        return len(told) < 2

    clock.run(probes.repeat(probe, target, tell))

    assert told == [False, True]
    assert target.asked == [5, 7, 9, 11, 13, 15]
