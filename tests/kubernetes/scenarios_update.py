"""Replacing objects: concurrency, names, fields that may not change, status and scale."""

from __future__ import annotations

from typing import Any

from tests.kubernetes.exchange import Api
from tests.kubernetes.scenario import Scenarios
from tests.kubernetes.specimens import (
    BATCH_JOBS,
    CLAIMS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICES,
    a_batch_job,
    a_claim,
    a_config_map,
    a_deployment,
    a_job,
    a_lease,
    a_pod,
    a_secret,
    a_service,
    an_event,
    changed,
)

SCENARIOS = Scenarios()


@SCENARIOS
def update_concurrency(api: Api) -> None:
    first = api.send("POST", CONFIG_MAPS, a_config_map(), label="create")
    api.send("PUT", f"{CONFIG_MAPS}/c", changed(first, data={"a": "2"}), label="with version")
    api.send("PUT", f"{CONFIG_MAPS}/c", changed(first, data={"a": "3"}), label="stale")
    api.send("PUT", f"{CONFIG_MAPS}/c", a_config_map(data={"a": "4"}), label="without version")
    api.send("PUT", f"{CONFIG_MAPS}/c", a_config_map(data={"a": "4"}), label="no change")
    api.send("PUT", f"{CONFIG_MAPS}/c", a_config_map(metadata__resourceVersion="x"), label="bad version")
    api.send("PUT", f"{CONFIG_MAPS}/c", a_config_map(metadata__resourceVersion="0"), label="version 0")
    api.send("PUT", f"{CONFIG_MAPS}/c", a_config_map(metadata__resourceVersion="99999999"), label="version to come")
    api.send("PUT", f"{CONFIG_MAPS}/c", a_config_map(metadata__uid="other"), label="other uid")


@SCENARIOS
def update_identity(api: Api) -> None:
    api.send("POST", CONFIG_MAPS, a_config_map(), label="create")
    api.send("PUT", f"{CONFIG_MAPS}/c", a_config_map("d"), label="other name")
    api.send("PUT", f"{CONFIG_MAPS}/c", changed(a_config_map(), metadata__name=None), label="no name")
    api.send("PUT", f"{CONFIG_MAPS}/c", a_config_map(metadata__namespace="default"), label="other namespace")
    api.send("PUT", f"{CONFIG_MAPS}/none", a_config_map("none"), label="what is not there")
    api.send("PUT", f"{CONFIG_MAPS}/none", a_config_map("none", metadata__resourceVersion="1"), label="what is gone")
    api.send("PUT", f"{CONFIG_MAPS}/c", a_secret("c"), label="other kind")
    api.send("PUT", CONFIG_MAPS, a_config_map(), label="collection")
    api.send("PUT", f"{CONFIG_MAPS}/c", a_config_map(metadata__labels={"a": "x y"}), label="bad label")
    api.send("PUT", f"{CONFIG_MAPS}/c", b"", label="no body")
    api.send("PUT", f"{CONFIG_MAPS}/c", b"{", label="truncated")
    api.send("PUT", f"{LEASES}/new", a_lease("new"), label="a lease that is not there")
    api.send("PUT", f"{EVENTS}/new", an_event("new"), label="an event that is not there")
    api.send("PUT", f"{SERVICES}/new", a_service("new"), label="a service that is not there")
    api.send("PUT", f"{PODS}/new", a_pod("new"), label="a pod that is not there")


@SCENARIOS
def update_immutable(api: Api) -> None:
    api.send("POST", CONFIG_MAPS, a_config_map(immutable=True), label="create")
    api.send("PUT", f"{CONFIG_MAPS}/c", a_config_map(immutable=True, data={"a": "2"}), label="data")
    api.send("PUT", f"{CONFIG_MAPS}/c", a_config_map(), label="flag")
    api.send("PUT", f"{CONFIG_MAPS}/c", a_config_map(immutable=True, metadata__labels={"a": "b"}), label="labels")
    api.send("POST", SECRETS, a_secret(), label="create secret")
    api.send("PUT", f"{SECRETS}/s", a_secret(type="example.org/x"), label="secret type")


