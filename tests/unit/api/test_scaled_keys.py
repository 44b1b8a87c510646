"""`kubectl scale` knows one name for a role; authors write others."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.testing.scene import Scene, a_job

KINDS = {"MPIJob": "Launcher", "PyTorchJob": "Master"}
each_kind = pytest.mark.parametrize("kind", KINDS)


def scaled(kind: str, worker: str, **count: Any) -> Scene:
    """A job whose workers stand under a key of the author's, with what stands under that of the CRD."""
    scene = a_job(kind).role(KINDS[kind]).role(worker, 2, "OnFailure")
    field = scene.framework.replicas_field
    return scene.spec(**{field: {**scene.manifest["spec"][field], "Worker": count}})


@each_kind
@pytest.mark.parametrize("worker", ["worker", "WORKER"])
def test_a_bare_number_below_the_name_that_scale_knows_is_the_count_of_the_role(kind: str, worker: str) -> None:
    scene = scaled(kind, worker, replicas=3)

    assert scene.problems == []
    assert scene.reading.advice == ()
    assert (scene.job.count("Worker"), scene.job.replicas["Worker"].restart_policy) == (3, "OnFailure")


@each_kind
@pytest.mark.parametrize("more", [{"restartPolicy": "Never"}, {"template": {}}], ids=["policy", "template"])
def test_two_keys_that_both_describe_a_role_are_still_a_mistake(kind: str, more: dict[str, Any]) -> None:
    problems = scaled(kind, "worker", replicas=3, **more).problems

    assert any("these keys all mean the role Worker; keep one" in problem for problem in problems)


def test_a_number_without_a_role_to_count_is_still_a_mistake() -> None:
    scene = a_job("MPIJob").role("Launcher")
    scene = scene.spec(mpiReplicaSpecs={**scene.manifest["spec"]["mpiReplicaSpecs"], "Worker": {"replicas": 3}})

    assert [problem.partition(":")[0] for problem in scene.problems] == [
        "spec.mpiReplicaSpecs[Worker].template.spec.containers"
    ]


@pytest.mark.parametrize("replicas", ["3", -1, 2.5], ids=["text", "negative", "a fraction"])
def test_a_bare_number_must_be_one(replicas: Any) -> None:
    assert scaled("MPIJob", "worker", replicas=replicas).problems
