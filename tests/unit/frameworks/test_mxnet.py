"""MXJob: the DMLC variables, MX_CONFIG, and what decides a job in each mode."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainmaster.engine.pods import pod_of
from trainmaster.frameworks.mxnet import MXNet
from trainmaster.testing.scene import Scene, a_job


def env_of(scene: Scene, slot: str) -> list[tuple[str, Any]]:
    member = next(member for member in scene.job.members() if member.slot == slot)
    return list(scene.framework.env(member).items())


def training() -> Scene:
    return a_job("MXJob", "j").role("Scheduler").role("Server", 2).role("Worker", 2)


def tuning() -> Scene:
    return a_job("MXJob", "j", jobMode="MXTune").role("TunerTracker").role("TunerServer").role("Tuner")


CLUSTER = (
    '{"cluster":{"scheduler":[{"url":"j-scheduler-0","port":9091}],'
    '"server":[{"url":"j-server-0","port":9091},{"url":"j-server-1","port":9091}],'
    '"worker":[{"url":"j-worker-0","port":9091},{"url":"j-worker-1","port":9091}]},'
    '"labels":{"scheduler":"","server":"","worker":""},'
)


@pytest.mark.parametrize(
    ("slot", "role", "index", "more"),
    [
        pytest.param("scheduler-0", "scheduler", 0, [], id="the scheduler"),
        pytest.param("server-1", "server", 1, [], id="a server"),
        pytest.param("worker-0", "worker", 0, [("DMLC_WORKER_ID", 0)], id="worker 0"),
        pytest.param("worker-1", "worker", 1, [("DMLC_WORKER_ID", 1)], id="worker 1"),
    ],
)
def test_members_of_a_training_job_learn_the_whole_cluster(
    slot: str, role: str, index: int, more: list[tuple[str, Any]]
) -> None:
    assert env_of(training(), slot) == [
        ("MX_CONFIG", CLUSTER + f'"task":{{"type":"{role}","index":{index}}}}}'),
        ("DMLC_PS_ROOT_PORT", 9091),
        ("DMLC_PS_ROOT_URI", "j-scheduler-0"),
        ("DMLC_NUM_SERVER", 2),
        ("DMLC_NUM_WORKER", 2),
        ("DMLC_ROLE", role),
        ("DMLC_USE_KUBERNETES", 1),
        *more,
    ]


@pytest.mark.parametrize("slot", ["scheduler-0", "server-0", "server-1"])
def test_only_workers_have_a_worker_id_for_byteps(slot: str) -> None:
    assert "DMLC_WORKER_ID" not in dict(env_of(training(), slot))


def test_without_a_scheduler_there_is_no_root() -> None:
    scene = a_job("MXJob", "j").role("Worker")

    assert env_of(scene, "worker-0") == [
        (
            "MX_CONFIG",
            '{"cluster":{"worker":[{"url":"j-worker-0","port":9091}]},"labels":{"worker":""},'
            '"task":{"type":"worker","index":0}}',
        ),
        ("DMLC_PS_ROOT_PORT", 0),
        ("DMLC_PS_ROOT_URI", ""),
        ("DMLC_NUM_SERVER", 0),
        ("DMLC_NUM_WORKER", 1),
        ("DMLC_ROLE", "worker"),
        ("DMLC_USE_KUBERNETES", 1),
        ("DMLC_WORKER_ID", 0),
    ]


def test_members_of_a_tuning_job_learn_the_tuners() -> None:
    assert env_of(tuning(), "tuner-0") == [
        (
            "MX_CONFIG",
            '{"cluster":{"tuner":[{"url":"j-tuner-0","port":9091}],'
            '"tunerserver":[{"url":"j-tunerserver-0","port":9091}],'
            '"tunertracker":[{"url":"j-tunertracker-0","port":9091}]},'
            '"labels":{"tuner":"","tunerserver":"","tunertracker":""},"task":{"type":"tuner","index":0}}',
        ),
        ("DMLC_PS_ROOT_PORT", 0),
        ("DMLC_PS_ROOT_URI", ""),
        ("DMLC_NUM_SERVER", 0),
        ("DMLC_NUM_WORKER", 0),
        ("DMLC_ROLE", "tuner"),
        ("DMLC_USE_KUBERNETES", 1),
    ]


@pytest.mark.parametrize(
    ("annotation", "label", "key"),
    [
        pytest.param("gpu-a", None, "gpu-a", id="annotation"),
        pytest.param(None, "gpu-b", "gpu-b", id="label of old jobs"),
        pytest.param("gpu-a", "gpu-b", "gpu-a", id="the annotation wins"),
        pytest.param(None, None, "", id="none"),
    ],
)
def test_the_key_of_a_tuner_server_is_published(annotation: str | None, label: str | None, key: str) -> None:
    scene = tuning()
    specs = scene.manifest["spec"]["mxReplicaSpecs"]
    server = specs["TunerServer"]
    metadata = {"annotations": {"tuner-server-key": annotation}}
    server = {**server, "label": label, "template": {**server["template"], "metadata": metadata}}
    scene = scene.spec(mxReplicaSpecs={**specs, "TunerServer": server})

    config = json.loads(dict(env_of(scene, "tuner-0"))["MX_CONFIG"])

    assert config["labels"] == {"tuner": "", "tunerserver": key, "tunertracker": ""}


def test_each_role_is_reached_at_its_own_port() -> None:
    port = {"name": "mxjob-port", "containerPort": 5000}
    container = {"name": "mxnet", "image": "example/train:1", "ports": [port]}
    scene = training().role("Scheduler", containers=[container])

    env = dict(env_of(scene, "worker-0"))

    assert env["DMLC_PS_ROOT_PORT"] == 5000
    cluster = json.loads(env["MX_CONFIG"])["cluster"]
    assert [cluster[role][0]["port"] for role in cluster] == [5000, 9091, 9091]


def test_every_container_gets_the_variables_but_no_init_container() -> None:
    containers = [{"name": "mxnet", "image": "example/train:1"}, {"name": "side", "image": "example/side:1"}]
    scene = a_job("MXJob").role("Worker", containers=containers, initContainers=[{"name": "i", "image": "x"}])

    spec = pod_of(scene.framework, scene.job.members()[0])["spec"]

    assert [len(container["env"]) for container in spec["containers"]] == [8, 8]
    assert "env" not in spec["initContainers"][0]


def test_servers_are_labelled_as_masters() -> None:
    scene = training()

    leaders = [member.slot for member in scene.job.members() if scene.framework.is_leader(member)]

    assert leaders == ["server-0", "server-1"]


@pytest.mark.parametrize(
    ("scene", "role"),
    [
        pytest.param(training(), "Scheduler", id="training"),
        pytest.param(a_job("MXJob").role("Worker"), "Worker", id="a lone worker"),
        pytest.param(tuning(), "Tuner", id="tuning"),
    ],
)
def test_each_mode_has_its_deciding_role(scene: Scene, role: str) -> None:
    assert MXNet().deciding(scene.job) == role


def test_messages_say_mxjob_where_upstream_does() -> None:
    messages = MXNet().messages(training().job)

    assert messages.running == "{kind} {name} is running."
    assert messages.succeeded == "{kind} {name} is successfully completed."
    assert messages.failed == "mxjob {name} is failed because {count} {role} replica(s) failed."
    assert messages.restarting == "mxjob {name} is restarting because {count} {role} replica(s) failed."
