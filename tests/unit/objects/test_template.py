"""Changes to pod templates leave the original as it was, and everything that they do not touch."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.objects import template
from trainmaster.objects.meta import Json, mutable

TRAIN: dict[str, Any] = {"name": "train", "image": "example/train:1"}
SIDECAR: dict[str, Any] = {"name": "sidecar", "image": "example/side:1"}


def a_pod(*containers: Json, **spec: Any) -> dict[str, Any]:
    return {"metadata": {}, "spec": {"containers": list(containers), **spec}}


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param({}, id="no spec"),
        pytest.param({"spec": None}, id="null spec"),
        pytest.param({"spec": "x"}, id="spec is text"),
        pytest.param({"spec": {}}, id="no containers"),
        pytest.param({"spec": {"containers": "x"}}, id="containers are text"),
        pytest.param({"spec": {"containers": [None, 3]}}, id="no container is a mapping"),
    ],
)
def test_a_malformed_template_has_no_containers(pod: Json) -> None:
    assert template.containers_of(pod) == []


def test_a_container_is_found_by_any_of_its_names() -> None:
    pod = a_pod(SIDECAR, TRAIN)

    assert template.container_named(pod, ("old", "train")) == TRAIN
    assert template.container_named(pod, ("other",)) is None


@pytest.mark.parametrize(
    ("container", "number"),
    [
        pytest.param({"ports": [{"name": "p", "containerPort": 5}]}, 5, id="named"),
        pytest.param({"ports": [{"name": "q", "containerPort": 5}]}, None, id="another name"),
        pytest.param({"ports": [{"containerPort": 5}]}, None, id="unnamed"),
        pytest.param({"ports": [{"name": "p"}]}, None, id="without a number"),
        pytest.param({"ports": "p"}, None, id="ports are text"),
        pytest.param({}, None, id="no ports"),
        pytest.param(None, None, id="no container"),
    ],
)
def test_a_port_is_found_by_name(container: Json | None, number: int | None) -> None:
    assert template.port_named(container, "p") == number


def test_a_change_of_spec_keeps_the_rest() -> None:
    pod = a_pod(TRAIN, hostNetwork=True)

    changed = template.with_spec(pod, restartPolicy="Never")

    assert changed == {"metadata": {}, "spec": {"containers": [TRAIN], "hostNetwork": True, "restartPolicy": "Never"}}


def test_labels_and_annotations_are_laid_over_those_there_are() -> None:
    pod = {"metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["f"]}}

    changed = template.with_metadata(pod, labels={"b": "3"}, annotations={"c": "4"})

    assert changed["metadata"] == {"labels": {"a": "1", "b": "3"}, "finalizers": ["f"], "annotations": {"c": "4"}}


def test_without_labels_metadata_gains_no_empty_fields() -> None:
    assert template.with_metadata({"metadata": {"name": "x"}}, labels={}, annotations=None) == {
        "metadata": {"name": "x"}
    }


@pytest.mark.parametrize(
    ("names", "changed"),
    [
        pytest.param((), ["train"], id="the first without names"),
        pytest.param(("train",), ["train"], id="only the first of that name"),
        pytest.param(("nobody",), [], id="none when no name matches"),
    ],
)
def test_the_training_container_is_changed(names: tuple[str, ...], changed: list[str]) -> None:
    pod = a_pod(TRAIN, SIDECAR, dict(TRAIN))

    marked = template.with_container(pod, lambda container: {**container, "marked": True}, names)

    assert [c["name"] for c in marked["spec"]["containers"] if c.get("marked")] == changed


def test_init_containers_come_after_those_of_the_user() -> None:
    pod = a_pod(TRAIN, initContainers=[{"name": "first"}])

    changed = template.with_init_containers(pod, [{"name": "second"}])

    assert [c["name"] for c in changed["spec"]["initContainers"]] == ["first", "second"]


def test_no_init_containers_are_no_change() -> None:
    assert template.with_init_containers(a_pod(TRAIN), []) == a_pod(TRAIN)


def test_variables_come_after_those_of_the_user_in_the_order_given() -> None:
    container = {**TRAIN, "env": [{"name": "RANK", "value": "mine"}]}
    address = {"fieldRef": {"fieldPath": "status.podIP"}}

    changed = template.with_env(container, {"RANK": 0, "IP": address, "HOST": "a"})

    assert changed["env"] == [
        {"name": "RANK", "value": "mine"},
        {"name": "RANK", "value": "0"},
        {"name": "IP", "valueFrom": address},
        {"name": "HOST", "value": "a"},
    ]


def test_no_variables_are_no_change() -> None:
    assert template.with_env(TRAIN, {}) == TRAIN


@pytest.mark.parametrize(
    ("containers", "ports"),
    [
        pytest.param([TRAIN], [[{"name": "p", "containerPort": 9}]], id="added to the container of that name"),
        pytest.param([SIDECAR, TRAIN], [None, [{"name": "p", "containerPort": 9}]], id="wherever it stands"),
        pytest.param(
            [SIDECAR, {"name": "b"}], [[{"name": "p", "containerPort": 9}], None], id="or to the first container"
        ),
        pytest.param(
            [{**TRAIN, "ports": [{"name": "web", "containerPort": 80}]}],
            [[{"name": "web", "containerPort": 80}, {"name": "p", "containerPort": 9}]],
            id="after other ports",
        ),
        pytest.param(
            [{**TRAIN, "ports": [{"name": "p", "containerPort": 7}]}],
            [[{"name": "p", "containerPort": 7}]],
            id="not when a port has that name",
        ),
        pytest.param([], [], id="not without containers"),
    ],
)
def test_the_default_port_is_added_once(containers: list[Json], ports: list[Any]) -> None:
    changed = template.with_port(a_pod(*containers), ("train",), "p", 9)

    assert [c.get("ports") for c in changed["spec"]["containers"]] == ports


def test_the_argument_is_never_changed() -> None:
    pod = a_pod({**TRAIN, "env": [{"name": "A", "value": "1"}]}, initContainers=[{"name": "first"}])
    before = mutable(pod)

    changed = template.with_port(pod, ("train",), "p", 9)
    changed = template.with_containers(changed, lambda container: template.with_env(container, {"B": 2}))
    changed = template.with_init_containers(changed, [{"name": "second"}])
    template.with_metadata(changed, labels={"a": "b"})

    assert pod == before
