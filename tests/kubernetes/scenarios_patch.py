"""Patches of the four types, with conflicts, on built-in and custom kinds."""

from __future__ import annotations

from typing import Any

from tests.kubernetes.exchange import Api
from tests.kubernetes.scenario import Scenarios
from tests.kubernetes.specimens import (
    APPLY,
    CONFIG_MAPS,
    DEPLOYMENTS,
    JOBS,
    JSON_PATCH,
    MERGE,
    PODS,
    SERVICES,
    STRATEGIC,
    a_config_map,
    a_deployment,
    a_job,
    a_pod,
    a_service,
)

SCENARIOS = Scenarios()
ORDER = [{"name": name} for name in "ACB"]
CONFIG = f"{CONFIG_MAPS}/c"


def patch_each(api: Api, path: str, rows: dict[str, Any], content_type: str) -> None:
    for label, body in rows.items():
        api.send("PATCH", path, body, content_type=content_type, label=label)


@SCENARIOS
def merge_patches(api: Api) -> None:
    api.send("POST", CONFIG_MAPS, a_config_map(), label="create")
    rows = {
        "add": {"data": {"b": "2"}},
        "remove": {"data": {"a": None}},
        "remove what is not there": {"data": {"zz": None}},
        "nothing": {},
        "labels": {"metadata": {"labels": {"x": "y"}}},
        "bad label": {"metadata": {"labels": {"x": "y z"}}},
        "rename": {"metadata": {"name": "d"}},
        "other namespace": {"metadata": {"namespace": "default"}},
        "other uid": {"metadata": {"uid": "x"}},
        "stale": {"metadata": {"resourceVersion": "1"}},
        "bad version": {"metadata": {"resourceVersion": "x"}},
        "other kind": {"kind": "Secret"},
        "wrong type": {"data": 5},
        "wrong value": {"data": {"a": 5}},
        "unknown field": {"extra": 1},
        "replace by null": {"data": None},
        "list": [],
        "truncated": b"{",
        "no body": b"",
        "string": b'"x"',
        "creation time": {"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}},
        "finalizer": {"metadata": {"finalizers": ["example.org/x"]}},
        "no finalizer": {"metadata": {"finalizers": None}},
    }
    patch_each(api, CONFIG, rows, MERGE)
    api.send("PATCH", f"{CONFIG_MAPS}/none", {}, content_type=MERGE, label="what is not there")
    api.send("PATCH", CONFIG_MAPS, {}, content_type=MERGE, label="collection")


@SCENARIOS
def json_patches(api: Api) -> None:
    api.send("POST", CONFIG_MAPS, a_config_map(), label="create")

    def one(op: str, path: str, **rest: Any) -> list[dict[str, Any]]:
        return [{"op": op, "path": path, **rest}]

    rows: dict[str, Any] = {
        "add": one("add", "/data/b", value="2"),
        "add deep": one("add", "/metadata/labels", value={"x": "y"}),
        "replace": one("replace", "/data/a", value="9"),
        "copy": [{"op": "copy", "from": "/data/a", "path": "/data/c"}],
        "move": [{"op": "move", "from": "/data/c", "path": "/data/d"}],
        "test": [{"op": "test", "path": "/data/a", "value": "9"}, *one("add", "/data/e", value="1")],
        "test that fails": [{"op": "test", "path": "/data/a", "value": "x"}, *one("add", "/data/f", value="1")],
        "remove": one("remove", "/data/e"),
        "remove what is not there": one("remove", "/data/zz"),
        "replace what is not there": one("replace", "/data/zz", value="1"),
        "add below nothing": one("add", "/nothing/x", value="1"),
        "escaped": one("add", "/metadata/annotations", value={"a/b": "1"}),
        "escaped key": one("replace", "/metadata/annotations/a~1b", value="2"),
        "unknown op": one("frob", "/data/a"),
        "no op": [{"path": "/data/a", "value": "1"}],
        "no path": [{"op": "add", "value": "1"}],
        "no value": one("add", "/data/g"),
        "object": {"data": {}},
        "empty list": [],
        "truncated": b"[",
        "wrong type": one("add", "/data/a", value=5),
        "bad label": one("add", "/metadata/labels", value={"a": "x y"}),
        "whole": one("replace", "", value=a_config_map()),
    }
    patch_each(api, CONFIG, rows, JSON_PATCH)


@SCENARIOS
def strategic_patches(api: Api) -> None:
    api.send("POST", DEPLOYMENTS, a_deployment(), label="create")

    def containers(*rows: dict[str, Any], **rest: Any) -> dict[str, Any]:
        return {"spec": {"template": {"spec": {"containers": list(rows), **rest}}}}

    rows: dict[str, Any] = {
        "merge by name": containers({"name": "main", "env": [{"name": "A", "value": "1"}]}),
        "merge a second env": containers({"name": "main", "env": [{"name": "B", "value": "2"}]}),
        "add another": containers({"name": "side", "image": "i"}),
        "no merge key": containers({"image": "i"}),
        "delete by directive": containers({"name": "side", "$patch": "delete"}),
        "order": containers({"name": "main", "env": [{"name": "C", "value": "3"}], "$setElementOrder/env": ORDER}),
        "remove env": containers({"name": "main", "env": [{"name": "A", "$patch": "delete"}]}),
        "replace list": containers({"$patch": "replace"}, {"name": "only", "image": "i"}),
        "delete from primitive list": {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.org/x"]}},
        "bad directive": containers({"name": "only", "$patch": "frob"}),
        "null": {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": None}}}},
        "wrong type": {"spec": {"replicas": "x"}},
        "list": [],
        "truncated": b"{",
    }
    patch_each(api, f"{DEPLOYMENTS}/d", rows, STRATEGIC)
    api.send("POST", SERVICES, a_service(), label="create service")
    ports = {"spec": {"ports": [{"port": 81, "name": "b"}, {"port": 80, "name": "a"}]}}
    api.send("PATCH", f"{SERVICES}/s", ports, content_type=STRATEGIC, label="ports by number")
    api.send("POST", PODS, a_pod(), label="create pod")
    image = {"spec": {"containers": [{"name": "main", "image": "other:1"}]}}
    api.send("PATCH", f"{PODS}/p", image, content_type=STRATEGIC, label="image of a pod")
    api.send("POST", JOBS, a_job(), label="create PyTorchJob")
    api.send("PATCH", f"{JOBS}/j", {}, content_type=STRATEGIC, label="PyTorchJob")


@SCENARIOS
def apply_patches(api: Api) -> None:
    def apply(label: str, body: Any, manager: str = "one", query: str = "", path: str = CONFIG) -> None:
        target = f"{path}?fieldManager={manager}{query}"
        api.send("PATCH", target, body, content_type=APPLY, label=label)

    body = a_config_map(data={"a": "1", "b": "2"})
    api.send("PATCH", CONFIG, body, content_type=APPLY, label="no manager")
    apply("create", body)
    apply("same again", body)
    apply("drop a field", a_config_map(data={"a": "1"}))
    apply("conflict", a_config_map(data={"a": "5"}), "two")
    apply("two conflicts", a_config_map(data={"a": "5", "c": "1"}, metadata__labels={"x": "1"}), "two")
    apply("force", a_config_map(data={"a": "5"}), "two", "&force=true")
    apply("the first is behind", a_config_map(data={"a": "1"}))
    apply("share", a_config_map(data={"a": "5"}), "three")
    apply("give up", a_config_map(data={}), "two")
    apply("dry", a_config_map(data={"z": "1"}), "three", "&dryRun=All")
    apply("managed fields given", a_config_map(metadata__managedFields=[]), "four")
    apply("own managed fields", a_config_map(metadata__managedFields=[{"manager": "x"}]), "four")
    apply("other name", a_config_map("d"))
    apply("no kind", {"metadata": {"name": "c"}, "data": {}})
    apply("no name", {"apiVersion": "v1", "kind": "ConfigMap", "data": {}})
    apply("other version", a_config_map(apiVersion="v2"))
    apply("unknown field", {**a_config_map(), "extra": 1}, "five")
    apply("wrong type", a_config_map(data=5), "five")
    apply("bad label", a_config_map(metadata__labels={"x": "y z"}), "five", "&force=true")
    apply("stale", a_config_map(metadata__resourceVersion="1"), "six")
    apply("truncated", b"{", "six")
    apply(
        "YAML",
        b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yaml}\ndata: {a: 'yes'}\n",
        path=f"{CONFIG_MAPS}/yaml",
    )
    apply("long manager", body, "m" * 129)
    api.send("PUT", CONFIG, a_config_map(data={"a": "7"}), label="somebody updates")
    apply("conflict with an update", a_config_map(data={"a": "8"}))
    api.send("PATCH", f"{CONFIG}?force=true", {"data": {}}, content_type=MERGE, label="force on a merge")


@SCENARIOS
def apply_pods_and_jobs(api: Api) -> None:
    env = [{"name": "A", "value": "1"}]
    pod = a_pod(spec__containers=[{"name": "main", "image": "i", "env": env}])
    more = a_deployment(spec__template__spec__containers=[{"name": "side", "image": "i", "env": env}])
    api.send("PATCH", f"{PODS}/p?fieldManager=one", pod, content_type=APPLY, label="create pod")
    image = a_pod(spec__containers=[{"name": "main", "image": "other"}])
    api.send("PATCH", f"{PODS}/p?fieldManager=two", image, content_type=APPLY, label="conflict over the image")
    path = f"{DEPLOYMENTS}/d"
    api.send("PATCH", f"{path}?fieldManager=one", a_deployment(), content_type=APPLY, label="create deployment")
    api.send("PATCH", f"{path}?fieldManager=two", more, content_type=APPLY, label="one more container")
    api.send("PATCH", f"{path}?fieldManager=one", a_deployment(spec__replicas=None), content_type=APPLY,
             label="give up replicas")  # fmt: skip
    path = f"{JOBS}/j"
    api.send("PATCH", f"{path}?fieldManager=one", a_job(), content_type=APPLY, label="create PyTorchJob")
    replicas = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "j"},
                "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}}  # fmt: skip
    api.send("PATCH", f"{path}?fieldManager=two", replicas, content_type=APPLY, label="conflict over replicas")
    api.send("PATCH", f"{path}?fieldManager=two&force=true", replicas, content_type=APPLY, label="force replicas")
    status = {**replicas, "spec": {}, "status": {"conditions": [{"type": "Created", "status": "True"}]}}
    api.send("PATCH", f"{path}/status?fieldManager=three", {k: v for k, v in status.items() if k != "spec"},
             content_type=APPLY, label="apply status")  # fmt: skip