@SCENARIOS
def update_pods(api: Api) -> None:
    made = api.send("POST", PODS, a_pod(spec__activeDeadlineSeconds=100), label="create")
    path = f"{PODS}/p"
    rows: dict[str, dict[str, Any]] = {
        "image": changed(made, spec__containers__0__image="other:1"),
        "labels": changed(made, metadata__labels={"a": "b"}),
        "command": changed(made, spec__containers__0__command=["x"]),
        "restart policy": changed(made, spec__restartPolicy="Never"),
        "node": changed(made, spec__nodeName="x"),
        "one more container": changed(
            made, spec__containers=[*made["spec"]["containers"], {"name": "b", "image": "i"}]
        ),
        "resources": changed(made, spec__containers__0__resources={"limits": {"cpu": "1"}}),
        "status": changed(made, status={"phase": "Running"}),
        "grace": changed(made, spec__terminationGracePeriodSeconds=5),
        "bad image": changed(made, spec__containers__0__image=""),
        "deadline sooner": changed(made, spec__activeDeadlineSeconds=50),
        "deadline later": changed(made, spec__activeDeadlineSeconds=200),
        "toleration": changed(made, spec__tolerations=[*made["spec"].get("tolerations", ()), {"operator": "Exists"}]),
    }
    for label, body in rows.items():
        api.send("PUT", path, changed(body, metadata__resourceVersion=None), label=label)


@SCENARIOS
def update_services(api: Api) -> None:
    made = api.send("POST", SERVICES, a_service(), label="create")
    made = changed(made, metadata__resourceVersion=None)
    version = api.send("GET", f"{SERVICES}/s", label="get")["metadata"]["resourceVersion"]
    known = changed(made, metadata__resourceVersion=version)
    api.send("PUT", f"{SERVICES}/s", made, label="without version")
    api.send("PUT", f"{SERVICES}/s", changed(known, spec__clusterIP="10.96.9.9"), label="other address")
    api.send("PUT", f"{SERVICES}/s", changed(known, spec__ports__0__port=81), label="port")
    api.send("PATCH", f"{SERVICES}/s", {"spec": {"clusterIP": "None"}}, content_type="application/merge-patch+json",
             label="becomes headless")  # fmt: skip


@SCENARIOS
def update_claims_and_workloads(api: Api) -> None:
    api.send("POST", CLAIMS, a_claim(), label="create claim")
    api.send("PUT", f"{CLAIMS}/c", a_claim(spec__accessModes=["ReadWriteMany"]), label="claim modes")
    api.send("PUT", f"{CLAIMS}/c", a_claim(spec__resources={"requests": {"storage": "2Gi"}}), label="claim size")
    api.send("POST", BATCH_JOBS, a_batch_job(), label="create job")
    merge = "application/merge-patch+json"
    body = {"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}}
    api.send("PATCH", f"{BATCH_JOBS}/j", body, content_type=merge, label="job template")
    api.send("PATCH", f"{BATCH_JOBS}/j", {"spec": {"parallelism": 0, "backoffLimit": 2}}, content_type=merge,
             label="job limit")  # fmt: skip
    api.send("POST", DEPLOYMENTS, a_deployment(), label="create deployment")
    body = {"spec": {"selector": {"matchLabels": {"app": "y"}}}}
    api.send("PATCH", f"{DEPLOYMENTS}/d", body, content_type=merge, label="deployment selector")


@SCENARIOS
def update_status(api: Api) -> None:
    made = api.send("POST", PODS, a_pod(), label="create")
    path = f"{PODS}/p/status"
    made = changed(made, metadata__resourceVersion=None)
    running = {"phase": "Running", "podIP": "10.1.2.3", "conditions": [{"type": "Ready", "status": "True"}]}
    api.send("GET", path, label="get")
    api.send("PUT", path, changed(made, status=running), label="put")
    api.send("PUT", path, changed(made, status=running, spec__nodeName="x"), label="put with spec")
    api.send("PATCH", path, {"status": {"phase": "Succeeded"}}, content_type="application/merge-patch+json",
             label="merge")  # fmt: skip
    condition = {"type": "Other", "status": "False"}
    api.send("PATCH", path, {"status": {"conditions": [condition]}},
             content_type="application/strategic-merge-patch+json", label="strategic")  # fmt: skip
    api.send("PUT", f"{PODS}/none/status", changed(made, metadata__name="none"), label="what is not there")
    api.send("POST", path, made, label="post")
    api.send("DELETE", path, label="delete")
    api.send("GET", f"{CONFIG_MAPS}/c/status", label="kind without status")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "{ns}"}}
    api.send("PUT", f"{NAMESPACES}/{{ns}}/status", namespace, label="namespace")


