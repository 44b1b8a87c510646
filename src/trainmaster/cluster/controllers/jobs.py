"""batch/v1 Jobs: pods until enough of them succeeded, as far as training needs them (MPI launchers are Jobs).

Served: parallelism, completions, completionMode (also Indexed), backoffLimit with growing pauses, suspend,
activeDeadlineSeconds, ttlSecondsAfterFinished, podReplacementPolicy. Accepted without effect: podFailurePolicy,
successPolicy and the limits per index. A Job with `managedBy` of somebody else is left to them. `jobs_plan` decides;
this file does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from trainmaster.cluster.controllers.control import (
    Loop,
    Objects,
    Registry,
    has_finalizer,
    is_terminating,
    key_of,
    without_finalizer,
)
from trainmaster.cluster.controllers.jobs_plan import INDEX, TRACKING, Plan, plan
from trainmaster.cluster.controllers.owned import OwnedPods, controller_reference
from trainmaster.cluster.controllers.recorder import Recorder
from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.cluster.storage.store import Change

Json: TypeAlias = Mapping[str, Any]

_BUILT_IN = "kubernetes.io/job-controller"


def pod_for(job: Json, index: int | None) -> dict[str, Any]:
    """A pod of the Job's template, to be named by the API server: `<job>-xxxxx`."""
    template, metadata = job["spec"]["template"], job["metadata"]
    inner = template.get("metadata") or {}
    uid, name = metadata["uid"], metadata["name"]
    labels = {
        **(inner.get("labels") or {}),
        "controller-uid": uid,
        "job-name": name,
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
    }
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{name}-",
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": dict(inner.get("annotations") or {}),
            "finalizers": [*(inner.get("finalizers") or ()), TRACKING],
            "ownerReferences": [controller_reference(job)],
        },
        "spec": template["spec"],
    }
    return pod if index is None else _indexed(pod, name, index)


def _indexed(pod: dict[str, Any], job: str, index: int) -> dict[str, Any]:
    """Each container learns its index, and the pod's host name is `<job>-<index>`."""
    metadata, spec = pod["metadata"], pod["spec"]
    env = {
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}},
    }
    containers = {
        name: [{**each, "env": [*(each.get("env") or ()), env]} for each in spec[name]]
        for name in ("containers", "initContainers")
        if spec.get(name)
    }
    return {
        **pod,
        "metadata": {
            **metadata,
            "generateName": f"{job}-{index}-",
            "labels": {**metadata["labels"], INDEX: str(index)},
            "annotations": {**metadata["annotations"], INDEX: str(index)},
        },
        "spec": {**spec, "hostname": spec.get("hostname") or f"{job}-{index}", **containers},
    }


class JobKeeper:
    def __init__(self, registry: Registry, *, now: Callable[[], float]) -> None:
        self._now = now
        self._jobs = Objects.of(registry, "batch", "v1", "jobs")
        self._pods = Objects.of(registry, "", "v1", "pods")
        self._owned = OwnedPods(self._pods, "batch", "Job")
        self._recorder = Recorder(registry, "job-controller", now=now)
        sources = {self._jobs.kind.prefix: self._job_changed, self._pods.kind.prefix: self._owned.changed}
        self._loop: Loop[str] = Loop("jobs", registry.store, sources, self._reconcile)

    async def run(self) -> None:
        await self._loop.run()

    def _job_changed(self, change: Change) -> Iterator[str]:
        yield change.entry.key

    async def _reconcile(self, key: str) -> float | None:
        job = self._jobs.get(key)
        uid = job["metadata"]["uid"] if job is not None else ""
        await self._let_go([pod for pod in self._owned.pods(key) if self._owned.owner_uid(pod) != uid])
        if job is None or job["spec"].get("managedBy", _BUILT_IN) != _BUILT_IN:
            return None
        pods = [pod for pod in self._owned.pods(key) if self._owned.owner_uid(pod) == uid]
        decided = plan(job, pods, self._now())
        await self._carry_out(decided, job)
        return decided.wake

    async def _carry_out(self, decided: Plan, job: Json) -> None:
        if decided.status != (job.get("status") or {}):
            before = (job.get("status") or {}).get("conditions") or ()
            job = await self._jobs.update({**job, "status": dict(decided.status)}, subresource="status")
            for condition in job["status"].get("conditions") or ():
                if condition not in before:
                    await self._tell(job, condition)
        await self._let_go(decided.release)
        for pod in decided.delete:
            await self._delete(job, pod)
        for index in decided.create:
            await self._create(job, index)
        if decided.expire:
            await self._jobs.delete(job, policy="Foreground")

    async def _let_go(self, pods: tuple[Json, ...] | list[dict[str, Any]]) -> None:
        """Off with the finalizer of pods that are counted, or that nobody will count."""
        for pod in pods:
            if has_finalizer(pod, TRACKING):
                await self._pods.update(without_finalizer(pod, TRACKING))

    async def _delete(self, job: Json, pod: Json) -> None:
        await self._let_go((pod,))
        if not is_terminating(pod):
            await self._pods.delete(pod)
            await self._recorder.record(job, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")

    async def _create(self, job: Json, index: int | None) -> None:
        try:
            pod = await self._pods.create(pod_for(job, index))
        except ApiError as error:
            await self._recorder.record(job, "FailedCreate", f"Error creating: {error.message}", warning=True)
            raise
        self._owned.add(key_of(job), pod)
        await self._recorder.record(job, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")

    async def _tell(self, job: Json, condition: Json) -> None:
        """An event when the Job has just finished, been suspended or resumed."""
        type_, message = condition["type"], condition["message"]
        if type_ == "Complete":
            await self._recorder.record(job, "Completed", "Job completed")
        elif type_ == "Suspended":
            await self._recorder.record(job, "Suspended" if condition["status"] == "True" else "Resumed", message)
        else:
            await self._recorder.record(job, condition["reason"], message, warning=True)
