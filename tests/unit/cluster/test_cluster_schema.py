from __future__ import annotations

from typing import Any

import pytest

from trainmaster.cluster.registry import definitions, schema_check
from trainmaster.cluster.registry.schema import shape_of_structural
from trainmaster.cluster.registry.schema_values import Mismatch, conform, fill, prune

POD = definitions.shape("", "v1", "Pod")


def a_schema(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}


def complaints(field: dict[str, Any], value: Any) -> list[str]:
    schema = a_schema(x=field)
    return [str(cause) for cause in schema_check.complaints(schema, {"spec": {"x": value}})]


def is_clean(field: dict[str, Any], value: Any) -> bool:
    validator = schema_check.compiled(a_schema(x=field))
    assert validator is not None
    return validator.is_valid({"apiVersion": "v1", "kind": "X", "metadata": {}, "spec": {"x": value}})


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        pytest.param(
            {"type": "integer"},
            "a",
            'spec.x: Invalid value: "string": spec.x in body must be of type integer: "string"',
            id="type",
        ),
        pytest.param(
            {"type": "integer", "minimum": 1},
            0,
            "spec.x: Invalid value: 0: spec.x in body should be greater than or equal to 1",
            id="minimum",
        ),
        pytest.param(
            {"type": "integer", "maximum": 1, "exclusiveMaximum": True},
            1,
            "spec.x: Invalid value: 1: spec.x in body should be less than 1",
            id="exclusive-maximum",
        ),
        pytest.param(
            {"type": "number", "multipleOf": 0.5},
            0.7,
            "spec.x: Invalid value: 0.7: spec.x in body should be a multiple of 0.5",
            id="multiple",
        ),
        pytest.param(
            {"type": "string", "enum": ["a", "b"]},
            "c",
            'spec.x: Unsupported value: "c": supported values: "a", "b"',
            id="enum",
        ),
        pytest.param(
            {"type": "string", "pattern": "^a+$"},
            "b",
            "spec.x: Invalid value: \"b\": spec.x in body should match '^a+$'",
            id="pattern",
        ),
        pytest.param(
            {"type": "string", "minLength": 2},
            "a",
            'spec.x: Invalid value: "a": spec.x in body should be at least 2 chars long',
            id="short",
        ),
        pytest.param(
            {"type": "string", "maxLength": 2},
            "abc",
            'spec.x: Invalid value: "abc": spec.x in body should be at most 2 chars long',
            id="long",
        ),
        pytest.param(
            {"type": "string", "format": "date-time"},
            "x",
            'spec.x: Invalid value: "x": spec.x in body must be of type date-time: "x"',
            id="time",
        ),
        pytest.param(
            {"type": "string", "format": "ipv4"},
            "::1",
            'spec.x: Invalid value: "::1": spec.x in body must be of type ipv4: "::1"',
            id="address",
        ),
        pytest.param(
            {"type": "array", "minItems": 1, "items": {"type": "string"}},
            [],
            "spec.x: Invalid value: 0: spec.x in body should have at least 1 items",
            id="few-items",
        ),
        pytest.param(
            {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            ["a", "a"],
            'spec.x[1]: Duplicate value: "a"',
            id="duplicate",
        ),
        pytest.param(
            {"x-kubernetes-int-or-string": True},
            True,
            'spec.x: Invalid value: "boolean": spec.x in body must be of type integer,string: "boolean"',
            id="int-or-string",
        ),
        pytest.param(
            {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}},
            {},
            "spec.x.a: Required value",
            id="required",
        ),
        pytest.param(
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {"k": "v"},
            'spec.x.k: Invalid value: "string": spec.x.k in body must be of type integer: "string"',
            id="map-value",
        ),
        pytest.param(
            {"type": "integer", "not": {"enum": [3]}},
            3,
            '<nil>: Invalid value: "": "spec.x" must not validate the schema (not)',
            id="not",
        ),
    ],
)
def test_the_complaint_is_that_of_a_real_api_server(field: dict[str, Any], value: Any, complaint: str) -> None:
    assert complaints(field, value) == [complaint]
    assert not is_clean(field, value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param({"type": "string", "nullable": True}, None, id="nullable"),
        pytest.param({"x-kubernetes-int-or-string": True}, "50%", id="int-or-string"),
        pytest.param({"type": "integer"}, 3, id="integer"),
        pytest.param({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, {"any": 1}, id="open"),
        pytest.param({"type": "string", "format": "date-time"}, "2020-01-01T00:00:00Z", id="time"),
        pytest.param({"type": "string", "format": "int-or-something"}, "x", id="unknown-format"),
        pytest.param(
            {"type": "object", "properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"a": 1},
            id="one-of",
        ),
    ],
)
def test_what_the_schema_allows_passes_without_a_walk(field: dict[str, Any], value: Any) -> None:
    assert complaints(field, value) == []
    assert is_clean(field, value)


def test_a_pattern_of_another_dialect_is_not_held_against_anyone() -> None:
    field = {"type": "string", "pattern": r"\p{L}(?<name>x"}

    assert schema_check.compiled(a_schema(x=field)) is None
    assert complaints(field, "anything") == []


def test_pruning_drops_what_is_not_listed_and_nulls_that_are_not_allowed() -> None:
    shape = shape_of_structural(
        a_schema(
            a={"type": "string"},
            b={"type": "string", "nullable": True},
            free={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            items={"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}}},
        )
    )
    value: dict[str, Any] = {
        "metadata": {"name": "x"},
        "extra": 1,
        "spec": {"a": None, "b": None, "free": {"any": 1}, "items": [{"k": "v", "z": 1}], "q": 1},
    }

    prune(shape, value)

    assert value == {"metadata": {"name": "x"}, "spec": {"b": None, "free": {"any": 1}, "items": [{"k": "v"}]}}


def test_defaults_fill_what_is_absent_at_every_depth() -> None:
    item = {"type": "object", "properties": {"d": {"type": "integer", "default": 7}}}
    shape = shape_of_structural(
        a_schema(
            n={"type": "integer", "default": 1}, items={"type": "array", "items": item}, deep={**item, "default": {}}
        )
    )
    value: dict[str, Any] = {"spec": {"n": None, "items": [{}, {"d": 8}]}}

    fill(shape, value)

    assert value == {"spec": {"n": 1, "items": [{"d": 7}, {"d": 8}], "deep": {"d": 7}}}


def test_a_pod_loses_unknown_fields_and_nulls_and_gets_canonical_quantities() -> None:
    container = {"name": "a", "bogus": 1, "image": None, "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}}
    pod = {"metadata": {"name": "p", "creationTimestamp": None}, "spec": {"containers": [container]}}

    made = conform(POD, pod)

    assert made == {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}}]},
    }


