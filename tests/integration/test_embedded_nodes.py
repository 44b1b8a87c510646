"""A cluster that comes up again with other nodes than before."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.bed import CONFIG, Json, a_job, bed, has_started, processes
from tests.integration.plainbed import a_pod

from trainmaster.cli.embedded import EmbeddedOptions
from trainmaster.objects.resource import PODS

pytestmark = pytest.mark.sandbox

WORKERS = ("shrunk-worker-0", "shrunk-worker-1")


def options(home: Path, nodes: int) -> EmbeddedOptions:
    return EmbeddedOptions(home=str(home), nodes=nodes, config=str(CONFIG))


def a_waiting_job(gate: Path, restart: str) -> Json:
    """Its ranks end well once there is a file `open` at the gate when they start."""
    return a_job(
        "JAXJob",
        "shrunk",
        "hold.py",
        restart=restart,
        pod={"volumes": [{"name": "gate", "hostPath": {"path": str(gate)}}], "terminationGracePeriodSeconds": 0},
        container={"volumeMounts": [{"name": "gate", "mountPath": "/gate"}]},
        replicas={"Worker": 2},
    )


@pytest.mark.parametrize("restart", ["OnFailure", "ExitCode"])
def test_a_job_goes_on_when_the_nodes_of_its_pods_are_gone(tmp_path, restart):
    home, gate = tmp_path / "home", tmp_path / "gate"
    gate.mkdir()
    with bed(options(home, 3)) as before:
        before.submit(a_waiting_job(gate, restart))
        old = {name: before.pod(name, has_started)["metadata"]["uid"] for name in WORKERS}
    (gate / "open").touch()

    with bed(options(home, 1)) as after:
        result = after.finished("JAXJob", "shrunk")
        new = {name: after.pod(name) for name in WORKERS}

    assert result == "Succeeded"
    assert all(pod["metadata"]["uid"] != old[name] for name, pod in new.items())
    assert len({pod["spec"]["nodeName"] for pod in new.values()}) == 1
    assert processes("shrunk") == []


def test_a_pod_of_a_node_that_never_was_can_be_deleted(tmp_path):
    with bed(options(tmp_path / "home", 1)) as cluster:
        cluster.submit(a_pod("nowhere", "sleep 1000", nodeName="nosuch", terminationGracePeriodSeconds=30))

        cluster.do(cluster.client.delete(PODS, "nowhere", "default"))

        cluster.pod_gone("nowhere")
