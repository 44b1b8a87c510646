"""Endpoints of Services with a selector: which pods answer, at which address and port, and which will once ready.

`subsets_of` is pure and follows kube-controller-manager: a pod counts while it has an address and has not ended; it is
a ready address when its Ready condition says so, or when the Service publishes addresses before that. Ports named in
the Service are looked up in each pod.

Every pod change would ask all Services of its namespace, and every Service all pods: with a Service per replica, a
square. Two indexes avoid it: Services by the keys and values they select, pods by each of their labels.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

from trainmaster.cluster.controllers.control import Loop, Objects, Registry, is_terminating
from trainmaster.cluster.storage.store import Change
from trainmaster.objects import selector

Json: TypeAlias = Mapping[str, Any]

HEADLESS = "service.kubernetes.io/headless"
MANAGED_BY = {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}
"""Tells ours from those that people make for Services without selector."""

_PODS, _SERVICES, _ENDPOINTS = "/pods", "/services", "/endpoints"


def selector_of(service: Json) -> dict[str, str]:
    """Empty for Services whose endpoints are somebody else's business."""
    spec = service.get("spec") or {}
    return {} if spec.get("type") == "ExternalName" else dict(spec.get("selector") or {})


def subsets_of(service: Json, pods: Iterable[Json]) -> list[dict[str, Any]]:
    """Ports that lead to the same addresses share a subset; order does not depend on the order of pods."""
    early = bool(service["spec"].get("publishNotReadyAddresses"))
    found: dict[tuple[Any, ...] | None, dict[str, tuple[bool, dict[str, Any]]]] = {}
    for pod in pods:
        if not _counts(pod, early):
            continue
        address = (early or _is_ready(pod), _address_of(pod, service))
        for port in _ports_for(service, pod):
            found.setdefault(port, {})[pod["metadata"]["uid"]] = address
    shared: dict[tuple[tuple[str, bool], ...], list[tuple[Any, ...] | None]] = {}
    for port, addresses in found.items():
        identity = tuple(sorted((uid, ready) for uid, (ready, _) in addresses.items()))
        shared.setdefault(identity, []).append(port)
    subsets = [_subset(ports, found[ports[0]].values()) for ports in shared.values()]
    return sorted(subsets, key=lambda subset: str(subset.get("ports")))


def _subset(ports: list[tuple[Any, ...] | None], addresses: Iterable[tuple[bool, dict[str, Any]]]) -> dict[str, Any]:
    subset: dict[str, Any] = {}
    for name, wanted in (("addresses", True), ("notReadyAddresses", False)):
        chosen = [address for ready, address in addresses if ready is wanted]
        if chosen:
            subset[name] = sorted(chosen, key=lambda address: (_numeric(address["ip"]), address["targetRef"]["uid"]))
    known = sorted((port for port in ports if port is not None), key=str)
    if known:
        subset["ports"] = [dict(port) for port in known]
    return subset


def _numeric(address: str) -> tuple[int, int]:
    parsed = ipaddress.ip_address(address)
    return parsed.version, int(parsed)


def _counts(pod: Json, early: bool) -> bool:
    status = pod.get("status") or {}
    if not status.get("podIP") or status.get("phase") in ("Succeeded", "Failed"):
        return False
    return early or not is_terminating(pod)


def _is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _address_of(pod: Json, service: Json) -> dict[str, Any]:
    metadata, spec = pod["metadata"], pod["spec"]
    address: dict[str, Any] = {"ip": pod["status"]["podIP"]}
    if spec.get("hostname") and spec.get("subdomain") == service["metadata"]["name"]:
        address["hostname"] = spec["hostname"]
    if spec.get("nodeName"):
        address["nodeName"] = spec["nodeName"]
    address["targetRef"] = {
        "kind": "Pod",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    return address


def _ports_for(service: Json, pod: Json) -> Iterator[tuple[Any, ...] | None]:
    """As hashable pairs. A headless Service needs no ports: None stands for its one subset without any."""
    spec = service["spec"]
    if not spec.get("ports") and spec.get("clusterIP") == "None":
        yield None
    for port in spec.get("ports") or ():
        number = target_port(port, pod)
        if number is not None:
            name = (("name", port["name"]),) if port.get("name") else ()
            protocol = ("protocol", port.get("protocol") or "TCP")
            app = (("appProtocol", port["appProtocol"]),) if port.get("appProtocol") else ()
            yield (*name, ("port", number), protocol, *app)


def target_port(port: Json, pod: Json) -> int | None:
    """The container port a Service port leads to; None if the pod has no port of that name and protocol."""
    target = port.get("targetPort", port["port"])
    if isinstance(target, int):
        return target
    for container in pod["spec"].get("containers") or ():
        for each in container.get("ports") or ():
            same_protocol = (each.get("protocol") or "TCP") == (port.get("protocol") or "TCP")
            if each.get("name") == target and same_protocol:
                return int(each["containerPort"])
    return None


K = TypeVar("K", bound=Hashable)


class PodIndex:
    """Pods by label, within a namespace."""

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str, str], set[str]] = {}

    def put(self, key: str, labels: Mapping[str, str], before: Mapping[str, str]) -> None:
        namespace = key.partition("/")[0]
        for name, value in before.items() - labels.items():
            _take_out(self._by_label, (namespace, name, value), key)
        for name, value in labels.items() - before.items():
            self._by_label.setdefault((namespace, name, value), set()).add(key)

    def candidates(self, namespace: str, wanted: Mapping[str, str]) -> set[str]:
        """The pods with the rarest of these labels; the others are for the caller to check."""
        held = [self._by_label.get((namespace, name, value), set()) for name, value in wanted.items()]
        return min(held, key=len, default=set())


