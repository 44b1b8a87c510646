"""A cluster as a test of the suite sees it: jobs to submit, a kubelet to play, and states to wait for by watches.

await cluster.submit(job)
await cluster.pods(job, 3)
await cluster.play(job, "Running")
await cluster.last(job, "Running")
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Any

from tests.integration.bed import changes
from tests.suite.servers import Server

from trainmaster import frameworks
from trainmaster.kube.client import Client
from trainmaster.kube.errors import NotFound
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import EVENTS, PODS, SERVICES, Resource
from trainmaster.testing.jobs import ROLES, a_small
from trainmaster.testing.patience import PATIENCE

Seen = dict[str, Json]
"""Objects by name."""


def resource_of(job: Json) -> Resource:
    """In the version that we store."""
    found = frameworks.serving(job["apiVersion"], job["kind"])
    assert found is not None
    return found[1]


def written_as(job: Json) -> Resource:
    """In the version that its author wrote."""
    return replace(resource_of(job), version=job["apiVersion"].partition("/")[2])


def named(found: Json) -> str:
    return str(found["metadata"]["name"])


@dataclass(frozen=True)
class Cluster:
    server: Server
    client: Client
    namespace: str = "default"

    def within(self, namespace: str) -> Cluster:
        return replace(self, namespace=namespace)

    # What users and administrators do.

    async def submit(self, job: Json, resource: Resource | None = None) -> Json:
        """As it was written: in this namespace, under its own version, and without what only a server gives."""
        kept = {key: value for key, value in job["metadata"].items() if key not in ("uid", "namespace")}
        body = {**job, "metadata": {**kept, "namespace": self.namespace}}
        return await self.client.create(resource or written_as(job), body)

    async def change(self, job: Json, patch: Json, subresource: str = "") -> Json:
        return await self.client.patch(resource_of(job), named(job), patch, self.namespace, subresource)

    async def policy(self, job: Json, **fields: Any) -> Json:
        return await self.change(job, {"spec": {"runPolicy": fields}})

    async def get(self, resource: Resource, name: str) -> Json:
        return await self.client.get(resource, name, self.namespace)

    async def remove(self, resource: Resource, name: str, **how: Any) -> None:
        await self.client.delete(resource, name, self.namespace, **how)

    async def exists(self, resource: Resource, name: str) -> bool:
        try:
            await self.get(resource, name)
        except NotFound:
            return False
        return True

    # What a kubelet does.

    async def play(self, job: Json, phase: str, exit_code: int | None = None, only: str = "", **more: Any) -> None:
        """The pods of a job whose names contain that text reach this phase. The end of one may be the end of the job,
        whose other pods are then removed: nothing more is reported of those, as by any kubelet."""

        async def report(pod: Json) -> None:
            with suppress(NotFound):
                await self._report(pod, phase, exit_code, **more)

        async with asyncio.TaskGroup() as group:
            for name, pod in (await self.standing(job)).items():
                if only in name:
                    group.create_task(report(pod), name=f"play {name}")

    async def set_phase(self, name: str, phase: str, exit_code: int | None = None, restarts: int = 0) -> None:
        """One pod reaches this phase."""
        await self._report(await self.get(PODS, name), phase, exit_code, restarts)

    async def _report(self, pod: Json, phase: str, exit_code: int | None = None, restarts: int = 0) -> None:
        """As a kubelet does."""
        container = pod["spec"]["containers"][0]
        state = {"terminated": {"exitCode": exit_code}} if exit_code is not None else {"running": {}}
        status = {
            "name": container["name"],
            "image": "x",
            "imageID": "",
            "ready": True,
            "restartCount": restarts,
            "state": state,
        }
        ready = "True" if phase == "Running" else "False"
        conditions = [{"type": "Ready", "status": ready}]
        body = {"status": {"phase": phase, "containerStatuses": [status], "conditions": conditions}}
        await self.client.patch(PODS, named(pod), body, self.namespace, "status")

    # What there is, now or in a while.

    async def until(
        self, resource: Resource, is_so: Callable[[Seen], Any], what: str, *, fields: str = "", labels: str = ""
    ) -> Seen:
        """The selected objects, once that holds of them."""
        held: Seen = {}
        is_listed = False
        seen = changes(self.client, resource, PATIENCE, self.namespace, fields, labels)
        async with aclosing(seen):
            async for kind, found in seen:
                if kind == "DELETED":
                    held.pop(found["metadata"]["name"], None)
                elif kind != "LISTED":
                    held[found["metadata"]["name"]] = found
                is_listed = is_listed or kind == "LISTED"
                if is_listed and is_so(held):
                    return held
        there = {name: found.get("status") for name, found in held.items()}
        raise AssertionError(f"waited {PATIENCE:g} s for {what}; there is {there}")

    async def object(self, resource: Resource, name: str, is_so: Callable[[Json], Any] = bool) -> Json:
        """The object, once it is there and that holds of it."""
        found = await self.until(
            resource,
            lambda held: name in held and is_so(held[name]),
            f"{resource.kind} {name}",
            fields=f"metadata.name={name}",
        )
        return found[name]

    async def gone(self, resource: Resource, name: str) -> None:
        await self.until(
            resource,
            lambda held: not held,
            f"{resource.kind} {name} to go",
            fields=f"metadata.name={name}",
        )

    async def job(self, job: Json, is_so: Callable[[Json], Any] = bool) -> Json:
        try:
            return await self.object(resource_of(job), named(job), is_so)
        except AssertionError as error:
            error.add_note(await self._account(job))
            raise

    async def _account(self, job: Json) -> str:
        """What became of a job that did not come to what was expected of it, for whoever reads the failed test."""
        standing = (await self.standing(job)).values()
        facts = [(pod["metadata"], pod.get("status", {}).get("phase")) for pod in standing]
        pods = [f"{meta['name']} {meta['uid']} {meta['creationTimestamp']} {phase}" for meta, phase in facts]
        page = await self.client.list(EVENTS, self.namespace, field_selector=f"involvedObject.name={named(job)}")
        told = [f"{event['lastTimestamp']} {event['reason']}: {event['message']}" for event in page.items]
        return "\n".join(["Its pods:", *pods, "Its events:", *told])

    async def status(self, job: Json, is_so: Callable[[Json], Any] = bool) -> Json:
        found = await self.job(job, lambda held: held.get("status") and is_so(held["status"]))
        return dict(found["status"])

    async def last(self, job: Json, condition: str) -> Json:
        """The status, once this condition is its last and true."""
        return await self.status(job, lambda status: conditions(status)[-1:] == [(condition, "True")])

    async def standing(self, job: Json, resource: Resource = PODS) -> Seen:
        """What the job has of these now."""
        page = await self.client.list(resource, self.namespace, label_selector=_labels(job))
        return {item["metadata"]["name"]: item for item in page.items}

    async def pods(self, job: Json, wanted: int | Collection[str], is_so: Callable[[Json], Any] = bool) -> Seen:
        """The job's pods, once there are so many, or those of these names, and that holds of each."""
        return await self._objects(PODS, job, wanted, is_so)

    async def services(self, job: Json, wanted: int | Collection[str]) -> Seen:
        return await self._objects(SERVICES, job, wanted, bool)

    async def _objects(
        self, resource: Resource, job: Json, wanted: int | Collection[str], is_so: Callable[[Json], Any]
    ) -> Seen:
        def there(held: Seen) -> bool:
            is_all = len(held) == wanted if isinstance(wanted, int) else set(held) == set(wanted)
            return is_all and all(map(is_so, held.values()))

        return await self.until(resource, there, f"{wanted} {resource.plural} of {named(job)}", labels=_labels(job))

    async def event(self, job: Json, reason: str, holds: str = "") -> Json:
        """The event about the job that gives this reason and whose message holds this text."""

        def told(held: Seen) -> list[Json]:
            return [event for event in held.values() if holds in event["message"]]

        uid = (await self.get(resource_of(job), named(job)))["metadata"]["uid"]
        selected = f"involvedObject.uid={uid},reason={reason}"
        return told(await self.until(EVENTS, told, f"event {reason} of {named(job)}", fields=selected))[0]

    async def events(self, job: Json) -> list[str]:
        """The reasons of all that has been said about the job so far."""
        uid = (await self.get(resource_of(job), named(job)))["metadata"]["uid"]
        page = await self.client.list(EVENTS, self.namespace, field_selector=f"involvedObject.uid={uid}")
        return sorted(event["reason"] for event in page.items)

    async def witnessed(self, job: Json) -> None:
        """Another job of the kind starts and runs: whatever was to follow from what went before has followed."""
        witness = a_small(job["kind"], f"{named(job)}-witness").manifest
        await self.submit(witness)
        await self.pods(witness, sum(ROLES[job["kind"]].values()))
        await self.play(witness, "Running")
        await self.last(witness, "Running")


def conditions(status: Json) -> list[tuple[str, str]]:
    return [(condition["type"], condition["status"]) for condition in status.get("conditions", ())]


def active(status: Json) -> dict[str, int]:
    """How many replicas run, by role; roles of which none does are left out."""
    counts = {role: counted.get("active", 0) for role, counted in status.get("replicaStatuses", {}).items()}
    return {role: count for role, count in counts.items() if count}


def condition(status: Json, kind: str) -> Json:
    return next(each for each in status["conditions"] if each["type"] == kind)


def _labels(job: Json) -> str:
    return f"training.kubeflow.org/job-name={named(job)}"
