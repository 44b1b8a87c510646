"""What the server serves, said in the two ways clients ask: the old lists per group, and all at once (aggregated v2).

Documents are made from the registry's kinds and kept until a CustomResourceDefinition changes them.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trainmaster.cluster.registry.kinds import Kind, Kinds

READ_WRITE = ("get", "patch", "update")


@dataclass(frozen=True, slots=True)
class Subresource:
    """What lies under an object: its kind (the parent's if empty) and what may be done with it."""

    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""


SUBRESOURCES = {
    "status": Subresource("", READ_WRITE),
    "scale": Subresource("Scale", READ_WRITE, "autoscaling", "v1"),
    "finalize": Subresource("", ("update",)),
    "binding": Subresource("Binding", ("create",)),
    "eviction": Subresource("Eviction", ("create",), "policy", "v1"),
    "log": Subresource("", ("get",)),
    "exec": Subresource("PodExecOptions", ("create", "get")),
    "attach": Subresource("PodAttachOptions", ("create", "get")),
    "portforward": Subresource("PodPortForwardOptions", ("create", "get")),
    "token": Subresource("TokenRequest", ("create",), "authentication.k8s.io", "v1"),
}


def subresources_of(kind: Kind) -> list[str]:
    """Names of the subresources that are served, in alphabetical order as the real server lists them."""
    served = {name for name in kind.subresources if name in SUBRESOURCES}
    if kind.status:
        served.add("status")
    if kind.scale is not None:
        served.add("scale")
    return sorted(served)


class Discovery:
    """The discovery documents of the kinds served now."""

    def __init__(self, kinds: Kinds, extra: Iterable[Kind] = ()) -> None:
        self._kinds = kinds
        self._extra = tuple(extra)
        self._made: dict[str, Any] = {}
        kinds.on_change(self._made.clear)

    def groups(self) -> dict[str, dict[str, list[Kind]]]:
        """Group, then version (the preferred one first), then the kinds by plural."""
        if "groups" not in self._made:
            found: dict[str, dict[str, list[Kind]]] = {}
            for kind in (*self._kinds, *self._extra):
                found.setdefault(kind.group, {}).setdefault(kind.version, []).append(kind)
            self._made["groups"] = {group: _ordered(versions) for group, versions in found.items()}
        made: dict[str, dict[str, list[Kind]]] = self._made["groups"]
        return made

    def versions(self) -> dict[str, Any]:
        """/api"""
        address = {"clientCIDR": "0.0.0.0/0", "serverAddress": ""}
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [address]}

    def group_list(self) -> dict[str, Any]:
        """/apis"""
        named = [_group(name, versions) for name, versions in self.groups().items() if name]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}

    def group(self, name: str) -> dict[str, Any] | None:
        """/apis/GROUP"""
        versions = self.groups().get(name) if name else None
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if versions else None

    def resource_list(self, group: str, version: str) -> dict[str, Any] | None:
        """/api/v1 and /apis/GROUP/VERSION"""
        kinds = self.groups().get(group, {}).get(version)
        if not kinds:
            return None
        resources = [resource for kind in kinds for resource in _resources(kind)]
        head = {"kind": "APIResourceList", **({"apiVersion": "v1"} if group else {})}
        return {**head, "groupVersion": kinds[0].api_version, "resources": resources}

    def aggregated(self, *, core: bool, version: str) -> dict[str, Any]:
        """/api or /apis with everything inside, as `version` of apidiscovery.k8s.io."""
        items = [
            {"metadata": {"name": name, "creationTimestamp": None} if name else {"creationTimestamp": None},
             "versions": [_aggregated_version(v, kinds) for v, kinds in versions.items()]}
            for name, versions in self.groups().items()
            if core is (name == "")
        ]  # fmt: skip
        head = {"kind": "APIGroupDiscoveryList", "apiVersion": f"apidiscovery.k8s.io/{version}", "metadata": {}}
        return {**head, "items": items}

    def paths(self) -> list[str]:
        """What / lists: every path that answers by itself."""
        paths = ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz"]
        for group, versions in self.groups().items():
            if group:
                paths += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in versions)]
        return sorted([*paths, "/version"])


_VERSION = re.compile(r"^v(\d+)(?:(alpha|beta)(\d+))?$")


def version_order(version: str) -> tuple[int, int, int, int, str]:
    """Sorts versions as Kubernetes prefers them: v2, v1, v2beta1, v1beta1, v1alpha1, then anything else by name."""
    match = _VERSION.match(version)
    if match is None:
        return (1, 0, 0, 0, version)
    major, stage, minor = match.groups()
    return (0, {None: 0, "beta": 1, "alpha": 2}[stage], -int(major), -int(minor or 0), "")


def _ordered(versions: dict[str, list[Kind]]) -> dict[str, list[Kind]]:
    names = sorted(versions, key=version_order)
    return {name: sorted(versions[name], key=lambda kind: kind.plural) for name in names}


def _group(name: str, versions: dict[str, list[Kind]]) -> dict[str, Any]:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resources(kind: Kind) -> list[dict[str, Any]]:
    main: dict[str, Any] = {"name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced}
    main |= {"kind": kind.kind, "verbs": list(kind.verbs)}
    if kind.short_names:
        main["shortNames"] = list(kind.short_names)
    if kind.categories:
        main["categories"] = list(kind.categories)
    if "list" in kind.verbs:
        main["storageVersionHash"] = _storage_hash(kind)
    return [main, *(_subresource(kind, name) for name in subresources_of(kind))]


def _subresource(kind: Kind, name: str) -> dict[str, Any]:
    part = SUBRESOURCES[name]
    made: dict[str, Any] = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
    if part.group:
        made |= {"group": part.group, "version": part.version}
    return {**made, "kind": part.kind or kind.kind, "verbs": list(part.verbs)}


def _storage_hash(kind: Kind) -> str:
    stored = f"{kind.group}/{kind.storage_version or kind.version}/{kind.kind}"
    return base64.b64encode(hashlib.sha256(stored.encode()).digest()[:8]).decode()


def _aggregated_version(version: str, kinds: list[Kind]) -> dict[str, Any]:
    return {"version": version, "freshness": "Current", "resources": [_aggregated_resource(kind) for kind in kinds]}


def _aggregated_resource(kind: Kind) -> dict[str, Any]:
    made: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        made["shortNames"] = list(kind.short_names)
    if kind.categories:
        made["categories"] = list(kind.categories)
    if names := subresources_of(kind):
        made["subresources"] = [_aggregated_subresource(kind, name) for name in names]
    return made


def _aggregated_subresource(kind: Kind, name: str) -> dict[str, Any]:
    part = SUBRESOURCES[name]
    group, version = (part.group, part.version) if part.group else (kind.group, kind.version)
    response = {"group": group, "version": version, "kind": part.kind or kind.kind}
    return {"subresource": name, "responseKind": response, "verbs": list(part.verbs)}
