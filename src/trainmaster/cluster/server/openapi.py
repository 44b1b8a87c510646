"""What the objects look like, for `kubectl explain`, `apply`, `diff` and client-side validation: OpenAPI v2 and v3.

Kubernetes' own types come from `definitions`; those of custom resources from their CRDs' schemas, so both documents are
made anew when a CRD changes. Paths tell what kubectl looks for in them: which verbs there are and that `dryRun` is
understood. They do not mention `fieldValidation`, so kubectl checks manifests itself, against these very types.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import msgspec

from trainmaster.cluster.registry import definitions
from trainmaster.cluster.registry.kinds import Kind, Kinds
from trainmaster.cluster.server import openapi_proto
from trainmaster.cluster.server.discovery import Discovery

_V2 = "#/definitions/"
_V3 = "#/components/schemas/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_REFERENCE = re.compile(re.escape(_V2) + r"([\w.-]+)")
_MEDIA = ["application/json", "application/yaml"]
_PATCHES = [f"application/{kind}" for kind in ("json-patch+json", "merge-patch+json", "apply-patch+yaml")]
_DROPPED_IN_V2 = frozenset({"nullable", "anyOf", "oneOf", "allOf", "not", "example", "externalDocs", "title", "id"})
_VERBS_OF_ONE = {"get": "get", "put": "update", "patch": "patch", "delete": "delete"}
Schema = dict[str, Any]


class OpenApi:
    """The documents for the kinds served now, encoded once and kept until the kinds change."""

    def __init__(self, kinds: Kinds, discovery: Discovery, version: str) -> None:
        self._discovery = discovery
        self._info = {"title": "Kubernetes", "version": version}
        self._made: dict[str, tuple[bytes, str]] = {}
        kinds.on_change(self._made.clear)

    def v2(self) -> tuple[bytes, str]:
        """JSON bytes and their hash."""
        return self._once("v2", lambda: msgspec.json.encode(self._swagger()))

    def v2_proto(self) -> tuple[bytes, str]:
        return self._once("v2.pb", lambda: openapi_proto.document(self._swagger()))

    def v3_index(self) -> tuple[bytes, str]:
        """Where each group's document is, with its hash in the address so that clients may keep it for ever."""
        return self._once("v3", lambda: msgspec.json.encode({"paths": self._v3_paths()}))

    def v3(self, group: str, version: str) -> tuple[bytes, str] | None:
        """The document of one group and version."""
        kinds = self._discovery.groups().get(group, {}).get(version)
        if not kinds:
            return None
        return self._once(f"v3 {group}/{version}", lambda: msgspec.json.encode(self._v3_document(kinds)))

    def _once(self, name: str, make: Callable[[], bytes]) -> tuple[bytes, str]:
        made = self._made.get(name)
        if made is None:
            body = make()
            made = self._made[name] = (body, hashlib.sha256(body).hexdigest()[:32].upper())
        return made

    def _kinds(self) -> list[Kind]:
        groups = self._discovery.groups().values()
        return [kind for versions in groups for kinds in versions.values() for kind in kinds]

    def _swagger(self) -> dict[str, Any]:
        kinds = self._kinds()
        types: dict[str, Schema] = dict(definitions.load())
        for kind in kinds:
            if kind.custom:
                types |= _custom_types(kind, _for_v2)
        paths = {path: item for kind in kinds for path, item in _paths(kind, _swagger_operation)}
        return {"swagger": "2.0", "info": self._info, "paths": paths, "definitions": types}

    def _v3_paths(self) -> dict[str, Any]:
        paths = {}
        for group, versions in self._discovery.groups().items():
            for version in versions:
                path = f"apis/{group}/{version}" if group else f"api/{version}"
                document = self.v3(group, version)
                mark = document[1] if document else ""
                paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={mark}"}
        return paths

    def _v3_document(self, kinds: list[Kind]) -> dict[str, Any]:
        types: dict[str, Schema] = {}
        for kind in kinds:
            if kind.custom:
                types |= _custom_types(kind, dict)
        roots = [name for kind in kinds if not kind.custom for name in _type_names(kind)]
        types |= _reached([*roots, *_references(types), f"{_META}.Status", f"{_META}.DeleteOptions"])
        paths = {path: item for kind in kinds for path, item in _paths(kind, _v3_operation)}
        schemas = {name: _for_v3(name, schema) for name, schema in types.items()}
        return {"openapi": "3.0.0", "info": self._info, "paths": paths, "components": {"schemas": schemas}}


