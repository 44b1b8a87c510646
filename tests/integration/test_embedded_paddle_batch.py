"""Jobs of paddle-operator on the embedded cluster: real processes behind a real gate, and what kubectl shows."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.bed import CONFIG, IMAGE, MARK, Bed, Json, bed, processes
from tools import kubectl as stock

from trainmaster.cli.embedded import EmbeddedOptions
from trainmaster.objects.resource import CONFIG_MAPS, PODS
from trainmaster.testing.patience import PATIENCE

pytestmark = pytest.mark.sandbox

VERSION = "batch.paddlepaddle.org/v1"
SERVE = "import signal; print('serving', flush=True); signal.pause()"
MEET = """
import os, socket
own, rank = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(","), int(os.environ["PADDLE_TRAINER_ID"])
host, _, port = own[rank].rpartition(":")
assert (os.environ["POD_IP"], os.environ["PADDLE_PORT"]) == (host, port)
if rank == 0:
    with socket.create_server(("", int(port))) as door:
        for _ in own[1:]:
            door.accept()[0].sendall(b"hello")
else:
    meeting = own[0].rpartition(":")
    while True:
        try:
            with socket.create_connection((meeting[0], int(meeting[2])), 5) as peer:
                assert peer.recv(5) == b"hello"
                break
        except ConnectionRefusedError:
            pass
print("met at", own[0], flush=True)
"""

MEET_ALL = """
import os, signal, socket, threading
KEYS = {
    "PSERVER": "PADDLE_PSERVERS_IP_PORT_LIST",
    "TRAINER": "PADDLE_TRAINER_ENDPOINTS",
    "HETER": "PADDLE_HETER_ENDPOINTS",
}
role, number = os.environ["PADDLE_TRAINING_ROLE"], int(os.environ["PADDLE_TRAINER_ID"])
everybody = [(of, place) for of, key in KEYS.items() for place in os.environ[key].split(",")]
own = os.environ[KEYS[role]].split(",")[number]
others = [(of, place.rpartition(":")) for of, place in everybody if place != own]
assert own == os.environ["POD_IP"] + ":" + os.environ["PADDLE_PORT"]
door = socket.create_server(("", int(os.environ["PADDLE_PORT"])))


def answer():
    for _ in others:
        door.accept()[0].sendall(role.encode())


def ask(place):
    while True:
        try:
            with socket.create_connection((place[0], int(place[2])), 5) as peer:
                return peer.recv(20).decode()
        except ConnectionRefusedError:
            pass


answering = threading.Thread(target=answer)
answering.start()
assert [ask(place) for _, place in others] == [of for of, _ in others]
answering.join()
print(role, number, "met", *sorted(of for of, _ in others), flush=True)
role != "PSERVER" or signal.pause()
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return Path(tmp_path_factory.mktemp("cluster"))


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[Bed]:
    with bed(EmbeddedOptions(home=str(home), config=str(CONFIG))) as running:
        yield running
    assert processes() == []


def a_role(replicas: int, program: str, **template: object) -> Json:
    container = {
        "name": "paddle",
        "image": IMAGE,
        "command": ["python", "-c", program],
        "env": [{"name": "MARK", "value": MARK}],
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 2, **template}
    return {"replicas": replicas, "template": {"spec": spec}}


def a_paddle(name: str, **spec: object) -> Json:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": VERSION, "kind": "PaddleJob", "metadata": metadata, "spec": spec}


def reaching(cluster: Bed, name: str, phase: str) -> Json:
    resource = cluster.resource(VERSION, "PaddleJob")
    job = cluster.until(resource, name, lambda job: job is not None and job.get("status", {}).get("phase") == phase)
    assert job is not None
    return job


