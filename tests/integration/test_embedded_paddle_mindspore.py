"""Jobs of paddle-operator and ms-operator that something happens to: killed, deleted, resized; in plain processes.

However it ends, the right ones come back, and nothing is left on the machine.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.integration.bed import (
    GATE,
    IMAGE,
    MARK,
    Bed,
    Json,
    bed,
    container_of,
    holding,
    processes,
    wait_for_end,
    wait_for_none,
)

from trainmaster.objects.resource import CONFIG_MAPS, PODS, SERVICES

pytestmark = pytest.mark.sandbox

PADDLE = ("batch.paddlepaddle.org/v1", "PaddleJob")
MINDSPORE = ("mindspore.gitee.com/v1", "MSJob")
ALL = {"Scheduler": 1, "PS": 1, "Worker": 2}
HELD = "is the gate open? False"
"""What `hold.py` says before it waits."""

Kind = tuple[str, str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Bed]:
    with bed() as running:
        yield running
    assert processes() == []


def template(job: str, program: str, gate: Path, env: Mapping[str, str], **spec: Any) -> Json:
    variables = {"MARK": MARK, "JOB": job, "GATE": GATE, **env}
    container = {
        "name": "mindspore",
        "image": IMAGE,
        "command": ["python", f"/programs/{program}"],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "volumeMounts": [{"name": "gate", "mountPath": "/gate"}],
    }
    volumes = [{"name": "gate", "hostPath": {"path": str(gate)}}]
    return {"spec": {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 2, **spec}}


def a_paddle(name: str, gate: Path, sizes: Mapping[str, int], restart: str = "", **spec: Any) -> Json:
    policy = {"restartPolicy": restart} if restart else {}
    roles = {
        role: {"replicas": count, "template": template(name, "hold.py", gate, {}, **policy)}
        for role, count in sizes.items()
    }
    return a_job(PADDLE, name, {**spec, **roles})


def a_mindspore(name: str, gate: Path, restart: str = "Never", clean: str = "Running", **env: str) -> Json:
    roles = {
        role: {"replicas": count, "restartPolicy": restart, "template": template(name, "node.py", gate, env)}
        for role, count in ALL.items()
    }
    policy = {"cleanPodPolicy": clean}
    return a_job(MINDSPORE, name, {"successPolicy": "AllWorkers", "runPolicy": policy, "msReplicaSpecs": roles})


def a_job(kind: Kind, name: str, spec: Json) -> Json:
    return {"apiVersion": kind[0], "kind": kind[1], "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def job_of(cluster: Bed, kind: Kind, name: str, is_so: Callable[[Json], bool] = bool) -> Json:
    found = cluster.until(cluster.resource(*kind), name, lambda job: job is not None and is_so(job))
    assert found is not None
    return found


def ended(cluster: Bed, kind: Kind, name: str) -> Json:
    return job_of(cluster, kind, name, lambda job: bool(holding(job) & {"Succeeded", "Failed"}))


def phase(cluster: Bed, name: str, phase: str) -> Json:
    return job_of(cluster, PADDLE, name, lambda job: job.get("status", {}).get("phase") == phase)


def remove(cluster: Bed, kind: Kind, name: str) -> None:
    """And wait until nothing of it is on this machine."""
    running = [ran.pid for ran in processes(name)]
    cluster.do(cluster.client.delete(cluster.resource(*kind), name, "default"))
    wait_for_end(running)


def kill(job: str, pod: str) -> None:
    [found] = processes(job, pod)
    os.kill(found.pid, signal.SIGKILL)


def replaced(cluster: Bed, pod: Json) -> Json:
    """The pod that stands in this one's place, once its program has begun."""
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    cluster.pod(name, lambda found: found["metadata"]["uid"] != uid)
    return cluster.pod(name, lambda found: "running" in container_of(found).get("state", {}))


