from __future__ import annotations

from typing import Any

import pytest

from trainmaster.cluster.registry import validation
from trainmaster.cluster.registry.quantities import canonical


@pytest.mark.parametrize(
    ("rule", "name", "is_taken"),
    [
        pytest.param(validation.subdomain_problems, "a.b-c.d", True, id="subdomain"),
        pytest.param(validation.subdomain_problems, "a..b", False, id="empty-part"),
        pytest.param(validation.subdomain_problems, "A", False, id="upper-case"),
        pytest.param(validation.subdomain_problems, "a" * 254, False, id="long"),
        pytest.param(validation.label_problems, "1-a", True, id="label"),
        pytest.param(validation.label_problems, "a.b", False, id="dot-in-label"),
        pytest.param(validation.label_problems, "a\n", False, id="newline"),
        pytest.param(validation.dns_1035_problems, "1a", False, id="1035-begins-with-a-letter"),
        pytest.param(validation.path_segment_problems, "system:Any_thing", True, id="path-segment"),
        pytest.param(validation.path_segment_problems, "a/b", False, id="slash"),
        pytest.param(validation.path_segment_problems, "..", False, id="dots"),
        pytest.param(validation.label_key_problems, "example.com/Name_1", True, id="label-key"),
        pytest.param(validation.label_key_problems, "a/b/c", False, id="two-slashes"),
        pytest.param(validation.label_key_problems, "/x", False, id="empty-prefix"),
        pytest.param(validation.label_value_problems, "", True, id="empty-value"),
        pytest.param(validation.label_value_problems, "a b", False, id="space-in-value"),
    ],
)
def test_names_are_taken_or_refused_as_on_a_real_cluster(rule: Any, name: str, is_taken: bool) -> None:
    assert (rule(name) == []) is is_taken


def metadata(**fields: Any) -> dict[str, Any]:
    return {"name": "x", **fields}


def owner(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", **fields}


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        pytest.param(metadata(), [], id="fine"),
        pytest.param({}, ["metadata.name"], id="no-name"),
        pytest.param(metadata(generateName="x-"), [], id="prefix-may-end-in-a-dash"),
        pytest.param(metadata(generateName="X-"), ["metadata.generateName"], id="bad-prefix"),
        pytest.param(metadata(labels={"a b": "c"}), ["metadata.labels"], id="label-key"),
        pytest.param(metadata(annotations={"a/b/c": ""}), ["metadata.annotations"], id="annotation-key"),
        pytest.param(metadata(annotations={"a": "x" * 300_000}), ["metadata.annotations"], id="annotations-too-long"),
        pytest.param(metadata(finalizers=["a b"]), ["metadata.finalizers"], id="finalizer"),
        pytest.param(metadata(ownerReferences=[owner()]), [], id="owner"),
        pytest.param(metadata(ownerReferences=[owner(uid="")]), ["metadata.ownerReferences.uid"], id="owner-uid"),
        pytest.param(
            metadata(ownerReferences=[owner(controller=True)] * 2), ["metadata.ownerReferences"], id="two-controllers"
        ),
        pytest.param(metadata(namespace="n"), ["metadata.namespace"], id="namespace-on-a-wide-kind"),
    ],
)
def test_metadata_problems_name_their_field(given: dict[str, Any], fields: list[str]) -> None:
    causes = validation.check_metadata(given, validation.subdomain_problems, namespaced=False)

    assert [cause.field for cause in causes] == fields


def test_names_and_uids_never_change_and_the_dying_get_no_new_finalizers() -> None:
    old = {"name": "a", "uid": "1", "deletionTimestamp": "t", "finalizers": ["x/y"]}

    causes = validation.check_metadata_update({**old, "uid": "2", "finalizers": ["x/y", "new/z"]}, old)

    assert [str(cause) for cause in causes] == [
        'metadata.uid: Invalid value: "2": field is immutable',
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new "
        'finalizers []string{"new/z"}',
    ]


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1000", "1k"),
        ("1024", "1024"),
        ("1e3", "1e3"),
        ("100n", "100n"),
        ("0.1n", "1n"),
        ("0Mi", "0"),
        ("-2", "-2"),
        ("+5", "5"),
    ],
)
def test_quantities_are_stored_in_one_spelling(given: str, stored: str) -> None:
    assert canonical(given) == stored
