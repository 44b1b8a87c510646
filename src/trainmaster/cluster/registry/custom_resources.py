"""CustomResourceDefinitions: from the object a user applies to the kinds it brings, at once.

A real cluster accepts names and establishes the kind in the background; here both happen within the write, so that
the next request finds the kind. Conversion between versions is `None`: objects only change their apiVersion.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainmaster.cluster.registry import definitions, schema_check, structural
from trainmaster.cluster.registry.admission import Object, Policy, World
from trainmaster.cluster.registry.definitions import Validator
from trainmaster.cluster.registry.kinds import Column, Kind, ScalePaths
from trainmaster.cluster.registry.schema import Shape, shape_of_structural
from trainmaster.cluster.registry.schema_values import fill, prune
from trainmaster.cluster.registry.status_error import Cause, invalid_value, required, unsupported
from trainmaster.cluster.registry.validation import dns_1035_problems, subdomain_problems
from trainmaster.objects import timestamp

PREFIX = "apiextensions.k8s.io/customresourcedefinitions"
_APPROVAL = "api-approved.kubernetes.io"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


def fill_definition(crd: Object) -> None:
    spec = crd.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind") or ""
    if kind:
        names.setdefault("singular", kind.lower())
        names.setdefault("listKind", f"{kind}List")
    spec.setdefault("conversion", {}).setdefault("strategy", "None")


def admit_definition(crd: Object, world: World) -> None:
    crd["metadata"].setdefault("finalizers", []).append(CLEANUP)
    crd["status"] = _established(crd, [], world)


def readmit_definition(crd: Object, old: Mapping[str, Any], world: World) -> None:
    crd["status"] = _established(crd, (old.get("status") or {}).get("storedVersions") or [], world)
    for condition in (old.get("status") or {}).get("conditions") or ():
        crd["status"]["conditions"] = [
            condition if condition["type"] == new["type"] else new for new in crd["status"]["conditions"]
        ]


def _established(crd: Mapping[str, Any], stored: list[str], world: World) -> Object:
    now = timestamp.render(world.now())
    storage = [version["name"] for version in crd["spec"].get("versions") or () if version.get("storage")]

    def condition(kind: str, reason: str, message: str) -> Object:
        return {"type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}

    return {
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": dict(crd["spec"].get("names") or {}),
        "storedVersions": [*stored, *(name for name in storage if name not in stored)],
    }


def check_definition(crd: Mapping[str, Any]) -> list[Cause]:
    spec = crd["spec"]
    names = spec.get("names") or {}
    causes: list[Cause] = []
    wanted = f"{names.get('plural') or ''}.{spec.get('group') or ''}"
    name = crd["metadata"].get("name") or ""
    if name != wanted:
        causes.append(invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    causes += [*_check_names(spec, names), *_check_approval(crd)]
    versions = spec.get("versions") or []
    if not versions:
        causes.append(required("spec.versions"))
    elif sum(bool(version.get("storage")) for version in versions) != 1:
        causes.append(
            invalid_value("spec.versions", versions, "must have exactly one version marked as storage version")
        )
    for index, version in enumerate(versions):
        causes += _check_version(version, f"spec.versions[{index}]")
    return causes


def _check_names(spec: Mapping[str, Any], names: Mapping[str, Any]) -> Iterator[Cause]:
    group = spec.get("group") or ""
    if not group:
        yield required("spec.group")
    elif "." not in group:
        yield invalid_value("spec.group", group, "should be a domain with at least one dot")
    else:
        yield from (invalid_value("spec.group", group, problem) for problem in subdomain_problems(group))
    if (scope := spec.get("scope") or "") not in ("Cluster", "Namespaced"):
        known = ("Cluster", "Namespaced")
        yield unsupported("spec.scope", scope, known) if scope else required("spec.scope")
    for key in ("plural", "singular", "kind", "listKind"):
        value = names.get(key) or ""
        if not value:
            yield required(f"spec.names.{key}")
        else:
            problems = dns_1035_problems(value.lower() if key in ("kind", "listKind") else value)
            yield from (invalid_value(f"spec.names.{key}", value, problem) for problem in problems)


def _check_version(version: Mapping[str, Any], path: str) -> Iterator[Cause]:
    name = version.get("name") or ""
    if not name:
        yield required(f"{path}.name")
    else:
        yield from (invalid_value(f"{path}.name", name, problem) for problem in dns_1035_problems(name))
    yield from structural.check_columns(
        version.get("additionalPrinterColumns") or [], f"{path}.additionalPrinterColumns"
    )
    scale = (version.get("subresources") or {}).get("scale")
    yield from structural.check_scale(scale, f"{path}.subresources.scale")
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if schema is None:
        yield required(f"{path}.schema.openAPIV3Schema", "schemas are required")
    else:
        yield from structural.check_root(schema, f"{path}.schema.openAPIV3Schema")


def _check_approval(crd: Mapping[str, Any]) -> Iterator[Cause]:
    """Kubernetes keeps its own domains for itself; a community's, such as x-k8s.io, are free."""
    group = crd["spec"].get("group") or ""
    is_kept = any(group == own or group.endswith(f".{own}") for own in ("k8s.io", "kubernetes.io"))
    if is_kept and not (crd["metadata"].get("annotations") or {}).get(_APPROVAL):
        see = "see https://github.com/kubernetes/enhancements/pull/1111"
        detail = f'protected groups must have approval annotation "{_APPROVAL}", {see}'
        yield required(f"metadata.annotations[{_APPROVAL}]", detail)