@SCENARIOS
def scales(api: Api) -> None:
    api.send("POST", DEPLOYMENTS, a_deployment(), label="create")
    path = f"{DEPLOYMENTS}/d/scale"
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d", "namespace": "{ns}"}}
    api.send("GET", path, label="get")
    api.send("PUT", path, {**scale, "spec": {"replicas": 0}}, label="put")
    api.send("PUT", path, {**scale, "spec": {"replicas": -1}}, label="put negative")
    api.send("PUT", path, changed({**scale, "spec": {"replicas": 0}}, metadata__name="x"), label="put other name")
    api.send("PUT", path, a_deployment(), label="put a deployment")
    api.send("PATCH", path, {"spec": {"replicas": 0}}, content_type="application/merge-patch+json", label="merge")
    api.send("GET", f"{DEPLOYMENTS}/none/scale", label="of nothing")
    api.send("GET", f"{CONFIG_MAPS}/c/scale", label="kind without scale")
    api.send("POST", JOBS, a_job(), label="create PyTorchJob")
    api.send("GET", f"{JOBS}/j/scale", label="get of a PyTorchJob")
    scale = changed(scale, metadata__name="j")
    api.send("PUT", f"{JOBS}/j/scale", {**scale, "spec": {"replicas": 3}}, label="put of a PyTorchJob")
    api.send("PATCH", f"{JOBS}/j/scale", {"spec": {"replicas": 2}}, content_type="application/merge-patch+json",
             label="merge of a PyTorchJob")  # fmt: skip
    api.send("GET", f"{JOBS}/j", label="PyTorchJob after")


@SCENARIOS
def bindings_and_evictions(api: Api) -> None:
    api.send("POST", PODS, a_pod(), label="create")
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n"},
    }
    api.send("POST", f"{PODS}/p/binding", {**binding, "target": {"kind": "Node", "name": ""}}, label="to nothing")
    api.send("POST", f"{PODS}/p/binding", {**binding, "target": {"kind": "Pod", "name": "n"}}, label="to a pod")
    api.send("POST", f"{PODS}/p/binding", changed(binding, metadata__name="other"), label="of another pod")
    api.send("POST", f"{PODS}/p/binding", binding, label="bind")
    api.send("POST", f"{PODS}/p/binding", binding, label="bind again")
    api.send("POST", f"{PODS}/none/binding", changed(binding, metadata__name="none"), label="bind nothing")
    api.send("GET", f"{PODS}/p", label="bound pod")
    api.send("POST", PODS, a_pod("q"), label="create another")
    eviction = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "q"}}
    api.send("POST", f"{PODS}/none/eviction", changed(eviction, metadata__name="none"), label="evict nothing")
    api.send("POST", f"{PODS}/q/eviction", changed(eviction, metadata__name="x"), label="evict by another name")
    api.send("POST", f"{PODS}/q/eviction", eviction, label="evict")
    api.send("GET", f"{PODS}/q", label="evicted pod")
