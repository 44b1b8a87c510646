"""Variables that tell a container where the services are, in the form of Docker's old links."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainmaster.objects.meta import Json


def service_env(pod: Json, services: Iterable[Json]) -> dict[str, str]:
    """Those of the API server always, those of the pod's namespace unless `enableServiceLinks` is off."""
    env: dict[str, str] = {}
    for service in _visible(pod, services):
        env.update(_variables(service))
    return env


def _visible(pod: Json, services: Iterable[Json]) -> list[Json]:
    """By name; a service of the pod's own namespace hides the API server's of the same name."""
    namespace = pod.get("metadata", {}).get("namespace", "")
    has_links = pod.get("spec", {}).get("enableServiceLinks", True) is not False
    found: dict[str, Json] = {}
    for service in services:
        metadata = service.get("metadata", {})
        name, home = metadata.get("name", ""), metadata.get("namespace", "")
        if service.get("spec", {}).get("clusterIP") in (None, "", "None"):
            continue
        if has_links and home == namespace:
            found[name] = service
        elif (home, name) == ("default", "kubernetes"):
            found.setdefault(name, service)
    return [found[name] for name in sorted(found)]


def _variables(service: Json) -> Iterator[tuple[str, str]]:
    name = _variable(service["metadata"]["name"])
    address, ports = service["spec"]["clusterIP"], service["spec"].get("ports") or []
    if not ports:
        return
    yield f"{name}_SERVICE_HOST", address
    yield f"{name}_SERVICE_PORT", str(ports[0]["port"])
    for port in ports:
        if port.get("name"):
            yield f"{name}_SERVICE_PORT_{_variable(port['name'])}", str(port["port"])
    for index, port in enumerate(ports):
        protocol = port.get("protocol") or "TCP"
        prefix = f"{name}_PORT_{port['port']}_{protocol.upper()}"
        host = f"[{address}]" if ":" in address else address
        url = f"{protocol.lower()}://{host}:{port['port']}"
        if index == 0:
            yield f"{name}_PORT", url
        yield prefix, url
        yield f"{prefix}_PROTO", protocol.lower()
        yield f"{prefix}_PORT", str(port["port"])
        yield f"{prefix}_ADDR", address


def _variable(name: str) -> str:
    return name.upper().replace("-", "_")
