"""What is installed: hardened, spread, and no more than is needed."""

import pytest

from trainmaster import frameworks
from trainmaster.operator.install import LABELS, USER, Installation, manifests, rules

PLAIN = Installation(frameworks.BUILT_IN)


def the(kind, installation=PLAIN):
    found = [item for item in manifests(installation) if item["kind"] == kind]
    assert len(found) == 1, kind
    return found[0]


def the_pod(installation=PLAIN):
    return the("Deployment", installation)["spec"]["template"]["spec"]


def test_the_pod_satisfies_the_restricted_pod_security_standard():
    pod = the_pod()

    container = pod["containers"][0]["securityContext"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["runAsGroup"] == USER
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["allowPrivilegeEscalation"] is False
    assert container["capabilities"] == {"drop": ["ALL"]}


def test_nothing_can_be_written_in_the_pod():
    pod = the_pod()

    container = pod["containers"][0]

    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert "volumeMounts" not in container
    assert "volumes" not in pod


def test_two_operators_elect_a_leader_and_stand_on_different_nodes_where_they_can():
    deployment = the("Deployment")

    pod = deployment["spec"]["template"]["spec"]
    spread = pod["topologySpreadConstraints"]

    assert deployment["spec"]["replicas"] == 2
    assert "--leader-elect" in pod["containers"][0]["args"]
    assert [(s["topologyKey"], s["whenUnsatisfiable"]) for s in spread] == [
        ("kubernetes.io/hostname", "ScheduleAnyway")
    ]
    assert spread[0]["labelSelector"] == deployment["spec"]["selector"] == {"matchLabels": LABELS}


def test_one_operator_stays_while_nodes_are_drained():
    budget = the("PodDisruptionBudget")

    assert budget["apiVersion"] == "policy/v1"
    assert budget["spec"] == {"minAvailable": 1, "selector": {"matchLabels": LABELS}}


def test_a_lone_operator_has_no_budget_that_would_hold_its_node_for_ever():
    kinds = {item["kind"] for item in manifests(Installation(frameworks.BUILT_IN, replicas=1))}

    assert "PodDisruptionBudget" not in kinds


@pytest.mark.parametrize("webhooks", ["", "validating", "all"])
def test_whoever_may_connect_reaches_the_ports_that_are_served_and_no_others(webhooks):
    installation = Installation(frameworks.BUILT_IN, webhooks=webhooks)
    policy, ports = the("NetworkPolicy", installation)["spec"], the_pod(installation)["containers"][0]["ports"]

    opened = [(port["port"], port["protocol"]) for rule in policy["ingress"] for port in rule["ports"]]

    assert opened == [(port["containerPort"], port["protocol"]) for port in ports]
    assert ((9443, "TCP") in opened) is bool(webhooks)


def test_nobody_is_kept_out_by_where_it_calls_from_unless_its_user_says_so():
    """An API server is often outside the network of pods, and no label tells it from others."""
    policy = the("NetworkPolicy")["spec"]

    assert policy["policyTypes"] == ["Ingress"]
    assert policy["podSelector"] == the("Deployment")["spec"]["selector"]
    assert [set(rule) for rule in policy["ingress"]] == [{"ports"}] * 2


def test_probes_and_resources_are_set():
    container = the_pod()["containers"][0]

    ports = {port["name"] for port in container["ports"]}

    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert {container[p]["httpGet"]["port"] for p in ("livenessProbe", "readinessProbe")} <= ports
    assert set(container["resources"]) == {"requests", "limits"}
    assert "cpu" not in container["resources"]["limits"], "a throttled operator misses its lease"


@pytest.mark.parametrize(
    ("given", "flag"),
    [
        pytest.param({"schemes": ("TFJob",)}, "--enable-scheme=TFJob", id="schemes"),
        pytest.param({"watch_namespace": "team"}, "--namespace=team", id="watched"),
        pytest.param({"gang_scheduler_name": "volcano"}, "--gang-scheduler-name=volcano", id="gang"),
        pytest.param({"compat": "2021"}, "--compat=2021", id="compat"),
        pytest.param({"strict_topology": True}, "--strict-topology", id="strict"),
    ],
)
def test_what_is_asked_for_becomes_a_flag(given, flag):
    installation = Installation(frameworks.BUILT_IN, **given)

    arguments = the_pod(installation)["containers"][0]["args"]

    assert flag in arguments
    assert flag not in the_pod()["containers"][0]["args"]


def test_every_namespaced_object_is_where_it_is_wanted():
    installation = Installation(frameworks.BUILT_IN, namespace="here", watch_namespace="there")

    places = {
        (item["kind"], item["metadata"]["name"]): item["metadata"].get("namespace") for item in manifests(installation)
    }

    assert places["Namespace", "here"] is None
    assert places["Role", "trainmaster"] == places["RoleBinding", "trainmaster"] == "there"
    assert {places[kind, "trainmaster"] for kind in ("ServiceAccount", "Deployment", "Service")} == {"here"}


def changed_jobs(framework):
    granted = rules(Installation((framework,)))
    plurals = {resource.plural for resource in framework.served}
    return {p for rule in granted if "patch" in rule["verbs"] for p in rule["resources"]} & plurals


@pytest.mark.parametrize("framework", frameworks.BUILT_IN, ids=lambda f: f"{f.kind}.{f.group}")
def test_jobs_may_be_changed_only_where_older_operators_left_marks_on_them(framework):
    expected = {framework.plural} if framework.finalizers or framework.host_ports else set()

    assert changed_jobs(framework) == expected
