"""Changes to pods and pod templates. Every function returns a new mapping and leaves its argument as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trainmaster.objects.meta import Json

EnvValue = str | int | Json
"""Text, a number, or the mapping under `valueFrom` for the downward API."""


def containers_of(template: Json) -> list[Json]:
    """The regular containers of a pod or template, as far as they are mappings."""
    spec = template.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    return [c for c in containers if isinstance(c, dict)] if isinstance(containers, list) else []


def container_named(template: Json, names: tuple[str, ...]) -> Json | None:
    """The first container that bears one of these names; the first of all where no name is asked for."""
    return next((c for c in containers_of(template) if not names or c.get("name") in names), None)


def ports_of(container: Json) -> list[Json]:
    ports = container.get("ports")
    return [p for p in ports if isinstance(p, dict)] if isinstance(ports, list) else []


def port_named(container: Json | None, name: str) -> int | None:
    for port in ports_of(container or {}):
        number = port.get("containerPort")
        if port.get("name") == name and isinstance(number, int):
            return number
    return None


def with_spec(pod: Json, **changes: Any) -> dict[str, Any]:
    return {**pod, "spec": {**pod.get("spec", {}), **changes}}


def with_metadata(
    pod: Json, *, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Labels and annotations laid over those the pod has."""
    metadata = dict(pod.get("metadata", {}))
    if labels:
        metadata["labels"] = {**metadata.get("labels", {}), **labels}
    if annotations:
        metadata["annotations"] = {**metadata.get("annotations", {}), **annotations}
    return {**pod, "metadata": metadata}


def with_containers(pod: Json, change: Callable[[Json], Json]) -> dict[str, Any]:
    """Every regular container changed."""
    return with_spec(pod, containers=[change(c) for c in containers_of(pod)])


def with_container(pod: Json, change: Callable[[Json], Json], names: tuple[str, ...] = ()) -> dict[str, Any]:
    """The first container that bears one of these names changed, or the first of all."""
    target = container_named(pod, names)
    return with_spec(pod, containers=[change(c) if c is target else c for c in containers_of(pod)])


def with_volume(pod: Json, volume: Json, mount: Json, names: tuple[str, ...] = ()) -> dict[str, Any]:
    """A volume appended to the pod's own, and its mount to the training container's."""
    mount = {"name": volume["name"], **mount}
    pod = with_spec(pod, volumes=[*(pod.get("spec", {}).get("volumes") or []), volume])
    return with_container(pod, lambda c: {**c, "volumeMounts": [*(c.get("volumeMounts") or []), mount]}, names)


def with_init_containers(pod: Json, added: Iterable[Json]) -> dict[str, Any]:
    """Init containers appended after the user's own."""
    added = list(added)
    if not added:
        return dict(pod)
    return with_spec(pod, initContainers=[*(pod.get("spec", {}).get("initContainers") or []), *added])


def with_env(container: Json, env: Mapping[str, EnvValue]) -> dict[str, Any]:
    """Variables appended after the container's own, so that for equal names these win."""
    if not env:
        return dict(container)
    added = [
        {"name": name, "valueFrom": dict(value)} if isinstance(value, Mapping) else {"name": name, "value": str(value)}
        for name, value in env.items()
    ]
    return {**container, "env": [*(container.get("env") or []), *added]}


def with_port(template: Json, names: tuple[str, ...], port_name: str, number: int) -> dict[str, Any]:
    """A named port added to the container of that name, or to the first one, unless it has a port so named."""
    containers = containers_of(template)
    target = container_named(template, names) or (containers[0] if containers else None)
    if target is None or any(port.get("name") == port_name for port in ports_of(target)):
        return dict(template)
    added = {**target, "ports": [*ports_of(target), {"name": port_name, "containerPort": number}]}
    return with_spec(template, containers=[added if c is target else c for c in containers])