def type_name(kind: Kind) -> str:
    """`io.k8s.api.core.v1.Pod`, or `org.kubeflow.v1.PyTorchJob` for a custom resource."""
    if kind.custom:
        return f"{'.'.join(reversed(kind.group.split('.')))}.{kind.version}.{kind.kind}"
    return _names()[kind.group, kind.version, kind.kind]


@cache
def _names() -> dict[tuple[str, str, str], str]:
    return {
        (mark["group"], mark["version"], mark["kind"]): name
        for name, schema in definitions.load().items()
        for mark in schema.get("x-kubernetes-group-version-kind") or ()
    }


def _type_names(kind: Kind) -> list[str]:
    name = type_name(kind)
    return [each for each in (name, f"{name}List") if each in definitions.load()]


def _references(types: Mapping[str, Schema]) -> set[str]:
    return set(_REFERENCE.findall(msgspec.json.encode(types).decode()))


def _reached(roots: list[str]) -> dict[str, Schema]:
    """These types and all they mention."""
    known = definitions.load()
    found: dict[str, Schema] = {}
    pending = list(roots)
    while pending:
        name = pending.pop()
        if name in known and name not in found:
            found[name] = known[name]
            pending += _REFERENCE.findall(msgspec.json.encode(known[name]).decode())
    return found


