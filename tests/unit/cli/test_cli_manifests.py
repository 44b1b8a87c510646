"""`trainmaster manifests` where the operators of single frameworks were installed: the place, and what is watched."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from trainmaster.cli.app import app
from trainmaster.objects.names import is_dns_1035


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
    (rights,) = of_kind(objects, "ClusterRole")
    jobs = {rule["apiGroups"][0] for rule in rights["rules"]} - {""}
    assert definition["metadata"]["name"] == "msjobs.mindspore.gitee.com"
    assert jobs == {"mindspore.gitee.com"}
    assert "--enable-scheme=msjob" in flags(objects)
    assert not [flag for flag in flags(objects) if flag.startswith("--namespace")]


def test_an_operator_for_msjobs_may_write_events_for_them() -> None:
    objects = printed("--namespace", "ms-operator-system", "--enable-scheme", "msjob")

    (rights,) = of_kind(objects, "ClusterRole")
    (events,) = [rule["verbs"] for rule in rights["rules"] if rule["resources"] == ["events"]]
    assert events == ["create", "patch"]


@pytest.mark.parametrize("jobs", ["paddle-system", "research"])
def test_the_watched_namespace_is_chosen_apart_from_the_place(jobs: str) -> None:
    objects = printed("--namespace", "paddle-system", "--watch-namespace", jobs, "--enable-scheme", "paddlejob")

    roles = {item["metadata"]["name"]: item["metadata"]["namespace"] for item in of_kind(objects, "Role")}
    (deployment,) = of_kind(objects, "Deployment")
    assert f"--namespace={jobs}" in flags(objects)
    assert roles == {"trainmaster-paddle-system": jobs, "trainmaster-leader-election": "paddle-system"}
    assert deployment["metadata"]["namespace"] == "paddle-system"


def test_an_operator_that_watches_one_namespace_may_touch_no_pod_elsewhere() -> None:
    objects = printed("--namespace", "paddle-system", "--watch-namespace", "paddle-system")

    everywhere = [rule for item in of_kind(objects, "ClusterRole") for rule in item["rules"]]
    assert not [rule for rule in everywhere if {"pods", "services"} & set(rule["resources"])]


def identities(objects: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    """What is applied, but for the definitions, which all installations share."""
    return {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"])
        for item in objects
        if item["kind"] != "CustomResourceDefinition"
    }


@pytest.mark.parametrize(
    "more",
    [
        pytest.param([], id="everywhere"),
        pytest.param(["--watch-namespace", "research"], id="one namespace"),
        pytest.param(["--gang-scheduler-name", "volcano"], id="gangs"),
        pytest.param(["--webhooks", "all"], id="webhooks"),
    ],
)
def test_two_installations_have_nothing_of_one_name(more: list[str]) -> None:
    places = [[], ["--namespace", "paddle-system"], ["--namespace", "ms-operator-system"]]

    first, second, third = (identities(printed(*place, *more)) for place in places)

    assert not first & second | first & third | second & third


AWKWARD = [
    "webhook",
    "outside",
    "priorities",
    "leader-election",
    "ml-webhook",
    "webhook-webhook",
    "leader-election-webhook",
]


def test_no_namespace_gives_an_installation_names_of_another_one() -> None:
    everything = ["--webhooks", "all", "--gang-scheduler-name", "volcano", "--watch-namespace", "research"]
    places = ["trainmaster-system", "ml", "webhooks", *AWKWARD]

    objects = [printed("--namespace", place, "--enable-scheme", "jaxjob", *everything) for place in places]

    names = [name for one in objects for name in identities(one)]
    assert len(names) == len(set(names))


def test_an_installation_has_no_two_objects_of_one_name() -> None:
    place = "leader-election"

    objects = printed(
        "--namespace", place, "--watch-namespace", place, "--enable-scheme", "jaxjob", "--webhooks", "all"
    )

    assert len(identities(objects)) == len([one for one in objects if one["kind"] != "CustomResourceDefinition"])


@pytest.mark.parametrize("place", ["a" * 63, "webhook"], ids=["long", "awkward"])
def test_whatever_the_namespace_the_api_server_takes_the_names(place: str) -> None:
    everything = ["--webhooks", "all", "--gang-scheduler-name", "volcano", "--watch-namespace", "research"]

    objects = printed("--namespace", place, *everything)

    subdomain = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
    assert all(is_dns_1035(item["metadata"]["name"]) for item in of_kind(objects, "Service"))
    assert all(subdomain.fullmatch(item["metadata"]["name"]) for item in objects)
    assert all(len(item["metadata"]["name"]) <= 253 for item in objects)


@pytest.mark.parametrize("place", ["trainmaster-system", "paddle-system", "webhook"])
def test_every_binding_and_registration_names_what_is_there(place: str) -> None:
    objects = printed("--namespace", place, "--webhooks", "all", "--gang-scheduler-name", "volcano")

    names = {(kind, name) for kind, _, name in identities(objects)}
    bound = {(item["roleRef"]["kind"], item["roleRef"]["name"]) for item in objects if "roleRef" in item}
    services = {hook["clientConfig"]["service"]["name"] for item in objects for hook in item.get("webhooks", ())}
    (flag,) = [flag for flag in flags(objects) if flag.startswith("--webhook-service=")]
    assert bound <= names
    assert {("Service", name) for name in services} <= names
    (registration,) = [flag for flag in flags(objects) if flag.startswith("--webhook-registration=")]
    assert flag == f"--webhook-service={services.pop()}.{place}"
    assert ("ValidatingWebhookConfiguration", registration.partition("=")[2]) in names


def test_in_its_own_namespace_the_operators_names_are_plain() -> None:
    (role,) = of_kind(printed(), "ClusterRole")

    assert role["metadata"]["name"] == "trainmaster"


def test_an_operator_for_msjobs_that_makes_gangs_has_the_rights_that_ms_operator_lacked() -> None:
    objects = printed(
        "--namespace", "ms-operator-system", "--enable-scheme", "msjob", "--gang-scheduler-name", "volcano"
    )

    granted = {
        resource: set(rule["verbs"])
        for item in of_kind(objects, "ClusterRole")
        for rule in item["rules"]
        for resource in rule["resources"]
    }
    assert granted["podgroups"] >= {"list", "watch", "create", "patch", "delete"}
    assert granted["priorityclasses"] == {"list", "watch"}
    assert granted["events"] == {"create", "patch"}
