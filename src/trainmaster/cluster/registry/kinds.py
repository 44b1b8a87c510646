"""The kinds this cluster serves: a fixed set of Kubernetes' own, plus what CustomResourceDefinitions add at run
time.

A `Kind` is one version of one resource, with everything the API needs to know about it; several versions share a
storage prefix. `Kinds` finds them by group, version and plural, and tells whoever asked when the set changes
(discovery, OpenAPI).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from trainmaster.cluster.registry.schema import ANY, Shape
from trainmaster.objects.resource import Resource

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where a kind keeps its number of replicas: paths as CRDs write them, such as `.spec.replicas`."""

    spec: str = ".spec.replicas"
    status: str = ".status.replicas"
    selector: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column of a CRD: what `kubectl get` shows."""

    name: str
    type: str
    json_path: str
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One served version of a resource."""

    group: str
    version: str
    plural: str
    kind: str
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    status: bool = False
    scale: ScalePaths | None = None
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = VERBS
    versions: tuple[str, ...] = ()
    storage_version: str = ""
    storage_group: str = ""
    columns: tuple[Column, ...] = ()
    schema: dict[str, Any] | None = None
    shape: Shape = field(default=ANY, repr=False)
    storage_shape: Shape = field(default=ANY, repr=False)
    custom: bool = False
    create_on_update: bool = False
    unconditional_update: bool = True
    returns_deleted: bool = False
    prefix: str = field(init=False)
    api_version: str = field(init=False)

    def __post_init__(self) -> None:
        owner = self.group if self.is_storage_version else self.storage_group
        object.__setattr__(self, "prefix", f"{owner}/{self.plural}")
        object.__setattr__(self, "api_version", f"{self.group}/{self.version}" if self.group else self.version)
        object.__setattr__(self, "singular", self.singular or self.kind.lower())

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"

    @property
    def is_storage_version(self) -> bool:
        return not self.storage_version or self.version == self.storage_version

    @property
    def resource(self) -> Resource:
        return Resource(self.group, self.version, self.plural, self.kind, self.namespaced)

    def key(self, namespace: str, name: str) -> str:
        return f"{namespace}/{name}" if self.namespaced else name


class Kinds:
    """All kinds served now. Lookup is by the three parts of a request path."""

    def __init__(self, builtin: Iterable[Kind]) -> None:
        self._builtin = {(kind.group, kind.version, kind.plural): kind for kind in builtin}
        self._by_path = dict(self._builtin)
        self._callbacks: list[Callable[[], None]] = []

    def __iter__(self) -> Iterator[Kind]:
        return iter(list(self._by_path.values()))

    def lookup(self, group: str, version: str, plural: str) -> Kind | None:
        return self._by_path.get((group, version, plural))

    def named(self, group: str, kind: str, version: str = "") -> Kind | None:
        """The kind an ownerReference or a manifest speaks of; the first served version if none is given."""
        found = (each for each in self if each.group == group and each.kind == kind)
        return next((each for each in found if not version or each.version == version), None)

    def on_change(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def replace(self, group: str, plural: str, kinds: Iterable[Kind]) -> None:
        """All served versions of one custom resource; none removes it. Kubernetes' own kinds stay as they are."""
        kept = {path: kind for path, kind in self._by_path.items() if (path[0], path[2]) != (group, plural)}
        added = {(kind.group, kind.version, kind.plural): kind for kind in kinds}
        self._by_path = kept | added | self._builtin
        for callback in self._callbacks:
            callback()
