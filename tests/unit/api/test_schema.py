"""The CRDs are structural, small, and lose nothing that a user wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from trainmaster.api import schema
from trainmaster.api.framework import STATE, Framework
from trainmaster.frameworks import BUILT_IN
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import Resource

each_framework = pytest.mark.parametrize("framework", BUILT_IN, ids=lambda framework: framework.kind)
each_crd = pytest.mark.parametrize(
    ("framework", "resource"),
    [pytest.param(f, r, id=f"{r.plural}.{r.group}") for f in BUILT_IN for r in f.served],
)
FORBIDDEN = ("$ref", "anyOf", "oneOf", "allOf", "not", "definitions", "nullable", "uniqueItems")
FLAT = (
    "cleanPodPolicy",
    "ttlSecondsAfterFinished",
    "activeDeadlineSeconds",
    "backoffLimit",
    "suspend",
    "managedBy",
    "schedulingPolicy",
)


def nodes(node: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Every schema within a schema, with its path."""
    yield path, node
    for name, inner in node.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from nodes(node[key], f"{path}[]")


def schema_of(framework: Framework, resource: Resource | None = None, *, cel: bool = False) -> Any:
    crd = schema.crd(framework, resource or framework.resource, cel=cel)
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def node_at(framework: Framework, path: str, *, cel: bool = False) -> Any:
    return dict(nodes(schema_of(framework, cel=cel)))[path]


@each_crd
def test_every_node_is_structural(framework: Framework, resource: Resource) -> None:
    for path, node in nodes(schema_of(framework, resource)):
        assert "type" in node or node.get("x-kubernetes-int-or-string"), path
        assert not ("type" in node and node.get("x-kubernetes-int-or-string")), path
        assert not ("properties" in node and "additionalProperties" in node), path
        assert not set(FORBIDDEN) & set(node), path
        if node.get("type") == "array":
            assert "items" in node, path


@each_crd
def test_only_the_types_of_json_are_used(framework: Framework, resource: Resource) -> None:
    types = {node.get("type", "int-or-string") for _, node in nodes(schema_of(framework, resource))}

    assert types <= {"object", "array", "string", "integer", "boolean", "int-or-string"}


@each_crd
def test_bounds_are_numbers_that_are_exact_as_floats(framework: Framework, resource: Resource) -> None:
    bounds = [
        node[bound]
        for version in schema.crd(framework, resource)["spec"]["versions"]
        for _, node in nodes(version["schema"]["openAPIV3Schema"])
        for bound in ("minimum", "maximum")
        if bound in node
    ]

    assert bounds
    assert all(abs(bound) <= schema.LARGEST for bound in bounds)


@each_framework
def test_the_schema_is_a_valid_json_schema(framework: Framework) -> None:
    jsonschema_rs.meta.validate(schema_of(framework))


@each_framework
def test_required_fields_are_declared(framework: Framework) -> None:
    for path, node in nodes(schema_of(framework)):
        assert set(node.get("required", [])) <= set(node.get("properties", {})), path


@each_framework
def test_quantities_and_names_of_other_objects_are_bounded(framework: Framework) -> None:
    policy = node_at(framework, ".spec.runPolicy.schedulingPolicy")["properties"]
    found = [node for path, node in nodes(schema_of(framework)) if path.endswith((".limits", ".requests"))]

    assert policy["minResources"]["additionalProperties"]["maxLength"] == 128
    assert {policy[name]["maxLength"] for name in ("queue", "priorityClass")} == {253}
    assert {node["additionalProperties"]["maxLength"] for node in found} == {128}


@each_framework
def test_only_the_replicas_are_required(framework: Framework) -> None:
    required = node_at(framework, ".spec")["required"]

    replicas = [framework.replicas_field] if framework.replicas_field else []
    assert required == [*replicas, *(["jobMode"] if framework.kind == "MXJob" else [])]


@each_crd
def test_there_is_no_cel_by_default(framework: Framework, resource: Resource) -> None:
    assert "x-kubernetes-validations" not in json.dumps(schema.crd(framework, resource))


@each_framework
def test_with_cel_the_queue_is_immutable(framework: Framework) -> None:
    queue = node_at(framework, ".spec.runPolicy.schedulingPolicy.queue", cel=True)

    assert queue["x-kubernetes-validations"] == [
        {"rule": "self == oldSelf", "message": "spec.runPolicy.schedulingPolicy.queue is immutable"}
    ]


@each_framework
def test_a_crd_with_cel_does_not_change_the_one_without(framework: Framework) -> None:
    before = json.dumps(schema.crd(framework, framework.resource))

    schema.crd(framework, framework.resource, cel=True)

    assert json.dumps(schema.crd(framework, framework.resource)) == before


@each_crd
def test_a_crd_bears_the_names_of_its_resource(framework: Framework, resource: Resource) -> None:
    crd = schema.crd(framework, resource)

    assert (crd["apiVersion"], crd["kind"]) == ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    assert crd["metadata"]["name"] == f"{resource.plural}.{resource.group}"
    assert (crd["spec"]["group"], crd["spec"]["scope"]) == (resource.group, "Namespaced")
    assert crd["spec"]["names"] == {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
        **({"shortNames": [*framework.short_names]} if framework.short_names else {}),
    }


