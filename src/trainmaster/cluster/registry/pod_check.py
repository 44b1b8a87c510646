"""Whether a pod's spec makes sense: names, references, ports, quantities. Complaints are Kubernetes' own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from trainmaster.cluster.registry import status_error as error
from trainmaster.cluster.registry.pod_check_placement import check_placement
from trainmaster.cluster.registry.pod_check_volumes import check_mounts, check_name, check_volumes
from trainmaster.cluster.registry.quantities import parsed
from trainmaster.cluster.registry.status_error import Cause, invalid_value, required, unsupported
from trainmaster.cluster.registry.validation import (
    check_annotations,
    check_labels,
    ip_problems,
    label_key_problems,
    label_problems,
    subdomain_problems,
)

_ENV_FORM = "[-._a-zA-Z][-._a-zA-Z0-9]*"
_ENV = re.compile(_ENV_FORM, re.ASCII)
_PORT_NAME = re.compile("[-a-z0-9]+")
_LETTER = re.compile("[a-z]")
_BAD_ENV = (
    "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not "
    "start with a digit (e.g. 'my.env-name',  or 'MY_ENV.NAME',  or 'MyEnvName1', regex used for validation is "
    f"'{_ENV_FORM}')"
)
PORT_RANGE = "must be between 1 and 65535, inclusive"
PROTOCOLS = ("SCTP", "TCP", "UDP")
_STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})
_VALUE_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef")
_ENV_FIELDS = (
    *("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"),
    *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
)
_OTHER_FIELDS = (
    *("metadata.labels", "metadata.annotations", "spec.restartPolicy", "spec.schedulerName", "status.phase"),
)
"""Known of a pod, but not to its environment."""

_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_WHEN_UNKNOWN = "must be a standard resource type or fully qualified"


def check_pod(pod: Mapping[str, Any]) -> list[Cause]:
    return list(_spec(pod.get("spec") or {}, "spec"))


def check_template(template: Mapping[str, Any], path: str, claims: Iterable[str] = ()) -> list[Cause]:
    """`claims` are volumes that its owner adds to every pod; they may stand for those of the template."""
    metadata = template.get("metadata") or {}
    causes = check_labels(metadata.get("labels"), f"{path}.metadata.labels")
    causes += check_annotations(metadata.get("annotations"), f"{path}.metadata.annotations")
    return [*causes, *_spec(template.get("spec") or {}, f"{path}.spec", claims)]


def _spec(spec: Mapping[str, Any], path: str, claims: Iterable[str] = ()) -> Iterator[Cause]:
    volumes = spec.get("volumes") or []
    yield from check_volumes(volumes, f"{path}.volumes")
    names = frozenset((*(volume.get("name") for volume in volumes), *claims))
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    seen: set[str] = set()
    for key in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(key) or ()):
            yield from _container(container, f"{path}.{key}[{index}]", names, seen)
    if (policy := spec.get("restartPolicy")) not in ("Always", "OnFailure", "Never"):
        yield unsupported(f"{path}.restartPolicy", policy, ("Always", "OnFailure", "Never"))
    if (policy := spec.get("dnsPolicy")) not in _DNS_POLICIES:
        yield unsupported(f"{path}.dnsPolicy", policy, _DNS_POLICIES)
    yield from _scalars(spec, path)
    yield from check_placement(spec, path)


def _scalars(spec: Mapping[str, Any], path: str) -> Iterator[Cause]:
    yield from check_labels(spec.get("nodeSelector"), f"{path}.nodeSelector")
    for key in ("serviceAccountName", "nodeName"):
        if spec.get(key):
            yield from (invalid_value(f"{path}.{key}", spec[key], text) for text in subdomain_problems(spec[key]))
    for key in ("hostname", "subdomain"):
        if spec.get(key):
            yield from (invalid_value(f"{path}.{key}", spec[key], text) for text in label_problems(spec[key]))
    yield from _host_aliases(spec.get("hostAliases") or [], f"{path}.hostAliases")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        detail = "must be between 1 and 2147483647, inclusive"
        yield invalid_value(f"{path}.activeDeadlineSeconds", deadline, detail)
    if (grace := spec.get("terminationGracePeriodSeconds")) is not None and grace < 0:
        yield invalid_value(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0")


def _host_aliases(aliases: list[Mapping[str, Any]], path: str) -> Iterator[Cause]:
    """They become lines of /etc/hosts, in which a name that holds a newline would be a line of its own."""
    for index, alias in enumerate(aliases):
        at, ip = f"{path}[{index}]", alias.get("ip") or ""
        yield from (invalid_value(f"{at}.ip", ip, problem) for problem in ip_problems(ip))
        for number, name in enumerate(alias.get("hostnames") or ()):
            problems = subdomain_problems(name)
            yield from (invalid_value(f"{at}.hostnames[{number}]", name, problem) for problem in problems)


def _container(container: Mapping[str, Any], at: str, volumes: frozenset[Any], seen: set[str]) -> Iterator[Cause]:
    yield from check_name(container.get("name") or "", at, seen)
    image = container.get("image") or ""
    if not image:
        yield required(f"{at}.image")
    elif image != image.strip():
        yield invalid_value(f"{at}.image", image, "must not have leading or trailing whitespace")
    yield from _ports(container.get("ports") or [], f"{at}.ports")
    yield from _env(container.get("env") or [], f"{at}.env")
    yield from check_mounts(container.get("volumeMounts") or [], f"{at}.volumeMounts", volumes)
    yield from _probes(container, at)
    if (policy := container.get("terminationMessagePolicy")) not in ("File", "FallbackToLogsOnError"):
        detail = "must be 'File' or 'FallbackToLogsOnError'"
        yield invalid_value(f"{at}.terminationMessagePolicy", policy, detail)
    if (policy := container.get("imagePullPolicy")) not in ("Always", "IfNotPresent", "Never"):
        yield unsupported(f"{at}.imagePullPolicy", policy, ("Always", "IfNotPresent", "Never"))
    yield from check_resources(container.get("resources") or {}, f"{at}.resources")


def _ports(ports: list[Mapping[str, Any]], path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        at, name, number = f"{path}[{index}]", port.get("name") or "", port.get("containerPort") or 0
        if name:
            problems = port_name_problems(name)
            yield from (invalid_value(f"{at}.name", name, problem) for problem in problems)
            if not problems and name in seen:
                yield error.duplicate(f"{at}.name", name)
            seen.add(name)
        if not number:
            yield required(f"{at}.containerPort")
        elif not 1 <= number <= 65535:
            yield invalid_value(f"{at}.containerPort", number, PORT_RANGE)
        if (host := port.get("hostPort") or 0) and not 1 <= host <= 65535:
            yield invalid_value(f"{at}.hostPort", host, PORT_RANGE)
        if (protocol := port.get("protocol")) not in PROTOCOLS:
            yield unsupported(f"{at}.protocol", protocol, PROTOCOLS) if protocol else required(f"{at}.protocol")


def port_name_problems(name: str) -> list[str]:
    problems = ["must be no more than 15 characters"] if len(name) > 15 else []
    if not _PORT_NAME.fullmatch(name):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not _LETTER.search(name):
        problems.append("must contain at least one letter or number (a-z, 0-9)")
    if "--" in name:
        problems.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        problems.append("must not begin or end with a hyphen")
    return problems


def _env(env: list[Mapping[str, Any]], path: str) -> Iterator[Cause]:
    for index, variable in enumerate(env):
        name = variable.get("name") or ""
        if not name:
            yield required(f"{path}[{index}].name")
        elif not _ENV.fullmatch(name):
            yield invalid_value(f"{path}[{index}].name", name, _BAD_ENV)
        if "valueFrom" in variable:
            yield from _value_from(variable, f"{path}[{index}].valueFrom")


def _value_from(variable: Mapping[str, Any], at: str) -> Iterator[Cause]:
    sources = [key for key in _VALUE_SOURCES if key in (variable["valueFrom"] or {})]
    if not sources:
        yield invalid_value(at, "", f"must specify one of: {_listed(_VALUE_SOURCES)}")
    elif variable.get("value"):
        yield invalid_value(at, "", "may not be specified when `value` is not empty")
    elif len(sources) > 1:
        yield invalid_value(at, "", "may not have more than one field specified at a time")
    for source in sources:
        reference = variable["valueFrom"][source]
        needed = {"fieldRef": ("fieldPath",), "resourceFieldRef": ("resource",)}.get(source, ("name", "key"))
        yield from (required(f"{at}.{source}.{key}") for key in needed if not reference.get(key))
        if source == "fieldRef" and reference.get("fieldPath"):
            yield from _field_path(reference["fieldPath"], f"{at}.fieldRef.fieldPath")


def _field_path(path: str, at: str) -> Iterator[Cause]:
    base, bracket, _ = path.partition("['")
    if bracket and base in ("metadata.labels", "metadata.annotations"):
        return
    if path not in (*_ENV_FIELDS, *_OTHER_FIELDS):
        detail = f"error converting fieldPath: field label not supported: {path}"
        yield invalid_value(at, path, detail)
    elif path in _OTHER_FIELDS:
        yield unsupported(at, path, _ENV_FIELDS)


def _listed(names: tuple[str, ...]) -> str:
    quoted = [f"`{name}`" for name in names]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def _probes(container: Mapping[str, Any], at: str) -> Iterator[Cause]:
    for key in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(key)
        if probe is None:
            continue
        yield from _handler(probe, f"{at}.{key}")
        for number in (
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ):
            if (value := probe.get(number) or 0) < 0:
                yield invalid_value(f"{at}.{key}.{number}", value, "must be greater than or equal to 0")
        if key != "readinessProbe" and probe.get("successThreshold", 1) != 1:
            yield invalid_value(f"{at}.{key}.successThreshold", probe["successThreshold"], "must be 1")


def _handler(probe: Mapping[str, Any], at: str) -> Iterator[Cause]:
    handlers = [name for name in ("exec", "httpGet", "tcpSocket", "grpc") if probe.get(name) is not None]
    if not handlers:
        yield required(at, "must specify a handler type")
    yield from (
        error.forbidden_field(f"{at}.{extra}", "may not specify more than 1 handler type") for extra in handlers[1:]
    )
    for name in ("httpGet", "tcpSocket", "grpc"):
        if name not in handlers[:1]:
            continue
        port = probe[name].get("port")
        if isinstance(port, str):
            yield from (invalid_value(f"{at}.{name}.port", port, problem) for problem in port_name_problems(port))
        elif not 1 <= (port or 0) <= 65535:
            yield invalid_value(f"{at}.{name}.port", port or 0, PORT_RANGE)


def check_resources(resources: Mapping[str, Any], path: str) -> Iterator[Cause]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, amount in limits.items():
        yield from _amount(name, amount, f"{path}.limits[{name}]")
    for name, amount in requests.items():
        yield from _amount(name, amount, f"{path}.requests[{name}]")
        if name not in limits:
            continue
        asked, most = parsed(amount), parsed(limits[name])
        if _is_extended(name) and asked != most:
            yield invalid_value(f"{path}.requests", amount, f"must be equal to {name} limit")
        elif asked > most:
            yield invalid_value(f"{path}.requests", amount, f"must be less than or equal to {name} limit")
    yield from (
        required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        for name in requests
        if _is_extended(name) and name not in limits
    )


def _amount(name: str, amount: str, at: str) -> Iterator[Cause]:
    yield from (invalid_value(at, name, problem) for problem in _resource_name_problems(name))
    value = parsed(amount)
    if value < 0:
        yield invalid_value(at, amount, "must be greater than or equal to 0")
    if _is_extended(name) and value.denominator != 1:
        yield invalid_value(at, amount, "must be an integer")


def _is_extended(name: str) -> bool:
    return "/" in name and not name.partition("/")[0].endswith("kubernetes.io")


@lru_cache(maxsize=256)
def _resource_name_problems(name: str) -> tuple[str, ...]:
    if name in _STANDARD or name.startswith("hugepages-"):
        return ()
    problems = label_key_problems(name)
    if not problems and "/" not in name:
        problems = [_WHEN_UNKNOWN, "must be a standard resource for containers"]
    return tuple(problems)
