"""JAXJob: five variables, worker 0 coordinates."""

from __future__ import annotations

import pytest

from trainmaster.engine.pods import pod_of
from trainmaster.testing.scene import a_job


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_worker_learns_the_coordinator_and_its_own_number(index: int) -> None:
    scene = a_job("JAXJob", "j").role("Worker", 3)

    env = scene.framework.env(scene.job.members()[index])

    assert list(env.items()) == [
        ("PYTHONUNBUFFERED", 1),
        ("COORDINATOR_PORT", 6666),
        ("COORDINATOR_ADDRESS", "j-worker-0"),
        ("NUM_PROCESSES", 3),
        ("PROCESS_ID", index),
    ]


def test_the_coordinator_listens_at_the_named_port() -> None:
    port = {"name": "jaxjob-port", "containerPort": 1234}
    scene = a_job("JAXJob").role("Worker", containers=[{"name": "jax", "image": "example/train:1", "ports": [port]}])

    env = scene.framework.env(scene.job.members()[0])

    assert env["COORDINATOR_PORT"] == 1234


def test_every_container_gets_the_variables_but_no_init_container() -> None:
    containers = [{"name": "jax", "image": "example/train:1"}, {"name": "side", "image": "example/side:1"}]
    scene = a_job("JAXJob").role("Worker", containers=containers, initContainers=[{"name": "i", "image": "x"}])

    spec = pod_of(scene.framework, scene.job.members()[0])["spec"]

    assert [len(container["env"]) for container in spec["containers"]] == [5, 5]
    assert "env" not in spec["initContainers"][0]


def test_worker_0_leads() -> None:
    scene = a_job("JAXJob").role("Worker", 3)

    assert [member.index for member in scene.job.members() if scene.framework.is_leader(member)] == [0]


def test_messages_name_the_namespace() -> None:
    scene = a_job("JAXJob").role("Worker")

    messages = scene.framework.messages(scene.job)

    assert messages.running == "{kind} {namespace}/{name} is running."
    assert messages.succeeded == "{kind} {namespace}/{name} successfully completed."
    assert messages.failed == "{kind} {name} is failed because {count} {role} replica(s) failed."
