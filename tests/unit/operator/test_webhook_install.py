"""What `trainmaster manifests --webhooks` adds to an installation, and that the operator needs exactly that."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.operator.webhook_bed import HOME, Calendar, Replica, installed, running
from typer.testing import CliRunner

from trainmaster import frameworks
from trainmaster.cli.app import app
from trainmaster.kube import logs
from trainmaster.objects.meta import Json
from trainmaster.operator import main
from trainmaster.operator.install import Installation, manifests
from trainmaster.operator.options import Options
from trainmaster.operator.webhook_protocol import NAME
from trainmaster.testing import clock


def added(**options: Any) -> dict[tuple[str, str], Json]:
    """By kind and name, what an installation has more than one without webhooks, or otherwise."""
    plain = {_key(item): item for item in manifests(Installation(frameworks.BUILT_IN, **_without(options)))}
    chosen = {_key(item): item for item in manifests(Installation(frameworks.BUILT_IN, **options))}
    return {key: item for key, item in chosen.items() if plain.get(key) != item}


def _without(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if not key.startswith("webhook")}


def _key(item: Json) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"]


def webhook(kind: str = "ValidatingWebhookConfiguration", **options: Any) -> Json:
    (found,) = added(**{"webhooks": "all", **options})[kind, NAME]["webhooks"]
    webhook: Json = found
    return webhook


def test_nothing_is_registered_unless_it_is_asked_for() -> None:
    assert added() == {}


@pytest.mark.parametrize(
    ("which", "registered"),
    [
        ("validating", {"ValidatingWebhookConfiguration"}),
        ("all", {"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}),
    ],
)
def test_what_is_asked_for_is_registered_and_the_operator_told(which: str, registered: set[str]) -> None:
    more = added(webhooks=which)

    assert {kind for kind, name in more if name == NAME} == registered | {
        *("Secret", "Service", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    }
    assert {key for key in more if key[1] != NAME} == {("Deployment", "trainmaster"), ("NetworkPolicy", "trainmaster")}
    container = more["Deployment", "trainmaster"]["spec"]["template"]["spec"]["containers"][0]
    assert "--webhook-bind-address=:9443" in container["args"]
    assert f"--webhook-service={NAME}.trainmaster-system" in container["args"]
    assert f"--webhook-registration={NAME}" in container["args"]
    assert ("webhook", 9443) in [(port["name"], port["containerPort"]) for port in container["ports"]]


def test_rights_are_for_one_name_each() -> None:
    more = added(webhooks="all", namespace="home")

    role, everywhere = more["Role", NAME], more["ClusterRole", NAME]
    assert role["metadata"]["namespace"] == "home"
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [NAME], "verbs": ["get", "patch"]}
    ]
    assert everywhere["rules"] == [
        {
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"],
            "resourceNames": [NAME],
            "verbs": ["get", "patch"],
        }
    ]


def test_the_operator_takes_these_rights_and_no_others() -> None:
    api = installed()

    async def life() -> None:
        async with running(Replica(api, Calendar())):
            pass

    clock.run(life())
    concerned = {(method, path) for method, path in api.requests if f"/secrets/{NAME}" in path or "webhookconf" in path}
    registrations = "/apis/admissionregistration.k8s.io/v1"
    assert concerned == {
        (method, path)
        for method in ("GET", "PATCH")
        for path in (
            f"/api/v1/namespaces/{HOME}/secrets/{NAME}",
            f"{registrations}/validatingwebhookconfigurations/{NAME}",
            f"{registrations}/mutatingwebhookconfigurations/{NAME}",
        )
    }


def test_the_registration_is_patient_and_without_side_effects() -> None:
    one = webhook()

    assert {key: one[key] for key in ("failurePolicy", "matchPolicy", "sideEffects", "timeoutSeconds")} == {
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": 5,
    }
    assert one["admissionReviewVersions"] == ["v1"]


@pytest.mark.parametrize(
    ("kind", "path"),
    [("ValidatingWebhookConfiguration", "/validate"), ("MutatingWebhookConfiguration", "/default")],
)
def test_each_is_called_at_its_own_path(kind: str, path: str) -> None:
    assert webhook(kind)["clientConfig"] == {
        "service": {"name": NAME, "namespace": "trainmaster-system", "path": path, "port": 443}
    }


def test_every_kind_is_registered_under_all_its_names_and_versions() -> None:
    rules = webhook()["rules"]

    found = {
        (group, version, plural)
        for rule in rules
        for group in rule["apiGroups"]
        for version in rule["apiVersions"]
        for plural in rule["resources"]
    }
    crds = [item for item in manifests(Installation(frameworks.BUILT_IN)) if item["kind"] == "CustomResourceDefinition"]
    assert found == {
        (crd["spec"]["group"], version["name"], crd["spec"]["names"]["plural"])
        for crd in crds
        for version in crd["spec"]["versions"]
    }
    assert all(rule["operations"] == ["CREATE", "UPDATE"] for rule in rules)


def selects(one: Json, labels: dict[str, str]) -> bool:
    holds = {"In": lambda held, wanted: held in wanted, "NotIn": lambda held, wanted: held not in wanted}
    rules = one["namespaceSelector"]["matchExpressions"]
    return all(holds[rule["operator"]](labels.get(rule["key"]), rule["values"]) for rule in rules)


@pytest.mark.parametrize(
    ("labels", "is_asked_about"),
    [
        pytest.param({"kubernetes.io/metadata.name": "team"}, True, id="any"),
        pytest.param({}, True, id="any, before 1.21"),
        pytest.param({"kubernetes.io/metadata.name": "trainmaster-system"}, False, id="ours"),
        pytest.param({"control-plane": "trainmaster"}, False, id="ours, before 1.21"),
    ],
)
def test_the_operators_own_namespace_is_left_out(labels: dict[str, str], is_asked_about: bool) -> None:
    assert selects(webhook(), labels) is is_asked_about


def test_an_operator_of_one_namespace_is_asked_about_that_alone() -> None:
    one = webhook(watch_namespace="team")

    assert selects(one, {"kubernetes.io/metadata.name": "team"})
    assert not selects(one, {"kubernetes.io/metadata.name": "others"})


@pytest.mark.parametrize("kind", ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"])
def test_an_operator_of_its_own_namespace_is_asked_about_that_alone(kind: str) -> None:
    options: dict[str, Any] = {"namespace": "training", "watch_namespace": "training", "webhooks": "all"}
    (namespace,) = [i for i in manifests(Installation(frameworks.BUILT_IN, **options)) if i["kind"] == "Namespace"]

    one = webhook(kind, **options)

    assert selects(one, dict(namespace["metadata"]["labels"]))
    assert selects(one, {"kubernetes.io/metadata.name": "training"})
    assert not selects(one, {"kubernetes.io/metadata.name": "others"})
    assert not selects(one, {})


def test_the_command_prints_them() -> None:
    arguments = ["manifests", "--webhooks", "validating", "--webhook-failure-policy", "Fail"]

    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == 0
    assert "kind: ValidatingWebhookConfiguration" in result.stdout
    assert "failurePolicy: Fail" in result.stdout
    assert "MutatingWebhookConfiguration" not in result.stdout


def test_the_secret_is_printed_empty_so_that_applying_it_again_changes_nothing() -> None:
    secret = added(webhooks="all")["Secret", NAME]

    assert "data" not in json.loads(json.dumps(secret))


def test_flags_reach_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Options] = []

    def run(options: Options) -> int:
        started.append(options)
        return 0

    monkeypatch.setattr(main, "run", run)
    monkeypatch.setattr(logs, "setup", lambda level, format: None)
    flags = ["--webhook-bind-address=:9443", "--webhook-service=hook.home", "--webhook-cert-dir=/certificates"]
    flags += ["--webhook-registration=hooks"]

    result = CliRunner().invoke(app, ["operator", *flags])

    assert result.exit_code == 0
    assert (started[0].webhook_bind_address, started[0].webhook_service) == (":9443", "hook.home")
    assert (started[0].webhook_cert_dir, started[0].webhook_registration) == ("/certificates", "hooks")
