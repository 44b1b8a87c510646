"""A life of a job of every kind, from submission over the loss of a replica to success: what it looks like half-way and
at its end, and what an operator has to do for it.

Every step waits for a state, so a life does not mind who operates it, nor how often they die.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tests.kubernetes.cutting import Exchange, Proxy, is_of
from tests.kubernetes.mirror import Json, Mirror, Node, insist
from tests.unit.frameworks.paddle_jobs import a_paddle

from trainmaster import frameworks
from trainmaster.engine import labels
from trainmaster.objects.resource import (
    CONFIG_MAPS,
    JOBS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from trainmaster.testing.jobs import KINDS, LEADER, a_small
from trainmaster.testing.scene import Scene, a_job

OWN = (PODS, SERVICES, CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, JOBS)
RESOURCES = (*OWN, *(framework.resource for framework in frameworks.BUILT_IN))
GENERATED = re.compile(r"(-launcher)-[a-z0-9]{5}$")
"""The pod of a Kubernetes Job has a name that nobody can foresee."""

T = TypeVar("T")
MAKING = ("POST", "DELETE")

Picture = dict[str, Any]
Effects = Counter[tuple[str, str, str]]


@dataclass(frozen=True)
class Breed:
    """One sort of job, as its users write it."""

    name: str
    made: Callable[[str], Scene]
    victim: str
    """The replica that is lost half-way."""

    is_deleted: bool = False
    """Whether it is lost because somebody deletes it; else it dies of a signal."""

    leader: str = ""
    """The replicas whose success ends the job; all of them where nothing is said."""

    def resource(self) -> Resource:
        return self.made("any").framework.resource

    def manifest(self, name: str) -> Json:
        """For a scheduler that does not exist: the real one would try each pod again and again, for want of a node."""
        body: Json = _scheduled(self.made(name).manifest, "nobody")
        body["metadata"] = {"name": name, "namespace": "default"}
        return body

    def submitted(self) -> Resource:
        """Under the version that the author wrote."""
        return replace(self.resource(), version=self.manifest("any")["apiVersion"].partition("/")[2])


def _scheduled(value: Any, name: str) -> Any:
    if not isinstance(value, Mapping):
        return value
    body = {key: _scheduled(part, name) for key, part in value.items()}
    if "template" in body:
        body["template"]["spec"]["schedulerName"] = name
    return body


def _small(kind: str) -> Callable[[str], Scene]:
    return lambda name: a_small(kind, name, "ExitCode").policy(cleanPodPolicy="All")


def _mpi(version: str, restart: str | None) -> Callable[[str], Scene]:
    def made(name: str) -> Scene:
        scene = a_job("MPIJob", name, version=version).role("Launcher").role("Worker", 2, restart)
        cleaning = {"cleanPodPolicy": "All"}
        return scene.spec(**cleaning) if version == "v1alpha2" else scene.policy(**cleaning)

    return made


def _paddle(intranet: str) -> Callable[[str], Scene]:
    return lambda name: a_paddle(ps=1, worker=2, intranet=intranet, cleanPodPolicy="Always").meta(name=name)


DECIDING = {"TFJob": "worker-0", "MSJob": "worker-0"}
"""Where one worker decides: whether the others are done in time to be counted would be left to chance."""

BREEDS = (
    *(Breed(kind.lower(), _small(kind), "worker-1", leader=DECIDING.get(kind, LEADER.get(kind, ""))) for kind in KINDS),
    Breed("mpi-v1alpha2", _mpi("v1alpha2", None), "worker-1", leader="launcher"),
    Breed("mpi-v1", _mpi("v1", "OnFailure"), "worker-1", leader="launcher"),
    Breed("mpi-v2beta1", _mpi("v2beta1", None), "worker-1", is_deleted=True, leader="launcher"),
    Breed("pdj-podip", _paddle("PodIP"), "worker-1", is_deleted=True, leader="worker"),
    Breed("pdj-host", _paddle("Host"), "worker-1", is_deleted=True, leader="worker"),
)


@dataclass(frozen=True)
class Story:
    """What a life looked like when its loss was made good, and at its end."""

    midst: Picture
    end: Picture


class Life:
    def __init__(self, breed: Breed, name: str, mirror: Mirror, node: Node) -> None:
        self.breed, self.name = breed, name
        self._mirror, self._node = mirror, node
        self._client = mirror.client
        self._resource = breed.resource()
        self._replicas = len(list(breed.made(name).job.members()))
        mirror.track(name)

    async def live(self, expected: Story | None = None) -> Story:
        """Returns what it looked like; where something is expected, only when it looks so."""
        await insist(lambda: self._client.create(self.breed.submitted(), self.breed.manifest(self.name)))
        await self._until(self._is_running, "running")
        await self._lose_a_replica()
        await self._until(
            lambda: self._is_running() and self._is_as(expected.midst if expected else None), "running again"
        )
        midst = self.picture()
        for pod in self._pods():
            if self.breed.leader in pod["metadata"]["name"].removeprefix(self.name):
                await self._node.end(pod, 0)
        await self._until(lambda: self._has_ended() and self._is_as(expected and expected.end), "its end")
        return Story(midst, self.picture())

    async def be_deleted(self) -> None:
        """Returns when the job is gone, and all that it owned."""
        job = self._mirror.get(self._resource, self.name)
        assert job is not None
        uid = job["metadata"]["uid"]
        await insist(lambda: self._client.delete(self._resource, self.name, "default", uid=uid))
        await self._until(lambda: self._mirror.get(self._resource, self.name) is None, "being gone")
        try:
            await self._until(lambda: not any(self._named(own) for own in OWN), "its objects to be gone")
        except AssertionError as error:
            raise AssertionError(f"{error}; its uid was {uid}, and there are {await self._left()}") from None

    async def _left(self) -> str:
        """What the server has, and what we have heard of it: who has not heard of its end may be a collector, or we."""
        told = {}
        for own in OWN:
            for heard in self._mirror.named(own, self.name).values():
                name = heard["metadata"]["name"]
                page = await self._client.list(own, "default", field_selector=f"metadata.name={name}")
                held = [item["metadata"] for item in page.items]
                told[f"{own.plural}/{name}"] = {"server": held, "heard": heard["metadata"]}
        return json.dumps(told)

    def picture(self) -> Picture:
        """Without names of its own, uids and times."""
        status = self._status
        told: dict[str, Any] = {
            "conditions": [[c["type"], c["status"], c.get("reason")] for c in status.get("conditions", ())],
            **{key: status[key] for key in ("phase", "replicaStatuses", "attempts", "completed") if key in status},
        }
        objects = {own.plural: self._named(own) for own in OWN if own != PODS}
        pods = {GENERATED.sub(r"\1", name): _of_pod(pod) for name, pod in self._mirror.named(PODS, self.name).items()}
        picture: Picture = json.loads(json.dumps({**told, **objects, "pods": pods}).replace(self.name, "job"))
        return picture

    def _named(self, own: Resource) -> list[str]:
        """Without the tokens of accounts: another controller removes them, and takes its time after an outage."""
        return [name for name in self._mirror.named(own, self.name) if own != SECRETS or "-token-" not in name]

    async def _lose_a_replica(self) -> None:
        name = f"{self.name}-{self.breed.victim}"
        victim = self._mirror.get(PODS, name)
        assert victim is not None
        if self.breed.is_deleted:
            await insist(lambda: self._client.delete(PODS, name, "default", uid=victim["metadata"]["uid"]))
        else:
            await self._node.end(victim, 137)

        def is_replaced() -> bool:
            pod = self._mirror.get(PODS, name)
            return pod is not None and pod["metadata"]["uid"] != victim["metadata"]["uid"]

        await self._until(is_replaced, "a new replica")

    async def _until(self, check: Callable[[], bool], what: str) -> None:
        try:
            await self._mirror.until(self.name, check, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {json.dumps(self.picture())}") from None

    @property
    def _status(self) -> Json:
        status: Json = (self._mirror.get(self._resource, self.name) or {}).get("status") or {}
        return status

    def _pods(self) -> list[Json]:
        return list(self._mirror.named(PODS, self.name).values())

    def _is_running(self) -> bool:
        """And its status knows of every pod."""
        pods = self._pods()
        replicas = (self._status.get("replicaStatuses") or {}).values()
        counts = [self._status.get(role, {}) for role in ("ps", "worker")] if "phase" in self._status else replicas
        known = sum(count.get("running", 0) or count.get("active", 0) for count in counts)
        is_complete = len(pods) == self._replicas and all(pod["status"].get("phase") == "Running" for pod in pods)
        return is_complete and known == len(pods) and self._last() == "Running"

    def _has_ended(self) -> bool:
        """And its replicas are tidied up, with their Services; what a Kubernetes Job has made stays for its log."""
        left = [*self._mirror.named(PODS, self.name), *self._mirror.named(SERVICES, self.name)]
        is_tidy = all(not name or GENERATED.search(name) for name in left)
        return is_tidy and self._last() in ("Succeeded", "Completed")

    def _last(self) -> str:
        conditions = self._status.get("conditions", ())
        return str(self._status.get("phase") or (conditions[-1]["type"] if conditions else ""))

    def _is_as(self, expected: Picture | Story | None) -> bool:
        return expected is None or self.picture() == expected


@dataclass(frozen=True)
class Undisturbed:
    """A life with nothing in its way."""

    story: Story
    effects: Effects
    writes: int


async def lead_undisturbed(proxy: Proxy, mirror: Mirror, node: Node, name: str = "calm") -> dict[Breed, Undisturbed]:
    """One life of each breed, under whichever operator runs behind that proxy."""
    lives = [Life(breed, f"{breed.name}-{name}", mirror, node) for breed in BREEDS]
    stories = await together({life.name: life.live() for life in lives})
    await proxy.settled()
    return {
        life.breed: Undisturbed(
            stories[life.name],
            effects_of(proxy.record, life.name),
            sum(is_of(write.name, life.name) for write in proxy.writes),
        )
        for life in lives
    }


async def together(works: Mapping[str, Coroutine[Any, Any, T]]) -> dict[str, T]:
    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(work, name=name) for name, work in works.items()}
    return {name: task.result() for name, task in tasks.items()}


def effects_of(record: Iterable[Exchange], job: str) -> Effects:
    """What was made and removed for the job, and how often. In how many steps it was changed is left to chance."""
    effects = (e.effect for e in record if e.is_write and e.took_effect and is_of(e.name, job))
    return Counter((verb, plural, name.removeprefix(job)) for verb, plural, name in effects if verb in MAKING)


def _of_pod(pod: Json) -> list[Any]:
    return [pod["status"].get("phase"), pod["metadata"].get("annotations", {}).get(labels.ATTEMPT)]
