"""TFJob: who gets TF_CONFIG, and exactly what it says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainmaster.api.framework import Count
from trainmaster.engine.pods import pod_of
from trainmaster.frameworks.tensorflow import TensorFlow
from trainmaster.testing.scene import Scene, a_job


def env_of(scene: Scene, slot: str) -> list[tuple[str, Any]]:
    member = next(member for member in scene.job.members() if member.slot == slot)
    return list(scene.framework.env(member).items())


def config_of(scene: Scene, slot: str) -> str:
    ((name, text),) = env_of(scene, slot)
    assert name == "TF_CONFIG"
    return str(text)


def a_tfjob(**roles: int) -> Scene:
    scene = a_job("TFJob", "j").meta(namespace="ns2")
    for role, replicas in roles.items():
        scene = scene.role(role, replicas)
    return scene


# Whether there is a cluster.


@pytest.mark.parametrize("role", ["Chief", "Master", "PS", "Worker", "Evaluator"])
@pytest.mark.parametrize("domain", ["", "tf.training.org"])
def test_a_lone_replica_gets_no_tf_config(role: str, domain: str) -> None:
    scene = a_tfjob(**{role: 1}).having(cluster_domain=domain)

    assert env_of(scene, f"{role.lower()}-0") == []


def test_a_lone_replica_that_does_not_state_its_number_gets_no_tf_config() -> None:
    scene = a_job("TFJob").role("Worker", None)

    assert env_of(scene, "worker-0") == []


@pytest.mark.parametrize(
    "roles",
    [
        pytest.param({"Worker": 2}, id="workers"),
        pytest.param({"Worker": 1, "PS": 1}, id="worker and server"),
        pytest.param({"Chief": 1, "Worker": 1}, id="chief and worker"),
        pytest.param({"Master": 1, "Worker": 1}, id="master and worker"),
        pytest.param({"Worker": 1, "Evaluator": 1}, id="worker and evaluator"),
        pytest.param({"Evaluator": 2}, id="evaluators"),
        pytest.param({"Chief": 1, "PS": 0, "Worker": 1}, id="a role of none beside"),
    ],
)
def test_every_member_of_a_cluster_gets_tf_config(roles: dict[str, int]) -> None:
    scene = a_tfjob(**roles)

    assert all(config_of(scene, member.slot) for member in scene.job.members())


def test_one_replica_beside_an_empty_role_is_alone() -> None:
    assert env_of(a_tfjob(Worker=1, PS=0), "worker-0") == []


# What TF_CONFIG says.


@pytest.mark.parametrize(
    ("scene", "slot", "config"),
    [
        pytest.param(
            a_tfjob(Worker=1, PS=1),
            "worker-0",
            '{"cluster":{"ps":["j-ps-0.ns2.svc:2222"],"worker":["j-worker-0.ns2.svc:2222"]},'
            '"task":{"type":"worker","index":0},"environment":"cloud"}',
            id="worker and server",
        ),
        pytest.param(
            a_tfjob(Worker=1, PS=1).having(cluster_domain="tf.training.org"),
            "worker-0",
            '{"cluster":{"ps":["j-ps-0.ns2.svc.tf.training.org:2222"],'
            '"worker":["j-worker-0.ns2.svc.tf.training.org:2222"]},'
            '"task":{"type":"worker","index":0},"environment":"cloud"}',
            id="custom domain",
        ),
        pytest.param(
            a_tfjob(Worker=1, PS=1, Evaluator=1),
            "worker-0",
            '{"cluster":{"evaluator":["j-evaluator-0.ns2.svc:2222"],"ps":["j-ps-0.ns2.svc:2222"],'
            '"worker":["j-worker-0.ns2.svc:2222"]},"task":{"type":"worker","index":0},"environment":"cloud"}',
            id="the evaluator is part of the cluster",
        ),
        pytest.param(
            a_tfjob(Worker=1, PS=1, Evaluator=1).having(cluster_domain="tf.training.org"),
            "evaluator-0",
            '{"cluster":{"evaluator":["j-evaluator-0.ns2.svc.tf.training.org:2222"],'
            '"ps":["j-ps-0.ns2.svc.tf.training.org:2222"],"worker":["j-worker-0.ns2.svc.tf.training.org:2222"]},'
            '"task":{"type":"evaluator","index":0},"environment":"cloud"}',
            id="the evaluator itself, custom domain",
        ),
        pytest.param(
            a_tfjob(Worker=1, PS=1, Evaluator=1).having(compat_2021=True),
            "evaluator-0",
            '{"cluster":{"ps":["j-ps-0.ns2.svc:2222"],"worker":["j-worker-0.ns2.svc:2222"]},'
            '"task":{"type":"evaluator","index":0},"environment":"cloud"}',
            id="in 2021 the evaluator was left out",
        ),
        pytest.param(
            a_tfjob(Master=1, Worker=2),
            "master-0",
            '{"cluster":{"master":["j-master-0.ns2.svc:2222"],'
            '"worker":["j-worker-0.ns2.svc:2222","j-worker-1.ns2.svc:2222"]},'
            '"task":{"type":"master","index":0},"environment":"cloud"}',
            id="a master is not renamed to chief",
        ),
        pytest.param(
            a_tfjob(Chief=1, Worker=2),
            "worker-1",
            '{"cluster":{"chief":["j-chief-0.ns2.svc:2222"],'
            '"worker":["j-worker-0.ns2.svc:2222","j-worker-1.ns2.svc:2222"]},'
            '"task":{"type":"worker","index":1},"environment":"cloud"}',
            id="the index is that within the role",
        ),
    ],
)
def test_tf_config_names_the_whole_cluster_and_the_task(scene: Scene, slot: str, config: str) -> None:
    assert config_of(scene, slot) == config


def test_roles_in_tf_config_are_sorted_and_all_there() -> None:
    scene = a_tfjob(Worker=1, PS=1, Chief=1, Evaluator=1)

    cluster = json.loads(config_of(scene, "ps-0"))["cluster"]

    assert list(cluster) == ["chief", "evaluator", "ps", "worker"]


def test_each_role_is_reached_at_its_own_port() -> None:
    port = {"name": "tfjob-port", "containerPort": 5000}
    container = {"name": "tensorflow", "image": "example/train:1", "ports": [port]}
    scene = a_tfjob(Worker=1).role("PS", 1, containers=[container])

    cluster = json.loads(config_of(scene, "worker-0"))["cluster"]

    assert cluster == {"ps": ["j-ps-0.ns2.svc:5000"], "worker": ["j-worker-0.ns2.svc:2222"]}


@pytest.mark.parametrize(
    ("scene", "slot", "config"),
    [
        pytest.param(
            a_tfjob(Worker=2, PS=2),
            "worker-1",
            '{"cluster":{"worker":{"1":"j-worker-1.ns2.svc:2222"},'
            '"ps":["j-ps-0.ns2.svc:2222","j-ps-1.ns2.svc:2222"]},"task":{"type":"worker","index":1}}',
            id="a worker knows itself and the servers",
        ),
        pytest.param(
            a_tfjob(Worker=2),
            "worker-0",
            '{"cluster":{"worker":{"0":"j-worker-0.ns2.svc:2222"},"ps":null},"task":{"type":"worker","index":0}}',
            id="a job without servers says null",
        ),
        pytest.param(
            a_tfjob(Worker=2, PS=2),
            "ps-1",
            '{"cluster":{"worker":{},"ps":["j-ps-1.ns2.svc:2222"]},"task":{"type":"ps","index":1}}',
            id="a server knows itself",
        ),
        pytest.param(
            a_tfjob(Chief=1, Worker=1, PS=1),
            "chief-0",
            '{"cluster":{"worker":{},"ps":[]},"task":{"type":"chief","index":0}}',
            id="a chief knows nobody",
        ),
        pytest.param(
            a_tfjob(Master=1, Worker=1, PS=1),
            "master-0",
            '{"cluster":{"worker":{},"ps":[]},"task":{"type":"master","index":0}}',
            id="nor does a master",
        ),
        pytest.param(
            a_tfjob(Evaluator=1, Worker=1),
            "evaluator-0",
            '{"cluster":{"worker":{},"ps":[]},"task":{"type":"evaluator","index":0}}',
            id="nor an evaluator",
        ),
        pytest.param(
            a_tfjob(Worker=1, PS=1).having(cluster_domain="tf.training.org"),
            "ps-0",
            '{"cluster":{"worker":{},"ps":["j-ps-0.ns2.svc.tf.training.org:2222"]},"task":{"type":"ps","index":0}}',
            id="custom domain",
        ),
    ],
)
def test_with_dynamic_workers_the_cluster_is_sparse(scene: Scene, slot: str, config: str) -> None:
    assert config_of(scene.spec(enableDynamicWorker=True), slot) == config


# Where it goes.


def test_only_the_training_container_gets_tf_config() -> None:
    training = {"name": "tensorflow", "image": "example/train:1", "env": [{"name": "TF_CONFIG", "value": "mine"}]}
    sidecar = {"name": "side", "image": "example/side:1"}
    scene = a_tfjob().role("Worker", 2, containers=[sidecar, training], initContainers=[dict(sidecar, name="init")])

    spec = pod_of(scene.framework, scene.job.members()[0])["spec"]

    assert "env" not in spec["containers"][0]
    assert "env" not in spec["initContainers"][0]
    assert [variable["name"] for variable in spec["containers"][1]["env"]] == ["TF_CONFIG", "TF_CONFIG"]
    assert spec["containers"][1]["env"][0]["value"] == "mine"


# Leaders.


@pytest.mark.parametrize(
    ("roles", "leaders"),
    [
        pytest.param({"Chief": 1, "Worker": 2}, ["j-chief-0"], id="the chief"),
        pytest.param({"Master": 1, "Worker": 2}, ["j-master-0"], id="the master"),
        pytest.param({"Worker": 2, "PS": 1}, ["j-worker-0"], id="else worker 0"),
        pytest.param({"PS": 1, "Evaluator": 1}, [], id="else nobody"),
    ],
)
def test_the_leader_is_the_chief_or_master_or_worker_0(roles: dict[str, int], leaders: list[str]) -> None:
    scene = a_tfjob(**roles)

    found = [member.name for member in scene.job.members() if scene.framework.is_leader(member)]

    assert found == leaders


@pytest.mark.parametrize(
    ("role", "leader"), [("Chief", True), ("Master", True), ("PS", False), ("Worker", False), ("Evaluator", False)]
)
def test_chief_and_master_are_leading_roles(role: str, leader: bool) -> None:
    assert TensorFlow().role(role).leader is leader


# The end.


@pytest.mark.parametrize(
    ("roles", "policy", "done", "completed", "succeeded"),
    [
        pytest.param({"Chief": 1, "Worker": 2}, "", {"Chief": {0}}, {}, True, id="the chief decides"),
        pytest.param({"Chief": 1, "Worker": 2}, "", {"Worker": {0, 1}}, {"Worker": {0, 1}}, False, id="workers do not"),
        pytest.param({"Worker": 2}, "", {"Worker": {0}}, {"Worker": {0}}, True, id="worker 0 decides"),
        pytest.param({"Worker": 2}, "", {"Worker": {1}}, {"Worker": {1}}, False, id="worker 1 does not"),
        pytest.param({"Worker": 2}, "", {"Worker": {0}}, {}, False, id="worker 0 must have exited with 0"),
        pytest.param({"Worker": 2}, "", {"Worker": {0, 1}}, {}, True, id="unless all succeeded"),
        pytest.param({"Worker": 2}, "AllWorkers", {"Worker": {0}}, {"Worker": {0}}, False, id="one of all workers"),
        pytest.param({"Worker": 2}, "AllWorkers", {"Worker": {0, 1}}, {}, True, id="all workers"),
        pytest.param({"PS": 1, "Evaluator": 1}, "", {"PS": {0}, "Evaluator": {0}}, {}, False, id="nobody decides"),
    ],
)
def test_a_job_has_succeeded_when_its_deciding_role_has(
    roles: dict[str, int], policy: str, done: dict[str, set[int]], completed: dict[str, set[int]], succeeded: bool
) -> None:
    job = a_tfjob(**roles).spec(successPolicy=policy).job
    counts = {
        role: Count(succeeded=frozenset(done.get(role, ())), completed=frozenset(completed.get(role, ())))
        for role in roles
    }

    assert TensorFlow().succeeded(job, counts) is succeeded


@pytest.mark.parametrize(
    ("dynamic", "role", "tolerated"),
    [(False, "Worker", False), (True, "Worker", True), (True, "PS", False), (True, "Chief", False)],
)
def test_only_dynamic_workers_may_fail(dynamic: bool, role: str, tolerated: bool) -> None:
    job = a_tfjob(Worker=2, PS=1, Chief=1).spec(enableDynamicWorker=dynamic).job

    assert TensorFlow().tolerates_failure(job, role) is tolerated


def test_messages_name_the_namespace() -> None:
    messages = TensorFlow().messages(a_tfjob(Worker=1).job)

    assert messages.running == "{kind} {namespace}/{name} is running."
    assert messages.succeeded == "{kind} {namespace}/{name} successfully completed."
    assert messages.failed == "{kind} {namespace}/{name} has failed because {count} {role} replica(s) failed."
