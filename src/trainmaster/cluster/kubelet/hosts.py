"""Names of pods and services for /etc/hosts, in place of a name server. One file serves all pods of a namespace.

The name of a service leads straight to its pods, or, where a port of it is another than the pods', to its own address,
where a relay translates (`cluster_ips`).

Files are rewritten in place, because pods have them bind-mounted. A pod that comes is appended at once, before it
starts; a rewrite for those that left happens a moment later, once for many.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainmaster.cluster.kubelet.beneath import step
from trainmaster.cluster.kubelet.cluster_ips import address_of, ports_of, unforwarded
from trainmaster.cluster.kubelet.sandbox import Neighbours
from trainmaster.objects import selector
from trainmaster.objects.meta import Json

_TIDY_SECONDS = 0.05
_LINE = re.compile(r"^[0-9A-Fa-f.:]{2,45}+( [-A-Za-z0-9._]{1,253})*", re.ASCII)
_HEAD = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"


@dataclass(slots=True)
class _Namespace:
    pods: dict[str, tuple[Json, str]] = field(default_factory=dict)  # name -> (pod, address)
    services: dict[str, Json] = field(default_factory=dict)
    labels: dict[str, Mapping[str, str]] = field(default_factory=dict)  # of every pod, also of those not started yet
    own_files: dict[str, Path] = field(default_factory=dict)  # of pods whose file differs from their neighbours'


class Hosts:
    """Call it from the event loop; `close` when the loop is about to end."""

    def __init__(self, directory: Path, known: Mapping[str, str] | None = None) -> None:
        """`known` are names with addresses beside pods and services, such as the API server's."""
        self._directory = directory
        self._known = dict(known or {})
        self._namespaces: dict[str, _Namespace] = {}
        self._tidying: dict[str, asyncio.TimerHandle] = {}
        directory.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        for timer in self._tidying.values():
            timer.cancel()
        self._tidying.clear()

    def file_of(self, pod: Json) -> Path:
        """Where the pod's names are; the file is there when this returns."""
        space, name = self._space(pod), pod["metadata"]["name"]
        if not _is_special(pod):
            return self._path(pod["metadata"]["namespace"])
        path = space.own_files.setdefault(name, self._directory / f"{step(pod['metadata']['uid'])}.pod")
        self._rewrite(path, pod["metadata"]["namespace"], _aliases(pod))
        return path

    def see_pod(self, pod: Json) -> None:
        """A pod that may never run here, but whose name others may use."""
        self._space(pod).labels[pod["metadata"]["name"]] = pod["metadata"].get("labels") or {}

    def forget_pod(self, pod: Json) -> None:
        self._space(pod).labels.pop(pod["metadata"]["name"], None)

    def add_pod(self, pod: Json, address: str) -> None:
        space, name = self._space(pod), pod["metadata"]["name"]
        space.pods[name] = (pod, address)
        if pod["metadata"]["namespace"] in self._tidying:
            self._tidying[pod["metadata"]["namespace"]].cancel()
            self._tidy(pod["metadata"]["namespace"])  # the line of a namesake that left must not come first
            return
        chosen = [service for service in space.services.values() if _selects(service, pod)]
        lines = [*_pod_lines(pod, address)]
        lines += [line for service in chosen for line in _service_lines(service, [(pod, address)])]
        self._append(pod["metadata"]["namespace"], _once(lines))

    def remove_pod(self, pod: Json) -> None:
        space, name = self._space(pod), pod["metadata"]["name"]
        held = space.pods.get(name)
        if held is None or held[0]["metadata"]["uid"] != pod["metadata"]["uid"]:
            return
        del space.pods[name]
        if path := space.own_files.pop(name, None):
            path.unlink(missing_ok=True)
        self._tidy_soon(pod["metadata"]["namespace"])

    def set_service(self, service: Json) -> None:
        namespace, name = service["metadata"]["namespace"], service["metadata"]["name"]
        space = self._space(service)
        is_new = name not in space.services
        space.services[name] = service
        if is_new:
            held = {line for pod, address in space.pods.values() for line in _pod_lines(pod, address)}
            lines = _once(_service_lines(service, space.pods.values()))
            self._append(namespace, [line for line in lines if line not in held])
        else:
            self._tidy_soon(namespace)

    def remove_service(self, service: Json) -> None:
        self._space(service).services.pop(service["metadata"]["name"], None)
        self._tidy_soon(service["metadata"]["namespace"])

    def neighbours(self, namespace: str) -> Neighbours:
        space = self._namespaces.get(namespace, _Namespace())
        owners = ((service["spec"].get("clusterIP"), service["metadata"]) for service in self.services())
        addresses = {str(ip): (meta["namespace"], meta["name"]) for ip, meta in owners if ip not in (None, "", "None")}
        return Neighbours(space.labels, space.services, addresses)

    def services(self) -> list[Json]:
        """Of all namespaces."""
        return [service for space in self._namespaces.values() for service in space.services.values()]

    def render(self, namespace: str) -> str:
        space = self._namespaces.get(namespace, _Namespace())
        lines = [f"{address} {name}" for name, address in self._known.items()]
        for pod, address in space.pods.values():
            lines += _pod_lines(pod, address)
        for service in space.services.values():
            lines += _service_lines(service, space.pods.values())
        return _HEAD + "".join(f"{line}\n" for line in _once(lines))

    def _space(self, owned: Json) -> _Namespace:
        namespace = owned["metadata"]["namespace"]
        space = self._namespaces.get(namespace)
        if space is None:
            space = self._namespaces[namespace] = _Namespace()
            _write_in_place(self._path(namespace), self.render(namespace))
        return space

    def _path(self, namespace: str) -> Path:
        return self._directory / step(namespace)

    def _append(self, namespace: str, lines: Iterable[str]) -> None:
        text = "".join(f"{line}\n" for line in lines)
        for path in (self._path(namespace), *self._namespaces[namespace].own_files.values()):
            with path.open("a") as file:
                file.write(text)

    def _tidy_soon(self, namespace: str) -> None:
        if namespace not in self._tidying:
            loop = asyncio.get_running_loop()
            self._tidying[namespace] = loop.call_later(_TIDY_SECONDS, self._tidy, namespace)

    def _tidy(self, namespace: str) -> None:
        self._tidying.pop(namespace, None)
        space = self._namespaces[namespace]
        _write_in_place(self._path(namespace), self.render(namespace))
        for name, path in space.own_files.items():
            if name in space.pods:
                self._rewrite(path, namespace, _aliases(space.pods[name][0]))

    def _rewrite(self, path: Path, namespace: str, first: Iterable[str]) -> None:
        """The pod's own lines come first: of several answers programs take the first."""
        _write_in_place(path, "".join(f"{line}\n" for line in first) + self.render(namespace))


