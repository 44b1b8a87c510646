"""Objects beside pods and Services, by two examples: the autoscaler of an elastic PyTorchJob, what an MPIJob needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from trainmaster.api.framework import Companion
from trainmaster.api.job import Job
from trainmaster.engine import labels
from trainmaster.engine.actions import Create, Patch, Stage
from trainmaster.frameworks.jax import JAX
from trainmaster.objects.meta import Json, Meta, Object, OwnerReference
from trainmaster.objects.resource import CONFIG_MAPS, HORIZONTAL_POD_AUTOSCALERS
from trainmaster.testing import holdings
from trainmaster.testing.scene import UID, Scene, a_job, body, created, deleted

METRICS = [
    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
]


def elastic(**policy: Any) -> Scene:
    given = {"minReplicas": 1, "maxReplicas": 3, "metrics": METRICS, **policy}
    return a_job("PyTorchJob", elasticPolicy={k: v for k, v in given.items() if v is not None}).role("Worker")


def held(scene: Scene) -> Object:
    return scene.others["HorizontalPodAutoscaler", "job"]


def test_an_elastic_job_with_metrics_gets_an_autoscaler() -> None:
    made = dict(body(elastic().plan(), "job", HORIZONTAL_POD_AUTOSCALERS))

    assert (made["apiVersion"], made["kind"]) == ("autoscaling/v2", "HorizontalPodAutoscaler")
    assert made["spec"] == {
        "scaleTargetRef": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "job"},
        "minReplicas": 1,
        "maxReplicas": 3,
        "metrics": METRICS,
    }


def test_an_autoscaler_belongs_to_its_job() -> None:
    metadata = body(elastic().plan(), "job", HORIZONTAL_POD_AUTOSCALERS)["metadata"]

    assert (metadata["name"], metadata["namespace"]) == ("job", "default")
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "name": "job",
            "uid": UID,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(a_job("PyTorchJob").role("Worker"), id="not elastic"),
        pytest.param(elastic(metrics=None), id="elastic without metrics"),
    ],
)
def test_other_jobs_get_no_autoscaler(scene: Scene) -> None:
    assert created(scene.plan(), HORIZONTAL_POD_AUTOSCALERS) == []


def test_an_old_cluster_gets_the_version_it_serves() -> None:
    plan = elastic().having(autoscaling_version="v2beta2").plan()

    (made,) = [a for a in plan.actions if isinstance(a, Create) and a.resource.group == "autoscaling"]

    assert (made.resource.version, made.body["apiVersion"]) == ("v2beta2", "autoscaling/v2beta2")


def test_companions_are_made_before_services_and_pods() -> None:
    stages = {a.resource.kind: a.stage for a in elastic().plan().actions if isinstance(a, Create)}

    assert stages["HorizontalPodAutoscaler"] < stages["Service"] < stages["Pod"]


def test_an_autoscaler_in_order_is_left_alone() -> None:
    assert elastic().all("Running").settled().plan().actions == ()


def test_a_changed_bound_is_brought_to_the_autoscaler() -> None:
    scene = elastic().settled()

    changed = scene.spec(elasticPolicy={"minReplicas": 1, "maxReplicas": 9, "metrics": METRICS}).settled()

    assert held(changed).at("spec", "maxReplicas") == 9


def test_what_the_server_fills_in_is_no_drift() -> None:
    scene = elastic().settled()
    filled = {**held(scene).at("spec"), "behavior": {"scaleDown": {"selectPolicy": "Max"}}}

    assert scene.other("HorizontalPodAutoscaler", held(scene).metadata, filled).plan().actions == ()


def test_a_mended_autoscaler_drops_what_others_added() -> None:
    scene = elastic().settled()
    spec = {**held(scene).at("spec"), "behavior": {"scaleDown": {}}}
    scene = scene.other("HorizontalPodAutoscaler", held(scene).metadata, spec)

    changed = scene.spec(elasticPolicy={"minReplicas": 2, "maxReplicas": 3, "metrics": METRICS}).settled()

    assert "behavior" not in held(changed).at("spec")


def test_a_mended_autoscaler_says_what_it_was_mended_to() -> None:
    scene = elastic().settled()
    before = held(scene).metadata.annotations[labels.APPLIED]

    changed = scene.spec(elasticPolicy={"minReplicas": 2, "maxReplicas": 3, "metrics": METRICS}).settled()

    assert held(changed).metadata.annotations[labels.APPLIED] != before


def test_a_patch_is_refused_by_the_server_if_the_object_changed_meanwhile() -> None:
    scene = elastic().settled()
    stored = msgspec.structs.replace(held(scene).metadata, resource_version="7")
    scene = scene.other("HorizontalPodAutoscaler", stored, held(scene).at("spec"))

    plan = scene.spec(elasticPolicy={"minReplicas": 2, "maxReplicas": 3, "metrics": METRICS}).plan()

    assert [a.body["metadata"]["resourceVersion"] for a in plan.actions if isinstance(a, Patch)] == ["7"]


def test_an_autoscaler_goes_when_the_job_no_longer_asks_for_one() -> None:
    scene = elastic().settled()

    plan = scene.spec(elasticPolicy={"minReplicas": 1, "maxReplicas": 3}).plan()

    assert deleted(plan, HORIZONTAL_POD_AUTOSCALERS) == ["job"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_autoscaler_goes_with_the_end_of_the_job(phase: str) -> None:
    scene = elastic().role("Worker", 1, "Never").settled().all(phase, exit_code=0 if phase == "Succeeded" else 1)

    assert scene.settled().others == {}


def test_an_autoscaler_comes_back_when_the_job_is_resumed() -> None:
    scene = elastic().settled().policy(suspend=True).settled()

    assert created(scene.policy(suspend=False).plan(), HORIZONTAL_POD_AUTOSCALERS) == ["job"]


def foreign(owner: str) -> Scene:
    """An autoscaler of the job's name that is somebody else's."""
    owners = (OwnerReference(uid=owner, controller=True),) if owner else ()
    return elastic().other("HorizontalPodAutoscaler", Meta(name="job", uid="h", owner_references=owners), {"a": 1})


@pytest.mark.parametrize("owner", [pytest.param("", id="nobody's"), pytest.param("other", id="another's")])
def test_an_object_that_is_not_ours_is_not_changed(owner: str) -> None:
    assert held(foreign(owner).all("Running").settled()).at("spec") == {"a": 1}


@pytest.mark.parametrize("owner", [pytest.param("", id="nobody's"), pytest.param("other", id="another's")])
def test_an_object_that_is_not_ours_is_not_deleted(owner: str) -> None:
    assert deleted(foreign(owner).policy(suspend=True).plan(), HORIZONTAL_POD_AUTOSCALERS) == []


def test_an_object_that_is_going_is_neither_mended_nor_deleted() -> None:
    scene = elastic().settled()
    going = msgspec.structs.replace(held(scene).metadata, deletion_timestamp="2024-01-01T00:00:00Z", annotations={})
    scene = scene.other("HorizontalPodAutoscaler", going, {})

    plans = [scene.plan(), scene.policy(suspend=True).plan()]

    assert [a for plan in plans for a in plan.actions if a.resource == HORIZONTAL_POD_AUTOSCALERS] == []


class _Keeping(JAX):
    """Leaves a ConfigMap behind."""

    companion_resources = (CONFIG_MAPS,)

    def companions(self, job: Job) -> Iterable[Companion]:
        yield Companion(CONFIG_MAPS, {"metadata": {"name": "job-config"}, "data": {"a": "1"}}, keep=True)


def test_a_companion_that_is_to_be_kept_outlives_the_job() -> None:
    scene = replace(a_job("JAXJob").role("Worker"), framework=_Keeping()).settled()

    ended = scene.all("Succeeded", exit_code=0).settled()

    assert list(ended.others) == [("ConfigMap", "job-config")]


def test_a_companion_that_is_to_be_kept_stays_while_the_job_is_suspended() -> None:
    scene = replace(a_job("JAXJob").role("Worker"), framework=_Keeping()).settled()

    assert deleted(scene.policy(suspend=True).plan(), CONFIG_MAPS) == []


def test_nobody_is_bound_to_a_role_before_there_is_one() -> None:
    scene = a_job("MPIJob", version="v1").role("Launcher").role("Worker", 2)

    stages = {a.resource.kind: a.stage for a in scene.plan().actions if isinstance(a, Create)}

    assert stages["Role"] == stages["ServiceAccount"] == Stage.COMPANIONS
    assert stages["Role"] < stages["RoleBinding"] < stages["Pod"]


# Somebody's hand.


ROLE_BINDING_SUBJECT = {"kind": "ServiceAccount", "name": "intruder", "namespace": "default"}


def contents(scene: Scene) -> dict[tuple[str, str], Json]:
    return {key: holdings.written(held) for key, held in scene.others.items()}


def mpi(version: str = "v1") -> Scene:
    return a_job("MPIJob", version=version).role("Launcher").role("Worker", 2).settled()


@pytest.mark.parametrize(
    ("version", "kind", "name", "change"),
    [
        pytest.param("v1", "ConfigMap", "job-config", {"data": {"hostfile": "nowhere slots=1"}}, id="a file, v1"),
        pytest.param("v2beta1", "ConfigMap", "job-config", {"data": {"hostfile": ""}}, id="a file, v2beta1"),
        pytest.param("v1", "ConfigMap", "job-config", {"data": {"kubexec.sh": None}}, id="a file that is gone"),
        pytest.param("v1", "ConfigMap", "job-config", {"data": None}, id="all files"),
        pytest.param("v1", "Role", "job-launcher", {"rules": []}, id="no rights"),
        pytest.param("v1", "Role", "job-launcher", {"rules": [{"verbs": ["*"]}]}, id="other rights"),
        pytest.param("v1", "RoleBinding", "job-launcher", {"subjects": [ROLE_BINDING_SUBJECT]}, id="others have them"),
    ],
)
def test_what_somebody_has_changed_by_hand_is_mended(version: str, kind: str, name: str, change: Json) -> None:
    scene = mpi(version)

    altered = scene.edited(kind, name, **change)

    patched = [(action.resource.kind, action.name) for action in altered.plan().actions if isinstance(action, Patch)]
    assert patched == [(kind, name)]
    assert contents(altered.settled()) == contents(scene)


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        pytest.param("ConfigMap", "job-config", {"data": {"notes": "mine"}}, id="another file"),
        pytest.param("Role", "job-launcher", {"metadata": {"labels": {"team": "a"}}}, id="a label"),
    ],
)
def test_what_is_added_beside_our_own_is_left_there(kind: str, name: str, change: Json) -> None:
    assert mpi().edited(kind, name, **change).plan().actions == ()


def test_a_job_without_rights_to_give_does_not_mend_for_ever() -> None:
    scene = a_job("MPIJob", version="v1").role("Launcher").settled()

    assert scene.edited("Role", "job-launcher", rules=None).plan().actions == ()


def test_keys_are_made_once_whatever_becomes_of_them() -> None:
    scene = mpi("v2beta1").edited("Secret", "job-ssh", data={"ssh-privatekey": "", "ssh-publickey": ""})

    assert scene.plan().actions == ()