DEFINITION_POLICY = Policy(
    fill_definition, admit_definition, update=readmit_definition, check=check_definition, has_generation=True
)


def kinds_of(crd: Mapping[str, Any]) -> list[Kind]:
    """Every served version of a definition."""
    spec = crd["spec"]
    storage_version = next(version for version in spec["versions"] if version.get("storage"))
    shape = _shape_of(storage_version)
    served = [version for version in spec["versions"] if version.get("served")]
    names = [version["name"] for version in served]
    return [_kind_of(spec, version, storage_version["name"], shape, names) for version in served]


def _schema_of(version: Mapping[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return schema


def _shape_of(version: Mapping[str, Any]) -> Shape:
    return shape_of_structural(_schema_of(version), definitions.metadata_shape())


def _kind_of(
    spec: Mapping[str, Any], version: Mapping[str, Any], storage: str, storage_shape: Shape, served: list[str]
) -> Kind:
    names = spec["names"]
    subresources = version.get("subresources") or {}
    return Kind(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        singular=names.get("singular") or "",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        namespaced=spec["scope"] == "Namespaced",
        status="status" in subresources,
        scale=_scale_of(subresources.get("scale")),
        versions=tuple(name for name in served if name != version["name"]),
        storage_version=storage,
        storage_group=spec["group"],
        columns=tuple(_column_of(column) for column in version.get("additionalPrinterColumns") or ()),
        schema=_schema_of(version),
        shape=storage_shape if version["name"] == storage else _shape_of(version),
        storage_shape=storage_shape,
        custom=True,
        unconditional_update=False,
    )


def _scale_of(scale: Mapping[str, str] | None) -> ScalePaths | None:
    if scale is None:
        return None
    return ScalePaths(scale["specReplicasPath"], scale["statusReplicasPath"], scale.get("labelSelectorPath") or "")


def _column_of(column: Mapping[str, Any]) -> Column:
    return Column(
        column["name"],
        column["type"],
        column["jsonPath"],
        column.get("format") or "",
        column.get("description") or "",
        column.get("priority") or 0,
    )


class CustomRules:
    """Pruning, defaulting and checking of one version's objects. The validator is compiled at first use: 4 ms."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._validator: Validator | None = None
        self._is_compiled = False

    @property
    def policy(self) -> Policy:
        return Policy(defaults=self._shape, create=self._admit, check=self._check, has_generation=True)

    def _is_clean(self, obj: Mapping[str, Any]) -> bool:
        if not self._is_compiled:
            self._is_compiled = True
            self._validator = schema_check.compiled(self._kind.schema or {})
        return self._validator is not None and self._validator.is_valid(obj)

    def _shape(self, obj: Object) -> None:
        if not self._is_clean(obj):
            prune(self._kind.shape, obj)
        fill(self._kind.shape, obj)

    def _admit(self, obj: Object, world: World) -> None:
        if self._kind.status:
            obj.pop("status", None)

    def _check(self, obj: Mapping[str, Any]) -> list[Cause]:
        if self._is_clean(obj):
            return []
        fields = {key: value for key, value in obj.items() if key != "metadata"}
        schema = self._kind.schema or {}
        known = {key: value for key, value in (schema.get("properties") or {}).items() if key in fields}
        needed = [key for key in schema.get("required") or () if key not in ("apiVersion", "kind", "metadata")]
        return list(schema_check.complaints({**schema, "properties": known, "required": needed}, fields))
