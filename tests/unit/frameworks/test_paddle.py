"""PaddleJob: where the launcher meets, with and without a master."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.engine.pods import pod_of
from trainmaster.testing.scene import Scene, a_job

OWN_ADDRESS = {"fieldRef": {"fieldPath": "status.podIP"}}


def env_of(scene: Scene, slot: str) -> list[tuple[str, Any]]:
    member = next(member for member in scene.job.members() if member.slot == slot)
    return list(scene.framework.env(member).items())


def collective() -> Scene:
    return a_job("PaddleJob", "j").role("Worker", 2)


def with_servers() -> Scene:
    return a_job("PaddleJob", "j").role("Master", 2).role("Worker", 2)


@pytest.mark.parametrize(
    ("scene", "slot", "meeting"),
    [
        pytest.param(
            collective(),
            "worker-0",
            [("POD_IP_DUMMY", OWN_ADDRESS), ("PADDLE_MASTER", "$(POD_IP_DUMMY):36543")],
            id="collective, worker 0 is the meeting point",
        ),
        pytest.param(
            collective(), "worker-1", [("PADDLE_MASTER", "j-worker-0:36543")], id="collective, others go to worker 0"
        ),
        pytest.param(
            with_servers(),
            "master-0",
            [
                ("POD_IP_DUMMY", OWN_ADDRESS),
                ("PADDLE_MASTER", "$(POD_IP_DUMMY):36543"),
                ("PADDLE_SERVER_NUM", 1),
            ],
            id="servers, master 0 is the meeting point",
        ),
        pytest.param(
            with_servers(),
            "master-1",
            [("PADDLE_MASTER", "j-master-0:36543"), ("PADDLE_SERVER_NUM", 1)],
            id="servers, other masters go to master 0",
        ),
        pytest.param(
            with_servers(),
            "worker-0",
            [("PADDLE_MASTER", "j-master-0:36543"), ("PADDLE_TRAINER_NUM", 1)],
            id="servers, workers go to master 0",
        ),
    ],
)
def test_members_learn_where_to_meet(scene: Scene, slot: str, meeting: list[tuple[str, Any]]) -> None:
    assert env_of(scene, slot) == [
        ("PYTHONUNBUFFERED", 1),
        ("PADDLE_JOB_ID", "j"),
        ("PADDLE_NNODES", scene.job.world),
        *meeting,
    ]


def test_the_meeting_point_has_the_port_of_its_role() -> None:
    port = {"name": "master", "containerPort": 8080}
    container = {"name": "paddle", "image": "example/train:1", "ports": [port]}
    scene = a_job("PaddleJob", "j").role("Master", containers=[container]).role("Worker")

    assert dict(env_of(scene, "master-0"))["PADDLE_MASTER"] == "$(POD_IP_DUMMY):8080"
    assert dict(env_of(scene, "worker-0"))["PADDLE_MASTER"] == "j-master-0:8080"


def test_every_container_gets_the_variables_but_no_init_container() -> None:
    containers = [{"name": "paddle", "image": "example/train:1"}, {"name": "side", "image": "example/side:1"}]
    scene = a_job("PaddleJob").role("Worker", containers=containers, initContainers=[{"name": "i", "image": "x"}])

    spec = pod_of(scene.framework, scene.job.members()[0])["spec"]

    assert [c["env"][3] for c in spec["containers"]] == [{"name": "POD_IP_DUMMY", "valueFrom": OWN_ADDRESS}] * 2
    assert "env" not in spec["initContainers"][0]


@pytest.mark.parametrize(
    ("scene", "leaders"),
    [
        pytest.param(with_servers(), ["master-0", "master-1"], id="masters"),
        pytest.param(collective(), [], id="nobody without a master"),
    ],
)
def test_only_masters_lead(scene: Scene, leaders: list[str]) -> None:
    assert [member.slot for member in scene.job.members() if scene.framework.is_leader(member)] == leaders


@pytest.mark.parametrize(
    ("policy", "bounds"),
    [
        pytest.param({}, (2, 2), id="neither"),
        pytest.param({"maxReplicas": 3}, (3, 3), id="only the upper"),
        pytest.param({"minReplicas": 1}, (1, 1), id="only the lower"),
        pytest.param({"minReplicas": 1, "maxReplicas": 4}, (1, 4), id="both"),
    ],
)
def test_a_missing_elastic_bound_is_the_other_or_the_number_of_workers(
    policy: dict[str, int], bounds: tuple[int, int]
) -> None:
    spec = collective().spec(elasticPolicy=policy).job.spec

    assert (spec["elasticPolicy"]["minReplicas"], spec["elasticPolicy"]["maxReplicas"]) == bounds


def test_an_elastic_policy_changes_nothing_but_the_bounds() -> None:
    plain = collective()
    elastic = plain.spec(elasticPolicy={"maxReplicas": 4, "maxRestarts": 3, "metrics": [{"type": "Resource"}]})

    assert env_of(elastic, "worker-0") == env_of(plain, "worker-0")
    assert list(elastic.framework.companions(elastic.job)) == []


@pytest.mark.parametrize(
    ("scene", "running", "succeeded"),
    [
        pytest.param(
            with_servers(), "{kind} {name} is running.", "{kind} {name} is successfully completed.", id="with a master"
        ),
        pytest.param(
            collective(),
            "{kind} {namespace}/{name} is running.",
            "{kind} {namespace}/{name} successfully completed.",
            id="without",
        ),
    ],
)
def test_messages_name_the_namespace_only_without_a_master(scene: Scene, running: str, succeeded: str) -> None:
    messages = scene.framework.messages(scene.job)

    assert (messages.running, messages.succeeded) == (running, succeeded)
