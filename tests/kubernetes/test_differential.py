"""The same requests to the embedded API server and to a real one: answers differ only where that was reviewed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest
import tests.kubernetes.servers as servers
from tests.kubernetes.differences import CONTROLLERS, DEFECTS, DIFFERENCES, Difference
from tests.kubernetes.exchange import Mismatch, differences_of
from tests.kubernetes.scenarios import SCENARIOS
from tests.kubernetes.servers import Server

from trainmaster import frameworks
from trainmaster.operator.install import crds

NAMESPACES = {name: f"d{index}" for index, name in enumerate(SCENARIOS)}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Server, Server]]:
    """The real one and ours, prepared alike."""
    with servers.real_server() as real, servers.embedded_server() as ours:
        for server in (real, ours):
            install(server)
            servers.make_namespaces(server, list(NAMESPACES.values()))
        yield real, ours


@pytest.fixture(scope="module")
def compared(pair: tuple[Server, Server]) -> Callable[[str], list[Mismatch]]:
    """What differs in a scenario; it is sent to both once, whoever asks first."""

    @cache
    def differing(name: str) -> list[Mismatch]:
        real, ours = (server.api(NAMESPACES[name]) for server in pair)
        for api in (real, ours):
            SCENARIOS[name](api)
        return list(differences_of(name, real, ours))

    return differing


def install(server: Server) -> None:
    api = server.api("default")
    for body in crds(frameworks.BUILT_IN):
        api.send("POST", DEFINITIONS, body)
        assert api.exchanges[-1].status == 201, api.exchanges[-1].body
    servers.wait_until_served(api, "/apis/kubeflow.org/v1/pytorchjobs")


@pytest.mark.parametrize("name", SCENARIOS)
def test_answers_are_those_of_a_real_server(compared, name):
    found = compared(name)

    unexplained = [one for one in found if not explained_by(one)]
    assert not unexplained, "\n".join(map(str, ["", *unexplained]))


def test_every_listed_difference_exists(compared):
    """An entry that covers nothing any more has to go."""
    found = [one for name in SCENARIOS for one in compared(name)]

    used = {entry for one in found for entry in explained_by(one)}
    assert not [entry for entry in (*DIFFERENCES, *DEFECTS) if entry not in {*used, *CONTROLLERS}]


def explained_by(mismatch: Mismatch) -> list[Difference]:
    return [entry for entry in (*DIFFERENCES, *DEFECTS) if entry.covers(mismatch)]
