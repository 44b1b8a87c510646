import base64
import string
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainmaster.cluster.kubelet.environment import MissingReference, container_env, expand, field_value

POD: dict[str, Any] = {
    "metadata": {
        "name": "trainer-0",
        "namespace": "team",
        "uid": "123",
        "labels": {"app": "mnist", "b": 'say "hi"'},
        "annotations": {"note.io/x": "y"},
    },
    "spec": {"nodeName": "here", "containers": []},
}
NODE = {"status": {"allocatable": {"cpu": "8", "memory": "16Gi"}}}
CONFIG_MAPS = {"settings": {"data": {"rate": "0.1", "not a name": "x", "steps": "5"}}}
SECRETS = {"keys": {"data": {"token": base64.b64encode(b"s3cret").decode(), "raw": base64.b64encode(b"\xff").decode()}}}


def env_of(container, *, pod=POD, services=(), **changes):
    arguments = {
        "config_maps": CONFIG_MAPS,
        "secrets": SECRETS,
        "node": NODE,
        "pod_ip": "10.0.0.7",
        "host_ip": "10.0.0.1",
    }
    whole = {**pod, "spec": {**pod["spec"], "containers": [{"name": "main", **container}]}}
    return container_env(whole, whole["spec"]["containers"][0], services=services, **{**arguments, **changes})


def a_variable(**value_from):
    return {"env": [{"name": "X", "valueFrom": value_from}]}


def a_service(name, address="10.96.0.9", *ports, namespace="team"):
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"clusterIP": address, "ports": list(ports)}}


def expanded_by_hand(text, env):
    """Kubernetes' rules, one character after the other."""
    out, at = "", 0
    while at < len(text):
        if text[at] != "$" or at + 1 == len(text):
            out, at = out + text[at], at + 1
        elif text[at + 1] == "$":
            out, at = out + "$", at + 2
        elif text[at + 1] == "(" and ")" in text[at + 2 :]:
            end = text.index(")", at + 2)
            out, at = out + env.get(text[at + 2 : end], text[at : end + 1]), end + 1
        else:
            out, at = out + text[at : at + 2], at + 2
    return out


@given(st.text(alphabet="$()AB x\n"), st.dictionaries(st.sampled_from(["A", "B", "AB", ""]), st.text(max_size=5)))
@example("$($(A)", {"A": "1"})
@example("$$$(A)", {"A": "1"})
def test_expansion_follows_the_rules_of_kubernetes(text, env):
    assert expand(text, env) == expanded_by_hand(text, env)


@given(st.text().filter(lambda text: "$" not in text), st.dictionaries(st.text(), st.text()))
def test_text_without_dollars_is_left_alone(text, env):
    assert expand(text, env) == text


