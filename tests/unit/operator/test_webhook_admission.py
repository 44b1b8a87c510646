"""What the webhook answers: by operation, by version, to updates of good and bad jobs, and to nonsense."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from trainmaster import frameworks
from trainmaster.api.problem import MOST
from trainmaster.objects.meta import Json
from trainmaster.operator.webhook import Admission
from trainmaster.testing.jobs import KINDS, a_small
from trainmaster.testing.scene import Scene, a_job

ADMISSION = Admission(frameworks.BUILT_IN)
MULTIKUEUE = "kueue.x-k8s.io/multikueue"


def asked(path: str, operation: str, new: Any, old: Any = None, **more: Any) -> tuple[int, Any]:
    request = {"uid": "u1", "operation": operation, "object": new, "oldObject": old, **more}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    status, body = getattr(ADMISSION, path)(json.dumps(review).encode())
    return status, json.loads(body)


def judged(operation: str, new: Any, old: Any = None, **more: Any) -> Json:
    """The response to a proper question."""
    status, review = asked("validate", operation, new, old, **more)
    assert status == 200
    assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: Json = review["response"]
    assert response["uid"] == "u1"
    return response


def causes(response: Json) -> list[str]:
    return [f"{cause['field']}: {cause['message']}" for cause in response["status"]["details"]["causes"]]


def good(kind: str = "PyTorchJob", **policy: Any) -> Scene:
    return a_small(kind, "job").policy(**policy)


def bad() -> Scene:
    """Two masters."""
    return a_job("PyTorchJob", "job").role("Master", 2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_good_job_is_let_in(kind: str) -> None:
    assert judged("CREATE", good(kind).manifest) == {"uid": "u1", "allowed": True}


def test_a_bad_job_is_refused_in_the_words_of_the_api_server() -> None:
    response = judged("CREATE", bad().policy(cleanPodPolicy="Maybe").manifest)

    status = response["status"]
    assert not response["allowed"]
    assert (status["code"], status["reason"], status["status"]) == (422, "Invalid", "Failure")
    assert {key: status["details"][key] for key in ("name", "group", "kind")} == {
        "name": "job",
        "group": "kubeflow.org",
        "kind": "PyTorchJob",
    }
    assert causes(response) == [
        'spec.runPolicy.cleanPodPolicy: Unsupported value: "Maybe": supported values: "None", "Running", "All"',
        "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1",
    ]
    assert status["message"] == (
        'PyTorchJob.kubeflow.org "job" is invalid: '
        '[spec.runPolicy.cleanPodPolicy: Unsupported value: "Maybe": supported values: "None", "Running", "All", '
        "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1]"
    )


def test_a_single_problem_stands_without_brackets() -> None:
    response = judged("CREATE", bad().manifest)

    assert response["status"]["message"].endswith(
        "is invalid: spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1"
    )


def test_of_very_many_problems_the_first_are_told_and_the_rest_counted() -> None:
    scene = a_job("PyTorchJob", "job").role("Master", containers=[{"name": "pytorch"}] * (MOST + 7))

    response = judged("CREATE", scene.manifest)

    assert len(causes(response)) == MOST
    assert response["status"]["message"].endswith(", and 7 more]")


def test_what_a_reconcile_would_advise_is_a_warning() -> None:
    response = judged("CREATE", good().spec(cleanPolicy="All").manifest)

    assert response["allowed"]
    assert response["warnings"] == [
        "spec.cleanPolicy is not a known field and is ignored; did you mean cleanPodPolicy?"
    ]


def test_a_status_that_came_along_with_a_copied_job_counts_for_nothing() -> None:
    job = {**an_mpijob("v1", mpiImplementation="?", mainContainer="mpi"), "status": {"authoredVersion": "v2beta1"}}

    assert judged("CREATE", job)["allowed"]


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT"])
def test_what_is_bad_may_still_go(operation: str) -> None:
    assert judged(operation, None, bad().manifest) == {"uid": "u1", "allowed": True}


@pytest.mark.parametrize("subresource", ["status", "scale"])
def test_subresources_pass(subresource: str) -> None:
    assert judged("UPDATE", bad().manifest, good().manifest, subResource=subresource)["allowed"]


# Updates.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("before", "after", "was"),
    [
        pytest.param({}, {"managedBy": MULTIKUEUE}, "unset", id="set"),
        pytest.param({"managedBy": MULTIKUEUE}, {}, f'"{MULTIKUEUE}"', id="unset"),
        pytest.param(
            {"managedBy": MULTIKUEUE}, {"managedBy": "kubeflow.org/training-operator"}, f'"{MULTIKUEUE}"', id="changed"
        ),
    ],
)
def test_who_manages_a_job_is_settled_when_it_is_created(kind: str, before: Any, after: Any, was: str) -> None:
    response = judged("UPDATE", good(kind, **after).manifest, good(kind, **before).manifest)

    (cause,) = causes(response)
    value = json.dumps(after.get("managedBy"))
    place = "spec.runPolicy.managedBy" if before or after.get("managedBy") else "spec.managedBy"
    assert cause.startswith(f"{place}: Invalid value: {value}: field is immutable: it was {was}; delete the job")


def test_a_field_that_moves_and_stays_the_same_is_no_change() -> None:
    flat = good().spec(managedBy=MULTIKUEUE, schedulingPolicy={"queue": "day"})
    nested = good(managedBy=MULTIKUEUE, schedulingPolicy={"queue": "day"})

    assert judged("UPDATE", nested.manifest, flat.manifest)["allowed"]


def test_null_is_unset() -> None:
    assert judged("UPDATE", good(managedBy=None, schedulingPolicy=None).manifest, good().manifest)["allowed"]


@pytest.mark.parametrize(
    ("before", "after", "is_allowed"),
    [
        pytest.param({"queue": "day"}, {"queue": "night"}, False, id="changed"),
        pytest.param({"queue": "day"}, {"queue": "day", "minAvailable": 2}, True, id="kept"),
        pytest.param({}, {"queue": "night"}, True, id="added"),
        pytest.param({"queue": "day"}, {}, True, id="removed"),
    ],
)
def test_a_queue_may_not_be_changed_for_another(before: Any, after: Any, is_allowed: bool) -> None:
    old, new = good(schedulingPolicy=before).manifest, good(schedulingPolicy=after).manifest

    response = judged("UPDATE", new, old)

    assert response["allowed"] is is_allowed
    if not is_allowed:
        assert "spec.runPolicy.schedulingPolicy.queue is immutable" in response["status"]["message"]


def test_a_good_job_may_not_become_a_bad_one() -> None:
    response = judged("UPDATE", good().scaled("Master", 2).manifest, good().manifest)

    assert causes(response) == ["spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1"]


def test_a_bad_job_may_become_a_good_one() -> None:
    assert judged("UPDATE", good().manifest, bad().manifest) == {"uid": "u1", "allowed": True}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda job: job.meta(labels={"team": "a"}), id="label"),
        pytest.param(lambda job: job.meta(finalizers=[]), id="finalizer"),
    ],
)
def test_a_bad_job_may_be_handled(change: Any) -> None:
    assert judged("UPDATE", change(bad()).manifest, bad().manifest) == {"uid": "u1", "allowed": True}


def test_a_bad_job_may_be_changed_elsewhere_and_is_reminded() -> None:
    response = judged("UPDATE", bad().policy(ttlSecondsAfterFinished=60).manifest, bad().manifest)

    assert response["allowed"]
    assert response["warnings"] == [
        "still wrong, and keeps the job from running: spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1"
    ]


def test_a_bad_job_may_be_as_bad_by_another_value() -> None:
    assert judged("UPDATE", bad().scaled("Master", 3).manifest, bad().manifest)["allowed"]


def test_a_bad_job_may_not_get_worse_and_only_the_new_problem_is_its_fault() -> None:
    response = judged("UPDATE", bad().policy(cleanPodPolicy="Maybe").manifest, bad().manifest)

    assert [cause.partition(":")[0] for cause in causes(response)] == ["spec.runPolicy.cleanPodPolicy"]


def test_a_job_on_its_way_out_is_not_held_up() -> None:
    leaving = bad().meta(deletionTimestamp="2024-01-01T00:00:00Z").manifest

    assert judged("UPDATE", leaving, good().manifest)["allowed"]


# Versions of MPIJob.


def an_mpijob(version: str, **spec: Any) -> Json:
    role = {"replicas": 1, "template": {"spec": {"containers": [{"name": "mpi", "image": "x"}]}}}
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "MPIJob",
        "metadata": {"name": "job", "namespace": "default"},
        "spec": {"mpiReplicaSpecs": {"Launcher": role, "Worker": role}, **spec},
    }


def written(job: Json, version: str) -> Json:
    """As the API server remembers it: by its first author."""
    author = {"apiVersion": f"kubeflow.org/{version}", "operation": "Update", "time": "2024-01-01T00:00:00Z"}
    return {**job, "metadata": {**job["metadata"], "managedFields": [author]}}


@pytest.mark.parametrize(
    ("version", "paths"),
    [("v1", []), ("v1alpha2", []), ("v2beta1", ["spec.mpiImplementation"]), ("v1alpha1", ["apiVersion"])],
)
def test_the_version_that_was_written_decides_which_rules_hold(version: str, paths: list[str]) -> None:
    response = judged("CREATE", an_mpijob(version, mpiImplementation="?", mainContainer="mpi"))

    assert [cause.partition(":")[0] for cause in causes(response) if paths] == paths if paths else response["allowed"]


def test_a_later_edit_in_another_version_is_judged_by_the_first() -> None:
    old = written(an_mpijob("v1"), "v2beta1")
    new = written(an_mpijob("v1", mpiImplementation="?"), "v2beta1")

    response = judged("UPDATE", new, old)

    assert [cause.partition(":")[0] for cause in causes(response)] == ["spec.mpiImplementation"]


@pytest.mark.parametrize("version", ["v1", "v1alpha2", "v2beta1"])
def test_defaulting_leaves_no_trace_of_another_version(version: str) -> None:
    assert patched(an_mpijob(version)) == []
    assert {op["path"] for op in patched(an_mpijob(version, runPolicy={}))} == {"/spec/runPolicy/suspend"}


# Defaults.


def patched(job: Any) -> list[Json]:
    status, review = asked("default", "CREATE", job)
    assert status == 200
    assert review["response"]["allowed"]
    patch = review["response"].get("patch")
    assert review["response"].get("patchType") == ("JSONPatch" if patch else None)
    decoded: list[Json] = json.loads(base64.b64decode(patch)) if patch else []
    return decoded


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("policy", "patch"),
    [
        pytest.param(None, [], id="no policy"),
        pytest.param({"suspend": True}, [], id="given"),
        pytest.param({}, [{"op": "add", "path": "/spec/runPolicy/suspend", "value": False}], id="missing"),
        pytest.param({"suspend": None}, [{"op": "add", "path": "/spec/runPolicy/suspend", "value": False}], id="null"),
    ],
)
def test_only_what_the_schema_says_is_stored_is_added(kind: str, policy: Any, patch: Any) -> None:
    scene = a_small(kind, "job").spec(runPolicy=policy) if policy is not None else a_small(kind, "job")

    assert patched(scene.manifest) == patch


@pytest.mark.parametrize("spec", [None, "text", [], {"runPolicy": "text"}], ids=repr)
def test_nonsense_gets_no_defaults(spec: Any) -> None:
    assert patched({**good().manifest, "spec": spec}) == []


# What no API server asks.


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param(b"", "the body is not an AdmissionReview", id="nothing"),
        pytest.param(b"{", "the body is not an AdmissionReview", id="cut off"),
        pytest.param(b"\xff\xfe", "the body is not an AdmissionReview", id="not text"),
        pytest.param(b"[]", "the body is not an AdmissionReview", id="a list"),
        pytest.param(
            b'{"kind": "Pod", "apiVersion": "v1"}', "not admission.k8s.io/v1 AdmissionReview but v1 Pod", id="a pod"
        ),
        pytest.param(
            b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "request": null}',
            "not admission.k8s.io/v1 AdmissionReview but admission.k8s.io/v1beta1 AdmissionReview",
            id="an older version",
        ),
        pytest.param(
            b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}',
            "AdmissionReview.request is missing",
            id="no request",
        ),
        pytest.param(b'{"a":' * 100_000, "the body is", id="too deep"),
    ],
)
@pytest.mark.parametrize("path", ["validate", "default"])
def test_what_is_no_question_is_told_so(path: str, body: bytes, why: str) -> None:
    status, answer = getattr(ADMISSION, path)(body)

    assert status == 400
    assert json.loads(answer)["kind"] == "Status"
    assert why in json.loads(answer)["message"]


@pytest.mark.parametrize(
    ("operation", "new", "old", "why"),
    [
        pytest.param("CREATE", None, None, "request.object is missing from the CREATE", id="no object"),
        pytest.param(
            "UPDATE", good().manifest, None, "request.oldObject is missing from the UPDATE", id="no old object"
        ),
        pytest.param(
            "CREATE",
            {"apiVersion": "v1", "kind": "Pod"},
            None,
            "request.object is v1 Pod, which this operator does not run; it runs JAXJob, ",
            id="another kind",
        ),
        pytest.param(
            "CREATE",
            {**good().manifest, "apiVersion": "kubeflow.org/v9"},
            None,
            "request.object is kubeflow.org/v9 PyTorchJob, which this operator does not run",
            id="another version",
        ),
        pytest.param("CREATE", {}, None, "request.object is None None, which", id="nothing"),
    ],
)
def test_what_is_not_ours_to_judge_is_told_so(operation: str, new: Any, old: Any, why: str) -> None:
    status, answer = asked("validate", operation, new, old)

    assert status == 400
    assert why in answer["message"]


def test_kinds_that_are_not_enabled_are_not_ours() -> None:
    admission = Admission(frameworks.enabled(("TFJob",)))
    request = {"uid": "u1", "operation": "CREATE", "object": good().manifest}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}

    status, body = admission.validate(json.dumps(review).encode())

    assert status == 400
    assert "it runs TFJob" in json.loads(body)["message"]


@pytest.mark.parametrize("depth", [100, 300, 450, 900, 5000])
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_a_job_that_is_nested_without_end_is_refused_not_feared(operation: str, depth: int) -> None:
    text = json.dumps(good().spec(extra="DEEP").manifest).replace('"DEEP"', '{"a":' * depth + "1" + "}" * depth)
    old = json.dumps(good().manifest)
    request = f'{{"uid": "u1", "operation": "{operation}", "object": {text}, "oldObject": {old}}}'
    review = f'{{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {request}}}'

    status, body = ADMISSION.validate(review.encode())

    is_allowed = status == 200 and json.loads(body)["response"]["allowed"]
    assert is_allowed or "nested too deeply" in body.decode()
