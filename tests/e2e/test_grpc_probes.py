"""Probes of a real gRPC server, that of the TensorFlow environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.bed import Bed, Json, container_of
from tests.integration.plainbed import a_pod, is_ready, plain_bed
from tools.environments import environment

from trainmaster.cluster.kubelet.images import Images
from trainmaster.testing.patience import PATIENCE

pytestmark = pytest.mark.light

PROGRAMS = Path(__file__).parent / "programs"
IMAGE = "registry.test/grpc:1"


@pytest.fixture(scope="module", params=["namespaces", "ports"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    image = {"match": IMAGE, "python": str(environment("tensorflow")), "files": {"/programs": str(PROGRAMS)}}
    home = tmp_path_factory.mktemp(request.param)
    with plain_bed(home / "cluster", request.param, Images.from_config({"images": [image]}, home)) as running:
        yield running


def a_server(name: str, state: Path, **fields: Any) -> Json:
    """Its probes ask every second, and wait for an answer."""
    asking = {"periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": int(PATIENCE)}
    container = {
        "image": IMAGE,
        "command": ["python", "/programs/health.py", "0.0.0.0:50051"],
        "env": [{"name": "STATE", "value": str(state)}],
        "ports": [{"containerPort": 50051}],
        **{key: {**asking, **probe} for key, probe in fields.items()},
    }
    return a_pod(name, "", container=container, restartPolicy="Always")


def say(state: Path, text: str) -> Path:
    """In one step: the server may look at any time."""
    fresh = state.with_suffix(".new")
    fresh.write_text(text)
    return fresh.replace(state)


def grpc(service: str = "") -> Json:
    return {"grpc": {"port": 50051, **({"service": service} if service else {})}}


@pytest.mark.parametrize("service", ["", "trainer"], ids=["the whole", "a service"])
def test_readiness_follows_the_health_of_a_server(cluster, tmp_path, service):
    state, name = say(tmp_path / "state", "not serving"), f"ready-{service or 'whole'}"
    cluster.submit(a_server(name, state, readinessProbe=grpc(service)))

    cluster.warning(name, 'Readiness probe failed: service unhealthy (responded with "NOT_SERVING")')
    say(state, "serving")
    cluster.pod(name, is_ready)
    say(state, "not serving")

    cluster.pod(name, lambda pod: not is_ready(pod))


def test_a_server_that_is_alive_is_left_alone_and_one_that_is_not_is_started_again(cluster, tmp_path):
    state = say(tmp_path / "state", "serving")
    started = {**grpc(), "failureThreshold": 1000}
    cluster.submit(a_server("alive", state, startupProbe=started, livenessProbe=grpc("trainer")))

    before = cluster.pod("alive", is_ready)
    say(state, "not serving")

    assert container_of(before)["restartCount"] == 0
    cluster.warning("alive", 'Liveness probe failed: service unhealthy (responded with "NOT_SERVING")')
    cluster.pod("alive", lambda pod: container_of(pod)["restartCount"] == 1)


def test_a_service_that_the_server_does_not_know_is_not_ready(cluster, tmp_path):
    state = say(tmp_path / "state", "serving")

    cluster.submit(a_server("stranger", state, readinessProbe=grpc("nosuch")))

    cluster.warning("stranger", "it may not know the service 'nosuch'")
