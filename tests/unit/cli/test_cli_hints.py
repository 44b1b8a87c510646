"""What newcomers stumble over is recognised, and nothing else."""

import pytest

from trainmaster.cli import hints, kinds
from trainmaster.cli.documents import Document


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ModuleNotFoundError: No module named 'torch'", "has no module torch"),
        ("ModuleNotFoundError: No module named 'a.b'", "has no module a.b"),
        ("python: can't open file '/app/train.py': [Errno 2] No such file or directory", 'files: {"/app": DIRECTORY}'),
        ("python: can't open file '/train.py': [Errno 2] No such file or directory", 'files: {"/": DIRECTORY}'),
    ],
    ids=["module", "inner module", "file", "file at the top"],
)
def test_a_line_that_says_what_is_missing_gives_a_hint(line, words):
    assert words in hints.of_line(line, "x:1")


@pytest.mark.parametrize(
    "line",
    ["", "step 3", "I caught ModuleNotFoundError: No module named 'x'", "can't open file '/a': Permission denied"],
    ids=["empty", "ordinary", "quoted", "other cause"],
)
def test_other_lines_give_none(line):
    assert hints.of_line(line, "x:1") == ""


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("needs 1 nvidia.com/gpu, 0 of 0 free (requested by r-0)", "node: {resources: {nvidia.com/gpu: NUMBER}}"),
        ("group g needs 4 pods together", "node: {resources: {NAME: NUMBER}}"),
        ("no label accelerator=p100 as nodeSelector wants", "node: {labels: {accelerator: p100}}"),
    ],
    ids=["resource", "gang", "label"],
)
def test_a_pod_without_a_node_gives_the_line_that_would_find_it_one(message, words):
    assert words in hints.of_warning("FailedScheduling", message, "x:1")


def test_warnings_that_explain_themselves_give_none():
    assert hints.of_warning("BackOff", "Back-off restarting failed container", "x:1") == ""


@pytest.mark.parametrize(
    ("images", "named"),
    [(["a", "a"], "a"), (["a", "b"], "IMAGE"), ([], "IMAGE")],
    ids=["one", "several", "none"],
)
def test_an_image_is_named_where_there_is_but_one(images, named):
    body = {"spec": {"containers": [{"name": "c", "image": image} for image in images]}}

    assert hints.image_of(body) == named


def a_document(api_version, kind):
    return Document("f.yaml", {"apiVersion": api_version, "kind": kind, "metadata": {"name": "j"}})


@pytest.mark.parametrize(
    ("api_version", "kind", "meant"),
    [
        ("kubeflow.org/v1", "PytorchJob", "did you mean kubeflow.org/v1 PyTorchJob?"),
        ("kubeflow.org/v2", "TFJob", "did you mean kubeflow.org/v1 TFJob?"),
        ("kubeflow.org/v2beta", "MPIJob", "did you mean kubeflow.org/v2beta1 MPIJob?"),
        ("ray.io/v1", "RayJob", "known are:"),
    ],
    ids=["case", "version", "one letter", "foreign"],
)
def test_a_kind_that_nobody_runs_is_told_with_what_was_meant(api_version, kind, meant):
    assert meant in kinds.unknown(a_document(api_version, kind))


def test_a_version_that_has_been_retired_is_not_proposed():
    assert "v1alpha1" not in kinds.unknown(a_document("ray.io/v1", "RayJob"))


@pytest.mark.parametrize(
    ("api_version", "kind", "is_suspect"),
    [("kubeflow.org/v1", "PytorchJob", True), ("batch/v1", "Job", False), ("v1", "Service", False)],
    ids=["misspelt", "of Kubernetes", "other"],
)
def test_only_what_looks_like_a_job_is_suspect(api_version, kind, is_suspect):
    assert kinds.looks_like_a_job(a_document(api_version, kind)) is is_suspect
