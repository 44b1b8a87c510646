"""The same requests to the embedded API server and to a real one: answers differ only where that was reviewed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tests.kubernetes.servers as servers
from tests.kubernetes.differences import CONTROLLERS, DEFECTS, DIFFERENCES, Difference
from tests.kubernetes.exchange import Mismatch, differences_of
from tests.kubernetes.scenarios import SCENARIOS
from tests.kubernetes.servers import Server

from trainmaster import frameworks
from trainmaster.operator.install import crds

pytestmark = pytest.mark.timeout(300)
NAMESPACES = {name: f"d{index}" for index, name in enumerate(SCENARIOS)}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_used: set[Difference] = set()


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Server, Server]]:
    """The real one and ours, prepared alike."""
    with servers.real_server() as real, servers.embedded_server() as ours:
        for server in (real, ours):
            install(server)
            servers.make_namespaces(server, list(NAMESPACES.values()))
        yield real, ours


def install(server: Server) -> None:
    api = server.api("default")
    for body in crds(frameworks.BUILT_IN):
        api.send("POST", DEFINITIONS, body)
        assert api.exchanges[-1].status == 201, api.exchanges[-1].body
    servers.wait_until_served(api, "/apis/kubeflow.org/v1/pytorchjobs")


@pytest.mark.parametrize("name", SCENARIOS)
def test_answers_are_those_of_a_real_server(pair, name):
    real, ours = (server.api(NAMESPACES[name]) for server in pair)

    for api in (real, ours):
        SCENARIOS[name](api)

    unexplained = [one for one in differences_of(name, real, ours) if not is_known(one)]
    assert not unexplained, "\n".join(map(str, ["", *unexplained]))


def is_known(mismatch: Mismatch) -> bool:
    found = [entry for entry in (*DIFFERENCES, *DEFECTS) if entry.covers(mismatch)]
    _used.update(found)
    return bool(found)


def test_every_listed_difference_exists(request):
    """An entry that covers nothing any more has to go; only a whole run can tell."""
    if len(request.session.items) < len(SCENARIOS):
        pytest.skip("not all scenarios were run")

    unused = [entry for entry in (*DIFFERENCES, *DEFECTS) if entry not in {*_used, *CONTROLLERS}]

    assert not unused
