"""The helper process of a whole cluster is killed: the network of pods is set up again, and jobs go on."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tests.integration.bed import CONFIG, Bed, a_job, bed, container_of
from tests.integration.plainbed import a_pod, is_ready, plain_bed, told
from tests.machine import BOTH

from trainmaster.cli.embedded import EmbeddedOptions
from trainmaster.cluster.kubelet.images import Images
from trainmaster.objects.resource import EVENTS, SERVICES
from trainmaster.testing.patience import PATIENCE

pytestmark = pytest.mark.sandbox

PORT = 30_000 + os.getpid() % 10_000
SERVE = """
import os, socket
with socket.create_server(("0.0.0.0", int(os.environ["PORT"]))) as server:
    while True:
        connection, _ = server.accept()
        connection.sendall(b"served")
        connection.close()
"""
CALL = """
import os, socket, time
deadline = time.monotonic() + float(os.environ["PATIENCE"])
while True:
    try:
        with socket.create_connection((os.environ["TARGET"], int(os.environ["PORT"])), timeout=20) as connection:
            print(connection.recv(99).decode(), flush=True)
        break
    except OSError:
        if time.monotonic() > deadline:
            raise
        time.sleep(0.05)
api = (os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"]))
with socket.create_connection(api, timeout=20):
    print("the API server is there")
"""


def variables(**values: object) -> list[dict[str, str]]:
    return [{"name": name, "value": str(value)} for name, value in values.items()]


def kill_helper(home: Path) -> None:
    os.kill(json.loads((home / "sandbox.json").read_text())["pid"], signal.SIGKILL)


def restarted(cluster: Bed, name: str, times: int) -> None:
    cluster.pod(name, lambda pod: container_of(pod).get("restartCount") == times and is_ready(pod))


@pytest.mark.parametrize("sandbox", BOTH)
def test_pods_reach_services_and_the_api_server_after_each_death_of_the_helper(tmp_path, sandbox):
    own = {
        "command": ["python", "-c", SERVE],
        "ports": [{"containerPort": PORT}],
        "env": variables(PORT=PORT),
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": PORT, "targetPort": PORT}]},
    }
    heard = []

    with plain_bed(tmp_path, sandbox, Images()) as cluster:
        cluster.submit(service, a_pod("web", "", labels={"app": "web"}, restartPolicy="Always", container=own))
        address = cluster.do(cluster.client.get(SERVICES, "web", "default"))["spec"]["clusterIP"]
        for times in range(3):
            if times:
                kill_helper(tmp_path)
            restarted(cluster, "web", times)
            env = variables(TARGET=address, PORT=PORT, PATIENCE=PATIENCE)
            heard.append(
                told(cluster, a_pod(f"client-{times}", "", container={"command": ["python", "-c", CALL], "env": env}))
            )
        events = cluster.do(cluster.client.list(EVENTS, "default")).items

    assert heard == ["served\nthe API server is there\n"] * 3
    died = [event for event in events if event["reason"] == "ContainerHelperDied"]
    assert {event["involvedObject"]["kind"] for event in died} == {"Node"}


@pytest.mark.parametrize("sandbox", BOTH)
def test_a_job_restarts_by_its_policy_when_the_helper_has_died(tmp_path, sandbox):
    home, gate = tmp_path / "home", tmp_path / "gate"
    gate.mkdir()
    pod = {"volumes": [{"name": "gate", "hostPath": {"path": str(gate)}}]}
    mounted = {"volumeMounts": [{"name": "gate", "mountPath": "/gate"}]}
    job = a_job("JAXJob", "held", "hold.py", restart="OnFailure", pod=pod, container=mounted, replicas={"Worker": 2})

    with bed(EmbeddedOptions(home=str(home), config=str(CONFIG), sandbox=sandbox)) as cluster:
        cluster.submit(job)
        for rank in range(2):
            cluster.says(f"held-worker-{rank}", "is the gate open? False")
        (gate / "open").touch()
        kill_helper(home)

        assert cluster.finished("JAXJob", "held") == "Succeeded"


@pytest.mark.parametrize("sandbox", BOTH)
def test_a_job_that_is_not_to_restart_fails_when_the_helper_has_died(tmp_path, sandbox):
    home, gate = tmp_path / "home", tmp_path / "gate"
    gate.mkdir()
    pod = {"volumes": [{"name": "gate", "hostPath": {"path": str(gate)}}]}
    mounted = {"volumeMounts": [{"name": "gate", "mountPath": "/gate"}]}
    job = a_job("JAXJob", "held", "hold.py", restart="Never", pod=pod, container=mounted, replicas={"Worker": 2})

    with bed(EmbeddedOptions(home=str(home), config=str(CONFIG), sandbox=sandbox)) as cluster:
        cluster.submit(job)
        for rank in range(2):
            cluster.says(f"held-worker-{rank}", "is the gate open? False")
        kill_helper(home)

        assert cluster.finished("JAXJob", "held") == "Failed"
