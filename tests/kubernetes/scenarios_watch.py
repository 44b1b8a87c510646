"""Watches: which events come in which order, selectors, ends and refusals."""

from __future__ import annotations

from typing import Any

from tests.kubernetes.exchange import Api
from tests.kubernetes.scenario import Scenarios
from tests.kubernetes.specimens import CONFIG_MAPS, JOBS, LEASES, MERGE, PODS, TABLE, a_job, a_lease, a_pod

SCENARIOS = Scenarios()
END = "timeoutSeconds=1"


def live(api: Api) -> str:
    """A list's version, then two objects made, changed and one removed."""
    listed = api.send("GET", LEASES, label="list")
    version: str = listed["metadata"]["resourceVersion"]
    api.send("POST", LEASES, a_lease("a", metadata__labels={"k": "1"}), label="create a")
    api.send("POST", LEASES, a_lease("b"), label="create b")
    body: dict[str, Any] = {"metadata": {"labels": {"k": None}}, "spec": {"holderIdentity": "you"}}
    api.send("PATCH", f"{LEASES}/a", body, content_type=MERGE, label="change a")
    api.send("PATCH", f"{LEASES}/b", {"metadata": {"labels": {"k": "1"}}}, content_type=MERGE, label="label b")
    api.send("PATCH", f"{LEASES}/b", {"metadata": {"labels": {"k": "1"}}}, content_type=MERGE, label="no change of b")
    api.send("DELETE", f"{LEASES}/a", label="delete a")
    return version


@SCENARIOS
def watch_from_a_version(api: Api) -> None:
    version = live(api)
    api.watch(f"{LEASES}?watch=true&{END}&resourceVersion={version}", label="all")
    api.watch(f"{LEASES}?watch=1&{END}&resourceVersion={version}&labelSelector=k%3D1", label="labelled")
    api.watch(f"{LEASES}?watch=true&{END}&resourceVersion={version}&fieldSelector=metadata.name%3Db", label="by name")
    api.watch(f"{LEASES}?watch=true&{END}&resourceVersion={version}&allowWatchBookmarks=true", label="bookmarks")
    prefix = "/apis/coordination.k8s.io/v1/watch/namespaces/{ns}/leases"
    api.watch(f"{prefix}?{END}&resourceVersion={version}", label="old way")
    api.watch(f"{prefix}/b?{END}&resourceVersion={version}", label="old way, one object")


@SCENARIOS
def watch_from_now(api: Api) -> None:
    live(api)
    api.watch(f"{LEASES}?watch=true&{END}", label="without version")
    api.watch(f"{LEASES}?watch=true&{END}&resourceVersion=0", label="from any")
    api.watch(f"{LEASES}?watch=true&{END}&resourceVersion=0", label="as table", accept=TABLE)


@SCENARIOS
def watch_refused(api: Api) -> None:
    api.watch(f"{LEASES}?watch=true&{END}&resourceVersion=1", label="too old")
    api.send("GET", f"{LEASES}?watch=true&{END}&resourceVersion=x", label="bad version")
    api.send("GET", f"{LEASES}?watch=true&{END}&labelSelector=a%20b", label="bad selector")
    api.send("GET", f"{LEASES}?watch=true&{END}&fieldSelector=spec.x%3D1", label="bad field")
    api.send("GET", f"{LEASES}?watch=true&timeoutSeconds=x", label="bad timeout")
    api.send("GET", "/apis/coordination.k8s.io/v1/namespaces/{ns}/nothings?watch=true", label="unknown resource")


@SCENARIOS
def watch_pods_and_jobs(api: Api) -> None:
    version = api.send("GET", PODS, label="list")["metadata"]["resourceVersion"]
    api.send("POST", PODS, a_pod(spec__nodeName="somewhere"), label="create")
    api.send("PATCH", f"{PODS}/p/status", {"status": {"phase": "Running"}}, content_type=MERGE, label="run")
    api.send("DELETE", f"{PODS}/p", label="delete")
    api.send("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0}, label="end")
    api.watch(f"{PODS}?watch=true&{END}&resourceVersion={version}", label="pods")
    selector = "fieldSelector=status.phase%3DRunning"
    api.watch(f"{PODS}?watch=true&{END}&resourceVersion={version}&{selector}", label="running pods")
    version = api.send("GET", JOBS, label="list jobs")["metadata"]["resourceVersion"]
    api.send("POST", JOBS, a_job(), label="create job")
    api.send("PATCH", f"{JOBS}/j/status", {"status": {"startTime": "2026-01-02T03:04:05Z"}}, content_type=MERGE,
             label="job status")  # fmt: skip
    api.send("DELETE", f"{JOBS}/j", label="delete job")
    api.watch(f"{JOBS}?watch=true&{END}&resourceVersion={version}", label="jobs")
    api.watch(f"{CONFIG_MAPS}?watch=true&{END}&labelSelector=none", label="nothing")
