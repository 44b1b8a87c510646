from __future__ import annotations

from typing import Any

import pytest

from trainmaster.cluster.registry import definitions, strategic
from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.objects.meta import mutable

POD = definitions.shape("", "v1", "Pod")
DEPLOYMENT = definitions.shape("apps", "v1", "Deployment")


def a_pod(*containers: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": metadata, "spec": {"containers": [{"name": name, "image": "old"} for name in containers]}}


def merged(document: Any, patch: Any, shape: Any = POD) -> Any:
    return strategic.merge(shape, mutable(document), mutable(patch))


def test_containers_are_merged_by_name_in_the_order_of_the_patch() -> None:
    patch = {"spec": {"containers": [{"name": "b", "image": "new"}, {"name": "c", "image": "x"}]}}

    result = merged(a_pod("a", "b"), patch)

    assert [(each["name"], each["image"]) for each in result["spec"]["containers"]] == [
        ("a", "old"),
        ("b", "new"),
        ("c", "x"),
    ]


def test_an_item_marked_for_deletion_goes() -> None:
    result = merged(a_pod("a", "b"), {"spec": {"containers": [{"$patch": "delete", "name": "a"}]}})

    assert [each["name"] for each in result["spec"]["containers"]] == ["b"]


def test_a_list_marked_for_replacement_keeps_nothing() -> None:
    patch = {"spec": {"containers": [{"$patch": "replace"}, {"name": "c", "image": "x"}]}}

    result = merged(a_pod("a", "b"), patch)

    assert result["spec"]["containers"] == [{"name": "c", "image": "x"}]


def test_the_order_a_client_asks_for_is_kept() -> None:
    patch = {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": []}}

    result = merged(a_pod("a", "b"), patch)

    assert [each["name"] for each in result["spec"]["containers"]] == ["b", "a"]


def test_lists_of_text_grow_and_shrink_by_directive() -> None:
    grown = merged(a_pod(finalizers=["a"]), {"metadata": {"finalizers": ["b", "a"]}})
    shrunk = merged(grown, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}})

    assert sorted(grown["metadata"]["finalizers"]) == ["a", "b"]
    assert shrunk["metadata"]["finalizers"] == ["b"]


def test_a_list_without_a_merge_key_is_replaced() -> None:
    document = {"spec": {"containers": [{"name": "a", "args": ["1", "2"]}]}}

    result = merged(document, {"spec": {"containers": [{"name": "a", "args": ["3"]}]}})

    assert result["spec"]["containers"][0]["args"] == ["3"]


def test_retained_keys_are_the_only_ones_left() -> None:
    document = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}

    assert merged(document, patch, DEPLOYMENT) == {"spec": {"strategy": {"type": "Recreate"}}}


def test_null_removes_and_an_object_marked_for_replacement_is_replaced() -> None:
    document = {"metadata": {"labels": {"a": "1"}, "annotations": {"b": "2"}}}
    patch = {"metadata": {"labels": None, "annotations": {"$patch": "replace", "c": "3"}}}

    assert merged(document, patch) == {"metadata": {"annotations": {"c": "3"}}}


def test_an_item_without_its_merge_key_is_refused() -> None:
    with pytest.raises(ApiError) as refused:
        merged(a_pod("a"), {"spec": {"containers": [{"image": "y"}]}})

    assert refused.value.message == "map: map[image:y] does not contain declared merge key: name"


@pytest.mark.parametrize(
    ("path", "key"),
    [
        pytest.param(("spec", "containers"), "name", id="containers"),
        pytest.param(("spec", "volumes"), "name", id="volumes"),
        pytest.param(("spec", "tolerations"), "", id="tolerations"),
        pytest.param(("status", "conditions"), "type", id="conditions"),
        pytest.param(("metadata", "ownerReferences"), "uid", id="owners"),
    ],
)
def test_merge_keys_are_those_of_kubernetes(path: tuple[str, str], key: str) -> None:
    assert POD.fields[path[0]].fields[path[1]].merge_key == key