def told(cluster: Bed, name: str) -> dict[str, str]:
    """What the gate of the job tells its processes."""
    return dict(cluster.do(cluster.client.get(CONFIG_MAPS, name, "default"))["data"])


def held(cluster: Bed, *pods: str) -> list[Json]:
    return [cluster.says(pod, HELD) for pod in pods]


def joined(cluster: Bed, name: str) -> None:
    nodes = f"{name}-ps-0 {name}-worker-0 {name}-worker-1"
    cluster.says(f"{name}-scheduler-0", f"joined by {nodes}")


def is_settled(cluster: Bed, name: str, gate: Path) -> bool:
    """Once a job that came later is over, the operator has answered all that happened to this one."""
    (gate / "open").touch()
    cluster.submit(a_paddle(f"after-{name}", gate, {"worker": 1}))
    return bool(phase(cluster, f"after-{name}", "Completed"))


@pytest.mark.parametrize("intranet", ["PodIP", "Service"])
@pytest.mark.parametrize("role", ["ps", "worker"])
def test_a_killed_replica_starts_again_in_its_place_where_its_template_says_so(cluster, tmp_path, intranet, role):
    name = f"in-place-{role}-{intranet.lower()}"
    job = a_paddle(name, tmp_path, {"ps": 1, "worker": 1}, "OnFailure", intranet=intranet, cleanPodPolicy="Never")
    cluster.submit(job)
    before = {pod["metadata"]["name"]: pod for pod in held(cluster, f"{name}-ps-0", f"{name}-worker-0")}
    known = told(cluster, name)

    kill(name, f"{name}-{role}-0")
    after = cluster.pod(f"{name}-{role}-0", lambda pod: container_of(pod).get("restartCount") == 1)

    assert after["metadata"]["uid"] == before[f"{name}-{role}-0"]["metadata"]["uid"]
    assert container_of(after)["lastState"]["terminated"]["exitCode"] == 137
    assert told(cluster, name) == known
    phase(cluster, name, "Running")
    remove(cluster, PADDLE, name)


def test_a_killed_worker_starts_again_by_itself_where_endpoints_are_names(cluster, tmp_path):
    cluster.submit(a_paddle("named", tmp_path, {"worker": 2}, intranet="Service", cleanPodPolicy="Never"))
    held(cluster, "named-worker-0", "named-worker-1")
    (tmp_path / "open").touch()

    kill("named", "named-worker-0")
    kill("named", "named-worker-1")

    assert holding(ended(cluster, PADDLE, "named")) == {"Created", "Succeeded"}
    assert {container_of(pod)["restartCount"] for pod in cluster.pods("named").values()} == {1}


@pytest.mark.parametrize("role", ["ps", "worker"])
def test_a_killed_replica_fails_its_job_and_takes_all_processes_with_it(cluster, tmp_path, role):
    name = f"killed-{role}"
    cluster.submit(a_paddle(name, tmp_path, {"ps": 2, "worker": 2}, cleanPodPolicy="Always"))
    held(cluster, *(f"{name}-{each}-{index}" for each in ("ps", "worker") for index in range(2)))
    running = [ran.pid for ran in processes(name)]

    kill(name, f"{name}-{role}-1")

    assert phase(cluster, name, "Failed")["status"]["mode"] == "PS"
    wait_for_end(running)
    for index in range(2):
        cluster.pod_gone(f"{name}-ps-{index}")
        cluster.pod_gone(f"{name}-worker-{index}")
    assert (len(running), processes(name)) == (4, [])