def kubectl(home: Path, *words: str) -> str:
    command = [stock.kubectl(), f"--kubeconfig={home / 'kubeconfig'}", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout


@pytest.mark.kubectl
def test_kubectl_shows_the_table_of_the_manual_for_a_job_that_has_completed_while_its_servers_serve(cluster, home):
    ended = a_role(2, "print('trained')")
    cluster.submit(
        a_paddle("wide-ande-deep-service", cleanPodPolicy="Never", withGloo=1, worker=ended, ps=a_role(2, SERVE))
    )

    reaching(cluster, "wide-ande-deep-service", "Completed")
    # Such quick workers may be done before the servers are up.
    resource = cluster.resource(VERSION, "PaddleJob")
    cluster.until(resource, "wide-ande-deep-service", lambda job: job["status"]["ps"]["ready"] == "2/2")

    heading, line = kubectl(home, "get", "pdj").splitlines()
    assert heading.split() == ["NAME", "STATUS", "MODE", "PS", "WORKER", "AGE"]
    assert line.split()[:-1] == ["wide-ande-deep-service", "Completed", "PS", "2/2", "0/2"]
    assert re.fullmatch(r"\d+[sm]\w*", line.split()[-1])


@pytest.mark.parametrize("intranet", ["PodIP", "Service"])
def test_workers_find_each_other_by_what_the_gate_tells_them(cluster, intranet):
    name = f"meet-{intranet.lower()}"

    cluster.submit(a_paddle(name, intranet=intranet, cleanPodPolicy="Never", worker=a_role(3, MEET)))

    job = reaching(cluster, name, "Completed")
    logs = {cluster.log(f"{name}-worker-{index}") for index in range(3)}
    assert len(logs) == 1
    assert logs.pop().startswith("met at ")
    assert (job["status"]["mode"], job["status"]["worker"]["ready"]) == ("Collective", "0/3")


@pytest.mark.parametrize("intranet", ["PodIP", "Service"])
def test_servers_workers_and_heters_meet_and_the_job_ends_with_its_workers_and_heters(cluster, intranet):
    name = f"heter-{intranet.lower()}"
    roles = {role: a_role(count, MEET_ALL) for role, count in (("ps", 1), ("worker", 2), ("heter", 2))}

    cluster.submit(a_paddle(name, intranet=intranet, cleanPodPolicy="Never", **roles))

    job = reaching(cluster, name, "Completed")
    cluster.says(f"{name}-ps-0", "met")  # servers are not waited for
    logs = [cluster.log(f"{name}-{role}") for role in ("ps-0", "worker-0", "worker-1", "heter-0", "heter-1")]
    assert [log.strip() for log in logs] == [
        "PSERVER 0 met HETER HETER TRAINER TRAINER",
        "TRAINER 0 met HETER HETER PSERVER TRAINER",
        "TRAINER 1 met HETER HETER PSERVER TRAINER",
        "HETER 0 met HETER PSERVER TRAINER TRAINER",
        "HETER 1 met HETER PSERVER TRAINER TRAINER",
    ]
    status = job["status"]
    assert (status["mode"], status["ps"]["ready"], status["worker"]["ready"]) == ("PS", "1/1", "0/2")
    assert status["heter"]["ready"] == "0/2"
    cluster.do(cluster.client.delete(cluster.resource(VERSION, "PaddleJob"), name, "default"))


@pytest.mark.parametrize("policy", ["OnFailure", "OnCompletion"])
def test_pods_of_a_job_that_has_failed_go_or_stay_by_policy(cluster, policy):
    name = f"clean-{policy.lower()}"
    worker = a_role(1, "raise SystemExit(3)", restartPolicy="Never")

    cluster.submit(a_paddle(name, cleanPodPolicy=policy, ps=a_role(1, SERVE), worker=worker))

    reaching(cluster, name, "Failed")
    if policy == "OnFailure":
        cluster.pod_gone(f"{name}-ps-0")
        cluster.pod_gone(f"{name}-worker-0")
    assert set(cluster.pods(name)) == (set() if policy == "OnFailure" else {f"{name}-ps-0", f"{name}-worker-0"})
    cluster.do(cluster.client.delete(cluster.resource(VERSION, "PaddleJob"), name, "default"))


@pytest.mark.parametrize("role", ["ps", "worker"])
def test_a_replica_that_is_killed_fails_the_job(cluster, role):
    name = f"killed-{role}"
    cluster.submit(a_paddle(name, cleanPodPolicy="Always", ps=a_role(1, SERVE), worker=a_role(1, SERVE)))
    cluster.says(f"{name}-{role}-0", "serving")
    [process] = processes(pod=f"{name}-{role}-0")

    os.kill(process.pid, 9)

    reaching(cluster, name, "Failed")
    cluster.pod_gone(f"{name}-{role}-0")


def test_a_pod_deleted_by_hand_comes_back_with_an_address_that_all_can_read(cluster):
    cluster.submit(a_paddle("again", ps=a_role(1, SERVE), worker=a_role(2, SERVE)))
    reaching(cluster, "again", "Running")
    before = cluster.pod("again-worker-1")

    cluster.do(cluster.client.delete(PODS, "again-worker-1", "default"))

    after = cluster.pod("again-worker-1", lambda pod: pod["metadata"]["uid"] != before["metadata"]["uid"])
    reaching(cluster, "again", "Running")
    after = cluster.says("again-worker-1", "serving")
    gate = cluster.do(cluster.client.get(CONFIG_MAPS, "again", "default"))
    assert after["status"]["podIP"] == gate["data"]["PADDLE_TRAINERS"].split(",")[1]
    cluster.do(cluster.client.delete(cluster.resource(VERSION, "PaddleJob"), "again", "default"))


def test_a_pod_deleted_by_hand_stays_away_from_a_job_that_has_ended(cluster):
    cluster.submit(a_paddle("over", cleanPodPolicy="Never", ps=a_role(1, SERVE), worker=a_role(1, "pass")))
    reaching(cluster, "over", "Completed")

    cluster.do(cluster.client.delete(PODS, "over-ps-0", "default"))
    cluster.pod_gone("over-ps-0")

    resource = cluster.resource(VERSION, "PaddleJob")
    job = cluster.until(resource, "over", lambda job: job is not None and job["status"]["ps"]["ready"] == "0/1")
    assert job is not None
    assert job["status"]["phase"] == "Completed"
    assert set(cluster.pods("over")) == {"over-worker-0"}


@pytest.mark.kubectl
def test_both_kinds_are_found_by_the_names_that_tell_them_apart(cluster, home):
    by_short_name = kubectl(home, "get", "pdj", "-o", "name")
    by_group = kubectl(home, "get", "paddlejobs.kubeflow.org", "-o", "name")

    assert all(line.startswith("paddlejob.batch.paddlepaddle.org/") for line in by_short_name.splitlines())
    assert by_group == ""