@pytest.mark.parametrize(
    ("framework", "resource"),
    [pytest.param(f, r, id=f"{r.plural}.{r.group}") for f in BUILT_IN for r in f.served if STATE in f.columns],
)
def test_kubectl_shows_the_last_condition_and_the_age(framework: Framework, resource: Resource) -> None:
    for version in schema.crd(framework, resource)["spec"]["versions"]:
        columns = sorted(version["additionalPrinterColumns"], key=lambda column: -len(column["name"]))
        assert columns == [
            {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ]


@pytest.mark.parametrize(
    ("kind", "field"),
    [("PyTorchJob", "pytorchReplicaSpecs"), ("PaddleJob", "paddleReplicaSpecs"), ("JAXJob", "jaxReplicaSpecs")],
)
def test_workers_of_scalable_kinds_can_be_scaled(kind: str, field: str) -> None:
    framework = next(framework for framework in BUILT_IN if framework.kind == kind)
    (version,) = schema.crd(framework, framework.resource)["spec"]["versions"]

    assert version["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": f".spec.{field}.Worker.replicas",
            "statusReplicasPath": ".status.replicaStatuses.Worker.active",
            "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
        },
    }


@pytest.mark.parametrize("kind", ["TFJob", "XGBoostJob", "MXJob"])
def test_other_kinds_have_only_the_status_subresource(kind: str) -> None:
    framework = next(framework for framework in BUILT_IN if framework.kind == kind)

    for version in schema.crd(framework, framework.resource)["spec"]["versions"]:
        assert version["subresources"] == {"status": {}}


@each_framework
@pytest.mark.parametrize("field", FLAT)
def test_policy_fields_are_declared_nested_inlined_and_flat(framework: Framework, field: str) -> None:
    flat = node_at(framework, f".spec.{field}")
    inlined = node_at(framework, f".spec.RunPolicy.{field}")
    nested = node_at(framework, f".spec.runPolicy.{field}")

    assert flat == inlined
    assert {key: nested[key] for key in nested if key != "default"} == flat


@each_framework
def test_only_a_nested_suspend_has_a_default(framework: Framework) -> None:
    defaults = {path: node["default"] for path, node in nodes(schema_of(framework)) if "default" in node}

    assert defaults == {".spec.runPolicy.suspend": False}


@each_framework
@pytest.mark.parametrize(
    "path",
    [
        ".spec",
        ".spec.runPolicy",
        ".spec.RunPolicy",
        ".spec.runPolicy.schedulingPolicy",
        ".spec.{replicas}[]",
        ".spec.{replicas}[].template",
        ".spec.{replicas}[].template.metadata",
        ".spec.{replicas}[].template.spec",
        ".spec.{replicas}[].template.spec.containers[]",
        ".spec.{replicas}[].template.spec.initContainers[]",
        ".status",
    ],
)
def test_unknown_fields_are_preserved(framework: Framework, path: str) -> None:
    within = framework.path().removeprefix("spec").removeprefix(".")
    role = "{replicas}[]" if within else framework.roles[0].name.lower()
    node = node_at(framework, path.replace("{replicas}[]", role).format(replicas=within))

    assert node["x-kubernetes-preserve-unknown-fields"] is True


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("TFJob", {"successPolicy": "string", "enableDynamicWorker": "boolean"}),
        ("PyTorchJob", {"nprocPerNode": None, "elasticPolicy": "object"}),
        ("PaddleJob", {"elasticPolicy": "object"}),
        ("MXJob", {"jobMode": "string"}),
    ],
)
def test_fields_of_single_kinds_are_typed(kind: str, fields: dict[str, str | None]) -> None:
    framework = next(framework for framework in BUILT_IN if framework.kind == kind)

    assert {name: node_at(framework, f".spec.{name}").get("type") for name in fields} == fields


@each_crd
def test_a_crd_is_small(framework: Framework, resource: Resource) -> None:
    assert len(json.dumps(schema.crd(framework, resource))) < 100_000


def test_older_versions_are_served_but_not_stored() -> None:
    mxnet = next(framework for framework in BUILT_IN if framework.kind == "MXJob")

    versions = schema.crd(mxnet, mxnet.resource)["spec"]["versions"]

    assert [(v["name"], v["served"], v["storage"]) for v in versions] == [
        ("v1", True, True),
        ("v1beta1", True, False),
    ]
    assert versions[0]["schema"] == versions[1]["schema"]


@each_crd
def test_exactly_one_version_is_stored(framework: Framework, resource: Resource) -> None:
    stored = [v["name"] for v in schema.crd(framework, resource)["spec"]["versions"] if v["storage"]]

    assert stored == [resource.version]


@each_framework
def test_whatever_we_write_as_status_is_typed(framework: Framework) -> None:
    status = node_at(framework, ".status")

    assert set(status["properties"]) == {
        "conditions",
        "replicaStatuses",
        "attempts",
        "completed",
        "startTime",
        "completionTime",
        "lastReconcileTime",
        "authoredVersion",
        *framework.status_fields,
    }
    assert "required" not in status
