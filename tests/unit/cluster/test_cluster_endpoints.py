from __future__ import annotations

from typing import Any

import pytest

from trainmaster.cluster.controllers.endpoints import EndpointsKeeper, PodIndex, ServiceIndex, subsets_of, target_port
from trainmaster.objects.meta import Json
from trainmaster.testing import stage
from trainmaster.testing.stage import Stage

PODS, SERVICES, ENDPOINTS = "v1/pods", "v1/services", "v1/endpoints"


def play(scene: Any) -> None:
    stage.play(scene, lambda registry, now: [EndpointsKeeper(registry)])


def a_service(name: str = "web", *, ports: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}] if ports is None else ports, **spec}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def a_pod(
    name: str, ip: str = "10.244.0.5", *, ready: bool = True, phase: str = "Running", **spec: Any
) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "ports": [{"name": "http", "containerPort": 8080}]}
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"phase": phase, "conditions": conditions, **({"podIP": ip} if ip else {})}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {"app": "web"}}
    return {"metadata": metadata, "spec": {"containers": [container], "nodeName": "box", **spec}, "status": status}


def ips(subset: Json, name: str = "addresses") -> list[str]:
    return [address["ip"] for address in subset.get(name, [])]


async def start(stage: Stage, pod: dict[str, Any]) -> None:
    await stage.create(PODS, {**pod, "metadata": {k: v for k, v in pod["metadata"].items() if k != "uid"}})
    await stage.change(PODS, f"default/{pod['metadata']['name']}", "status", status=pod["status"])


def addresses(stage: Stage, name: str = "web") -> list[str]:
    endpoints = stage.get(ENDPOINTS, f"default/{name}") or {}
    return [ip for subset in endpoints.get("subsets", []) for ip in ips(subset)]


def test_ready_pods_are_addresses_and_others_are_not_yet() -> None:
    pods = [a_pod("b", "10.244.0.10"), a_pod("a", "10.244.0.9"), a_pod("c", "10.244.0.11", ready=False)]

    (subset,) = subsets_of(a_service(), pods)

    assert ips(subset) == ["10.244.0.9", "10.244.0.10"]
    assert ips(subset, "notReadyAddresses") == ["10.244.0.11"]
    assert subset["ports"] == [{"port": 8080, "protocol": "TCP"}]
    assert subset["addresses"][0] == {
        "ip": "10.244.0.9",
        "nodeName": "box",
        "targetRef": {"kind": "Pod", "namespace": "default", "name": "a", "uid": "uid-a"},
    }


def test_the_order_of_pods_does_not_matter() -> None:
    pods = [a_pod(str(number), f"10.244.0.{number}") for number in (3, 20, 100)]

    assert subsets_of(a_service(), pods) == subsets_of(a_service(), pods[::-1])


def test_a_service_may_publish_addresses_before_pods_are_ready_and_while_they_end() -> None:
    ending = a_pod("ending", "10.244.0.6")
    ending["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"

    (subset,) = subsets_of(a_service(publishNotReadyAddresses=True), [a_pod("starting", ready=False), ending])

    assert ips(subset) == ["10.244.0.5", "10.244.0.6"]
    assert subsets_of(a_service(), [ending]) == []


@pytest.mark.parametrize(
    "pod",
    [a_pod("none", ip=""), a_pod("done", phase="Succeeded"), a_pod("broken", phase="Failed")],
    ids=["no address", "succeeded", "failed"],
)
@pytest.mark.parametrize("early", [True, False])
def test_pods_that_cannot_answer_are_left_out(pod: dict[str, Any], early: bool) -> None:
    assert subsets_of(a_service(publishNotReadyAddresses=early), [pod]) == []


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        ({"port": 80}, 80),
        ({"port": 80, "targetPort": 90}, 90),
        ({"port": 80, "targetPort": "http"}, 8080),
        ({"port": 80, "targetPort": "other"}, None),
        ({"port": 80, "targetPort": "http", "protocol": "UDP"}, None),
    ],
)
def test_a_port_is_found_by_number_or_by_name_and_protocol(port: dict[str, Any], expected: int | None) -> None:
    assert target_port(port, a_pod("a")) == expected


def test_ports_that_lead_elsewhere_on_other_pods_get_their_own_subset() -> None:
    other = a_pod("b", "10.244.0.6")
    other["spec"]["containers"][0]["ports"][0]["containerPort"] = 9090
    ports = [{"name": "api", "port": 1, "targetPort": "http"}, {"name": "admin", "port": 2}]

    subsets = subsets_of(a_service(ports=ports), [a_pod("a"), other])

    assert [(ips(subset), [(p["name"], p["port"]) for p in subset["ports"]]) for subset in subsets] == [
        (["10.244.0.5", "10.244.0.6"], [("admin", 2)]),
        (["10.244.0.5"], [("api", 8080)]),
        (["10.244.0.6"], [("api", 9090)]),
    ]


def test_a_headless_service_needs_no_ports_and_shows_host_names() -> None:
    pod = a_pod("a", hostname="worker-0", subdomain="web")

    (subset,) = subsets_of(a_service(ports=[], clusterIP="None"), [pod])

    assert "ports" not in subset
    assert subset["addresses"][0]["hostname"] == "worker-0"
    (other,) = subsets_of(a_service("api", ports=[], clusterIP="None"), [pod])
    assert "hostname" not in other["addresses"][0]


