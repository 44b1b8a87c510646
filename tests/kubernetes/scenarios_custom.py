"""Custom kinds: definitions good and bad, schemas, defaults, pruning, several versions, and our PyTorchJob."""

from __future__ import annotations

import time
from typing import Any

from tests.kubernetes.exchange import Api
from tests.kubernetes.scenario import Scenarios, post_each
from tests.kubernetes.specimens import DEFINITIONS, JOBS, JSON_PATCH, MERGE, TABLE, a_definition, a_job, changed

SCENARIOS = Scenarios()
OBJECT: dict[str, Any] = {"type": "object"}
WIDGETS = "/apis/test.example/v1/namespaces/{ns}/widgets"
SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 9},
        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5, "minLength": 2},
        "ratio": {"type": "number", "exclusiveMaximum": True, "maximum": 1},
        "port": {"x-kubernetes-int-or-string": True},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2, "x-kubernetes-list-type": "set"},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["id"],
            "items": {
                "type": "object",
                "required": ["id"],
                "properties": {"id": {"type": "string"}, "n": {"type": "integer", "default": 5}},
            },
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "maybe": {"type": "string", "nullable": True},
        "nested": {"type": "object", "default": {}, "properties": {"deep": {"type": "string", "default": "d"}}},
        "when": {"type": "string", "format": "date-time"},
        "one": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    },
}  # fmt: skip
STATUS = {"type": "object", "properties": {"n": {"type": "integer"}, "selector": {"type": "string"}}}
SCHEMA = {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}
COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]
SUBRESOURCES = {
    "status": {},
    "scale": {
        "specReplicasPath": ".spec.size",
        "statusReplicasPath": ".status.n",
        "labelSelectorPath": ".status.selector",
    },
}


def a_widget(name: str = "w", **spec: Any) -> dict[str, Any]:
    body = {"apiVersion": "test.example/v1", "kind": "Widget", "metadata": {"name": name}}
    return {**body, "spec": {"size": 1, **spec}}


def established(api: Api, name: str, path: str) -> None:
    """Until it is served: a real server takes a moment."""
    for _ in range(400):
        found = api.send("GET", f"{DEFINITIONS}/{name}", is_kept=False)
        conditions = found.get("status", {}).get("conditions") or ()
        is_there = any(one["type"] == "Established" and one["status"] == "True" for one in conditions)
        if is_there and "items" in api.send("GET", path, is_kept=False):
            return
        time.sleep(0.02)
    raise AssertionError(f"{name} was not established")


@SCENARIOS
def custom_kind(api: Api) -> None:
    body = a_definition("widgets", "Widget", SCHEMA, subresources=SUBRESOURCES, additionalPrinterColumns=COLUMNS)
    api.send("POST", DEFINITIONS, body, label="define", arrange=without_progress)
    established(api, "widgets.test.example", WIDGETS)
    api.send("GET", f"{DEFINITIONS}/widgets.test.example", label="definition")
    rows: dict[str, Any] = {
        "smallest": a_widget("smallest"),
        "defaults": a_widget("defaults", nested={}, parts=[{"id": "a"}]),
        "pruned": {**a_widget("pruned", nonsense=1, nested={"odd": 1}), "extra": 1},
        "kept": a_widget("kept", free={"any": {"thing": [1, 2.5, None]}}),
        "null is dropped": a_widget("null", color=None),
        "an empty text is a text": a_widget("blank", nested={"deep": ""}),
        "nullable": a_widget("nullable", maybe=None),
        "int or string": a_widget("port", port="http"),
        "neither": a_widget(port=1.5),
        "no size": changed(a_widget(), spec={}),
        "no spec": {k: v for k, v in a_widget("specless").items() if k != "spec"},
        "string as spec": {**a_widget(), "spec": "x"},
        "string as size": a_widget(size="1"),
        "fraction as size": a_widget(size=1.5),
        "whole float as size": a_widget("float", size=2.0),
        "too small": a_widget(size=0),
        "too large": a_widget(size=10),
        "not in the enum": a_widget(color="green"),
        "bad pattern": a_widget(name="AB"),
        "too long": a_widget(name="abcdef"),
        "too short": a_widget(name="a"),
        "exclusive maximum": a_widget(ratio=1),
        "too many": a_widget(tags=["a", "b", "c"]),
        "not a set": a_widget(tags=["a", "a"]),
        "twice the same key": a_widget(parts=[{"id": "a"}, {"id": "a"}]),
        "no key": a_widget(parts=[{"n": 1}]),
        "wrong in a map": a_widget(map={"a": "x"}),
        "bad time": a_widget(when="yesterday"),
        "two of one": a_widget(one={"a": "1", "b": "2"}),
        "none of one": a_widget(one={}),
        "many at once": a_widget(size=0, color="green", name="AB", map={"a": "x"}),
        "status is dropped": {**a_widget("status"), "status": {"n": 5}},
        "bad name": a_widget("Bad_Name"),
        "no name": changed(a_widget(), metadata={}),
        "generated": changed(a_widget(), metadata={"generateName": "g-"}),
        "huge": a_widget(size=10**30),
        "list as metadata": {**a_widget(), "metadata": []},
        "number as label": changed(a_widget(), metadata__labels={"a": 5}),
        "unknown metadata": changed(a_widget("meta"), metadata__odd=5),
        "other version": {**a_widget(), "apiVersion": "test.example/v2"},
        "other kind": {**a_widget(), "kind": "Gadget"},
        "no kind": {k: v for k, v in a_widget().items() if k != "kind"},
    }
    post_each(api, WIDGETS, rows)
    _custom_updates(api)


