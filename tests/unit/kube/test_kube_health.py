"""Health and metrics over real sockets: what each path answers, and what a bad address says."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from trainmaster.kube.health import Address, BindError, HealthServer, parse_address
from trainmaster.testing import clock
from trainmaster.testing.ports import free_port

T = TypeVar("T")


def serving(server: HealthServer, act: Callable[[], Awaitable[T]]) -> T:
    """What the act returns, done while the server runs."""

    async def main() -> T:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(server.run(), name="server")
            await server.ready.wait()
            result = await act()
            running.cancel()
        return result

    return clock.run(main())


async def fetch(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str, str]:
    """Status, content type and body."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    status, *headers = head.split("\r\n")
    types = [line.split(": ", 1)[1] for line in headers if line.lower().startswith("content-type")]
    return int(status.split()[1]), types[0], body


def a_server(health: str = "127.0.0.1:0", metrics: str = "127.0.0.1:0") -> HealthServer:
    return HealthServer(health=health, metrics=metrics, render=lambda: (b"up 1\n", "text/plain; version=0.0.4"))


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_all_is_well_when_no_check_objects(path: str) -> None:
    server = a_server()
    server.add_check("caches", lambda: None)

    status, _, body = serving(server, lambda: fetch(server.health_port, path))

    assert (status, body) == (200, "ok")


def test_a_failing_check_is_named_with_its_reason() -> None:
    server = a_server()
    server.add_check("ping", lambda: None)
    server.add_check("caches", lambda: "pods not synced")

    status, _, body = serving(server, lambda: fetch(server.health_port, "/readyz"))

    assert status == 500
    assert body == "[+]ping ok\n[-]caches failed: pods not synced\nreadyz check failed\n"


def test_a_process_that_is_not_ready_is_alive() -> None:
    server = a_server()
    server.add_check("caches", lambda: "pods not synced")

    status, _, _ = serving(server, lambda: fetch(server.health_port, "/livez"))

    assert status == 200


def test_verbose_lists_checks_that_pass() -> None:
    server = a_server()
    server.add_check("ping", lambda: None)

    status, _, body = serving(server, lambda: fetch(server.health_port, "/readyz?verbose"))

    assert (status, body) == (200, "[+]ping ok\nreadyz check passed\n")


def test_a_check_that_raises_is_one_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    def check() -> None:
        raise LookupError("nowhere")

    server = a_server()
    server.add_check("broken", check)

    status, _, body = serving(server, lambda: fetch(server.health_port, "/readyz"))

    assert status == 500
    assert "[-]broken failed: LookupError: nowhere" in body
    assert caplog.records[-1].exc_info


def test_metrics_are_served_on_their_own_port() -> None:
    server = a_server()

    async def act() -> list[tuple[int, str, str]]:
        ports = (server.metrics_port, server.health_port)
        return [await fetch(port, "/metrics") for port in ports]

    answer, elsewhere = serving(server, act)

    assert answer == (200, "text/plain; version=0.0.4", "up 1\n")
    assert elsewhere[0] == 404


def test_what_is_off_does_not_listen() -> None:
    server = a_server(health="0", metrics="")

    async def act() -> tuple[int, int]:
        return server.health_port, server.metrics_port

    assert serving(server, act) == (0, 0)


def test_no_host_means_all_interfaces() -> None:
    port = free_port()
    server = a_server(health=f":{port}", metrics="0")

    status, _, _ = serving(server, lambda: fetch(port, "/healthz"))

    assert status == 200


def test_an_address_in_use_says_which_flag_to_change() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = a_server(metrics=f"127.0.0.1:{port}")

        with pytest.raises(BindError, match=rf"127\.0\.0\.1:{port}: another process.*--metrics-bind-address"):
            clock.run(server.run())

    assert not server.ready.is_set()


def test_an_address_that_is_not_ours_says_which_flag_to_change() -> None:
    server = a_server(health="192.0.2.1:8081")

    with pytest.raises(BindError, match=r"192\.0\.2\.1:8081, which --health-probe-bind-address asks for"):
        clock.run(server.run())


@pytest.mark.parametrize(
    ("text", "address"),
    [
        pytest.param(":8081", Address(None, 8081), id="all interfaces"),
        pytest.param("127.0.0.1:0", Address("127.0.0.1", 0), id="any port"),
        pytest.param("[::1]:8081", Address("::1", 8081), id="version six"),
        pytest.param("[::]:8081", Address("::", 8081), id="all of version six"),
        pytest.param("localhost:80", Address("localhost", 80), id="name"),
        pytest.param("0", None, id="zero is off"),
        pytest.param("", None, id="nothing is off"),
    ],
)
def test_addresses_are_read_as_upstream_reads_them(text: str, address: Address | None) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["8080", "::1:8080", ":http", ":70000", "host:", ":-1"])
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BindError, match=r"--flag: .* is not an address such as :8080"):
        parse_address(text, "--flag")
