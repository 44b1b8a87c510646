"""Labels: what scripts, SDKs and Services select by."""

from __future__ import annotations

import pytest

from trainmaster.engine import labels
from trainmaster.objects.resource import SERVICES
from trainmaster.testing.scene import Scene, a_job, a_typical_job, body, created


def pod_labels(scene: Scene, name: str) -> dict[str, str]:
    return dict(body(scene.plan(), name)["metadata"]["labels"])


def masters(scene: Scene) -> list[str]:
    made = scene.plan()
    return [n for n in created(made) if body(made, n)["metadata"]["labels"].get(labels.JOB_ROLE) == "master"]


@pytest.mark.parametrize(
    ("kind", "controller"),
    [
        pytest.param("TFJob", "tfjob-controller", id="tensorflow"),
        pytest.param("PyTorchJob", "pytorchjob-controller", id="pytorch"),
        pytest.param("XGBoostJob", "xgboostjob-controller", id="xgboost"),
        pytest.param("MXJob", "mxjob-controller", id="mxnet"),
        pytest.param("PaddleJob", "paddlejob-controller", id="paddle"),
        pytest.param("JAXJob", "jaxjob-controller", id="jax"),
    ],
)
def test_a_pod_has_the_four_labels_of_its_replica(kind: str, controller: str) -> None:
    scene = a_typical_job(kind)

    found = pod_labels(scene, "job-worker-1")

    assert found == {
        "training.kubeflow.org/operator-name": controller,
        "training.kubeflow.org/job-name": "job",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "1",
    }


@pytest.mark.parametrize(
    ("kind", "role", "written"),
    [
        pytest.param("TFJob", "PS", "ps", id="PS"),
        pytest.param("TFJob", "Evaluator", "evaluator", id="Evaluator"),
        pytest.param("MXJob", "TunerServer", "tunerserver", id="TunerServer"),
    ],
)
def test_the_replica_type_is_written_in_lower_case(kind: str, role: str, written: str) -> None:
    scene = a_job(kind).role(role)

    found = pod_labels(scene, f"job-{written}-0")

    assert found[labels.REPLICA_TYPE] == written


def test_labels_are_written_over_those_of_the_template() -> None:
    scene = a_job("TFJob").role("Worker", metadata={"labels": {labels.JOB_NAME: "mine", "label1": "1"}})

    found = pod_labels(scene, "job-worker-0")

    assert (found[labels.JOB_NAME], found["label1"]) == ("job", "1")


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        pytest.param(
            a_job("TFJob").role("Chief").role("PS").role("Worker", 2).role("Evaluator"), ["job-chief-0"], id="tf chief"
        ),
        pytest.param(
            a_job("TFJob").role("Chief", 2).role("Worker"), ["job-chief-0", "job-chief-1"], id="tf several chiefs"
        ),
        pytest.param(a_job("TFJob").role("Master").role("Worker", 2), ["job-master-0"], id="tf master"),
        pytest.param(a_job("TFJob").role("PS", 2).role("Worker", 2), ["job-worker-0"], id="tf worker 0"),
        pytest.param(a_job("TFJob").role("PS", 2), [], id="tf only servers"),
        pytest.param(a_job("PyTorchJob").role("Master").role("Worker", 2), ["job-master-0"], id="pytorch master"),
        pytest.param(a_job("PyTorchJob").role("Worker", 2), ["job-worker-0"], id="pytorch worker 0"),
        pytest.param(a_job("XGBoostJob").role("Master").role("Worker", 2), ["job-master-0"], id="xgboost master"),
        pytest.param(
            a_job("PaddleJob").role("Master", 2).role("Worker"), ["job-master-0", "job-master-1"], id="paddle masters"
        ),
        pytest.param(a_job("PaddleJob").role("Worker", 2), [], id="paddle without a master"),
        pytest.param(a_job("JAXJob").role("Worker", 3), ["job-worker-0"], id="jax worker 0"),
        pytest.param(
            a_job("MXJob").role("Scheduler").role("Server", 2).role("Worker"),
            ["job-server-0", "job-server-1"],
            id="mxnet servers",
        ),
    ],
)
def test_the_master_role_is_given_to(scene: Scene, expected: list[str]) -> None:
    found = masters(scene)

    assert found == expected


def test_services_do_not_carry_the_master_role() -> None:
    scene = a_job("PyTorchJob").role("Master")

    service = body(scene.plan(), "job-master-0", SERVICES)

    assert labels.JOB_ROLE not in service["metadata"]["labels"]


def test_labels_of_the_job_are_not_copied_to_pods() -> None:
    scene = a_job("JAXJob").role("Worker").meta(labels={"team": "vision"}, annotations={"note": "x"})

    pod = body(scene.plan(), "job-worker-0")

    assert "team" not in pod["metadata"]["labels"]
    assert "annotations" not in pod["metadata"]


def test_compat_2021_adds_the_unprefixed_labels_to_a_leader() -> None:
    scene = a_job("PyTorchJob").role("Master").having(compat_2021=True)

    found = pod_labels(scene, "job-master-0")

    assert {key: value for key, value in found.items() if "/" not in key} == {
        "group-name": "kubeflow.org",
        "job-name": "job",
        "replica-type": "master",
        "replica-index": "0",
        "job-role": "master",
    }


def test_compat_2021_keeps_the_prefixed_labels() -> None:
    scene = a_job("PyTorchJob").role("Master")

    old, new = pod_labels(scene.having(compat_2021=True), "job-master-0"), pod_labels(scene, "job-master-0")

    assert {key: value for key, value in old.items() if "/" in key} == new


def test_compat_2021_gives_workers_no_role_label() -> None:
    scene = a_job("PyTorchJob").role("Master").role("Worker").having(compat_2021=True)

    found = pod_labels(scene, "job-worker-0")

    assert "job-role" not in found


def test_compat_2021_services_still_select_by_the_prefixed_labels_only() -> None:
    scene = a_job("TFJob").role("Worker").having(compat_2021=True)

    service = body(scene.plan(), "job-worker-0", SERVICES)

    assert all(key.startswith(labels.PREFIX) for key in service["spec"]["selector"])