class ServiceIndex:
    """Services by what they select: a pod's labels are looked up once per distinct set of selected keys."""

    def __init__(self) -> None:
        self._selectors: dict[str, dict[str, str]] = {}
        self._by_values: dict[tuple[str, tuple[str, ...]], dict[tuple[str, ...], set[str]]] = {}
        self._names: dict[str, set[tuple[str, ...]]] = {}

    def put(self, key: str, wanted: dict[str, str]) -> None:
        namespace = key.partition("/")[0]
        before = self._selectors.pop(key, {})
        if before:
            self._forget(namespace, before, key)
        if wanted:
            names = tuple(sorted(wanted))
            self._selectors[key] = wanted
            self._names.setdefault(namespace, set()).add(names)
            self._by_values.setdefault((namespace, names), {}).setdefault(_values(names, wanted), set()).add(key)

    def _forget(self, namespace: str, wanted: Mapping[str, str], key: str) -> None:
        names = tuple(sorted(wanted))
        services = self._by_values[namespace, names]
        _take_out(services, _values(names, wanted), key)
        if services:
            return
        del self._by_values[namespace, names]
        self._names[namespace].discard(names)
        if not self._names[namespace]:
            del self._names[namespace]

    def selecting(self, namespace: str, labels: Mapping[str, str]) -> Iterator[str]:
        for names in self._names.get(namespace, ()):
            if all(name in labels for name in names):
                yield from self._by_values[namespace, names].get(_values(names, labels), ())


def _take_out(index: dict[K, set[str]], place: K, key: str) -> None:
    """Nothing is left where nothing is: jobs come and go, each with labels of its own."""
    if (held := index.get(place)) is not None:
        held.discard(key)
        if not held:
            del index[place]


def _values(names: tuple[str, ...], labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels[name] for name in names)


class EndpointsKeeper:
    def __init__(self, registry: Registry) -> None:
        self._pods = Objects.of(registry, "", "v1", "pods")
        self._services = Objects.of(registry, "", "v1", "services")
        self._endpoints = Objects.of(registry, "", "v1", "endpoints")
        self._pod_index = PodIndex()
        self._service_index = ServiceIndex()
        self._orphans: set[str] = set()
        sources = {_PODS: self._pod_changed, _SERVICES: self._service_changed, _ENDPOINTS: self._endpoints_changed}
        self._loop: Loop[str] = Loop("endpoints", registry.store, sources, self._reconcile)

    async def run(self) -> None:
        await self._loop.run()

    def _pod_changed(self, change: Change) -> Iterator[str]:
        pod, before = change.entry.value, change.previous.value if change.previous else None
        gone = change.type == "DELETED"
        labels, old_labels = _labels(pod), _labels(before) if before else {}
        self._pod_index.put(change.entry.key, {} if gone else labels, old_labels)
        if before is not None and not gone and _fingerprint(pod) == _fingerprint(before):
            return
        namespace = pod["metadata"]["namespace"]
        yield from self._service_index.selecting(namespace, labels)
        if old_labels != labels:
            yield from self._service_index.selecting(namespace, old_labels)

    def _service_changed(self, change: Change) -> Iterator[str]:
        gone = change.type == "DELETED"
        if gone:
            self._orphans.add(change.entry.key)
        self._service_index.put(change.entry.key, {} if gone else selector_of(change.entry.value))
        yield change.entry.key

    def _endpoints_changed(self, change: Change) -> Iterator[str]:
        """Repaired when changed by hand, and removed when their Service went while nobody was looking."""
        yield change.entry.key

    async def _reconcile(self, key: str) -> None:
        service = self._services.get(key)
        current = self._endpoints.get(key)
        if service is None:
            if current is not None and (key in self._orphans or selector.matches(MANAGED_BY, _labels(current))):
                await self._endpoints.delete(current)
            self._orphans.discard(key)
            return
        wanted = selector_of(service)
        if not wanted or is_terminating(service):
            return
        desired = self._desired(service, wanted)
        if current is None:
            await self._endpoints.create(desired)
        elif _differs(current, desired):
            await self._endpoints.update(
                {**current, "subsets": desired["subsets"], "metadata": {**current["metadata"], **_wanted(desired)}}
            )

    def _desired(self, service: Json, wanted: dict[str, str]) -> dict[str, Any]:
        metadata = service["metadata"]
        candidates = (self._pods.get(key) for key in self._pod_index.candidates(metadata["namespace"], wanted))
        pods = [pod for pod in candidates if pod is not None and selector.matches(wanted, _labels(pod))]
        labels = {**_labels(service), **MANAGED_BY}
        if service["spec"].get("clusterIP") == "None":
            labels[HEADLESS] = ""
        return {
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "labels": labels},
            "subsets": subsets_of(service, pods),
        }


def _labels(obj: Json) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


def _wanted(endpoints: Json) -> dict[str, Any]:
    return {"labels": endpoints["metadata"]["labels"]}


def _differs(current: Json, desired: Json) -> bool:
    return (current.get("subsets") or []) != desired["subsets"] or _labels(current) != _labels(desired)


def _fingerprint(pod: Json) -> tuple[Any, ...]:
    """What of a pod shows in Endpoints; most status writes change none of it."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    return (
        _labels(pod),
        status.get("podIP"),
        status.get("phase") in ("Succeeded", "Failed"),
        _is_ready(pod),
        is_terminating(pod),
        spec.get("nodeName"),
    )
