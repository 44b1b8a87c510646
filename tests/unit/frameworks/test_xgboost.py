"""XGBoostJob: the variables of the master and its workers."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.engine.pods import pod_of
from trainmaster.frameworks.xgboost import XGBoost
from trainmaster.testing.scene import Scene, a_job


def env_of(scene: Scene, slot: str) -> list[tuple[str, Any]]:
    member = next(member for member in scene.job.members() if member.slot == slot)
    return list(scene.framework.env(member).items())


def test_a_lone_master_has_no_list_of_workers() -> None:
    scene = a_job("XGBoostJob", "j").role("Master")

    assert env_of(scene, "master-0") == [
        ("MASTER_PORT", 9999),
        ("MASTER_ADDR", "j-master-0"),
        ("WORLD_SIZE", 1),
        ("RANK", 0),
        ("PYTHONUNBUFFERED", 1),
    ]


@pytest.mark.parametrize(
    ("workers", "slot", "world", "rank", "addresses"),
    [
        pytest.param(1, "master-0", 2, 0, "j-worker-0", id="one worker, master"),
        pytest.param(1, "worker-0", 2, 1, "j-worker-0", id="one worker, worker 0"),
        pytest.param(2, "master-0", 3, 0, "j-worker-0,j-worker-1", id="two workers, master"),
        pytest.param(2, "worker-0", 3, 1, "j-worker-0,j-worker-1", id="two workers, worker 0"),
        pytest.param(2, "worker-1", 3, 2, "j-worker-0,j-worker-1", id="two workers, worker 1"),
    ],
)
def test_members_learn_their_rank_and_all_workers(
    workers: int, slot: str, world: int, rank: int, addresses: str
) -> None:
    scene = a_job("XGBoostJob", "j").role("Master").role("Worker", workers)

    assert env_of(scene, slot) == [
        ("MASTER_PORT", 9999),
        ("MASTER_ADDR", "j-master-0"),
        ("WORLD_SIZE", world),
        ("RANK", rank),
        ("PYTHONUNBUFFERED", 1),
        ("WORKER_PORT", 9999),
        ("WORKER_ADDRS", addresses),
    ]


def test_master_and_workers_may_have_ports_of_their_own() -> None:
    port = {"name": "xgboostjob-port", "containerPort": 7000}
    container = {"name": "xgboost", "image": "example/train:1", "ports": [port]}
    scene = a_job("XGBoostJob").role("Master").role("Worker", containers=[container])

    env = dict(env_of(scene, "worker-0"))

    assert (env["MASTER_PORT"], env["WORKER_PORT"]) == (9999, 7000)


def test_every_container_gets_the_variables_but_no_init_container() -> None:
    containers = [{"name": "side", "image": "example/side:1"}, {"name": "xgboostjob", "image": "example/train:1"}]
    scene = a_job("XGBoostJob").role("Master", containers=containers, initContainers=[{"name": "i", "image": "x"}])

    spec = pod_of(scene.framework, scene.job.members()[0])["spec"]

    assert [container["env"][3] for container in spec["containers"]] == [{"name": "RANK", "value": "0"}] * 2
    assert "env" not in spec["initContainers"][0]


def test_only_the_master_leads_and_decides() -> None:
    scene = a_job("XGBoostJob").role("Master").role("Worker", 2)

    assert [member.slot for member in scene.job.members() if scene.framework.is_leader(member)] == ["master-0"]
    assert XGBoost().deciding(scene.job) == "Master"


def test_messages_name_the_job_without_namespace() -> None:
    messages = XGBoost().messages(a_job("XGBoostJob").role("Master").job)

    assert messages.running == "{kind} {name} is running."
    assert messages.succeeded == "{kind} {name} is successfully completed."
    assert messages.failed == "{kind} {name} is failed because {count} {role} replica(s) failed."
    assert messages.restarting == "{kind} {name} is restarting because {count} {role} replica(s) failed."
