"""Reading: get, list with selectors and pages, tables, discovery."""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.kubernetes.exchange import Api
from tests.kubernetes.scenario import Scenarios
from tests.kubernetes.specimens import (
    CLAIMS,
    CONFIG_MAPS,
    DEFINITIONS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICES,
    TABLE,
    VOLUMES,
    a_claim,
    a_config_map,
    a_deployment,
    a_job,
    a_lease,
    a_pod,
    a_secret,
    a_service,
    a_volume,
    an_event,
)

SCENARIOS = Scenarios()
LABEL_SELECTORS = (
    "a=1", "a==1", "a!=1", "a", "!a", "a in (1,2)", "a notin (1)", "a=1,b", "a>0", "a<2", "a = 1", "a=",
    "a in ()", "a in 1", "a==", "=1", "a b", "a=x y", "!", "a,,b", "A_B/c=1", "a in (1", "a=1=2", "a;b", "%21a",
)  # fmt: skip
POD_FIELDS = (
    "metadata.name=p1", "metadata.name!=p1", "metadata.namespace={ns}", "status.phase=Pending", "status.phase!=Pending",
    "spec.nodeName=", "spec.nodeName=x", "spec.restartPolicy=Always", "spec.schedulerName=nobody",
    "spec.serviceAccountName=default", "status.podIP=", "status.nominatedNodeName=", "metadata.name=p1,spec.nodeName=",
    "spec.nonsense=x", "metadata.labels=x", "metadata.name", "metadata.name==p1", "metadata.name>p1",
)  # fmt: skip


def quoted(text: str) -> str:
    return "".join(c if c.isalnum() or c in "%{}" else f"%{ord(c):02X}" for c in text)


@SCENARIOS
def label_selectors(api: Api) -> None:
    for index in range(3):
        labels = {} if index == 0 else {"a": str(index), "b": "x"}
        api.send("POST", CONFIG_MAPS, a_config_map(f"c{index}", metadata__labels=labels), label=f"create {index}")
    for selector in LABEL_SELECTORS:
        path = f"{CONFIG_MAPS}?fieldSelector=metadata.name!%3Dkube-root-ca.crt&labelSelector={quoted(selector)}"
        api.send("GET", path, label=f"labels {selector}")


@SCENARIOS
def field_selectors(api: Api) -> None:
    for index in range(2):
        api.send("POST", PODS, a_pod(f"p{index}"), label=f"create {index}")
    for selector in POD_FIELDS:
        api.send("GET", f"{PODS}?fieldSelector={quoted(selector)}", label=f"fields {selector}")
    api.send("POST", EVENTS, an_event("e"), label="event")
    for selector in ("involvedObject.name=p", "involvedObject.kind=Node", "reason=Tested", "type=Normal", "message=x"):
        api.send("GET", f"{EVENTS}?fieldSelector={quoted(selector)}", label=f"events {selector}")
    api.send("GET", f"{CONFIG_MAPS}?fieldSelector=data.a%3D1", label="config maps by data")
    api.send("GET", f"{SECRETS}?fieldSelector=type%3DOpaque", label="secrets by type")
    api.send("GET", f"{NAMESPACES}?fieldSelector=metadata.name%3D%7Bns%7D", label="namespaces by name")
    api.send("GET", f"{NAMESPACES}?fieldSelector=status.phase%3DNothing", label="namespaces by phase")


@SCENARIOS
def pages(api: Api) -> None:
    for index in range(5):
        api.send("POST", LEASES, a_lease(f"l{index}"), label=f"create {index}")
    page = api.send("GET", f"{LEASES}?limit=2", label="first page")
    token = page["metadata"]["continue"]
    page = api.send("GET", f"{LEASES}?limit=2&continue={token}", label="second page")
    last = page["metadata"]["continue"]
    api.send("GET", f"{LEASES}?limit=2&continue={last}", label="last page")
    api.send("GET", f"{LEASES}?continue={token}", label="rest without limit")
    api.send("GET", f"{LEASES}?limit=5", label="limit that is just enough")
    api.send("GET", f"{LEASES}?limit=0", label="no limit")
    api.send("GET", f"{LEASES}?limit=-1", label="negative limit")
    api.send("GET", f"{LEASES}?limit=x", label="bad limit")
    api.send("GET", f"{LEASES}?limit=2&continue=nonsense", label="bad token")
    api.send("GET", f"{LEASES}?limit=2&continue=%FF%FF", label="token of odd bytes")
    forged = base64.urlsafe_b64encode(json.dumps({"v": "meta.k8s.io/v9", "rv": 1, "start": "x"}).encode()).decode()
    api.send("GET", f"{LEASES}?limit=2&continue={forged.rstrip('=')}", label="token of another version")
    api.send("GET", f"{LEASES}?limit=2&continue={token}&resourceVersion=5", label="token and version")
    api.send("GET", f"{LEASES}?limit=2&continue={token}&resourceVersion=0", label="token and version 0")