def _custom_updates(api: Api) -> None:
    path = f"{WIDGETS}/smallest"
    got = api.send("GET", path, label="get")
    api.send("PUT", path, changed(got, spec__size=2), label="update spec")
    api.send("PUT", path, changed(got, spec__size=3), label="stale update")
    api.send("PUT", path, a_widget("smallest"), label="update without version")
    fresh = api.send("GET", path, label="get again")
    api.send("PUT", path, changed(fresh, status={"n": 1}), label="status by update")
    fresh = api.send("GET", path, label="get once more")
    api.send("PUT", f"{path}/status", changed(fresh, status={"n": 1}, spec__size=7), label="update status")
    api.send("PUT", f"{path}/status", changed(fresh, status={"n": "x"}), label="bad status")
    api.send("PATCH", path, {"spec": {"size": 4}}, content_type=MERGE, label="merge")
    api.send("PATCH", path, {"spec": {"size": 40}}, content_type=MERGE, label="bad merge")
    api.send("PATCH", path, {"spec": {"color": None}}, content_type=MERGE, label="default comes back")
    api.send("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE, label="labels")
    api.send(
        "PATCH", path, [{"op": "replace", "path": "/spec/size", "value": 5}], content_type=JSON_PATCH, label="json"
    )
    api.send("PATCH", f"{path}/status", {"status": {"n": 3}}, content_type=MERGE, label="status by merge")
    api.send("GET", f"{path}/scale", label="scale")
    api.send("PATCH", f"{path}/scale", {"spec": {"replicas": 6}}, content_type=MERGE, label="scale by merge")
    api.send("PATCH", f"{path}/scale", {"spec": {"replicas": 60}}, content_type=MERGE, label="scale too far")
    api.send("GET", f"{WIDGETS}?fieldSelector=metadata.name%3Dsmallest", label="list")
    api.send("GET", f"{WIDGETS}?fieldSelector=spec.size%3D5", label="list by field")
    api.send("GET", path, accept=TABLE, label="table")
    api.send("DELETE", path, label="delete")


def without_progress(body: Any) -> Any:
    """What a new definition says of itself at once depends on how fast the server is."""
    if not isinstance(body, dict) or body.get("kind") != "CustomResourceDefinition":
        return body
    return {key: value for key, value in body.items() if key != "status"}


@SCENARIOS
def bad_definitions(api: Api) -> None:
    good = a_definition("gadgets", "Gadget", OBJECT)

    def schema(spec: dict[str, Any]) -> dict[str, Any]:
        return a_definition("gadgets", "Gadget", {"type": "object", "properties": {"spec": spec}})

    rows = {
        "wrong name": changed(good, metadata__name="other.test.example"),
        "no group": changed(good, spec__group=None),
        "no versions": changed(good, spec__versions=[]),
        "no schema": changed(good, spec__versions__0__schema=None),
        "bad scope": changed(good, spec__scope="Everywhere"),
        "no scope": changed(good, spec__scope=None),
        "no kind": changed(good, spec__names__kind=None),
        "bad plural": changed(good, spec__names__plural="Gad_gets"),
        "nothing stored": changed(good, spec__versions__0__storage=False),
        "two stored": changed(good, spec__versions=[
            {**good["spec"]["versions"][0], "name": name} for name in ("v1", "v2")]),
        "same version twice": changed(good, spec__versions=[good["spec"]["versions"][0]] * 2),
        "bad version name": changed(good, spec__versions__0__name="V_1"),
        "no type at the top": a_definition("gadgets", "Gadget", {}),
        "string at the top": a_definition("gadgets", "Gadget", {"type": "string"}),
        "no type inside": schema({}),
        "unknown type": schema({"type": "magic"}),
        "both maps": schema({"type": "object", "properties": {}, "additionalProperties": True}),
        "bad default": schema({"type": "integer", "default": "x"}),
        "default to be pruned": schema({"type": "object", "default": {"a": 1}}),
        "bad pattern": schema({"type": "string", "pattern": "("}),
        "items without array": schema({"type": "array"}),
        "list of items": schema({"type": "array", "items": [{"type": "string"}]}),
        "unique items": schema({"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        "map without keys": schema({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}),
        "ref": schema({"$ref": "#/x"}),
        "bad column": changed(good, spec__versions__0__additionalPrinterColumns=[{"name": "X", "type": "odd"}]),
        "bad scale": a_definition("gadgets", "Gadget", OBJECT, subresources={"scale": {}}),
        "protected group": changed(good, spec__group="x.k8s.io", metadata__name="gadgets.x.k8s.io"),
    }  # fmt: skip
    for label, body in rows.items():
        api.send("POST", f"{DEFINITIONS}?dryRun=All", body, label=label, arrange=without_progress)


@SCENARIOS
def custom_versions(api: Api) -> None:
    one = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": True}}}  # fmt: skip
    two = {**one, "name": "v2", "storage": False}
    body = changed(a_definition("things", "Thing", OBJECT), spec__versions=[one, two], spec__scope="Cluster")
    api.send("POST", DEFINITIONS, body, label="define", arrange=without_progress)
    established(api, "things.test.example", "/apis/test.example/v1/things")
    thing = {"apiVersion": "test.example/v1", "kind": "Thing", "metadata": {"name": "t"}, "any": 1}
    api.send("POST", "/apis/test.example/v1/things", thing, label="create by v1")
    api.send("GET", "/apis/test.example/v2/things/t", label="get by v2")
    api.send("GET", "/apis/test.example/v2/things", label="list by v2")
    api.send("GET", "/apis/test.example/v3/things", label="list by v3")
    api.send("GET", "/apis/test.example/v1/things/t/status", label="no status")
    api.send("GET", "/apis/test.example/v1/things/t/scale", label="no scale")
    api.send("GET", "/apis/test.example/v1/namespaces/{ns}/things", label="in a namespace")
    api.send("PUT", "/apis/test.example/v1/things/t", {**thing, "any": 2}, label="update without version")
    api.send("PATCH", "/apis/test.example/v2/things/t", {"any": 3}, content_type=MERGE, label="patch by v2")
    api.send("GET", "/apis/test.example", label="group")
    api.send("DELETE", "/apis/test.example/v2/things/t", label="delete by v2")
    api.send("DELETE", f"{DEFINITIONS}/none.test.example", label="delete no definition")


@SCENARIOS
def our_jobs(api: Api) -> None:
    rows: dict[str, Any] = {
        "plain": a_job("plain"),
        "no spec": changed(a_job("specless"), spec=None),
        "no replicas": a_job("empty", spec__pytorchReplicaSpecs={}),
        "wrong restart policy": a_job(spec__pytorchReplicaSpecs__Worker__restartPolicy="Often"),
        "string as replicas": a_job(spec__pytorchReplicaSpecs__Worker__replicas="2"),
        "negative replicas": a_job(spec__pytorchReplicaSpecs__Worker__replicas=-1),
        "no containers": a_job(spec__pytorchReplicaSpecs__Worker__template__spec={}),
        "number as image": a_job(spec__pytorchReplicaSpecs__Worker__template__spec__containers__0__image=5),
        "unknown role": a_job("role", spec__pytorchReplicaSpecs__Odd={"replicas": 1}),
        "run policy": a_job("policy", spec__runPolicy={"cleanPodPolicy": "All", "backoffLimit": 2, "suspend": True}),
        "bad run policy": a_job(spec__runPolicy={"cleanPodPolicy": "Some"}),
        "elastic": a_job("elastic", spec__elasticPolicy={"minReplicas": 1, "maxReplicas": 2}),
        "bad name": a_job("Bad_Name"),
        "long name": a_job("a" * 64),
        "duplicate": a_job("plain"),
    }
    post_each(api, JOBS, rows)
    got = api.send("GET", f"{JOBS}/plain", label="get")
    api.send("PUT", f"{JOBS}/plain", changed(got, spec__pytorchReplicaSpecs__Worker__replicas=4), label="update")
    fresh = api.send("GET", f"{JOBS}/plain", label="get again")
    status = {"conditions": [{"type": "Running", "status": "True", "reason": "r", "message": "m"}],
              "replicaStatuses": {"Worker": {"active": 4}}}  # fmt: skip
    api.send("PUT", f"{JOBS}/plain/status", changed(fresh, status=status), label="update status")
    api.send("PUT", f"{JOBS}/plain/status", changed(fresh, status=status), label="stale status")
    api.send("GET", f"{JOBS}/plain", accept=TABLE, label="table")