@pytest.mark.namespaces  # without them a process is told other addresses than its job's ConfigMap holds
@pytest.mark.parametrize("role", ["ps", "worker"])
@pytest.mark.parametrize("intranet", ["PodIP", "Service"])
def test_a_pod_deleted_by_hand_comes_back_and_is_told_its_own_endpoint(cluster, tmp_path, intranet, role):
    name = f"again-{role}-{intranet.lower()}"
    cluster.submit(a_paddle(name, tmp_path, {"ps": 2, "worker": 2}, intranet=intranet))
    [before] = held(cluster, f"{name}-{role}-1")
    phase(cluster, name, "Running")
    known = told(cluster, name)

    cluster.do(cluster.client.delete(PODS, f"{name}-{role}-1", "default"))
    after = replaced(cluster, before)
    phase(cluster, name, "Running")

    [process] = processes(name, f"{name}-{role}-1")
    variable = {"ps": "PADDLE_PSERVERS_IP_PORT_LIST", "worker": "PADDLE_TRAINER_ENDPOINTS"}[role]
    own = f"{process.env['POD_IP']}:{process.env['PADDLE_PORT']}"
    assert process.env["POD_IP"] == (after["status"]["podIP"] if intranet == "PodIP" else f"{name}-{role}-1")
    assert process.env[variable].split(",")[1] == own
    assert told(cluster, name)[variable] == process.env[variable]
    assert (told(cluster, name) == known) == (intranet == "Service")
    remove(cluster, PADDLE, name)


@pytest.mark.parametrize("outcome", ["Completed", "Failed"])
@pytest.mark.parametrize("role", ["ps", "worker"])
def test_a_pod_deleted_by_hand_never_comes_back_to_a_paddle_job_that_has_ended(cluster, tmp_path, outcome, role):
    name = f"over-{role}-{outcome.lower()}"
    others = {f"{name}-ps-0", f"{name}-worker-0"} - {f"{name}-{role}-0"}
    if outcome == "Completed":
        (tmp_path / "open").touch()
    cluster.submit(a_paddle(name, tmp_path, {"ps": 1, "worker": 1}, cleanPodPolicy="Never"))
    if outcome == "Failed":
        held(cluster, f"{name}-ps-0", f"{name}-worker-0")
        kill(name, f"{name}-ps-0")
    phase(cluster, name, outcome)

    cluster.do(cluster.client.delete(PODS, f"{name}-{role}-0", "default"))
    cluster.pod_gone(f"{name}-{role}-0")

    assert is_settled(cluster, name, tmp_path)
    assert set(cluster.pods(name)) == others
    after = job_of(cluster, PADDLE, name, lambda job: job["status"][role]["ready"] == "0/1")
    assert after["status"]["phase"] == outcome
    remove(cluster, PADDLE, name)


def test_workers_of_an_elastic_job_come_and_go_with_its_replicas(cluster, tmp_path):
    jobs = cluster.resource(*PADDLE)
    cluster.submit(a_paddle("elastic", tmp_path, {"worker": 2}, elastic=1))
    first, _ = held(cluster, "elastic-worker-0", "elastic-worker-1")
    phase(cluster, "elastic", "Running")

    cluster.do(cluster.client.patch(jobs, "elastic", {"spec": {"worker": {"replicas": 3}}}, "default"))
    held(cluster, "elastic-worker-2")
    cluster.until(CONFIG_MAPS, "elastic", lambda gate: gate is not None and gate["data"]["PADDLE_TRAINERS_NUM"] == "3")
    grown, addresses = processes("elastic"), told(cluster, "elastic")["PADDLE_TRAINERS"].split(",")
    cluster.do(cluster.client.patch(jobs, "elastic", {"spec": {"worker": {"replicas": 1}}}, "default"))
    cluster.pod_gone("elastic-worker-1")
    cluster.pod_gone("elastic-worker-2")
    cluster.until(CONFIG_MAPS, "elastic", lambda gate: gate is not None and gate["data"]["PADDLE_TRAINERS_NUM"] == "1")

    numbers = {ran.env["HOSTNAME"]: ran.env["PADDLE_ELASTIC_NP"] for ran in grown}
    assert numbers == {"elastic-worker-0": "2", "elastic-worker-1": "2", "elastic-worker-2": "3"}
    assert {ran.env["POD_IP"] for ran in grown} == set(addresses)
    assert {ran.env["PADDLE_ELASTIC_JOB_ID"] for ran in grown} == {"default-elastic"}
    assert [ran.env["HOSTNAME"] for ran in processes("elastic")] == ["elastic-worker-0"]
    assert cluster.pod("elastic-worker-0")["metadata"]["uid"] == first["metadata"]["uid"]
    assert told(cluster, "elastic")["PADDLE_TRAINERS"] == addresses[0]
    remove(cluster, PADDLE, "elastic")


