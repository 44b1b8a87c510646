"""Misspelt fields of a pod template are found, right ones are not."""

import gzip
import json
from importlib.resources import files

import pytest

from trainmaster.objects import podfields

DEFINITIONS = json.loads(gzip.decompress((files("trainmaster") / "cluster/data/definitions.json.gz").read_bytes()))
PARTS = {
    "PodTemplateSpec": podfields.TEMPLATE,
    "PodSpec": podfields.SPEC,
    "Container": podfields.CONTAINER,
    "Volume": podfields.VOLUME,
    "EnvVar": podfields.CONTAINER.parts["env"],
    "EnvVarSource": podfields.CONTAINER.parts["env"].parts["valueFrom"],
    "EnvFromSource": podfields.CONTAINER.parts["envFrom"],
    "ContainerPort": podfields.CONTAINER.parts["ports"],
    "ResourceRequirements": podfields.CONTAINER.parts["resources"],
    "VolumeMount": podfields.CONTAINER.parts["volumeMounts"],
}


def found(template):
    return [f"{path}.{name}" for path, name, _ in podfields.unknown(template, "t")]


@pytest.mark.parametrize(("kind", "part"), PARTS.items(), ids=PARTS)
def test_every_field_that_kubernetes_defines_is_known(kind, part):
    known = DEFINITIONS.get("definitions", DEFINITIONS)

    assert known[f"io.k8s.api.core.v1.{kind}"]["properties"].keys() <= part.names


@pytest.mark.parametrize(
    ("template", "strange"),
    [
        ({"spec": {"container": []}}, ["t.spec.container"]),
        ({"spec": {"containers": [{"name": "a"}, {"comand": []}]}}, ["t.spec.containers[1].comand"]),
        ({"spec": {"initContainers": [{"img": "x"}]}}, ["t.spec.initContainers[0].img"]),
        ({"spec": {"containers": [{"env": [{"nam": "A"}]}]}}, ["t.spec.containers[0].env[0].nam"]),
        ({"spec": {"containers": [{"resources": {"limit": {}}}]}}, ["t.spec.containers[0].resources.limit"]),
        ({"spec": {"volumes": [{"persistantVolumeClaim": {}}]}}, ["t.spec.volumes[0].persistantVolumeClaim"]),
        ({"specs": {}}, ["t.specs"]),
    ],
    ids=["pod", "container", "init container", "variable", "resources", "volume", "template"],
)
def test_a_misspelt_field_is_found_with_its_path(template, strange):
    assert found(template) == strange


@pytest.mark.parametrize(
    "template",
    [None, [], "text", {"spec": None}, {"spec": {"containers": {}}}, {"spec": {"containers": ["x", None]}}, {3: 4}],
    ids=repr,
)
def test_templates_of_any_shape_are_looked_through(template):
    assert all("3" in name or name == "" for name in found(template))
