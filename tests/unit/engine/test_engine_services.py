"""The headless Service before every replica."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from trainmaster.engine.actions import Create, Delete
from trainmaster.objects.meta import Json, Meta, OwnerReference
from trainmaster.objects.resource import SERVICES
from trainmaster.testing.scene import TYPICAL, UID, Scene, a_job, a_typical_job, body, created, deleted


def ports(*declared: Json, kind: str = "TFJob", container: str = "tensorflow") -> list[Json]:
    role = "Master" if kind == "XGBoostJob" else "Worker"
    template = [
        {"name": "sidecar", "image": "i", "ports": [{"containerPort": 1}]},
        {"name": container, "image": "i", "ports": list(declared)},
    ]
    made = a_job(kind).role(role, containers=template).plan()
    found: list[Json] = body(made, f"job-{role.lower()}-0", SERVICES)["spec"]["ports"]
    return found


def with_service(scene: Scene, name: str, **changes: object) -> Scene:
    held = scene.services[name]
    meta = msgspec.structs.replace(held.metadata, **changes)
    return replace(scene, services={**scene.services, name: msgspec.structs.replace(held, metadata=meta)})


def test_a_service_looks_exactly_so() -> None:
    scene = a_job("TFJob").role("Worker")
    labels = {
        "training.kubeflow.org/operator-name": "tfjob-controller",
        "training.kubeflow.org/job-name": "job",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "0",
    }

    made = body(scene.plan(), "job-worker-0", SERVICES)

    assert made == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "job-worker-0",
            "namespace": "default",
            "labels": labels,
            "ownerReferences": [
                {
                    "apiVersion": "kubeflow.org/v1",
                    "kind": "TFJob",
                    "name": "job",
                    "uid": UID,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "clusterIP": "None",
            "selector": labels,
            "ports": [{"name": "tfjob-port", "port": 2222, "targetPort": 2222}],
            "publishNotReadyAddresses": True,
        },
    }


@pytest.mark.parametrize("kind", TYPICAL)
def test_every_replica_of_every_role_has_a_service_of_its_pods_name(kind: str) -> None:
    made = a_typical_job(kind).plan()

    assert created(made, SERVICES) == created(made)


@pytest.mark.parametrize("kind", TYPICAL)
def test_a_service_selects_the_pod_of_its_own_replica(kind: str) -> None:
    made = a_typical_job(kind).plan()

    selector = body(made, "job-worker-1", SERVICES)["spec"]["selector"]

    selected = [n for n in created(made) if selector.items() <= body(made, n)["metadata"]["labels"].items()]
    assert selected == ["job-worker-1"]


def test_ports_are_those_of_the_training_container_in_its_order() -> None:
    found = ports({"name": "b", "containerPort": 2}, {"name": "a", "containerPort": 1})

    assert [(p["name"], p["port"], p["targetPort"]) for p in found] == [
        ("b", 2, 2),
        ("a", 1, 1),
        ("tfjob-port", 2222, 2222),
    ]


def test_an_unnamed_port_gets_a_name_because_several_must_have_one() -> None:
    found = ports({"containerPort": 8080})

    assert found[0]["name"] == "port-8080"


def test_a_protocol_other_than_the_default_is_kept() -> None:
    found = ports({"name": "gossip", "containerPort": 1, "protocol": "UDP"})

    assert [p.get("protocol") for p in found] == ["UDP", None]


def test_the_container_of_the_old_xgboost_operator_is_found_by_its_name() -> None:
    found = ports({"name": "metrics", "containerPort": 1}, kind="XGBoostJob", container="xgboostjob")

    assert [p["name"] for p in found] == ["metrics", "xgboostjob-port"]


def test_services_are_created_before_pods() -> None:
    made = a_job("TFJob").role("Worker", 2).plan()

    stages = {a.resource.kind: a.stage for a in made.actions if isinstance(a, Create)}

    assert stages["Service"] < stages["Pod"]


def test_a_service_that_somebody_removed_is_made_again_beside_its_running_pod() -> None:
    scene = a_job("TFJob").role("Worker", 2).all("Running")
    kept = {"job-worker-0": scene.services["job-worker-0"]}

    made = replace(scene, services=kept).plan()

    assert (created(made, SERVICES), created(made)) == (["job-worker-1"], [])


def test_a_service_is_never_updated() -> None:
    scene = a_job("TFJob").role("Worker").all("Running").settled()
    container = {"name": "tensorflow", "image": "i", "ports": [{"name": "tfjob-port", "containerPort": 1}]}

    made = scene.role("Worker", containers=[container]).plan()

    assert made.actions == ()


def test_services_of_replicas_scaled_away_are_deleted() -> None:
    scene = a_job("TFJob").role("Worker", 3).all("Running").scaled("Worker", 1)

    made = scene.plan()

    assert deleted(made, SERVICES) == ["job-worker-1", "job-worker-2"]


def test_a_service_that_is_already_going_is_not_deleted_again() -> None:
    scene = a_job("TFJob").role("Worker", 2).all("Running").scaled("Worker", 1)

    made = with_service(scene, "job-worker-1", deletion_timestamp="2024-01-01T00:00:00Z").plan()

    assert deleted(made, SERVICES) == []


def test_a_service_that_is_going_is_not_made_again_before_it_is_gone() -> None:
    scene = a_job("TFJob").role("Worker").all("Running")

    made = with_service(scene, "job-worker-0", deletion_timestamp="2024-01-01T00:00:00Z").plan()

    assert created(made, SERVICES) == []


def test_a_service_of_another_owner_is_not_deleted() -> None:
    scene = a_job("TFJob").role("Worker", 2).all("Running").scaled("Worker", 1)
    foreign = (OwnerReference(uid="other", controller=True),)

    made = with_service(scene, "job-worker-1", owner_references=foreign).plan()

    assert deleted(made, SERVICES) == []


def test_an_owned_service_of_another_name_is_left_alone() -> None:
    scene = a_job("TFJob").role("Worker").all("Running")
    mine = msgspec.structs.replace(
        scene.services["job-worker-0"],
        metadata=Meta(name="tensorboard", uid="t", owner_references=(OwnerReference(uid=UID, controller=True),)),
    )

    made = replace(scene, services={**scene.services, "tensorboard": mine}).plan()

    assert [a for a in made.actions if isinstance(a, Delete)] == []