@pytest.mark.parametrize(
    ("pod", "complaint"),
    [
        pytest.param(
            {"spec": {"containers": "x"}},
            "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type slice",
            id="list",
        ),
        pytest.param(
            {"metadata": {"labels": {"a": 1}}},
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
            id="text",
        ),
        pytest.param(
            {"spec": {"containers": [{"resources": {"limits": {"cpu": "x"}}}]}}, "quantities must", id="amount"
        ),
        pytest.param({"metadata": {"creationTimestamp": "soon"}}, 'parsing time "soon"', id="time"),
    ],
)
def test_a_value_of_the_wrong_type_cannot_be_read(pod: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Mismatch) as mismatch:
        conform(POD, pod)

    assert str(mismatch.value).startswith(complaint)


def test_the_fast_check_takes_only_what_needs_no_change() -> None:
    validator = definitions.validator("", "v1", "Pod")
    assert validator is not None

    assert validator.is_valid({"kind": "Pod", "spec": {"containers": [{"name": "a"}]}})
    assert not validator.is_valid({"kind": "Pod", "spec": {"bogus": 1}})
    assert not validator.is_valid({"kind": "Pod", "metadata": {"creationTimestamp": None}})
    assert not validator.is_valid({"kind": "Pod", "spec": {"overhead": {"cpu": "0.5"}}})