def _once(lines: Iterable[str]) -> list[str]:
    """A pod and its Service often have one name."""
    return list(dict.fromkeys(lines))


def hostname_of(pod: Json) -> str:
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63].rstrip("-.")


def qualified(name: str, namespace: str) -> list[str]:
    """Every form in which a name is looked up inside a cluster."""
    base = f"{name}.{namespace}"
    return [name, base, f"{base}.svc", f"{base}.svc.cluster.local"]


def _is_special(pod: Json) -> bool:
    spec = pod["spec"]
    has_more = bool(spec.get("hostAliases") or spec.get("hostNetwork"))
    return has_more or hostname_of(pod) != pod["metadata"]["name"]


def _aliases(pod: Json) -> list[str]:
    """What the pod's file has before all others': on this machine's network also the machine's own names.

    An alias of an older store that would make more than its own line is left out.
    """
    entries = pod["spec"].get("hostAliases") or ()
    given = [f"{entry.get('ip')} {' '.join(entry.get('hostnames') or ())}" for entry in entries]
    given = [line for line in given if _LINE.fullmatch(line)]
    own = Path("/etc/hosts").read_text().splitlines() if pod["spec"].get("hostNetwork") else []
    return [*given, *own]


def _pod_lines(pod: Json, address: str) -> Iterator[str]:
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    yield f"{address} {' '.join(qualified(name, namespace))}"
    hostname, subdomain = hostname_of(pod), pod["spec"].get("subdomain")
    if hostname != name:
        yield f"{address} {hostname}"
    if subdomain:
        yield f"{address} {' '.join(qualified(f'{hostname}.{subdomain}', namespace))}"


def _service_lines(service: Json, pods: Iterable[tuple[Json, str]]) -> Iterator[str]:
    """In the order of the pods, which come with their addresses; those that it does not select do not matter."""
    names = " ".join(qualified(service["metadata"]["name"], service["metadata"]["namespace"]))
    for pod, address in pods:
        if _selects(service, pod):
            yield f"{address_of(service) if _is_translated(service, pod) else address} {names}"


def _is_translated(service: Json, pod: Json) -> bool:
    """Whether who asks the pod itself for a port of the service would ask in vain. What a relay does not carry at all,
    as UDP, is found by the name alone: it stays with the pods then."""
    has_relay = bool(address_of(service)) and not unforwarded(service) and not pod["spec"].get("hostNetwork")
    return has_relay and any(port != own for port, own in ports_of(service, pod))


def _selects(service: Json, pod: Json) -> bool:
    """Whether the service's name should lead to the pod."""
    wanted = service["spec"].get("selector")
    return bool(wanted) and selector.matches(wanted, pod["metadata"].get("labels") or {})


def _write_in_place(path: Path, text: str) -> None:
    data = text.encode()
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        os.pwrite(fd, data, 0)
        os.ftruncate(fd, len(data))
    finally:
        os.close(fd)
