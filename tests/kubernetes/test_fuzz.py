"""Nonsense over HTTP: the embedded API server refuses it politely, says so in time, and goes on."""

from __future__ import annotations

import http.client
import logging
import random
import socket
import urllib.parse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import tests.kubernetes.nonsense as nonsense
import tests.kubernetes.servers as servers
from tests.kubernetes.nonsense import Nonsense
from tests.kubernetes.scenarios_custom import SCHEMA, SUBRESOURCES
from tests.kubernetes.servers import Server
from tests.kubernetes.specimens import CONFIG_MAPS, DEFINITIONS, a_config_map, a_definition

from trainmaster.testing.patience import PATIENCE

REQUESTS_PER_SEED = 500
SEEDS = range(8)
DOCUMENTED = (501, 503, 504)
"""Of the 5xx: not served here, no kubelet beside this server, a version from the future."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with servers.embedded_server() as running:
        api = running.api("default")
        widgets = a_definition("widgets", "Widget", SCHEMA, subresources=SUBRESOURCES)
        api.send("POST", DEFINITIONS, widgets)
        for path, body in nonsense.PLACES.items():
            api.send("POST", path, body())
        yield running


@pytest.fixture
def complaints(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """What the server logged as its own failure; no request may bring it to that."""
    caplog.set_level(logging.WARNING)
    found: list[str] = []
    yield found
    found += [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]
    assert not found


def status_of(server: Server, request: Nonsense) -> int:
    where = urllib.parse.urlsplit(server.url)
    assert where.hostname is not None
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=PATIENCE)
    headers = {"Authorization": f"Bearer {server.token}", **{k: v for k, v in request.headers.items() if v}}
    try:
        connection.request(request.method, request.path, request.body, headers)
        response = connection.getresponse()
        if not request.is_stream:
            response.read()
        return response.status
    finally:
        connection.close()


def failures_of(server: Server, seed: int) -> list[str]:
    dice = random.Random(seed)
    failures = []
    for _ in range(REQUESTS_PER_SEED):
        request = nonsense.make(dice)
        try:
            status: int | str = status_of(server, request)
        except ConnectionError:
            continue  # refused before all of it was read, which is an answer too
        except (OSError, http.client.HTTPException) as error:
            status = repr(error)
        if isinstance(status, str) or (status >= 500 and status not in DOCUMENTED):
            failures.append(f"seed {seed}: {status}: {request}")
    return failures


def test_nonsense_gets_an_answer_and_no_internal_error(server, complaints):
    with ThreadPoolExecutor(len(SEEDS)) as threads:
        failures = [one for found in threads.map(lambda seed: failures_of(server, seed), SEEDS) for one in found]

    assert not failures, "\n".join(failures[:20])
    assert still_serves(server)


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize("case", nonsense.RAW)
def test_broken_http_does_no_harm(server, complaints, case, method):
    where = urllib.parse.urlsplit(server.url)
    head = nonsense.HEAD.format(method=method, token=server.token).encode()

    with socket.create_connection((where.hostname or "", where.port or 0), PATIENCE) as connection:
        connection.sendall(head + nonsense.RAW[case])
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(65536)

    assert not answer or answer.startswith(b"HTTP/1."), answer
    assert b" 500 " not in answer[:13], answer
    assert still_serves(server)


def still_serves(server: Server) -> bool:
    api = server.api("default")
    api.send("POST", CONFIG_MAPS, a_config_map("after"))
    api.send("GET", f"{CONFIG_MAPS}/after")
    api.send("DELETE", f"{CONFIG_MAPS}/after")
    return [exchange.status for exchange in api.exchanges] == [201, 200, 200]
