from __future__ import annotations

from typing import Any

import pytest

from trainmaster.cluster.registry.conversion import shown_as, stored_from
from trainmaster.cluster.registry.custom_resources import check_definition, fill_definition, kinds_of
from trainmaster.cluster.registry.gang_kinds import DEFINITIONS
from trainmaster.cluster.registry.kinds import Kind, Kinds
from trainmaster.cluster.registry.kinds_builtin import BUILTIN


def a_definition(**spec: Any) -> dict[str, Any]:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}},
        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
        "additionalPrinterColumns": [{"name": "N", "type": "integer", "jsonPath": ".spec.n", "priority": 1}],
    }
    made = {
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo", "shortNames": ["fo"]},
            "versions": [version],
            **spec,
        },
    }
    fill_definition(made)
    return made


def found(path: str) -> Kind:
    group, version, plural = path.split("/")
    kind = Kinds(BUILTIN).lookup(group, version, plural)
    assert kind is not None
    return kind


@pytest.mark.parametrize(
    "path",
    [
        *(
            f"/v1/{name}"
            for name in ("namespaces", "pods", "services", "endpoints", "configmaps", "secrets", "bindings")
        ),
        *(
            f"/v1/{name}"
            for name in ("serviceaccounts", "persistentvolumes", "persistentvolumeclaims", "events", "nodes")
        ),
        *(f"/v1/{name}" for name in ("limitranges", "resourcequotas")),
        *(f"apps/v1/{name}" for name in ("deployments", "statefulsets", "replicasets", "daemonsets")),
        *("apps/v1/controllerrevisions", "batch/v1/jobs", "batch/v1/cronjobs", "policy/v1/poddisruptionbudgets"),
        *("autoscaling/v1/horizontalpodautoscalers", "autoscaling/v2/horizontalpodautoscalers"),
        *("coordination.k8s.io/v1/leases", "events.k8s.io/v1/events", "scheduling.k8s.io/v1/priorityclasses"),
        *(f"rbac.authorization.k8s.io/v1/{name}" for name in ("roles", "rolebindings", "clusterroles")),
        *("storage.k8s.io/v1/storageclasses", "apiextensions.k8s.io/v1/customresourcedefinitions"),
        *(
            "discovery.k8s.io/v1/endpointslices",
            "networking.k8s.io/v1/ingresses",
            "networking.k8s.io/v1/networkpolicies",
        ),
        "admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    ],
)
def test_a_kind_that_training_needs_is_served_with_its_fields_known(path: str) -> None:
    kind = found(path)

    assert kind.shape.type == "object"
    assert "metadata" in kind.shape.fields


def test_events_of_both_groups_share_their_storage() -> None:
    assert found("/v1/events").prefix == found("events.k8s.io/v1/events").prefix == "/events"


def test_an_event_is_shown_in_the_words_of_the_newer_group_and_stored_in_the_older() -> None:
    kind = found("events.k8s.io/v1/events")
    stored = {"apiVersion": "v1", "kind": "Event", "metadata": {}, "involvedObject": {"name": "p"}, "message": "m"}

    shown = shown_as(kind, stored)

    assert shown["regarding"] == {"name": "p"}
    assert (shown["note"], shown["apiVersion"]) == ("m", "events.k8s.io/v1")
    assert stored_from(kind, shown) == stored


def test_an_autoscaler_of_version_1_is_stored_as_version_2() -> None:
    kind = found("autoscaling/v1/horizontalpodautoscalers")
    shown = {"kind": "X", "metadata": {}, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}}

    stored = stored_from(kind, shown)
    again = shown_as(kind, stored)

    assert stored["spec"]["metrics"][0]["resource"]["target"] == {"type": "Utilization", "averageUtilization": 50}
    assert again["spec"] == shown["spec"]


def test_a_definition_brings_its_kind_with_subresources_names_and_columns() -> None:
    kind = kinds_of(a_definition())[0]

    assert (kind.api_version, kind.prefix, kind.kind) == ("example.com/v1", "example.com/foos", "Foo")
    assert (kind.singular, kind.list_kind, kind.short_names) == ("foo", "FooList", ("fo",))
    assert kind.status
    assert kind.scale is not None
    assert kind.scale.spec == ".spec.n"
    assert [(column.name, column.priority) for column in kind.columns] == [("N", 1)]


def test_only_served_versions_become_kinds_and_share_the_storage_version() -> None:
    schema = {"openAPIV3Schema": {"type": "object"}}
    names = {"v1alpha1": (False, False), "v1beta1": (True, False), "v1": (True, True)}
    versions = [
        {"name": name, "served": served, "storage": storage, "schema": schema}
        for name, (served, storage) in names.items()
    ]

    kinds = kinds_of(a_definition(versions=versions))

    assert [(kind.version, kind.is_storage_version, kind.versions) for kind in kinds] == [
        ("v1beta1", False, ("v1",)),
        ("v1", True, ("v1beta1",)),
    ]


def test_kinds_come_and_go_with_their_definition_and_listeners_hear_of_it() -> None:
    kinds = Kinds(BUILTIN)
    heard: list[int] = []
    kinds.on_change(lambda: heard.append(len(list(kinds))))

    kinds.replace("example.com", "foos", kinds_of(a_definition()))
    served = kinds.lookup("example.com", "v1", "foos")
    kinds.replace("example.com", "foos", ())

    assert served is not None
    assert kinds.named("", "Pod") is kinds.lookup("", "v1", "pods")
    assert kinds.lookup("example.com", "v1", "foos") is None
    assert heard == [len(BUILTIN) + 1, len(BUILTIN)]


def test_a_definition_cannot_replace_a_kind_of_kubernetes() -> None:
    kinds = Kinds(BUILTIN)

    kinds.replace("", "pods", ())

    assert kinds.lookup("", "v1", "pods") is not None


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        pytest.param({"group": ""}, "spec.group: Required value", id="no-group"),
        pytest.param({"scope": "Galactic"}, 'spec.scope: Unsupported value: "Galactic"', id="scope"),
        pytest.param({"versions": []}, "spec.versions: Required value", id="no-versions"),
        pytest.param({"names": {"kind": "Foo"}}, "spec.names.plural: Required value", id="no-plural"),
        pytest.param(
            {"versions": [{"name": "v1", "served": True, "storage": True}]},
            "spec.versions[0].schema.openAPIV3Schema: Required value: schemas are required",
            id="no-schema",
        ),
        pytest.param(
            {
                "versions": [
                    {
                        "name": "v1",
                        "storage": True,
                        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"a": {"description": "x"}}}},
                    }
                ]
            },
            "spec.versions[0].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty",
            id="not-structural",
        ),
    ],
)
def test_a_definition_that_makes_no_sense_is_refused(spec: dict[str, Any], complaint: str) -> None:
    causes = [str(cause) for cause in check_definition(a_definition(**spec))]

    assert any(cause.startswith(complaint) for cause in causes), causes


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda each: each["metadata"]["name"])
def test_the_definitions_of_gang_schedulers_are_sound(definition: dict[str, Any]) -> None:
    made = {**definition, "spec": {**definition["spec"], "names": dict(definition["spec"]["names"])}}
    fill_definition(made)

    assert check_definition(made) == []
    assert kinds_of(made)[0].status
