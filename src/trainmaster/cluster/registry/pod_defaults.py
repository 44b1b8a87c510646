"""What the API server adds to a pod, or to the pod template of a workload, that its author left out.

All functions change a decoded object in place: it is the request's own copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.cluster.registry.quantities import parsed

_SPEC = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
}
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_MODE_VOLUMES = ("configMap", "secret", "downwardAPI", "projected")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def fill_pod(pod: dict[str, Any]) -> None:
    spec = pod.setdefault("spec", {})
    fill_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
        _fill_requests(container)


def fill_template(template: dict[str, Any]) -> None:
    template.setdefault("metadata", {})
    fill_spec(template.setdefault("spec", {}))


def fill_spec(spec: dict[str, Any]) -> None:
    for key, value in _SPEC.items():
        spec.setdefault(key, value)
    spec.setdefault("securityContext", {})
    name, alias = spec.get("serviceAccountName"), spec.get("serviceAccount")
    if name or alias:
        spec["serviceAccountName"] = spec["serviceAccount"] = name or alias
    for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
        _fill_container(container, host_network=bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes", ()):
        _fill_volume(volume)


def _fill_container(container: dict[str, Any], *, host_network: bool) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("resources", {})
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = "Always" if _is_latest(container.get("image") or "") else "IfNotPresent"
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
        if host_network and "containerPort" in port:
            port.setdefault("hostPort", port["containerPort"])
    for variable in container.get("env", ()):
        if "valueFrom" in variable and "fieldRef" in variable["valueFrom"]:
            variable["valueFrom"]["fieldRef"].setdefault("apiVersion", "v1")
    for key in _PROBES:
        if key in container:
            _fill_probe(container[key])
    for handler in (container.get("lifecycle") or {}).values():
        if isinstance(handler, dict) and "httpGet" in handler:
            _fill_http(handler["httpGet"])


def _is_latest(image: str) -> bool:
    name, at, _ = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return not at and tag in ("", "latest")


def _fill_probe(probe: dict[str, Any]) -> None:
    for key, value in _PROBE.items():
        probe[key] = probe.get(key) or value
    if "httpGet" in probe:
        _fill_http(probe["httpGet"])


def _fill_http(action: dict[str, Any]) -> None:
    action["path"] = action.get("path") or "/"
    action["scheme"] = action.get("scheme") or "HTTP"


def _fill_volume(volume: dict[str, Any]) -> None:
    if len(volume) == 1 and "name" in volume:
        volume["emptyDir"] = {}
    for key in _MODE_VOLUMES:
        if key in volume:
            volume[key].setdefault("defaultMode", 420)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    items = list((volume.get("downwardAPI") or {}).get("items", ()))
    for source in (volume.get("projected") or {}).get("sources", ()):
        items += (source.get("downwardAPI") or {}).get("items", ())
        if "serviceAccountToken" in source:
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
    for item in items:
        if "fieldRef" in item:
            item["fieldRef"].setdefault("apiVersion", "v1")


def _fill_requests(container: dict[str, Any]) -> None:
    limits = container["resources"].get("limits")
    if limits:
        container["resources"]["requests"] = {**limits, **container["resources"].get("requests", {})}


def qos_class(spec: Mapping[str, Any]) -> str:
    """Guaranteed if requests equal limits for CPU and memory everywhere, BestEffort if nothing is asked for."""
    containers = [*spec.get("containers", ()), *spec.get("initContainers", ())]
    asked = [(_compute(c, "requests"), _compute(c, "limits")) for c in containers]
    if not any(requests or limits for requests, limits in asked):
        return "BestEffort"
    if all(len(limits) == 2 and requests == limits for requests, limits in asked):
        return "Guaranteed"
    return "Burstable"


def _compute(container: Mapping[str, Any], key: str) -> dict[str, Any]:
    amounts = (container.get("resources") or {}).get(key) or {}
    found = {name: parsed(amounts[name]) for name in ("cpu", "memory") if name in amounts}
    return {name: amount for name, amount in found.items() if amount}