def test_a_killed_worker_of_an_elastic_job_starts_again_whatever_its_template_says(cluster, tmp_path):
    cluster.submit(a_paddle("undying", tmp_path, {"worker": 2}, "Never", elastic=0))
    held(cluster, "undying-worker-0", "undying-worker-1")

    kill("undying", "undying-worker-1")

    assert container_of(cluster.pod("undying-worker-1", lambda pod: container_of(pod).get("restartCount") == 1))
    after = job_of(cluster, PADDLE, "undying", lambda job: job["status"]["worker"]["ready"] == "2/2")
    assert after["status"]["phase"] == "Running"
    remove(cluster, PADDLE, "undying")


def test_a_lone_worker_trains_without_scheduler_service_and_variables(cluster, tmp_path):
    alone = "import os; print([name for name in os.environ if name.startswith('MS_')], flush=True)"
    worker = template("alone", "", tmp_path, {})
    worker["spec"]["containers"][0]["command"] = ["python", "-c", alone]
    roles = {"Worker": {"replicas": 1, "template": worker}}

    cluster.submit(a_job(MINDSPORE, "alone", {"msReplicaSpecs": roles, "runPolicy": {"cleanPodPolicy": "None"}}))

    assert holding(ended(cluster, MINDSPORE, "alone")) == {"Created", "Succeeded"}
    assert cluster.log("alone-worker-0") == "[]\n"
    services = cluster.do(cluster.client.list(SERVICES, "default")).items
    assert [service for service in services if service["metadata"]["name"].startswith("alone")] == []


def test_the_schedulers_service_comes_back_where_its_workers_look_for_it(cluster, tmp_path):
    cluster.submit(a_mindspore("moved", tmp_path))
    joined(cluster, "moved")
    before = cluster.do(cluster.client.get(SERVICES, "moved-scheduler-0", "default"))

    cluster.do(cluster.client.delete(SERVICES, "moved-scheduler-0", "default"))
    after = cluster.until(
        SERVICES,
        "moved-scheduler-0",
        lambda found: found is not None and found["metadata"]["uid"] != before["metadata"]["uid"],
    )

    assert after is not None
    assert after["spec"]["clusterIP"] == before["spec"]["clusterIP"]
    remove(cluster, MINDSPORE, "moved")


@pytest.mark.parametrize("code", ["0", "3"])
def test_how_the_scheduler_ends_after_its_workers_does_not_matter(cluster, tmp_path, code):
    name = f"late-{code}"
    cluster.submit(a_mindspore(name, tmp_path, clean="None", ENDS=code))
    joined(cluster, name)

    (tmp_path / "open").touch()
    scheduler = cluster.pod(f"{name}-scheduler-0", lambda pod: pod["status"]["phase"] in ("Succeeded", "Failed"))

    assert container_of(scheduler)["state"]["terminated"]["exitCode"] == int(code)
    assert holding(ended(cluster, MINDSPORE, name)) == {"Created", "Succeeded"}
    assert is_settled(cluster, name, tmp_path)
    assert holding(ended(cluster, MINDSPORE, name)) == {"Created", "Succeeded"}
    wait_for_none(name)


