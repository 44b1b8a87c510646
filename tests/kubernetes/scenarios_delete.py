"""Deleting: options, preconditions, grace, finalizers, collections."""

from __future__ import annotations

from tests.kubernetes.exchange import Api
from tests.kubernetes.scenario import Scenarios
from tests.kubernetes.specimens import (
    CONFIG_MAPS,
    JOBS,
    LEASES,
    MERGE,
    NAMESPACES,
    PODS,
    SERVICES,
    a_config_map,
    a_job,
    a_lease,
    a_pod,
    a_service,
)

SCENARIOS = Scenarios()
CONFIG = f"{CONFIG_MAPS}/c"


@SCENARIOS
def delete_plain(api: Api) -> None:
    api.send("POST", CONFIG_MAPS, a_config_map(), label="create")
    api.send("DELETE", CONFIG, label="delete")
    api.send("DELETE", CONFIG, label="delete again")
    api.send("GET", CONFIG, label="gone")
    api.send("POST", SERVICES, a_service(), label="create service")
    api.send("DELETE", f"{SERVICES}/s", label="delete service")
    api.send("POST", JOBS, a_job(), label="create job")
    api.send("DELETE", f"{JOBS}/j", label="delete job")
    api.send("DELETE", f"{JOBS}/j", label="delete job again")
    api.send("DELETE", "/api/v1/namespaces/nowhere/pods/p", label="in no namespace")


@SCENARIOS
def delete_options(api: Api) -> None:
    made = api.send("POST", CONFIG_MAPS, a_config_map(), label="create")
    uid, version = made["metadata"]["uid"], made["metadata"]["resourceVersion"]
    api.send("DELETE", CONFIG, {"preconditions": {"uid": "x"}}, label="other uid")
    api.send("DELETE", CONFIG, {"preconditions": {"resourceVersion": "1"}}, label="other version")
    api.send("DELETE", CONFIG, {"propagationPolicy": "Sideways"}, label="bad propagation")
    api.send("DELETE", f"{CONFIG}?propagationPolicy=Sideways", label="bad propagation in the query")
    api.send("DELETE", CONFIG, {"propagationPolicy": "Orphan", "orphanDependents": True}, label="both ways")
    api.send("DELETE", CONFIG, {"kind": "Pod", "apiVersion": "v1"}, label="options of another kind")
    api.send("DELETE", CONFIG, {"kind": "DeleteOptions", "apiVersion": "v9"}, label="options of another version")
    api.send("DELETE", CONFIG, {"gracePeriodSeconds": "x"}, label="bad grace")
    api.send("DELETE", CONFIG, {"dryRun": ["Some"]}, label="bad dry run")
    api.send("DELETE", CONFIG, b"{", label="truncated")
    api.send("DELETE", CONFIG, [], label="list")
    api.send("DELETE", f"{CONFIG}?gracePeriodSeconds=x", label="bad grace in the query")
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid, "resourceVersion": version}}
    api.send("DELETE", CONFIG, options, label="all right")


@SCENARIOS
def delete_with_grace(api: Api) -> None:
    for name in "abcde":
        api.send("POST", PODS, a_pod(name, spec__nodeName="somewhere"), label=f"create {name}")
    api.send("DELETE", f"{PODS}/a", label="default grace")
    api.send("GET", f"{PODS}/a", label="still there")
    api.send("DELETE", f"{PODS}/a", label="again")
    api.send("DELETE", f"{PODS}/a?gracePeriodSeconds=5", label="sooner")
    api.send("PATCH", f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}}, content_type=MERGE, label="patch while ending")
    api.send("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 0}, label="now")
    api.send("GET", f"{PODS}/a", label="gone")
    api.send("DELETE", f"{PODS}/b", {"gracePeriodSeconds": 0}, label="at once")
    api.send("DELETE", f"{PODS}/c", {"gracePeriodSeconds": -5}, label="negative")
    api.send("DELETE", f"{PODS}/d", {"gracePeriodSeconds": 7, "propagationPolicy": "Background"}, label="7 s")
    api.send("PATCH", f"{PODS}/e/status", {"status": {"phase": "Succeeded"}}, content_type=MERGE, label="finish")
    api.send("DELETE", f"{PODS}/e", label="finished pod")
    api.send("POST", PODS, a_pod("unbound"), label="create unbound")
    api.send("DELETE", f"{PODS}/unbound", label="unbound pod")


@SCENARIOS
def delete_with_finalizers(api: Api) -> None:
    body = a_config_map(metadata__finalizers=["example.org/x"])
    api.send("POST", CONFIG_MAPS, body, label="create")
    api.send("DELETE", CONFIG, label="delete")
    api.send("DELETE", CONFIG, label="delete again")
    api.send("GET", CONFIG, label="still there")
    api.send("PATCH", CONFIG, {"metadata": {"finalizers": ["example.org/x", "example.org/y"]}}, content_type=MERGE,
             label="one more finalizer")  # fmt: skip
    api.send("PATCH", CONFIG, {"data": {"a": "2"}}, content_type=MERGE, label="data")
    api.send("PATCH", CONFIG, {"metadata": {"deletionTimestamp": None}}, content_type=MERGE, label="undelete")
    api.send("POST", CONFIG_MAPS, body, label="create while ending")
    api.send("PATCH", CONFIG, {"metadata": {"finalizers": None}}, content_type=MERGE, label="let go")
    api.send("GET", CONFIG, label="gone")
    api.send("POST", JOBS, a_job(metadata__finalizers=["example.org/x"]), label="create job")
    api.send("DELETE", f"{JOBS}/j", {"propagationPolicy": "Foreground"}, label="delete job in the foreground")
    api.send("PATCH", f"{JOBS}/j", {"metadata": {"finalizers": []}}, content_type=MERGE, label="let job go")


@SCENARIOS
def delete_collections(api: Api) -> None:
    for name in "abc":
        labels = {"k": name}
        api.send("POST", LEASES, a_lease(name, metadata__labels=labels), label=f"create {name}")
    api.send("DELETE", f"{LEASES}?labelSelector=k%3Da", label="by label")
    api.send("DELETE", f"{LEASES}?fieldSelector=metadata.name%3Db", label="by field")
    api.send("DELETE", f"{LEASES}?labelSelector=a%20b", label="bad selector")
    api.send("DELETE", f"{LEASES}?dryRun=All", label="dry")
    api.send("DELETE", LEASES, label="all")
    api.send("GET", LEASES, label="none left")
    api.send("DELETE", "/apis/coordination.k8s.io/v1/leases", label="of all namespaces")
    api.send("DELETE", NAMESPACES, label="of namespaces")
    api.send("DELETE", SERVICES, label="of services")


@SCENARIOS
def delete_namespaces(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "{ns}-gone"}}
    api.send("POST", NAMESPACES, body, label="create")
    finalized = a_config_map(metadata__finalizers=["example.org/x"])
    inner = "/api/v1/namespaces/{ns}-gone/configmaps"
    api.send("POST", inner, finalized, label="something that stays")
    api.send("DELETE", f"{NAMESPACES}/{{ns}}-gone", label="delete")
    api.send("DELETE", f"{NAMESPACES}/{{ns}}-gone", label="delete again")
    api.send("POST", inner, a_config_map("late"), label="create while ending")
    api.send("DELETE", f"{NAMESPACES}/default", label="default")
    api.send("DELETE", f"{NAMESPACES}/kube-system", label="kube-system")
    api.send("DELETE", f"{NAMESPACES}/nowhere", label="nowhere")