def _custom_types(kind: Kind, adapt: Callable[[Schema], Schema]) -> dict[str, Schema]:
    """The type of a custom resource and of a list of them."""
    name = type_name(kind)
    identity = [{"group": kind.group, "kind": kind.kind, "version": kind.version}]
    listed = [{**identity[0], "kind": kind.list_kind}]
    item = adapt(kind.schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    fields = dict(item.get("properties") or {})
    fields |= {**_type_meta(), "metadata": {"$ref": f"{_V2}{_META}.ObjectMeta", "description": "Standard metadata."}}
    items = {"type": "array", "items": {"$ref": _V2 + name}, "description": f"The {kind.plural}."}
    list_fields = {**_type_meta(), "metadata": {"$ref": f"{_V2}{_META}.ListMeta"}, "items": items}
    return {
        name: {**item, "type": "object", "properties": fields, "x-kubernetes-group-version-kind": identity},
        f"{name}List": {
            "type": "object",
            "required": ["items"],
            "properties": list_fields,
            "x-kubernetes-group-version-kind": listed,
        },
    }


def _type_meta() -> dict[str, Schema]:
    version = "Group and version of the schema this object follows."
    return {
        "apiVersion": {"type": "string", "description": version},
        "kind": {"type": "string", "description": "Name of the type of this object."},
    }


def _for_v2(schema: Schema) -> Schema:
    """A CRD's schema in the words swagger has. What it cannot say, such as `nullable`, becomes "anything goes"."""
    kept = {key: value for key, value in schema.items() if key not in _DROPPED_IN_V2}
    if schema.get("nullable") or schema.get("x-kubernetes-preserve-unknown-fields"):
        return {key: value for key, value in kept.items() if key == "description" or key.startswith("x-")}
    if schema.get("x-kubernetes-int-or-string"):
        kept.pop("type", None)
    if "properties" in kept:
        kept["properties"] = {name: _for_v2(each) for name, each in kept["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = _for_v2(kept[key])
    return kept


def _for_v3(name: str, schema: Schema) -> Schema:
    if name == _INT_OR_STRING:
        return {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}
    if name == _QUANTITY:
        return {"description": schema["description"], "oneOf": [{"type": "string"}, {"type": "number"}]}
    return _v3_node(schema)


def _v3_node(schema: Schema) -> Schema:
    """References of v3. It ignores what stands beside one, so the reference steps aside into `allOf`."""
    made = dict(schema)
    if "$ref" in made:
        target = {"$ref": made.pop("$ref").replace(_V2, _V3)}
        return {**made, "allOf": [target]} if made else target
    if isinstance(made.get("properties"), dict):
        made["properties"] = {name: _v3_node(each) for name, each in made["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = _v3_node(made[key])
    return made


def _paths(kind: Kind, operation: Callable[..., dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """The collection and the single object, with the verbs that each takes."""
    found = []
    for path, verbs in (
        (kind.resource.path("{namespace}"), {"get": "list", "post": "create", "delete": "deletecollection"}),
        (kind.resource.path("{namespace}", "{name}"), _VERBS_OF_ONE),
    ):
        item = {method: operation(kind, verb) for method, verb in verbs.items() if verb in kind.verbs}
        if item:
            found.append((path, item))
    return found


def _parameters(kind: Kind, verb: str) -> list[dict[str, str]]:
    """Name, place and type of what may stand in the address."""
    names = {"namespace": "path"} if kind.namespaced else {}
    if verb in ("get", "update", "patch", "delete"):
        names["name"] = "path"
    if verb in ("list", "deletecollection"):
        names |= dict.fromkeys(("labelSelector", "fieldSelector", "limit", "continue", "resourceVersion"), "query")
    if verb == "list":
        names |= dict.fromkeys(("watch", "timeoutSeconds", "allowWatchBookmarks"), "query")
    if verb not in ("get", "list"):
        names |= dict.fromkeys(("dryRun", "fieldManager"), "query")
    if verb == "patch":
        names["force"] = "query"
    types = {"limit": "integer", "timeoutSeconds": "integer", "watch": "boolean", "allowWatchBookmarks": "boolean"}
    return [
        {"name": n, "in": place, "type": {**types, "force": "boolean"}.get(n, "string")} for n, place in names.items()
    ]


def _swagger_operation(kind: Kind, verb: str) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [{**p, "required": p["in"] == "path"} for p in _parameters(kind, verb)]
    if verb in ("create", "update", "patch"):
        parameters.append({"name": "body", "in": "body", "required": True, "schema": _body(kind, verb, _V2)})
    answer = {"description": "OK", "schema": _answer(kind, verb, _V2)}
    media = {"produces": _MEDIA, "consumes": _patches(kind) if verb == "patch" else ["*/*"]}
    return {**_about(kind, verb), **media, "parameters": parameters, "responses": {"200": answer}}


def _v3_operation(kind: Kind, verb: str) -> dict[str, Any]:
    parameters = [
        {"name": p["name"], "in": p["in"], "required": p["in"] == "path", "schema": {"type": p["type"]}}
        for p in _parameters(kind, verb)
    ]
    media = {form: {"schema": _answer(kind, verb, _V3)} for form in _MEDIA}
    made = {**_about(kind, verb), "parameters": parameters}
    if verb in ("create", "update", "patch"):
        forms = _patches(kind) if verb == "patch" else ["*/*"]
        body = {form: {"schema": _body(kind, verb, _V3)} for form in forms}
        made["requestBody"] = {"required": True, "content": body}
    return {**made, "responses": {"200": {"description": "OK", "content": media}}}


def _patches(kind: Kind) -> list[str]:
    return _PATCHES if kind.custom else [*_PATCHES, "application/strategic-merge-patch+json"]


def _about(kind: Kind, verb: str) -> dict[str, Any]:
    identity = {"group": kind.group, "kind": kind.kind, "version": kind.version}
    group = "".join(part.capitalize() for part in kind.group.split(".")) or "Core"
    scope = "Namespaced" if kind.namespaced else ""
    identifier = f"{verb}{group}{kind.version.capitalize()}{scope}{kind.kind}"
    action = {"create": "post", "update": "put"}.get(verb, verb)
    return {"operationId": identifier, "x-kubernetes-action": action, "x-kubernetes-group-version-kind": identity}


def _body(kind: Kind, verb: str, root: str) -> Schema:
    return {"type": "object"} if verb == "patch" else {"$ref": root + type_name(kind)}


def _answer(kind: Kind, verb: str, root: str) -> Schema:
    if verb in ("delete", "deletecollection"):
        return {"$ref": f"{root}{_META}.Status"}
    return {"$ref": f"{root}{type_name(kind)}{'List' if verb == 'list' else ''}"}
