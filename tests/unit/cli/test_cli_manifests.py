"""`trainmaster manifests` where the operators of single frameworks were installed: the place, and what is watched."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from trainmaster.cli.app import app


def printed(*arguments: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, ["manifests", *arguments])
    assert result.exit_code == 0, result.output
    return list(yaml.safe_load_all(result.stdout))


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in objects if item["kind"] == kind]


def flags(objects: list[dict[str, Any]]) -> list[str]:
    (deployment,) = of_kind(objects, "Deployment")
    arguments: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return arguments


@pytest.mark.parametrize("place", ["paddle-system", "ms-operator-system"])
def test_everything_that_lies_in_a_namespace_lies_in_the_chosen_one(place: str) -> None:
    objects = printed("--namespace", place)

    (namespace,) = of_kind(objects, "Namespace")
    accounts = [subject for item in objects for subject in item.get("subjects", ())]
    assert namespace["metadata"]["name"] == place
    assert {item["metadata"].get("namespace", place) for item in objects} == {place}
    assert {account["namespace"] for account in accounts} == {place}


def test_an_operator_for_msjobs_watches_all_namespaces_as_ms_operator_did() -> None:
    objects = printed("--namespace", "ms-operator-system", "--enable-scheme", "msjob")

    (definition,) = of_kind(objects, "CustomResourceDefinition")
    (rights,) = [item for item in of_kind(objects, "ClusterRole") if item["metadata"]["name"] == "trainmaster"]
    jobs = {rule["apiGroups"][0] for rule in rights["rules"]} - {""}
    assert definition["metadata"]["name"] == "msjobs.mindspore.gitee.com"
    assert jobs == {"mindspore.gitee.com"}
    assert "--enable-scheme=msjob" in flags(objects)
    assert not [flag for flag in flags(objects) if flag.startswith("--namespace")]


def test_an_operator_for_msjobs_may_write_events_for_them() -> None:
    objects = printed("--namespace", "ms-operator-system", "--enable-scheme", "msjob")

    (rights,) = [item for item in of_kind(objects, "ClusterRole") if item["metadata"]["name"] == "trainmaster"]
    (events,) = [rule["verbs"] for rule in rights["rules"] if rule["resources"] == ["events"]]
    assert events == ["create", "patch"]


@pytest.mark.parametrize("jobs", ["paddle-system", "research"])
def test_the_watched_namespace_is_chosen_apart_from_the_place(jobs: str) -> None:
    objects = printed("--namespace", "paddle-system", "--watch-namespace", jobs, "--enable-scheme", "paddlejob")

    roles = {item["metadata"]["name"]: item["metadata"]["namespace"] for item in of_kind(objects, "Role")}
    (deployment,) = of_kind(objects, "Deployment")
    assert f"--namespace={jobs}" in flags(objects)
    assert roles == {"trainmaster": jobs, "trainmaster-leader-election": "paddle-system"}
    assert deployment["metadata"]["namespace"] == "paddle-system"


def test_an_operator_that_watches_one_namespace_may_touch_no_pod_elsewhere() -> None:
    objects = printed("--namespace", "paddle-system", "--watch-namespace", "paddle-system")

    everywhere = [rule for item in of_kind(objects, "ClusterRole") for rule in item["rules"]]
    assert not [rule for rule in everywhere if {"pods", "services"} & set(rule["resources"])]
