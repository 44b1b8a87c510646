"""Where the name of a service leads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from trainmaster.cluster.kubelet.hosts import Hosts

POD, SERVICE = "10.244.0.2", "10.96.1.1"


def a_pod(name: str = "web-0", **spec: Any) -> dict[str, Any]:
    own = {"name": "main", "ports": [{"name": "http", "containerPort": 8080}]}
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"}}
    return {"metadata": metadata, "spec": {"containers": [own], **spec}}


def a_service(*ports: dict[str, Any], **spec: Any) -> dict[str, Any]:
    body = {"clusterIP": SERVICE, "selector": {"app": "web"}, "ports": list(ports), **spec}
    return {"metadata": {"name": "websvc", "namespace": "default", "uid": "websvc"}, "spec": body}


def led_to(directory: Path, *seen: dict[str, Any]) -> list[str]:
    """The addresses of the service's name once these pods and services have come, in that order."""

    async def main() -> str:
        hosts = Hosts(directory)
        for each in seen:
            if "containers" in each["spec"]:
                hosts.add_pod(each, POD)
            else:
                hosts.set_service(each)
        hosts.close()
        return (directory / "default").read_text()

    lines = [line.split() for line in asyncio.run(main()).splitlines()]
    return [words[0] for words in lines if "websvc.default.svc" in words and "websvc" in words]


SAME, OTHER = {"port": 8080, "targetPort": 8080}, {"port": 80, "targetPort": 8080}
UDP = {"port": 53, "targetPort": 53, "protocol": "UDP"}


@pytest.mark.parametrize(
    ("service", "address"),
    [
        (a_service(SAME), POD),
        (a_service({"port": 8080}), POD),
        (a_service({"port": 8080, "targetPort": "http"}), POD),
        (a_service({"port": 80, "targetPort": "nobody"}), POD),
        (a_service(), POD),
        (a_service(OTHER), SERVICE),
        (a_service({"port": 80, "targetPort": "http"}), SERVICE),
        (a_service(SAME, OTHER), SERVICE),
        (a_service(OTHER, clusterIP="None"), POD),
        (a_service(OTHER, UDP), POD),
    ],
    ids=[
        *("same", "default", "same-by-name", "unknown-name", "no-ports"),
        *("other", "other-by-name", "one-of-two", "headless", "with-udp"),
    ],
)
@pytest.mark.parametrize("is_first", [True, False], ids=["service-first", "pod-first"])
def test_a_name_leads_to_the_address_that_translates_if_a_port_is_another(
    tmp_path: Path, service: dict[str, Any], address: str, is_first: bool
) -> None:
    seen = (service, a_pod()) if is_first else (a_pod(), service)

    assert led_to(tmp_path, *seen) == [address]


def test_a_pod_on_the_network_of_the_machine_is_reached_directly(tmp_path: Path) -> None:
    assert led_to(tmp_path, a_service(OTHER), a_pod(hostNetwork=True)) == [POD]


def test_several_pods_share_the_address_that_translates(tmp_path: Path) -> None:
    assert led_to(tmp_path, a_pod("web-0"), a_pod("web-1"), a_service(OTHER)) == [SERVICE]


@pytest.mark.parametrize(
    "alias",
    [
        {"ip": "1.2.3.4\n6.6.6.6 api", "hostnames": ["x"]},
        {"ip": "1.2.3.4", "hostnames": ["x\n6.6.6.6 api"]},
        {"ip": "fe80::1%\n6.6.6.6", "hostnames": ["api"]},
        {"hostnames": ["api"]},
    ],
)
def test_a_stored_alias_that_is_more_than_one_line_is_left_out(tmp_path: Path, alias: dict[str, Any]) -> None:
    pod = a_pod(hostAliases=[{"ip": "9.9.9.9", "hostnames": ["good"]}, alias])

    lines = Hosts(tmp_path).file_of(pod).read_text().splitlines()

    assert lines[0] == "9.9.9.9 good"
    assert lines[1] == "127.0.0.1 localhost"
    assert not [line for line in lines if "api" in line.split()]
