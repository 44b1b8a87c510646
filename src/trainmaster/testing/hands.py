"""What the rest of a cluster would do on a `FakeApi`: addresses for Services, pods for Jobs, life for pods.

tend(api)                # every new pod runs and is ready, every Job has a pod
finish(api, "launcher")  # pods of that name, and the Jobs that made them, succeed
"""

from __future__ import annotations

from typing import Any

from trainmaster.objects.meta import Json, mutable
from trainmaster.objects.resource import JOBS, PODS, SERVICES
from trainmaster.testing.fakeapi import FakeApi
from trainmaster.testing.fakeapi_store import merge


def tend(api: FakeApi) -> None:
    for service in api.objects(SERVICES):
        if "clusterIP" not in service["spec"]:
            api.put(SERVICES, merge(service, {"spec": {"clusterIP": f"10.96.7.{len(api.objects(SERVICES))}"}}))
    for job in api.objects(JOBS):
        if not _pods_of(api, job) and not job.get("status", {}).get("conditions"):
            api.put(PODS, _made(job))
    for pod in api.objects(PODS):
        if pod.get("status", {}).get("phase", "Pending") == "Pending":
            api.set_pod_phase(pod["metadata"]["namespace"], pod["metadata"]["name"], "Running")


def finish(api: FakeApi, only: str = "", *, exit_code: int = 0) -> None:
    """Every pod whose name contains `only` ends, and with it the Job that made it."""
    phase = "Failed" if exit_code else "Succeeded"
    for pod in api.objects(PODS):
        if only in pod["metadata"]["name"]:
            api.set_pod_phase(pod["metadata"]["namespace"], pod["metadata"]["name"], phase, exit_code=exit_code)
    for job in api.objects(JOBS):
        if only in job["metadata"]["name"]:
            api.put(JOBS, merge(job, {"status": _outcome(exit_code)}))


def _outcome(exit_code: int) -> dict[str, Any]:
    if not exit_code:
        return {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}
    told = {"reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
    return {"failed": 1, "conditions": [{"type": "Failed", "status": "True", **told}]}


def _pods_of(api: FakeApi, job: Json) -> list[Json]:
    uid = job["metadata"]["uid"]
    return [pod for pod in api.objects(PODS) if any(o["uid"] == uid for o in _owners(pod))]


def _owners(item: Json) -> list[Json]:
    owners: list[Json] = item["metadata"].get("ownerReferences") or []
    return owners


def _made(job: Json) -> Json:
    template = mutable(job["spec"]["template"])
    meta = job["metadata"]
    owner = {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "name": meta["name"], "uid": meta["uid"]}
    named = {"name": f"{meta['name']}-x2x", "namespace": meta["namespace"]}
    template["metadata"] = {
        **template["metadata"],
        **named,
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
    }
    return {"apiVersion": "v1", "kind": "Pod", **template}
