"""What discovery tells clients."""

from __future__ import annotations

from typing import Any

from trainmaster.cluster.registry.kinds import Kind, Kinds, ScalePaths
from trainmaster.cluster.registry.kinds_builtin import BUILTIN
from trainmaster.cluster.server import reviews
from trainmaster.cluster.server.discovery import Discovery, version_order


def a_custom(version: str, **options: Any) -> Kind:
    return Kind("kubeflow.org", version, "pytorchjobs", "PyTorchJob", custom=True, **options)


def resource(listed: dict[str, Any] | None, name: str) -> dict[str, Any]:
    assert listed is not None
    return next(each for each in listed["resources"] if each["name"] == name)


def test_pods_are_listed_with_verbs_short_names_and_the_real_storage_hash():
    discovery = Discovery(Kinds(BUILTIN))

    pods = resource(discovery.resource_list("", "v1"), "pods")

    assert pods["shortNames"] == ["po"]
    assert pods["categories"] == ["all"]
    assert "deletecollection" in pods["verbs"]
    assert pods["storageVersionHash"] == "xPOwRZ+Yhw8="


def test_subresources_name_the_kind_they_take():
    discovery = Discovery(Kinds(BUILTIN))

    scale = resource(discovery.resource_list("apps", "v1"), "deployments/scale")
    eviction = resource(discovery.resource_list("", "v1"), "pods/eviction")

    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")
    assert (eviction["group"], eviction["kind"], eviction["verbs"]) == ("policy", "Eviction", ["create"])


def test_group_prefers_its_stable_version():
    kinds = Kinds([])
    discovery = Discovery(kinds)
    kinds.replace("kubeflow.org", "pytorchjobs", [a_custom("v1alpha1"), a_custom("v1beta2"), a_custom("v1")])

    group = discovery.group("kubeflow.org")

    assert group is not None
    assert group["preferredVersion"] == {"groupVersion": "kubeflow.org/v1", "version": "v1"}
    assert [version["version"] for version in group["versions"]] == ["v1", "v1beta2", "v1alpha1"]


def test_versions_are_ordered_as_kubernetes_orders_them():
    names = ["v1alpha1", "foo", "v1", "v2beta1", "v10", "v1beta2", "v2"]

    assert sorted(names, key=version_order) == ["v10", "v2", "v1", "v2beta1", "v1beta2", "v1alpha1", "foo"]


def test_new_custom_resource_appears_and_disappears():
    kinds = Kinds(BUILTIN)
    discovery = Discovery(kinds)
    before = discovery.group("kubeflow.org")
    kinds.replace("kubeflow.org", "pytorchjobs", [a_custom("v1", status=True, scale=ScalePaths())])

    during = discovery.resource_list("kubeflow.org", "v1")
    kinds.replace("kubeflow.org", "pytorchjobs", [])

    assert before is None
    assert during is not None
    assert [each["name"] for each in during["resources"]] == ["pytorchjobs", "pytorchjobs/scale", "pytorchjobs/status"]
    assert discovery.group("kubeflow.org") is None


def test_aggregated_discovery_says_the_same_as_the_lists():
    discovery = Discovery(Kinds(BUILTIN), reviews.KINDS)

    made = discovery.aggregated(core=False, version="v2")

    groups = {item["metadata"]["name"]: item["versions"] for item in made["items"]}
    listed = discovery.group_list()["groups"]
    assert made["apiVersion"] == "apidiscovery.k8s.io/v2"
    assert sorted(groups) == sorted(group["name"] for group in listed)
    for group in listed:
        names = [version["version"] for version in group["versions"]]
        assert [version["version"] for version in groups[group["name"]]] == names


def test_aggregated_core_group_has_scopes_and_subresources():
    discovery = Discovery(Kinds(BUILTIN))

    core = discovery.aggregated(core=True, version="v2")["items"][0]["versions"][0]

    found = {each["resource"]: each for each in core["resources"]}
    assert found["pods"]["scope"] == "Namespaced"
    assert found["nodes"]["scope"] == "Cluster"
    assert "exec" in [each["subresource"] for each in found["pods"]["subresources"]]


def test_reviews_are_listed_as_create_only():
    discovery = Discovery(Kinds(BUILTIN), reviews.KINDS)

    review = resource(discovery.resource_list("authorization.k8s.io", "v1"), "selfsubjectaccessreviews")

    assert review["verbs"] == ["create"]
