"""The pod of one replica, from the user's template."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.api import reading
from trainmaster.engine import labels
from trainmaster.engine.pods import attempt_of, pod_of
from trainmaster.objects.meta import Json
from trainmaster.testing.scene import TYPICAL, UID, Scene, a_job, a_typical_job, body, created, told


def pod(scene: Scene, name: str = "job-worker-0") -> Json:
    return body(scene.plan(), name)


def env_names(container: Json) -> list[str]:
    return [variable["name"] for variable in container.get("env", [])]


def env(scene: Scene, name: str) -> dict[str, Any]:
    return {variable["name"]: variable.get("value") for variable in pod(scene, name)["spec"]["containers"][0]["env"]}


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        pytest.param("TFJob", ["job-chief-0", "job-ps-0", "job-worker-0", "job-worker-1"], id="tensorflow"),
        pytest.param("PyTorchJob", ["job-master-0", "job-worker-0", "job-worker-1"], id="pytorch"),
        pytest.param("XGBoostJob", ["job-master-0", "job-worker-0", "job-worker-1"], id="xgboost"),
        pytest.param("MXJob", ["job-scheduler-0", "job-server-0", "job-worker-0", "job-worker-1"], id="mxnet"),
        pytest.param("PaddleJob", ["job-master-0", "job-worker-0", "job-worker-1"], id="paddle"),
        pytest.param("JAXJob", ["job-worker-0", "job-worker-1"], id="jax"),
    ],
)
def test_pods_are_named_after_job_role_and_index_in_role_order(kind: str, names: list[str]) -> None:
    scene = a_typical_job(kind)

    made = scene.plan()

    assert created(made) == names


def test_the_name_of_the_template_is_overwritten() -> None:
    scene = a_job("JAXJob").role("Worker", metadata={"name": "mine", "generateName": "mine-"})

    metadata = pod(scene)["metadata"]

    assert (metadata["name"], metadata.get("generateName")) == ("job-worker-0", None)


def test_a_pod_lies_in_the_namespace_of_its_job() -> None:
    scene = a_job("JAXJob").role("Worker").meta(namespace="team-a")

    assert pod(scene)["metadata"]["namespace"] == "team-a"


@pytest.mark.parametrize("kind", TYPICAL)
def test_a_pod_has_its_job_as_its_only_owner(kind: str) -> None:
    scene = a_typical_job(kind)

    owners = pod(scene)["metadata"]["ownerReferences"]

    assert owners == [
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": kind,
            "name": "job",
            "uid": UID,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_a_job_of_an_old_api_group_owns_its_pods_under_that_group() -> None:
    scene = a_job("XGBoostJob").role("Master")
    old = scene.framework.served[1]
    job = reading.read(scene.framework, scene.manifest, resource=old).job
    assert job is not None

    made = pod_of(scene.framework, job.members()[0])

    assert made["metadata"]["ownerReferences"][0]["apiVersion"] == "xgboostjob.kubeflow.org/v1"


def test_labels_and_annotations_of_the_template_are_copied() -> None:
    template = {"labels": {"label1": "1"}, "annotations": {"annotation1": "1"}}
    scene = a_job("TFJob").role("Worker", metadata=template)

    metadata = pod(scene)["metadata"]

    assert (metadata["labels"]["label1"], metadata["annotations"]) == ("1", {"annotation1": "1"})


def test_finalizers_of_the_template_are_copied() -> None:
    scene = a_job("TFJob").role("Worker", metadata={"finalizers": ["example.com/wait"]})

    assert pod(scene)["metadata"]["finalizers"] == ["example.com/wait"]


def test_what_the_template_says_of_itself_does_not_reach_the_pod() -> None:
    scene = a_job("MXJob").role("Worker", metadata={"uid": "x", "resourceVersion": "1", "ownerReferences": []})
    replicas = scene.manifest["spec"]["mxReplicaSpecs"]
    template = {**replicas["Worker"]["template"], "apiVersion": "v2", "kind": "Template", "status": {}}

    made = pod(scene.spec(mxReplicaSpecs={"Worker": {**replicas["Worker"], "template": template}}))

    assert (made["apiVersion"], made["kind"], set(made)) == ("v1", "Pod", {"apiVersion", "kind", "metadata", "spec"})
    assert set(made["metadata"]) == {"name", "namespace", "labels", "ownerReferences"}


def test_the_rest_of_the_template_passes_through_untouched() -> None:
    given: dict[str, Any] = {
        "hostNetwork": True,
        "serviceAccountName": "trainer",
        "volumes": [{"name": "data", "emptyDir": {}}],
        "fieldOfTheFuture": {"deep": [1]},
    }
    scene = a_job("PaddleJob").role("Worker", **given)

    spec = pod(scene)["spec"]

    assert {key: spec[key] for key in given} == given


@pytest.mark.parametrize(
    ("policy", "written"),
    [
        pytest.param("Always", "Always", id="Always"),
        pytest.param("OnFailure", "OnFailure", id="OnFailure"),
        pytest.param("Never", "Never", id="Never"),
        pytest.param("ExitCode", "Never", id="ExitCode"),
    ],
)
def test_restart_policy_of_the_pod(policy: str, written: str) -> None:
    scene = a_job("TFJob").role("Worker", restart=policy)

    assert pod(scene)["spec"]["restartPolicy"] == written


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        pytest.param("TFJob", "Never", id="tensorflow"),
        pytest.param("PyTorchJob", "OnFailure", id="pytorch"),
        pytest.param("XGBoostJob", "Never", id="xgboost"),
        pytest.param("MXJob", "Never", id="mxnet"),
        pytest.param("PaddleJob", "OnFailure", id="paddle"),
        pytest.param("JAXJob", "Never", id="jax"),
    ],
)
def test_restart_policy_of_the_pod_when_the_job_names_none(kind: str, written: str) -> None:
    scene = a_typical_job(kind)

    assert pod(scene)["spec"]["restartPolicy"] == written


def test_restart_policy_of_the_template_is_overwritten() -> None:
    scene = a_job("TFJob").role("Worker", restart="Never", restartPolicy="Always")

    assert pod(scene)["spec"]["restartPolicy"] == "Never"


def test_the_user_is_told_that_the_templates_restart_policy_is_overwritten() -> None:
    scene = a_job("TFJob").role("PS").role("Worker", restartPolicy="Always")

    events = [event for event in scene.plan().events if event.reason == "SetPodTemplateRestartPolicy"]

    assert [(event.type, "Worker" in event.message) for event in events] == [("Warning", True)]


def test_no_word_about_restart_policies_when_the_template_has_none() -> None:
    scene = a_job("TFJob").role("Worker", restart="Always")

    assert told(scene.plan()) == []


def test_environment_is_appended_after_the_users() -> None:
    container = {"name": "jax", "image": "i", "env": [{"name": "PROCESS_ID", "value": "9"}, {"name": "A", "value": ""}]}
    scene = a_job("JAXJob").role("Worker", containers=[container])

    names = env_names(pod(scene)["spec"]["containers"][0])

    assert names[:3] == ["PROCESS_ID", "A", "PYTHONUNBUFFERED"]
    assert names[-1] == "PROCESS_ID"


@pytest.mark.parametrize(
    ("kind", "touched"),
    [pytest.param(kind, ["main"] if kind == "TFJob" else ["main", "sidecar"], id=kind) for kind in TYPICAL],
)
def test_which_containers_get_the_environment(kind: str, touched: list[str]) -> None:
    scene = a_typical_job(kind)
    main = scene.framework.container
    containers = [{"name": "sidecar", "image": "i"}, {"name": main, "image": "i"}]
    scene = scene.role("Worker", 2, containers=containers, initContainers=[{"name": main, "image": "i"}])

    spec = pod(scene)["spec"]

    found = ["main" if c["name"] == main else c["name"] for c in spec["containers"] if c.get("env")]
    assert sorted(found) == touched
    assert "env" not in spec["initContainers"][0]


@pytest.mark.parametrize(
    ("kind", "port"),
    [
        pytest.param("TFJob", ("tfjob-port", 2222), id="tensorflow"),
        pytest.param("PyTorchJob", ("pytorchjob-port", 23456), id="pytorch"),
        pytest.param("XGBoostJob", ("xgboostjob-port", 9999), id="xgboost"),
        pytest.param("MXJob", ("mxjob-port", 9091), id="mxnet"),
        pytest.param("PaddleJob", ("master", 36543), id="paddle"),
        pytest.param("JAXJob", ("jaxjob-port", 6666), id="jax"),
    ],
)
def test_the_default_port_is_in_the_pod(kind: str, port: tuple[str, int]) -> None:
    scene = a_typical_job(kind)

    ports = pod(scene)["spec"]["containers"][0]["ports"]

    assert [(p["name"], p["containerPort"]) for p in ports] == [port]


def test_a_port_of_the_default_name_keeps_its_number() -> None:
    ports = [{"name": "tfjob-port", "containerPort": 8080}]
    scene = a_job("TFJob").role("Worker", containers=[{"name": "tensorflow", "image": "i", "ports": ports}])

    assert pod(scene)["spec"]["containers"][0]["ports"] == ports


def test_compat_2021_lets_the_pytorch_master_find_itself_at_localhost() -> None:
    scene = a_typical_job("PyTorchJob").having(compat_2021=True)

    assert env(scene, "job-master-0")["MASTER_ADDR"] == "localhost"


def test_compat_2021_lets_pytorch_workers_find_the_master_by_name() -> None:
    scene = a_typical_job("PyTorchJob").having(compat_2021=True)

    assert env(scene, "job-worker-0")["MASTER_ADDR"] == "job-master-0"


def test_without_compat_the_pytorch_master_goes_by_its_name_too() -> None:
    scene = a_typical_job("PyTorchJob")

    assert env(scene, "job-master-0")["MASTER_ADDR"] == "job-master-0"


def test_compat_2021_leaves_the_evaluator_out_of_tf_config() -> None:
    scene = a_job("TFJob").role("Worker", 2).role("Evaluator")

    old, new = (env(s, "job-worker-0")["TF_CONFIG"] for s in (scene.having(compat_2021=True), scene))

    assert ("evaluator" in old, "evaluator" in new) == (False, True)


def test_the_first_pod_of_a_slot_carries_no_attempt() -> None:
    scene = a_job("TFJob").role("Worker")

    assert "annotations" not in pod(scene)["metadata"]


def test_a_later_pod_of_a_slot_carries_the_number_of_its_attempt() -> None:
    member = a_job("TFJob").role("Worker").job.members()[0]

    made = pod_of(a_job("TFJob").framework, member, attempt=3)

    assert made["metadata"]["annotations"] == {labels.ATTEMPT: "3"}


@pytest.mark.parametrize(
    ("text", "attempt"),
    [
        pytest.param("2", 2, id="number"),
        pytest.param("", 0, id="empty"),
        pytest.param("-1", 0, id="negative"),
        pytest.param("two", 0, id="word"),
    ],
)
def test_an_attempt_that_is_no_number_counts_as_the_first(text: str, attempt: int) -> None:
    assert attempt_of({labels.ATTEMPT: text}) == attempt


def test_the_users_template_is_left_as_it_was() -> None:
    scene = a_typical_job("PyTorchJob").having(gang_scheduler="volcano", compat_2021=True).group("Running")
    template = scene.job.replicas["Worker"].template
    before = repr(template)

    pod_of(scene.framework, scene.job.members()[1])

    assert repr(template) == before


@pytest.mark.parametrize("text", ["", "-1", "x", "²", "9" * 5000], ids=["empty", "negative", "text", "odd", "endless"])
def test_an_attempt_that_is_no_number_is_the_first(text: str) -> None:
    assert attempt_of({labels.ATTEMPT: text}) == 0
