from __future__ import annotations

from typing import Any

import pytest

from trainmaster.cluster.registry import selectors
from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.kinds_builtin import BUILTIN
from trainmaster.cluster.registry.status_error import ApiError

KINDS = {kind.plural: kind for kind in BUILTIN if kind.group == ""}


def labelled(**labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "x", "labels": labels}}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param("a=1", True, id="equal"),
        pytest.param("a==1", True, id="double-equal"),
        pytest.param("a=2", False, id="another-value"),
        pytest.param("a!=2", True, id="not-equal"),
        pytest.param("z!=2", True, id="not-equal-when-absent"),
        pytest.param("a", True, id="exists"),
        pytest.param("!a", False, id="does-not-exist"),
        pytest.param("!z", True, id="absent"),
        pytest.param("a in (1, 2)", True, id="in"),
        pytest.param("a notin (1,2)", False, id="notin"),
        pytest.param("z notin (1)", True, id="notin-when-absent"),
        pytest.param("a in (1),b!=q", True, id="both-terms-hold"),
        pytest.param("a=1,b=q", False, id="one-term-fails"),
        pytest.param("n>4", True, id="greater"),
        pytest.param("n<4", False, id="less"),
        pytest.param("e=", True, id="empty-value"),
        pytest.param("a in (,1)", True, id="empty-value-in-set"),
    ],
)
def test_a_label_selector_matches_as_kubectl_reads_it(selector: str, expected: bool) -> None:
    matches = selectors.label_matcher(selector)

    assert matches(labelled(a="1", b="c", n="5", e="")) is expected


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        pytest.param("a===b", "unable to parse requirement: found '=', expected: identifier", id="three-equals"),
        pytest.param("a in b", "unable to parse requirement: found 'b' expected: '('", id="no-parenthesis"),
        pytest.param("a,", "found '', expected: identifier after ','", id="trailing-comma"),
        pytest.param(",", "found ',', expected: !, identifier, or 'end of string'", id="only-comma"),
        pytest.param("!", "unable to parse requirement: found '', expected: identifier", id="only-not"),
        pytest.param(
            "a foo b",
            "unable to parse requirement: found 'foo', expected: '=', '!=', '==', 'in', notin'",
            id="unknown-operator",
        ),
        pytest.param("a>b", "unable to parse requirement: for 'Gt', 'Lt' operators", id="comparison-of-text"),
        pytest.param(f"a>{'9' * 5000}", "unable to parse requirement: for 'Gt', 'Lt'", id="more digits than 64 bits"),
        pytest.param("-a=b", 'unable to parse requirement: invalid label key "-a"', id="bad-key"),
        pytest.param("a=-b", 'unable to parse requirement: invalid label value: "-b": at key: "a"', id="bad-value"),
        pytest.param("a in (b", "unable to parse requirement: found '', expected: ',' or ')'", id="open-set"),
    ],
)
def test_a_selector_that_cannot_be_read_is_a_bad_request(selector: str, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        selectors.label_matcher(selector)

    assert refused.value.status == 400
    assert refused.value.message.startswith(message)


POD = {
    "metadata": {"name": "p", "namespace": "n"},
    "spec": {"nodeName": "node-1", "restartPolicy": "Never", "schedulerName": "volcano"},
    "status": {"phase": "Running", "podIP": "10.0.0.1"},
}


@pytest.mark.parametrize(
    ("kind", "selector", "value", "expected"),
    [
        pytest.param("pods", "spec.nodeName=node-1", POD, True, id="node"),
        pytest.param("pods", "spec.nodeName!=node-1", POD, False, id="not-node"),
        pytest.param("pods", "status.phase=Running,metadata.name==p", POD, True, id="phase-and-name"),
        pytest.param("pods", "metadata.namespace=other", POD, False, id="namespace"),
        pytest.param("pods", "status.podIP=10.0.0.1,spec.schedulerName=volcano", POD, True, id="ip-and-scheduler"),
        pytest.param("nodes", "spec.unschedulable=false", {"metadata": {}, "spec": {}}, True, id="schedulable"),
        pytest.param(
            "events",
            "involvedObject.name=p,type!=Warning",
            {"metadata": {}, "involvedObject": {"name": "p"}, "type": "Normal"},
            True,
            id="event",
        ),
        pytest.param("secrets", "type=Opaque", {"metadata": {}, "type": "Opaque"}, True, id="secret-type"),
    ],
)
def test_a_field_selector_reads_the_fields_of_its_kind(
    kind: str, selector: str, value: dict[str, Any], expected: bool
) -> None:
    matches = selectors.field_matcher(KINDS[kind], selector)

    assert matches(value) is expected


@pytest.mark.parametrize("kind", [KINDS["pods"], KINDS["configmaps"]], ids=["pods", "configmaps"])
def test_a_field_that_the_kind_does_not_index_is_refused(kind: Kind) -> None:
    with pytest.raises(ApiError) as refused:
        selectors.field_matcher(kind, "spec.foo=1")

    assert (refused.value.status, refused.value.message) == (400, "field label not supported: spec.foo")


def test_no_selectors_need_no_matcher() -> None:
    assert selectors.matcher(KINDS["pods"], " ", "") is None
