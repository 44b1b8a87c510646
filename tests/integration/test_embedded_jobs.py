"""Jobs of every kind on the embedded cluster: real processes in real sandboxes, under the real operator."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.integration.bed import Bed, Json, a_job, bed, container_of, holding, processes, wait_for_end

from trainmaster.objects.resource import PODS

pytestmark = pytest.mark.sandbox

ROLES = {
    "TFJob": {"Chief": 1, "PS": 1, "Worker": 2},
    "PyTorchJob": {"Master": 1, "Worker": 2},
    "XGBoostJob": {"Master": 1, "Worker": 2},
    "MXJob": {"Scheduler": 1, "Server": 1, "Worker": 2},
    "PaddleJob": {"Worker": 2},
    "JAXJob": {"Worker": 3},
}
HELD = "is the gate open? False"
"""What `hold.py` says before it waits."""

KEPT = {"cleanPodPolicy": "None"}
"""For jobs all of whose ranks are read: without it, those that end long after their job are ended with it."""

SUM = {"TFJob": "1111", "MXJob": "1111", "PaddleJob": "11"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Bed]:
    with bed() as running:
        yield running
    assert processes() == []


def at_gate(directory: Path) -> Json:
    """Shows a directory to the pod as /gate; `hold.py` waits until there is a file `open` in it."""
    return {"volumes": [{"name": "gate", "hostPath": {"path": str(directory)}}]}


GATE = {"volumeMounts": [{"name": "gate", "mountPath": "/gate"}]}


def held(kind: str, name: str, gate: Path, restart: str, replicas: Mapping[str, int]) -> Json:
    return a_job(kind, name, "hold.py", restart=restart, pod=at_gate(gate), container=GATE, replicas=replicas)


def process_of(job: str, pod: str) -> int:
    [found] = processes(job, pod)
    return found.pid


@pytest.mark.parametrize("kind", list(ROLES))
def test_ranks_find_each_other_and_agree_on_a_sum(cluster, kind):
    name = f"sum-{kind.lower()}"

    cluster.submit(a_job(kind, name, "exchange.py", policy=KEPT, replicas=ROLES[kind]))

    assert cluster.finished(kind, name) == "Succeeded"
    logs = {pod: cluster.whole_log(pod) for pod in cluster.pods(name)}
    assert len(logs) == sum(ROLES[kind].values())
    assert all(f"has sum {SUM.get(kind, '111')}\n" in text for text in logs.values()), logs


def test_two_jobs_at_once_on_one_port_do_not_see_each_other(cluster):
    cluster.submit(
        *(
            a_job(
                "PyTorchJob", name, "exchange.py", env={"BASE": base}, policy=KEPT, replicas={"Master": 1, "Worker": 2}
            )
            for name, base in (("one", "1"), ("two", "2"))
        )
    )

    assert (cluster.finished("PyTorchJob", "one"), cluster.finished("PyTorchJob", "two")) == ("Succeeded", "Succeeded")
    assert {cluster.whole_log(pod) for pod in cluster.pods("one")} == {"master has sum 111\n", "worker has sum 111\n"}
    assert {cluster.whole_log(pod) for pod in cluster.pods("two")} == {"master has sum 222\n", "worker has sum 222\n"}


@pytest.mark.parametrize(
    ("clean", "left"),
    [("Running", {"chief-0"}), ("All", set())],
)
def test_servers_that_never_exit_are_ended_with_their_job(cluster, clean, left):
    name = f"served-{clean.lower()}"
    roles = {"Chief": 1, "PS": 1, "Worker": 1, "Evaluator": 1}
    stay = {"STAY": "ps worker evaluator"}

    cluster.submit(a_job("TFJob", name, "exchange.py", env=stay, policy={"cleanPodPolicy": clean}, replicas=roles))

    assert cluster.finished("TFJob", name) == "Succeeded"
    for role in {"chief-0", "ps-0", "worker-0", "evaluator-0"} - left:
        cluster.pod_gone(f"{name}-{role}")
    assert set(cluster.pods(name)) == {f"{name}-{role}" for role in left}
    assert processes(name) == []


def test_without_cleaning_the_servers_stay_until_the_job_is_deleted(cluster):
    stay = {"STAY": "ps"}
    cluster.submit(
        a_job(
            "TFJob",
            "uncleaned",
            "exchange.py",
            env=stay,
            policy=KEPT,
            replicas={"Chief": 1, "PS": 1},
        )
    )
    assert cluster.finished("TFJob", "uncleaned") == "Succeeded"
    [server] = processes("uncleaned")

    cluster.do(cluster.client.delete(cluster.resource("kubeflow.org/v1", "TFJob"), "uncleaned", "default"))

    wait_for_end([server.pid])
    cluster.pod_gone("uncleaned-ps-0")
    cluster.pod_gone("uncleaned-chief-0")


def test_a_killed_rank_is_restarted_in_place_on_failure(cluster, tmp_path):
    cluster.submit(held("PyTorchJob", "in-place", tmp_path, "OnFailure", replicas={"Worker": 2}))
    before = [cluster.says(f"in-place-worker-{index}", HELD) for index in range(2)][1]
    (tmp_path / "open").touch()

    os.kill(process_of("in-place", "in-place-worker-1"), signal.SIGKILL)
    os.kill(process_of("in-place", "in-place-worker-0"), signal.SIGKILL)

    assert cluster.finished("PyTorchJob", "in-place") == "Succeeded"
    after = cluster.pod("in-place-worker-1", lambda pod: container_of(pod)["restartCount"] > 0)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert container_of(after)["restartCount"] == 1
    assert container_of(after)["lastState"]["terminated"]["exitCode"] == 137


def test_a_killed_rank_is_replaced_by_exit_code(cluster, tmp_path):
    cluster.submit(held("TFJob", "by-code", tmp_path, "ExitCode", replicas={"Worker": 1}))
    before = cluster.says("by-code-worker-0", HELD)
    (tmp_path / "open").touch()

    os.kill(process_of("by-code", "by-code-worker-0"), signal.SIGKILL)

    assert cluster.finished("TFJob", "by-code") == "Succeeded"
    after = cluster.pod("by-code-worker-0")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert container_of(after)["restartCount"] == 0
    assert cluster.job("TFJob", "by-code")["status"]["attempts"] == {"worker-0": 1}


@pytest.mark.parametrize("kind", ["TFJob", "PyTorchJob", "XGBoostJob", "MXJob", "PaddleJob", "JAXJob"])
def test_a_killed_rank_fails_a_job_that_never_restarts(cluster, tmp_path, kind):
    name = f"never-{kind.lower()}"
    roles = {"XGBoostJob": {"Master": 1}, "MXJob": {"Scheduler": 1, "Worker": 1}}.get(kind, {"Worker": 1})
    victim = f"{name}-{next(iter(roles)).lower()}-0"
    cluster.submit(held(kind, name, tmp_path, "Never", replicas=roles))
    cluster.says(victim, HELD)

    os.kill(process_of(name, victim), signal.SIGKILL)

    assert cluster.finished(kind, name) == "Failed"
    ended = container_of(cluster.pod(victim))
    assert (ended["state"]["terminated"]["exitCode"], ended["restartCount"]) == (137, 0)
    [condition] = [c for c in cluster.job(kind, name)["status"]["conditions"] if c["type"] == "Failed"]
    assert "failed" in condition["message"]
    cluster.do(cluster.client.delete(cluster.resource("kubeflow.org/v1", kind), name, "default"))


def test_a_permanent_exit_code_fails_the_job_at_once(cluster):
    program = {"command": ["python", "-c", "raise SystemExit(3)"]}
    cluster.submit(a_job("PyTorchJob", "permanent", "", restart="ExitCode", container=program, replicas={"Master": 1}))

    assert cluster.finished("PyTorchJob", "permanent") == "Failed"
    assert container_of(cluster.pod("permanent-master-0"))["state"]["terminated"]["exitCode"] == 3


def test_a_pod_deleted_by_hand_is_replaced(cluster, tmp_path):
    cluster.submit(held("JAXJob", "deleted", tmp_path, "OnFailure", replicas={"Worker": 1}))
    before = cluster.says("deleted-worker-0", HELD)
    [process] = processes("deleted")
    (tmp_path / "open").touch()

    cluster.do(cluster.client.delete(PODS, "deleted-worker-0", "default"))

    assert cluster.finished("JAXJob", "deleted") == "Succeeded"
    assert cluster.pod("deleted-worker-0")["metadata"]["uid"] != before["metadata"]["uid"]
    wait_for_end([process.pid])


def test_a_suspended_job_has_no_processes_and_goes_on_when_resumed(cluster, tmp_path):
    jobs = cluster.resource("kubeflow.org/v1", "JAXJob")
    cluster.submit(held("JAXJob", "paused", tmp_path, "OnFailure", replicas={"Worker": 1}))
    cluster.says("paused-worker-0", HELD)

    cluster.do(cluster.client.patch(jobs, "paused", {"spec": {"runPolicy": {"suspend": True}}}, "default"))
    cluster.pod_gone("paused-worker-0")
    assert processes("paused") == []
    assert "Suspended" in holding(cluster.job("JAXJob", "paused", lambda job: "Suspended" in holding(job)))
    (tmp_path / "open").touch()
    cluster.do(cluster.client.patch(jobs, "paused", {"spec": {"runPolicy": {"suspend": False}}}, "default"))

    assert cluster.finished("JAXJob", "paused") == "Succeeded"


def test_ranks_share_a_claimed_volume_and_see_their_configuration(cluster, tmp_path):
    source = {"hostPath": {"path": str(tmp_path)}, "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"]}
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": ""}
    cluster.submit(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "data"},
            "spec": {**source, "storageClassName": ""},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "default"},
            "spec": {**claim, "volumeName": "data"},
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "training", "namespace": "default"},
            "data": {"epochs": "3"},
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "token", "namespace": "default"},
            "stringData": {"token": "s3cret"},
        },
    )
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "training", "configMap": {"name": "training"}},
        {"name": "token", "secret": {"secretName": "token", "defaultMode": 0o400}},
    ]
    mounts = [("data", "/data"), ("training", "/etc/training"), ("token", "/etc/token")]
    paths = {"DATA": "/data", "TRAINING": "/etc/training/epochs", "TOKEN": "/etc/token/token"}
    container = {
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts],
        "env": [
            {"name": "EPOCHS", "valueFrom": {"configMapKeyRef": {"name": "training", "key": "epochs"}}},
            *({"name": name, "value": path} for name, path in paths.items()),
        ],
    }

    cluster.submit(
        a_job(
            "JAXJob",
            "sharing",
            "share.py",
            policy=KEPT,
            pod={"volumes": volumes},
            container=container,
            replicas={"Worker": 2},
        )
    )

    assert cluster.finished("JAXJob", "sharing") == "Succeeded"
    expected = "shared ['sharing-worker-0', 'sharing-worker-1']\nconfigmap 3 3\nsecret s3cret 0o400\n"
    assert cluster.whole_log("sharing-worker-0") == cluster.whole_log("sharing-worker-1") == expected
    assert (tmp_path / "sharing-worker-1").read_text() == "from sharing-worker-1"


def test_an_unknown_image_without_command_says_which_line_to_add(cluster):
    job = a_job(
        "PyTorchJob",
        "unmapped",
        "",
        container={"command": [], "image": "registry.test/nobody/knows:2"},
        replicas={"Master": 1},
    )

    cluster.submit(job)

    told = cluster.warning("unmapped-master-0", "trainmaster.yaml")
    assert '- match: "registry.test/nobody/knows:2"' in told
    assert "entrypoint:" in told