@given(st.text(), st.dictionaries(st.text(string.ascii_letters), st.text()))
def test_doubled_dollars_protect_everything(text, env):
    assert expand(text.replace("$", "$$"), env) == text


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("$(A)-$(A)", "1-1"),
        ("$$(A)", "$(A)"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$A ${A} $(A", "$A ${A} $(A"),
        ("cost$", "cost$"),
        ("$(NESTED)", "$(A)"),
    ],
)
def test_expansion(text, result):
    assert expand(text, {"A": "1", "NESTED": "$(A)"}) == result


def test_variables_see_those_before_them_only():
    env = env_of({"env": [{"name": "A", "value": "$(B)"}, {"name": "B", "value": "2"}, {"name": "C", "value": "$(B)"}]})

    assert env == {"A": "$(B)", "B": "2", "C": "2"}


def test_imported_variables_come_first_and_are_overridden():
    container = {
        "envFrom": [{"prefix": "CFG_", "configMapRef": {"name": "settings"}}, {"secretRef": {"name": "keys"}}],
        "env": [{"name": "token", "value": "mine"}, {"name": "LINE", "value": "rate=$(CFG_rate)"}],
    }

    env = env_of(container)

    assert env == {"CFG_rate": "0.1", "CFG_steps": "5", "token": "mine", "raw": "\udcff", "LINE": "rate=0.1"}


@pytest.mark.parametrize(
    ("origin", "value"),
    [
        ({"configMapKeyRef": {"name": "settings", "key": "rate"}}, "0.1"),
        ({"secretKeyRef": {"name": "keys", "key": "token"}}, "s3cret"),
        ({"fieldRef": {"fieldPath": "metadata.name"}}, "trainer-0"),
        ({"fieldRef": {"fieldPath": "metadata.namespace"}}, "team"),
        ({"fieldRef": {"fieldPath": "metadata.uid"}}, "123"),
        ({"fieldRef": {"fieldPath": "metadata.labels['app']"}}, "mnist"),
        ({"fieldRef": {"fieldPath": "metadata.labels['absent']"}}, ""),
        ({"fieldRef": {"fieldPath": "metadata.annotations['note.io/x']"}}, "y"),
        ({"fieldRef": {"fieldPath": "status.podIP"}}, "10.0.0.7"),
        ({"fieldRef": {"fieldPath": "status.podIPs"}}, "10.0.0.7"),
        ({"fieldRef": {"fieldPath": "status.hostIP"}}, "10.0.0.1"),
        ({"fieldRef": {"fieldPath": "spec.nodeName"}}, "here"),
        ({"fieldRef": {"fieldPath": "spec.serviceAccountName"}}, "default"),
    ],
)
def test_values_from_elsewhere(origin, value):
    assert env_of(a_variable(**origin)) == {"X": value}


@pytest.mark.parametrize(
    ("resource", "divisor", "value"),
    [
        ("limits.cpu", None, "2"),
        ("limits.cpu", "1m", "1500"),
        ("requests.cpu", None, "1"),
        ("requests.cpu", "1m", "250"),
        ("limits.memory", None, "17179869184"),
        ("limits.memory", "1Gi", "16"),
        ("requests.memory", "1Mi", "96"),
        ("requests.ephemeral-storage", None, "0"),
        ("limits.nvidia.com/gpu", None, "2"),
    ],
)
def test_resources_are_counted_in_divisors_and_rounded_up(resource, divisor, value):
    reference = {"resource": resource, **({"divisor": divisor} if divisor else {})}
    resources = {"limits": {"cpu": "1500m", "nvidia.com/gpu": "2"}, "requests": {"cpu": "250m", "memory": "100M"}}

    env = env_of({**a_variable(resourceFieldRef=reference), "resources": resources})

    assert env == {"X": value}


@pytest.mark.parametrize(
    ("container", "message"),
    [
        (a_variable(configMapKeyRef={"name": "no", "key": "k"}), 'configmap "no" not found'),
        (
            a_variable(configMapKeyRef={"name": "settings", "key": "k"}),
            "couldn't find key k in ConfigMap team/settings",
        ),
        (a_variable(secretKeyRef={"name": "no", "key": "k"}), 'secret "no" not found'),
        (a_variable(secretKeyRef={"name": "keys", "key": "k"}), "couldn't find key k in Secret team/keys"),
        ({"envFrom": [{"configMapRef": {"name": "no"}}]}, 'configmap "no" not found'),
        ({"envFrom": [{"secretRef": {"name": "no"}}]}, 'secret "no" not found'),
        (a_variable(fieldRef={"fieldPath": "spec.absent"}), "unsupported fieldPath: spec.absent"),
        (a_variable(resourceFieldRef={"resource": "limits"}), "unsupported container resource : limits"),
        (a_variable(resourceFieldRef={"resource": "limits.cpu", "containerName": "no"}), "container no not found"),
    ],
)
def test_a_missing_reference_is_named(container, message):
    with pytest.raises(MissingReference) as caught:
        env_of(container)

    assert str(caught.value) == message


def test_optional_references_to_nothing_leave_nothing():
    container = {
        "envFrom": [
            {"configMapRef": {"name": "no", "optional": True}},
            {"secretRef": {"name": "no", "optional": True}},
        ],
        "env": [
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "no", "key": "k", "optional": True}}},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k", "optional": True}}},
        ],
    }

    assert env_of(container) == {}


def test_services_of_the_namespace_are_told_as_docker_links():
    web = a_service("my-web", "10.96.0.9", {"name": "http-api", "port": 80}, {"port": 53, "protocol": "UDP"})

    env = env_of({}, services=[web])

    assert env == {
        "MY_WEB_SERVICE_HOST": "10.96.0.9",
        "MY_WEB_SERVICE_PORT": "80",
        "MY_WEB_SERVICE_PORT_HTTP_API": "80",
        "MY_WEB_PORT": "tcp://10.96.0.9:80",
        "MY_WEB_PORT_80_TCP": "tcp://10.96.0.9:80",
        "MY_WEB_PORT_80_TCP_PROTO": "tcp",
        "MY_WEB_PORT_80_TCP_PORT": "80",
        "MY_WEB_PORT_80_TCP_ADDR": "10.96.0.9",
        "MY_WEB_PORT_53_UDP": "udp://10.96.0.9:53",
        "MY_WEB_PORT_53_UDP_PROTO": "udp",
        "MY_WEB_PORT_53_UDP_PORT": "53",
        "MY_WEB_PORT_53_UDP_ADDR": "10.96.0.9",
    }


@pytest.mark.parametrize(
    ("service", "links", "is_told"),
    [
        pytest.param(a_service("kubernetes", "10.96.0.1", {"port": 443}, namespace="default"), False, True, id="api"),
        pytest.param(a_service("own", "10.96.0.2", {"port": 1}), True, True, id="own"),
        pytest.param(a_service("own", "10.96.0.2", {"port": 1}), False, False, id="links off"),
        pytest.param(a_service("other", "10.96.0.2", {"port": 1}, namespace="other"), True, False, id="elsewhere"),
        pytest.param(a_service("headless", "None", {"port": 1}), True, False, id="headless"),
    ],
)
def test_which_services_are_told(service, links, is_told):
    pod = {**POD, "spec": {**POD["spec"], "enableServiceLinks": links}}

    env = env_of({}, pod=pod, services=[service])

    assert bool(env) is is_told


def test_own_variables_win_over_those_of_services_and_may_use_them():
    service = a_service("db", "10.96.0.2", {"port": 1})
    container = {"env": [{"name": "URL", "value": "$(DB_SERVICE_HOST)"}, {"name": "DB_SERVICE_PORT", "value": "7"}]}

    env = env_of(container, services=[service])

    assert (env["URL"], env["DB_SERVICE_PORT"]) == ("10.96.0.2", "7")


def test_all_labels_are_written_as_lines():
    assert field_value(POD, "metadata.labels") == 'app="mnist"\nb="say \\"hi\\""'
