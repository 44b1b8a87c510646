"""Slim views of stored objects."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from trainmaster.objects import meta
from trainmaster.objects.meta import Meta, Object, OwnerReference, Service, meta_of, mutable


def an_owner(uid: str, controller: bool = True) -> OwnerReference:
    return OwnerReference(api_version="kubeflow.org/v1", kind="TFJob", name="job", uid=uid, controller=controller)


def test_metadata_is_decoded_from_the_wire_and_the_rest_is_dropped() -> None:
    wire = b"""{"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": 2,
        "labels": {"a": "b"}, "managedFields": [{"manager": "kubectl"}],
        "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "job", "uid": "x",
                             "controller": true, "blockOwnerDeletion": true}]}"""

    held = msgspec.json.decode(wire, type=Meta)

    assert (held.key, held.uid, held.resource_version, held.generation) == ("ns/p", "u", "7", 2)
    assert held.labels == {"a": "b"}
    assert held.controller == OwnerReference("kubeflow.org/v1", "TFJob", "job", "x", True, True)
    assert not hasattr(held, "managed_fields")


def test_the_key_of_a_cluster_wide_object_is_its_name() -> None:
    assert Meta(name="high").key == "high"


@pytest.mark.parametrize(
    ("owners", "uid", "controlled"),
    [
        pytest.param((an_owner("a"),), "a", True, id="its controller"),
        pytest.param((an_owner("b"),), "a", False, id="another controller"),
        pytest.param((an_owner("a", controller=False),), "a", False, id="an owner that does not control"),
        pytest.param((an_owner("x", controller=False), an_owner("a")), "a", True, id="second of two owners"),
        pytest.param((), "a", False, id="an orphan"),
        pytest.param((an_owner(""),), "", False, id="no uid controls nothing"),
    ],
)
def test_an_object_is_controlled_by_one_uid(owners: tuple[OwnerReference, ...], uid: str, controlled: bool) -> None:
    assert Meta(owner_references=owners).is_controlled_by(uid) is controlled


def test_an_object_with_a_deletion_timestamp_is_terminating() -> None:
    assert Meta(deletion_timestamp="2023-11-14T22:13:20Z").is_terminating
    assert not Meta().is_terminating


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(("spec", "queue"), "gpu", id="spec"),
        pytest.param(("status", "phase"), "Running", id="status"),
        pytest.param(("spec",), {"queue": "gpu"}, id="the whole part"),
        pytest.param(("spec", "absent"), None, id="absent"),
        pytest.param(("spec", "queue", "deeper"), None, id="below a scalar"),
    ],
)
def test_parts_of_an_object_are_decoded_when_asked_for(path: tuple[str, ...], value: Any) -> None:
    wire = b'{"metadata": {"name": "g"}, "spec": {"queue": "gpu"}, "status": {"phase": "Running"}}'

    held = msgspec.json.decode(wire, type=Object)

    assert held.at(*path) == value


def test_an_object_without_status_has_nothing_there() -> None:
    held = msgspec.json.decode(b'{"metadata": {"name": "g"}}', type=Object)

    assert held.at("status", "phase") is None


def test_a_service_keeps_its_cluster_address() -> None:
    wire = b'{"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "ports": [{"port": 1}]}}'

    assert msgspec.json.decode(wire, type=Service).spec.cluster_ip == "None"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(None, Meta(), id="absent"),
        pytest.param("text", Meta(), id="text"),
        pytest.param({"name": 5, "namespace": "ns"}, Meta(namespace="ns"), id="a name that is a number"),
        pytest.param(
            {"name": "j", "uid": "u", "labels": "x"}, Meta(name="j", uid="u"), id="labels that are text cost the rest"
        ),
        pytest.param({"name": "j", "labels": {"a": "b"}}, Meta(name="j", labels={"a": "b"}), id="well-formed"),
        pytest.param(Meta(name="j"), Meta(name="j"), id="already read"),
    ],
)
def test_malformed_metadata_is_read_as_far_as_it_goes(raw: object, expected: Meta) -> None:
    assert meta_of(raw) == expected


def test_a_mutable_copy_shares_nothing_with_the_original() -> None:
    original = {"a": {"b": [1]}}

    copy = mutable(original)
    copy["a"]["b"].append(2)

    assert original == {"a": {"b": [1]}}


def test_json_is_written_without_spaces_in_the_order_given() -> None:
    assert meta.encode({"b": [1, 2], "a": "é"}) == '{"b":[1,2],"a":"é"}'.encode()