def test_endpoints_follow_the_life_of_pods() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(SERVICES, a_service())
        await stage.until(lambda: stage.get(ENDPOINTS, "default/web"))

        await start(stage, a_pod("a"))
        await stage.until(lambda: addresses(stage) == ["10.244.0.5"])

        await stage.change(PODS, "default/a", "status", status=a_pod("a", ready=False)["status"])
        await stage.until(lambda: addresses(stage) == [])

        await stage.change(PODS, "default/a", "status", status=a_pod("a")["status"])
        await stage.until(lambda: addresses(stage) == ["10.244.0.5"])

        await stage.delete(PODS, "default/a", gracePeriodSeconds=0)
        await stage.until(lambda: addresses(stage) == [])

    play(scene)


def test_a_service_made_after_its_pods_finds_them_and_only_them() -> None:
    async def scene(stage: Stage) -> None:
        await start(stage, a_pod("a"))
        other = a_pod("b", "10.244.0.6")
        other["metadata"]["labels"] = {"app": "web", "tier": "x"}
        await start(stage, other)

        await stage.create(SERVICES, a_service("narrow", selector={"app": "web", "tier": "x"}))
        await stage.create(SERVICES, a_service())

        await stage.until(lambda: addresses(stage, "narrow") == ["10.244.0.6"])
        await stage.until(lambda: addresses(stage) == ["10.244.0.5", "10.244.0.6"])

    play(scene)


def test_changed_labels_and_selectors_move_pods_between_services() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(SERVICES, a_service())
        await stage.create(SERVICES, a_service("db", selector={"app": "db"}))
        await start(stage, a_pod("a"))
        await stage.until(lambda: addresses(stage) == ["10.244.0.5"])
        await stage.passes(1)

        await stage.change(PODS, "default/a", metadata={"labels": {"app": "db"}})
        await stage.until(lambda: (addresses(stage), addresses(stage, "db")) == ([], ["10.244.0.5"]))

        await stage.change(SERVICES, "default/web", spec={"selector": {"app": "db"}})
        await stage.until(lambda: addresses(stage) == ["10.244.0.5"])

    play(scene)


def test_endpoints_go_with_their_service_and_come_back_when_deleted() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(SERVICES, a_service())
        await start(stage, a_pod("a"))
        await stage.until(lambda: addresses(stage) == ["10.244.0.5"])

        await stage.delete(ENDPOINTS, "default/web")
        await stage.until(lambda: addresses(stage) == ["10.244.0.5"])

        await stage.delete(SERVICES, "default/web")
        await stage.until(lambda: stage.names(ENDPOINTS, "default") == [])

    play(scene)


def test_endpoints_of_services_without_selector_are_left_to_their_author() -> None:
    async def scene(stage: Stage) -> None:
        mine = [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80, "protocol": "TCP"}]}]
        await stage.create(ENDPOINTS, {"metadata": {"name": "outside"}, "subsets": mine})
        await stage.passes(10)
        await stage.create(SERVICES, {"metadata": {"name": "outside"}, "spec": {"ports": [{"port": 80}]}})

        await stage.passes(60)

        assert (stage.get(ENDPOINTS, "default/outside") or {})["subsets"] == mine
        await stage.delete(SERVICES, "default/outside")
        await stage.until(lambda: stage.names(ENDPOINTS, "default") == [])

    play(scene)


def test_a_status_that_changes_no_address_writes_nothing() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(SERVICES, a_service())
        await start(stage, a_pod("a"))
        await stage.until(lambda: addresses(stage) == ["10.244.0.5"])
        before = stage.get(ENDPOINTS, "default/web")

        await stage.change(PODS, "default/a", "status", status={**a_pod("a")["status"], "message": "busy"})
        await stage.passes(60)

        assert stage.get(ENDPOINTS, "default/web") is before

    play(scene)


def test_the_index_of_services_answers_as_a_search_would() -> None:
    index = ServiceIndex()
    index.put("default/a", {"app": "x"})
    index.put("default/b", {"app": "x", "rank": "0"})
    index.put("other/c", {"app": "x"})
    index.put("default/d", {"app": "y"})

    assert sorted(index.selecting("default", {"app": "x", "rank": "0", "more": "1"})) == ["default/a", "default/b"]
    index.put("default/a", {})
    assert list(index.selecting("default", {"app": "x"})) == []


def test_the_index_of_pods_offers_the_fewest_candidates() -> None:
    index = PodIndex()
    for number in range(10):
        index.put(f"default/p{number}", {"app": "x", "rank": str(number)}, {})

    assert index.candidates("default", {"app": "x", "rank": "3"}) == {"default/p3"}
    index.put("default/p3", {}, {"app": "x", "rank": "3"})
    assert index.candidates("default", {"app": "x", "rank": "3"}) == set()


def test_the_indexes_are_empty_when_pods_and_services_are_gone() -> None:
    pods, services = PodIndex(), ServiceIndex()
    for number in range(3):
        labels = {"job": f"job-{number}", "rank": "0"}
        pods.put(f"ns/{number}", labels, {})
        services.put(f"ns/{number}", labels)
    services.put("ns/0", {"job": "another"})

    for number in range(3):
        pods.put(f"ns/{number}", {}, {"job": f"job-{number}", "rank": "0"})
        services.put(f"ns/{number}", {})

    assert vars(pods) == vars(PodIndex())
    assert vars(services) == vars(ServiceIndex())
