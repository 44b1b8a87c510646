"""The environment of a container, as Kubernetes puts it together. Pure: the objects it refers to are arguments.

Order matters and is Kubernetes' own: `envFrom` first, then `env`, in which `$(VAR)` sees what came before it and the
service variables; service variables last, where nothing else has their name. `field_value` and `resource_value` serve
the downward API for volumes as well.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from trainmaster.cluster.kubelet.environment_services import service_env
from trainmaster.objects import quantity
from trainmaster.objects.meta import Json

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)(?:\)|$)")
_SUBSCRIPT = re.compile(r"^(metadata\.(?:labels|annotations))\['(.*)'\]", re.DOTALL)
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


class MissingReference(Exception):
    """A container asks for something that is not there. Kubernetes' word for its state: CreateContainerConfigError."""


class _Absent(Exception):
    """An optional reference to nothing: the variable is left out."""


def container_env(
    pod: Json,
    container: Json,
    *,
    config_maps: Mapping[str, Json],
    secrets: Mapping[str, Json],
    services: Iterable[Json],
    node: Json,
    pod_ip: str,
    host_ip: str,
) -> dict[str, str]:
    """Every variable of the manifest and of the namespace's services; MissingReference when one cannot be had.

    Config maps and secrets are those of the pod's namespace, by name. `services` may hold those of all namespaces.
    """
    from_services = service_env(pod, services)
    sources = _Sources(pod, container, {"configMap": config_maps, "secret": secrets}, node, pod_ip, host_ip)
    env: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        env.update(sources.imported(source))
    for variable in container.get("env") or ():
        try:
            if variable.get("value"):
                env[variable["name"]] = expand(str(variable["value"]), from_services | env)
            else:
                env[variable["name"]] = sources.value(variable.get("valueFrom") or {})
        except _Absent:
            continue
    return {**{name: value for name, value in from_services.items() if name not in env}, **env}


def expand(text: str, env: Mapping[str, str]) -> str:
    """`$(VAR)` replaced where VAR is known and left as it stands where not; `$$` is a plain dollar."""

    def replacement(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else env.get(name, match[0])

    # Behind the last bracket there is no reference any more; looking for its end time and again would take long.
    head, bracket, tail = text.rpartition(")")
    return _REFERENCE.sub(replacement, head + bracket) + tail.replace("$$", "$")


def field_value(pod: Json, path: str, *, pod_ip: str = "", host_ip: str = "") -> str:
    """What a downward API `fieldPath` stands for; MissingReference for a path that Kubernetes does not offer."""
    metadata, spec = pod.get("metadata", {}), pod.get("spec", {})
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript:
        return str((metadata.get(subscript[1].removeprefix("metadata.")) or {}).get(subscript[2], ""))
    match path:
        case "metadata.name" | "metadata.namespace" | "metadata.uid":
            return str(metadata.get(path.removeprefix("metadata."), ""))
        case "metadata.labels" | "metadata.annotations":
            return _lines(metadata.get(path.removeprefix("metadata.")) or {})
        case "spec.nodeName":
            return str(spec.get("nodeName") or "")
        case "spec.serviceAccountName":
            return str(spec.get("serviceAccountName") or "default")
        case "status.podIP" | "status.podIPs":
            return pod_ip
        case "status.hostIP" | "status.hostIPs":
            return host_ip
    raise MissingReference(f"unsupported fieldPath: {path}")


def resource_value(pod: Json, reference: Json, container: Json, node: Json) -> str:
    """A request or limit in units of the divisor, rounded up; a limit that is not set is all that the node has."""
    target = _container_named(pod, reference.get("containerName") or container.get("name"))
    which, _, name = str(reference.get("resource", "")).partition(".")
    if which not in ("limits", "requests") or not name:
        raise MissingReference(f"unsupported container resource : {reference.get('resource', '')}")
    amounts = (target.get("resources") or {}).get(which) or {}
    amount = quantity.parse(amounts.get(name, 0))
    if which == "limits" and not amount:
        amount = quantity.parse(((node.get("status") or {}).get("allocatable") or {}).get(name, 0))
    divisor = quantity.parse(reference.get("divisor") or 1) or Fraction(1)
    return str(-(-amount // divisor))


@dataclass(frozen=True, slots=True)
class _Sources:
    """Whatever a variable can come from. `objects` has config maps and secrets by name, under their kind."""

    pod: Json
    container: Json
    objects: Mapping[str, Mapping[str, Json]]
    node: Json
    pod_ip: str
    host_ip: str

    def imported(self, source: Json) -> Iterator[tuple[str, str]]:
        """Of an `envFrom` entry; keys that make no variable name are passed over."""
        for kind, objects in self.objects.items():
            reference = source.get(f"{kind}Ref")
            if reference is None:
                continue
            found = objects.get(reference.get("name", ""))
            if found is None and not reference.get("optional"):
                raise MissingReference(f'{kind.lower()} "{reference.get("name", "")}" not found')
            for key in sorted((found or {}).get("data") or {}):
                name = f"{source.get('prefix') or ''}{key}"
                if _VARIABLE.fullmatch(name) and name not in (".", ".."):
                    yield name, _text(found or {}, kind, key)

    def value(self, origin: Json) -> str:
        """Of a `valueFrom`."""
        for kind in self.objects:
            if (reference := origin.get(f"{kind}KeyRef")) is not None:
                return self._keyed(reference, kind)
        if (reference := origin.get("fieldRef")) is not None:
            path = str(reference.get("fieldPath", ""))
            return field_value(self.pod, path, pod_ip=self.pod_ip, host_ip=self.host_ip)
        if (reference := origin.get("resourceFieldRef")) is not None:
            return resource_value(self.pod, reference, self.container, self.node)
        return ""

    def _keyed(self, reference: Json, kind: str) -> str:
        name, key = reference.get("name", ""), reference.get("key", "")
        found = self.objects[kind].get(name)
        if found is not None and key in (found.get("data") or {}):
            return _text(found, kind, key)
        if reference.get("optional"):
            raise _Absent
        if found is None:
            raise MissingReference(f'{kind.lower()} "{name}" not found')
        namespace = self.pod.get("metadata", {}).get("namespace", "")
        raise MissingReference(f"couldn't find key {key} in {kind[0].upper()}{kind[1:]} {namespace}/{name}")


def _text(found: Json, kind: str, key: str) -> str:
    """Bytes that are no text survive in the form in which `os.environ` keeps them."""
    raw: Any = found["data"][key]
    if kind == "configMap":
        return str(raw)
    try:
        return base64.b64decode(raw or "", validate=True).decode(errors="surrogateescape")
    except (binascii.Error, ValueError) as error:
        raise MissingReference(f"key {key} of a secret is not base64: {error}") from error


def _lines(labels: Mapping[str, Any]) -> str:
    quoted = (f"{key}={_quoted(str(labels[key]))}" for key in sorted(labels))
    return "\n".join(quoted)


def _quoted(text: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(escapes.get(character, character) for character in text) + '"'


def _container_named(pod: Json, name: object) -> Json:
    spec = pod.get("spec", {})
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        if container.get("name") == name:
            return container  # type: ignore[no-any-return]  # foreign objects are mappings of anything
    raise MissingReference(f"container {name} not found")
