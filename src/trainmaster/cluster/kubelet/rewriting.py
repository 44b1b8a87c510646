"""Addresses and paths in a container's environment and arguments, rewritten for a machine where pods share one network.

Where every pod is 127.0.0.1, a peer is known by its port alone. Four forms are understood: `name:port` anywhere in a
text (also `name.namespace.svc…:port`, and `localhost:port` for the pod's own ports), pairs of variables such as
MASTER_ADDR and MASTER_PORT (of a port alone: one that the pod has declared), pairs in JSON such as the "url" and "port"
of MX_CONFIG, and a variable that is nothing but a name. The cluster address of a service is as good as its name. Paths
of volumes are replaced by the directories behind them. Pure but for the port table it is given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

HERE = "127.0.0.1"

_PAIRS = ("ADDRESS", "ADDR", "HOST", "URI", "IP")
_JSON_PAIRS = ("address", "addr", "host", "ip", "url")
_OWN = ("localhost", "127.0.0.1", "0.0.0.0", "[::]", "[::1]")
_ENDPOINT = re.compile(
    r"(?P<host>\[::1?\]|(?<![\w.-])[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?):(?P<port>\d{1,5})(?![\w.:])"
)
_LABEL = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Rewriter:
    """For one container. `port_of(namespace, name, port)` is the port that stands for a port of a pod or service."""

    namespace: str
    pod: str
    known: Collection[str]  # pods and services of the namespace
    own_ports: Collection[int]
    port_of: Callable[[str, str, int], int]
    addresses: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # cluster address -> (namespace, service)

    def env(self, env: Mapping[str, str]) -> dict[str, str]:
        """Pairs first: the port of an address is lost once the address has been rewritten."""
        paired = {**dict(self._lone_ports(env)), **dict(self._pairs(env))}
        return {name: paired.get(name) or self._value(name, value) for name, value in env.items()}

    def text(self, text: str) -> str:
        return _ENDPOINT.sub(self._endpoint, text)

    def _value(self, variable: str, value: str) -> str:
        """The pod's own name is who it is, unless the variable says that it is an address."""
        if value in self.addresses:
            return HERE
        if value == self.pod and variable.rpartition("_")[2] not in _PAIRS:
            return value
        name = self._cluster_name(value)
        if name and name[1] in (*self.known, self.pod):
            return HERE
        return self.text(self._json(value) if value.startswith(("{", "[")) and '"port"' in value else value)

    def _json(self, value: str) -> str:
        """The text as it is where it is no JSON, or has no pair of an address and its port."""
        try:
            parsed = json.loads(value)
            found = [each for each in _objects(parsed) if self._rewrite_pair(each)]
        except (ValueError, RecursionError):
            return value
        return json.dumps(parsed, separators=(",", ":")) if found else value

    def _rewrite_pair(self, members: dict[str, Any]) -> bool:
        port = members.get("port")
        for name in _JSON_PAIRS:
            if isinstance(members.get(name), str) and type(port) is int:
                target = self._target(members[name], port) or self._bare(members[name])
                if target is not None:
                    members.update({name: HERE, "port": self.port_of(*target, port)})
                    return True
        return False

    def _pairs(self, env: Mapping[str, str]) -> Iterable[tuple[str, str]]:
        for name, value in env.items():
            stem, _, kind = name.rpartition("_")
            port = env.get(f"{stem}_PORT", "")
            if kind not in _PAIRS or not stem or not port.isdigit():
                continue
            target = self._target(value, int(port)) or self._bare(value)
            if target is not None:
                yield name, HERE
                yield f"{stem}_PORT", str(self.port_of(*target, int(port)))

    def _lone_ports(self, env: Mapping[str, str]) -> Iterable[tuple[str, str]]:
        """Of no address, and one of the pod's own: where it is to listen."""
        for name, value in env.items():
            stem, _, kind = name.rpartition("_")
            is_own = kind == "PORT" and value.isdigit() and int(value) in self.own_ports
            if is_own and not any(other.startswith(f"{stem}_{of}") for other in env for of in _PAIRS):
                yield name, str(self.port_of(self.namespace, self.pod, int(value)))

    def _bare(self, value: str) -> tuple[str, str] | None:
        """In a pair, a name without dots can only be one of the cluster's, even if it is not there yet."""
        is_name = _LABEL.fullmatch(value) and value not in _OWN
        return (self.namespace, value) if is_name else None

    def _endpoint(self, match: re.Match[str]) -> str:
        port = int(match["port"])
        target = self._target(match["host"], port)
        return match[0] if target is None else f"{HERE}:{self.port_of(*target, port)}"

    def _target(self, host: str, port: int) -> tuple[str, str] | None:
        if host in _OWN:
            return (self.namespace, self.pod) if port in self.own_ports else None
        if host in self.addresses:
            return self.addresses[host]
        name = self._cluster_name(host)
        if name is None or ("." not in host and name[1] not in self.known):
            return None
        return name

    def _cluster_name(self, host: str) -> tuple[str, str] | None:
        """(namespace, name) of `name`, `name.namespace.svc` and the like; None for names of the world outside."""
        first, *rest = host.split(".")
        if not _LABEL.fullmatch(first):
            return None
        match rest:
            case []:
                return self.namespace, first
            case [namespace] if namespace == self.namespace and first in self.known:
                return namespace, first
            case [namespace, "svc"] | [namespace, "svc", "cluster", "local"]:
                return namespace, first
            case [_, namespace, "svc"] | [_, namespace, "svc", "cluster", "local"]:
                return namespace, first  # a pod below its subdomain
        return None


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in inner:
        yield from _objects(each)


def replace_paths(text: str, paths: Mapping[str, str]) -> str:
    """Every path that lies at or below one of the keys, longest key first."""
    if not paths:
        return text
    ordered = sorted(paths, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w./-])({'|'.join(re.escape(path) for path in ordered)})(?![\w.-])")
    return pattern.sub(lambda match: paths[match[1]], text)
