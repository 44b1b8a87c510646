from __future__ import annotations

from typing import Any

import pytest

from trainmaster.cluster.registry import patch
from trainmaster.cluster.registry.status_error import ApiError


def document() -> dict[str, Any]:
    return {"a": {"b": [1, 2, 3], "c/d": "e"}, "x": "y"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"x": "z"}, {"a": {"b": [1, 2, 3], "c/d": "e"}, "x": "z"}, id="replace"),
        pytest.param({"x": None}, {"a": {"b": [1, 2, 3], "c/d": "e"}}, id="remove"),
        pytest.param({"a": {"b": [9]}}, {"a": {"b": [9], "c/d": "e"}, "x": "y"}, id="lists-are-replaced"),
        pytest.param({"x": {"new": None, "kept": 1}}, {**document(), "x": {"kept": 1}}, id="nulls-never-stored"),
        pytest.param({}, document(), id="nothing"),
    ],
)
def test_a_merge_patch_merges_objects_and_replaces_the_rest(given: Any, expected: Any) -> None:
    assert patch.merge(document(), given) == expected


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        pytest.param([{"op": "add", "path": "/a/b/1", "value": 9}], [1, 9, 2, 3], id="insert"),
        pytest.param([{"op": "add", "path": "/a/b/-", "value": 9}], [1, 2, 3, 9], id="append"),
        pytest.param([{"op": "remove", "path": "/a/b/0"}], [2, 3], id="remove"),
        pytest.param([{"op": "replace", "path": "/a/b/0", "value": 7}], [7, 2, 3], id="replace"),
        pytest.param([{"op": "move", "from": "/x", "path": "/a/b"}], "y", id="move"),
        pytest.param([{"op": "copy", "from": "/a/c~1d", "path": "/a/b"}], "e", id="copy-escaped"),
        pytest.param(
            [{"op": "test", "path": "/x", "value": "y"}, {"op": "replace", "path": "/a/b", "value": 1}], 1, id="test"
        ),
        pytest.param(
            [
                {"op": "add", "path": "/a/b", "value": {"x": 1, "y": [True]}},
                {"op": "test", "path": "/a/b", "value": {"y": [True], "x": 1}},
            ],
            {"x": 1, "y": [True]},
            id="test-in-another-order",
        ),
    ],
)
def test_a_json_patch_applies_its_operations_in_order(operations: list[Any], expected: Any) -> None:
    assert patch.apply_json(document(), operations)["a"]["b"] == expected


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param({"op": "test", "path": "/x", "value": "q"}, id="test-fails"),
        pytest.param({"op": "test", "path": "/a/b/0", "value": True}, id="one-is-not-true"),
        pytest.param({"op": "test", "path": "/a/b", "value": [True, 2, 3]}, id="one-in-a-list-is-not-true"),
        pytest.param({"op": "test", "path": "/x"}, id="test-without-a-value"),
        pytest.param({"op": "remove", "path": ""}, id="remove-everything"),
        pytest.param({"op": "remove", "path": "/a/b/00"}, id="index-with-zeros-before-it"),
        pytest.param({"op": "add", "path": "/a/b/01", "value": 1}, id="new-index-with-zeros-before-it"),
        pytest.param({"op": "remove", "path": f"/a/b/{'9' * 5000}"}, id="index-of-many-digits"),
        pytest.param({"op": "replace", "path": "/nope", "value": 1}, id="replace-absent"),
        pytest.param({"op": "remove", "path": "/a/b/7"}, id="index-beyond-the-end"),
        pytest.param({"op": "remove", "path": "/a/b/²"}, id="index-not-a-number"),
        pytest.param({"op": "add", "path": "/x/y", "value": 1}, id="add-into-text"),
        pytest.param({"op": "add", "path": "/x"}, id="no-value"),
        pytest.param({"op": "frob", "path": "/x"}, id="unknown-operation"),
        pytest.param({"op": "add", "path": 1, "value": 1}, id="path-not-text"),
    ],
)
def test_an_operation_that_does_not_fit_is_refused_as_invalid(operation: Any) -> None:
    with pytest.raises(ApiError) as refused:
        patch.apply_json(document(), [operation])

    assert (refused.value.status, refused.value.reason) == (422, "Invalid")


def test_copies_may_not_add_more_than_a_request_may_hold() -> None:
    copies = [{"op": "copy", "from": "", "path": f"/copy{number}"} for number in range(31)]

    with pytest.raises(ApiError, match="accumulated size increase of copy is .* the limit 3145728") as refused:
        patch.apply_json(document(), copies)

    assert refused.value.status == 422


def test_what_a_patch_nests_too_deeply_is_refused() -> None:
    deeper = [
        {"op": "add", "path": "/y", "value": {}},
        {"op": "move", "from": "/x", "path": "/y/x"},
        {"op": "move", "from": "/y", "path": "/x"},
    ]

    with pytest.raises(ApiError) as refused:
        patch.apply_json(document(), [*deeper * 3000, {"op": "copy", "from": "/x", "path": "/z"}])

    assert refused.value.status == 422


def test_copies_within_the_limit_are_made_apart() -> None:
    copy = {"op": "copy", "from": "/a", "path": "/copy"}

    changed = patch.apply_json(document(), [copy, {"op": "add", "path": "/copy/new", "value": 1}])

    assert (changed["a"], changed["copy"]) == (document()["a"], {**document()["a"], "new": 1})


@pytest.mark.parametrize("given", [{"a": 1}, ["text"], 1], ids=["object", "no-operation", "number"])
def test_a_json_patch_that_is_no_list_of_operations_is_a_bad_request(given: Any) -> None:
    with pytest.raises(ApiError) as refused:
        patch.apply_json(document(), given)

    assert refused.value.status == 400


def test_a_patch_that_is_not_json_is_a_bad_request() -> None:
    with pytest.raises(ApiError) as refused:
        patch.decode(b"{bad")

    assert refused.value.status == 400