@pytest.mark.parametrize("role", list(ALL))
def test_a_killed_node_fails_its_job_and_takes_all_processes_with_it(cluster, tmp_path, role):
    name = f"fatal-{role.lower()}"
    cluster.submit(a_mindspore(name, tmp_path))
    joined(cluster, name)
    running = [ran.pid for ran in processes(name)]

    kill(name, f"{name}-{role.lower()}-0")

    [failed] = [c for c in ended(cluster, MINDSPORE, name)["status"]["conditions"] if c["type"] == "Failed"]
    assert failed["message"] == f"MSJob default/{name} has failed because 1 {role} replica(s) failed."
    wait_for_end(running)
    assert (len(running), processes(name)) == (4, [])


@pytest.mark.parametrize("restart", ["OnFailure", "ExitCode"])
@pytest.mark.parametrize("role", list(ALL))
def test_a_killed_node_comes_back_under_its_name(cluster, tmp_path, role, restart):
    name = f"back-{role.lower()}-{restart.lower()}"
    victim = f"{name}-{role.lower()}-0"
    cluster.submit(a_mindspore(name, tmp_path, restart))
    joined(cluster, name)
    before, service = cluster.pod(victim), cluster.do(cluster.client.get(SERVICES, f"{name}-scheduler-0", "default"))

    kill(name, victim)
    is_same = restart == "OnFailure"
    cluster.pod(victim, lambda pod: is_same == (pod["metadata"]["uid"] == before["metadata"]["uid"]) and is_again(pod))
    [process] = processes(name, victim)

    assert process.env["MS_NODE_ID"] == victim
    after = cluster.do(cluster.client.get(SERVICES, f"{name}-scheduler-0", "default"))
    assert after["spec"]["clusterIP"] == service["spec"]["clusterIP"]
    if role == "Scheduler":
        cluster.says(f"{name}-worker-1", f"{name}-worker-1 has come back")
        (tmp_path / "open").touch()
        assert holding(ended(cluster, MINDSPORE, name)) == {"Created", "Succeeded"}
    remove(cluster, MINDSPORE, name)


def is_again(pod: Json) -> bool:
    """It runs, and is not what ran first: a container that was started again, or another pod."""
    container = container_of(pod)
    has_changed = pod["spec"]["restartPolicy"] == "Never" or container.get("restartCount") == 1
    return has_changed and "running" in container.get("state", {})


@pytest.mark.parametrize("role", ["scheduler", "ps", "worker"])
def test_a_node_deleted_by_hand_comes_back_to_a_job_that_runs(cluster, tmp_path, role):
    name = f"deleted-{role}"
    cluster.submit(a_mindspore(name, tmp_path, "Never"))
    joined(cluster, name)
    before = cluster.pod(f"{name}-{role}-0")

    cluster.do(cluster.client.delete(PODS, f"{name}-{role}-0", "default"))
    replaced(cluster, before)

    [process] = processes(name, f"{name}-{role}-0")
    assert process.env["MS_NODE_ID"] == f"{name}-{role}-0"
    assert holding(job_of(cluster, MINDSPORE, name)) == {"Created", "Running"}
    remove(cluster, MINDSPORE, name)


@pytest.mark.parametrize("role", ["scheduler", "ps", "worker"])
def test_a_node_deleted_by_hand_never_comes_back_to_a_job_that_has_ended(cluster, tmp_path, role):
    name = f"finished-{role}"
    cluster.submit(a_mindspore(name, tmp_path, clean="None"))
    joined(cluster, name)
    (tmp_path / "open").touch()
    ended(cluster, MINDSPORE, name)

    cluster.do(cluster.client.delete(PODS, f"{name}-{role}-0", "default"))
    cluster.pod_gone(f"{name}-{role}-0")

    assert is_settled(cluster, name, tmp_path)
    assert f"{name}-{role}-0" not in cluster.pods(name)
    assert len(cluster.pods(name)) == 3
    assert holding(ended(cluster, MINDSPORE, name)) == {"Created", "Succeeded"}
    remove(cluster, MINDSPORE, name)
