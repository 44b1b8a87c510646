"""Admission of Services: their address, their ports, the rules between type and address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainmaster.cluster.registry.addresses import Refused
from trainmaster.cluster.registry.admission import Object, Policy, World
from trainmaster.cluster.registry.kinds_builtin import BUILTIN
from trainmaster.cluster.registry.pod_check import PORT_RANGE, PROTOCOLS, port_name_problems
from trainmaster.cluster.registry.status_error import Cause, duplicate, invalid, invalid_value, required, unsupported
from trainmaster.cluster.registry.validation import (
    check_labels,
    dns_1035_problems,
    ip_problems,
    label_problems,
    subdomain_problems,
)

_SERVICES = next(kind for kind in BUILTIN if kind.prefix == "/services")
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


def fill_service(service: Object) -> None:
    spec = service.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["sessionAffinity"] == "ClientIP":
        spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {}).setdefault("timeoutSeconds", 10800)
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)
    if spec["type"] in ("NodePort", "LoadBalancer"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    service.setdefault("status", {"loadBalancer": {}})


def admit_service(service: Object, world: World) -> None:
    service["status"] = {"loadBalancer": {}}


def take_addresses(service: Object, world: World) -> None:
    spec, name = service["spec"], service["metadata"].get("name") or ""
    if spec["type"] != "ExternalName":
        wanted = spec.get("clusterIP") or next(iter(spec.get("clusterIPs") or ()), "")
        if wanted != "None":
            try:
                wanted = world.addresses.take_ip(wanted)
            except Refused as refusal:
                shown = f'Invalid value: []string{{"{wanted}"}}: failed to allocated ip:{wanted} with error:{refusal}'
                raise invalid(_SERVICES, name, [Cause("FieldValueInvalid", "spec.clusterIPs", shown)]) from None
        spec["clusterIP"], spec["clusterIPs"] = wanted, [wanted]
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        _take_ports(spec, name, world)


def _take_ports(spec: Object, name: str, world: World) -> None:
    for index, port in enumerate(spec.get("ports", ())):
        try:
            port["nodePort"] = world.addresses.take_port(port.get("nodePort") or 0)
        except Refused as refusal:
            cause = invalid_value(f"spec.ports[{index}].nodePort", port.get("nodePort"), str(refusal))
            raise invalid(_SERVICES, name, [cause]) from None


def update_service(service: Object, old: Mapping[str, Any], world: World) -> None:
    """Keeps the address a client left out; takes or gives back one when the type changes."""
    spec, before = service["spec"], old.get("spec") or {}
    if spec["type"] == "ExternalName":
        for key in ("clusterIP", "clusterIPs"):
            spec.pop(key, None)
        return
    if before.get("type") == "ExternalName":
        take_addresses(service, world)
        return
    if not spec.get("clusterIP"):
        for key in ("clusterIP", "clusterIPs"):
            if key in before:
                spec[key] = before[key]
    for key in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if key in before:
            spec.setdefault(key, before[key])
    if spec["type"] in ("NodePort", "LoadBalancer"):
        _keep_ports(service, before, world)


def _keep_ports(service: Object, before: Mapping[str, Any], world: World) -> None:
    held = {(port.get("port"), port.get("protocol")): port.get("nodePort") for port in before.get("ports", ())}
    for port in service["spec"].get("ports", ()):
        kept = held.get((port.get("port"), port.get("protocol")))
        wanted = port.get("nodePort") or kept or 0
        if wanted and wanted in held.values():
            port["nodePort"] = wanted
        else:
            _take_ports({"ports": [port]}, service["metadata"]["name"], world)


def release_service(service: Mapping[str, Any], world: World) -> None:
    world.addresses.release(service)


def check_service(service: Mapping[str, Any]) -> list[Cause]:
    spec = service["spec"]
    causes = list(_ports(spec.get("ports") or [], "spec.ports"))
    is_headless = spec.get("clusterIP") == "None"
    if not spec.get("ports") and spec["type"] != "ExternalName" and not is_headless:
        causes.append(required("spec.ports"))
    causes += check_labels(spec.get("selector"), "spec.selector")
    causes += _same_ports(spec.get("ports") or [])
    if spec["sessionAffinity"] not in ("ClientIP", "None"):
        causes.append(unsupported("spec.sessionAffinity", spec["sessionAffinity"], ("ClientIP", "None")))
    address = spec.get("clusterIP") or ""
    if address not in ("", "None"):
        causes += [invalid_value("spec.clusterIPs[0]", address, problem) for problem in ip_problems(address)]
    if spec["type"] not in _TYPES:
        causes.append(unsupported("spec.type", spec["type"], _TYPES))
    if is_headless and spec["type"] in ("NodePort", "LoadBalancer"):
        causes.append(
            invalid_value("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {spec['type']} services")
        )
    if spec["type"] == "ExternalName":
        causes += _external_name(spec)
    return causes


def _external_name(spec: Mapping[str, Any]) -> Iterator[Cause]:
    name = (spec.get("externalName") or "").removesuffix(".")
    if not name:
        yield required("spec.externalName")
    else:
        yield from (invalid_value("spec.externalName", name, problem) for problem in subdomain_problems(name))


def _ports(ports: list[Mapping[str, Any]], path: str) -> Iterator[Cause]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        at, name = f"{path}[{index}]", port.get("name") or ""
        if not name and len(ports) > 1:
            yield required(f"{at}.name")
        elif name:
            yield from (invalid_value(f"{at}.name", name, problem) for problem in label_problems(name))
            if name in names:
                yield duplicate(f"{at}.name", name)
            names.add(name)
        yield from _port_numbers(port, at)


def _same_ports(ports: list[Mapping[str, Any]]) -> Iterator[Cause]:
    taken: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        identity = (port.get("port"), port.get("protocol"))
        if identity in taken:
            yield duplicate(f"spec.ports[{index}]", {"protocol": identity[1], "port": identity[0]})
        taken.add(identity)


def _port_numbers(port: Mapping[str, Any], at: str) -> Iterator[Cause]:
    if not 1 <= (number := port.get("port") or 0) <= 65535:
        yield invalid_value(f"{at}.port", number, PORT_RANGE)
    if port["protocol"] not in PROTOCOLS:
        yield unsupported(f"{at}.protocol", port["protocol"], PROTOCOLS)
    target = port.get("targetPort", 0)
    if isinstance(target, int):
        if not 1 <= target <= 65535:
            yield invalid_value(f"{at}.targetPort", target, PORT_RANGE)
    else:
        yield from (invalid_value(f"{at}.targetPort", target, problem) for problem in port_name_problems(target))


def check_service_update(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    causes: list[Cause] = []
    before, after = old["spec"].get("clusterIP") or "", new["spec"].get("clusterIP") or ""
    is_kept = "ExternalName" not in (new["spec"]["type"], old["spec"]["type"])
    if is_kept and before and before != after:
        causes.append(invalid_value("spec.clusterIPs[0]", [after], "may not change once set"))
    return causes


POLICY = Policy(
    defaults=fill_service,
    create=admit_service,
    reserve=take_addresses,
    update=update_service,
    check=check_service,
    check_update=check_service_update,
    undo=release_service,
    name_rule=dns_1035_problems,
)
