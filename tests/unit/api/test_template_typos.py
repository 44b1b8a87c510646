"""A typo in a pod template is named; it never stops a job."""

import pytest

from trainmaster import frameworks
from trainmaster.api import reading


def job(spec):
    container = {"name": "pytorch", "image": "x:1", "command": ["python"]}
    template = {"spec": {"containers": [container]} | spec}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "a"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"template": template}}},
    }


def read(body):
    found = frameworks.serving(body["apiVersion"], body["kind"])
    assert found is not None
    framework, resource = found
    return reading.read(framework, body, resource=resource)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"nodeSelecter": {}}, "nodeSelecter is not a known field of pods; did you mean nodeSelector?"),
        ({"NodeSelector": {}}, "NodeSelector is not a known field of pods; did you mean nodeSelector?"),
        ({"sidecarMode": 1}, "sidecarMode is not a known field of pods"),
    ],
    ids=["letters", "case", "nothing like it"],
)
def test_a_typo_in_a_pod_template_is_advised_of_with_what_was_meant(spec, told):
    result = read(job(spec))

    assert result.job is not None
    assert [(one.reason, one.message) for one in result.advice] == [
        ("UnknownField", f"spec.pytorchReplicaSpecs[Worker].template.spec.{told}")
    ]


def test_a_typo_that_leaves_the_pod_without_containers_is_named_beside_the_problem():
    body = job({})
    spec = body["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    spec["container"] = spec.pop("containers")

    result = read(body)

    assert [problem.path.rpartition(".")[2] for problem in result.problems] == ["containers"]
    assert any("did you mean containers?" in one.message for one in result.advice)


def test_a_typo_leaves_the_template_as_it_is():
    body = job({"nodeSelecter": {"a": "b"}})

    result = read(body)

    assert result.job.replicas["Worker"].template["spec"]["nodeSelecter"] == {"a": "b"}