@SCENARIOS
def resource_versions(api: Api) -> None:
    made = api.send("POST", LEASES, a_lease("l"), label="create")
    version = made["metadata"]["resourceVersion"]
    api.send("GET", f"{LEASES}?resourceVersion=0", label="list any")
    api.send("GET", f"{LEASES}?resourceVersion={version}", label="list not older")
    api.send("GET", f"{LEASES}?resourceVersion=x", label="list bad")
    api.send("GET", f"{LEASES}?resourceVersion=-1", label="list negative")
    api.send("GET", f"{LEASES}?resourceVersionMatch=Exact", label="match without version")
    api.send("GET", f"{LEASES}?resourceVersion={version}&resourceVersionMatch=Odd", label="odd match")
    api.send("GET", f"{LEASES}?resourceVersion=0&resourceVersionMatch=Exact", label="exactly 0")
    api.send("GET", f"{LEASES}?resourceVersion={version}&resourceVersionMatch=NotOlderThan", label="not older")
    api.send("GET", f"{LEASES}/l?resourceVersion=0", label="get any")
    api.send("GET", f"{LEASES}/l?resourceVersion=x", label="get bad")


EXAMPLES: dict[str, dict[str, Any]] = {
    PODS: a_pod("one"),
    SERVICES: a_service("one"),
    CONFIG_MAPS: a_config_map("one"),
    SECRETS: a_secret("one"),
    CLAIMS: a_claim("one"),
    EVENTS: an_event("one"),
    LEASES: a_lease("one"),
    DEPLOYMENTS: a_deployment("one"),
    JOBS: a_job("one"),
}


@SCENARIOS
def read_each_kind(api: Api) -> None:
    for path, body in EXAMPLES.items():
        kind = body["kind"]
        api.send("POST", path, {**body, "metadata": {"name": "one", "labels": {"mine": "yes"}}}, label=f"create {kind}")
        api.send("GET", f"{path}/one", label=f"get {kind}")
        api.send("GET", f"{path}/none", label=f"get no {kind}")
        api.send("GET", f"{path}?labelSelector=mine", label=f"list {kind}")
        api.send("GET", f"{path}?labelSelector=none", label=f"list no {kind}")
        api.send("GET", f"{path}?pretty=true&labelSelector=none", label=f"list {kind} pretty")


@SCENARIOS
def read_across_namespaces(api: Api) -> None:
    api.send("POST", LEASES, a_lease("l", metadata__labels={"scenario": "{ns}"}), label="create")
    api.send("GET", "/apis/coordination.k8s.io/v1/leases?labelSelector=scenario%3D{ns}", label="list all")
    api.send("GET", "/api/v1/namespaces/nowhere/pods", label="list in no namespace")
    api.send("GET", "/api/v1/namespaces/nowhere/pods/p", label="get in no namespace")
    api.send("GET", "/api/v1/pods/p", label="get without namespace")
    api.send("GET", "/api/v1/namespaces/{ns}/nodes", label="cluster kind in a namespace")
    api.send("GET", "/api/v1/namespaces/{ns}", label="own namespace")
    api.send("GET", "/api/v1/namespaces/nowhere", label="no namespace")
    api.send("GET", "/api/v1/namespaces/{ns}/status", label="own namespace's status")


@SCENARIOS
def tables(api: Api) -> None:
    for path, body in EXAMPLES.items():
        kind = body["kind"]
        api.send("POST", path, {**body, "metadata": {"name": "one", "labels": {"mine": "yes"}}}, label=f"create {kind}")
        api.send("GET", f"{path}?labelSelector=mine", accept=TABLE, label=f"list {kind}")
        api.send("GET", f"{path}/one", accept=TABLE, label=f"get {kind}")
    api.send("POST", VOLUMES, a_volume(), label="create volume")
    api.send("GET", f"{VOLUMES}/v-{{ns}}", accept=TABLE, label="get volume")
    api.send("GET", f"{NAMESPACES}/{{ns}}", accept=TABLE, label="get namespace")
    api.send("GET", f"{PODS}/none", accept=TABLE, label="get nothing")
    api.send("GET", f"{DEFINITIONS}/pytorchjobs.kubeflow.org", accept=TABLE, label="get definition")
    for include in ("None", "Metadata", "Object", "Odd"):
        api.send("GET", f"{LEASES}/one?includeObject={include}", accept=TABLE, label=f"include {include}")
    api.send("GET", f"{LEASES}/one", accept=f"{TABLE},application/json", label="table or else plain")
    api.send("GET", f"{LEASES}/one", accept="application/json;as=Nothing;v=v1;g=meta.k8s.io", label="as nothing")
    partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    api.send("GET", f"{LEASES}/one", accept=partial, label="only metadata")
    partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    api.send("GET", f"{LEASES}?labelSelector=mine", accept=partial, label="only metadata of a list")


@SCENARIOS
def discovery(api: Api) -> None:
    paths = (
        "/api", "/api/v1", "/apis/apps", "/apis/apps/v1", "/apis/batch/v1", "/apis/coordination.k8s.io/v1",
        "/apis/kubeflow.org", "/apis/kubeflow.org/v1", "/apis/scheduling.k8s.io/v1",
        "/apis/rbac.authorization.k8s.io/v1",
        "/apis/apiextensions.k8s.io/v1", "/apis/nothing.example", "/apis/nothing.example/v1", "/api/v2", "/nothing",
    )  # fmt: skip
    for path in paths:
        api.send("GET", path, label=path, arrange=by_name)


def _arranged(resource: dict[str, Any]) -> dict[str, Any]:
    """Verbs too are a set; the hash is of the server's own making."""
    known = {key: value for key, value in resource.items() if key != "storageVersionHash"}
    return {**known, "verbs": sorted(resource["verbs"])}


def by_name(body: Any) -> Any:
    """The order of resources in a discovery list says nothing."""
    if isinstance(body, dict) and body.get("kind") == "APIResourceList":
        return {**body, "resources": {one["name"]: _arranged(one) for one in body["resources"]}}
    return body
