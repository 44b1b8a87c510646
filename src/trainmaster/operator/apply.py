"""The one writer: carries a plan out.

Status first, if it changed: its resourceVersion makes the server refuse a plan made from a stale picture before
anything was done. Then deletes, then patches and creates stage by stage, each stage at once; events last, so that
they never tell of what did not happen. Every answer goes into the caches before the next reconcile reads them.
A failed action does not stop its neighbours, but the stages after it: pods must not meet a stranger's files under
the names of the job's own. The reconcile as a whole is then tried again, unless a template of the job's own was refused
as invalid, which trying again does not mend. That something is gone is believed only of an
answer that names it: a server that has just started does not know our kinds yet.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Protocol

from trainmaster.api import status
from trainmaster.api.framework import Framework
from trainmaster.api.job import Job
from trainmaster.engine import labels
from trainmaster.engine.actions import Action, Claim, Create, Delete, Patch
from trainmaster.engine.plan import Plan
from trainmaster.kube.client import Client
from trainmaster.kube.errors import AlreadyExists, Conflict, Invalid, KubeError, NoSuchObject
from trainmaster.kube.recorder import EventType, Reference
from trainmaster.objects.meta import Object, Stored
from trainmaster.objects.resource import JOBS, PODS, SERVICES, Resource
from trainmaster.operator.metrics import JobMetrics
from trainmaster.operator.observe import World

IN_FLIGHT = 40
"""Actions under way at once, over all jobs of a kind: each holds a connection, and a connection 120 KB."""

IN_FLIGHT_OF_ONE = 32
"""The same of one job: what others ask for waits neither behind the thousand replicas of a large one, nor for a server
that does not answer it, as where a webhook of its namespace hangs."""

STANDS_STILL = "Error updating status: {}. Nothing more is done for this job until that field is corrected"
"""A server checks the whole object when its status is written. A job that an older operator accepted may not pass."""


class NotLeading(KubeError):
    """This process may not write: another may be leading."""


class NameTaken(KubeError):
    """An object of the wanted name exists and is somebody else's."""


class LeftOver(NameTaken):
    """It is that of a job of the same name which was deleted, or is going for another reason: it will be gone soon."""


class TemplateRefused(KubeError):
    """The server takes no pod of this template. `name` is that of the object which it refused."""

    def __init__(self, name: str, error: Invalid) -> None:
        super().__init__(error.message)
        self.name = name


class Recorder(Protocol):
    def event(
        self, regarding: Reference, type: EventType, reason: str, message: str, *, repeat: bool = True
    ) -> None: ...


@dataclass
class Outcome:
    """What became of the actions."""

    done: list[Action] = field(default_factory=list)
    failed: list[tuple[Action, KubeError]] = field(default_factory=list)


class Applier:
    def __init__(
        self,
        client: Client,
        world: World,
        recorder: Recorder,
        metrics: JobMetrics,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client = client.fenced(self._check_leading)
        self._world = world
        self._recorder = recorder
        self._metrics = metrics
        self._may_write = may_write
        self._slots = asyncio.Semaphore(IN_FLIGHT)

    async def apply(self, framework: Framework, job: Job, plan: Plan) -> None:
        if not await self._write_status(job, plan):
            return
        for mark in plan.marks:
            self._metrics.marked(mark, job.namespace, framework.name)
        taken = [error for claim in plan.claims if (error := await self._conflict(claim, job)) is not None]
        outcome = await self._carry_out([a for a in plan.actions if not taken or not _makes_pod(a)], job)
        for event in plan.events:
            self._tell(job, event.type, event.reason, event.message, repeat=event.repeat)
        self._report(job, outcome)
        if (refused := _refused(outcome)) is not None:
            raise refused
        if outcome.failed or taken:
            raise ExceptionGroup("some actions failed", [*taken, *(error for _, error in outcome.failed)])

    async def _conflict(self, claim: Claim, job: Job) -> NameTaken | None:
        """Users hear of it: until then they see a job that does nothing."""
        kind = self._world.type(claim.resource)
        try:
            held: Stored = await self._client.get(claim.resource, claim.name, job.namespace, type=kind)
        except NoSuchObject:
            return None
        if held.metadata.is_controlled_by(job.meta.uid):
            return None
        error = _taken(claim.resource, held, job)
        self._tell_failure(job, claim.resource, error)
        return error

    async def _write_status(self, job: Job, plan: Plan) -> bool:
        """Whether the job is still there to act for."""
        if plan.status == job.status:
            return True
        metadata = {
            "name": job.name,
            "namespace": job.namespace,
            "uid": job.meta.uid,
            "resourceVersion": job.meta.resource_version,
        }
        body = {
            "apiVersion": job.resource.api_version,
            "kind": job.kind,
            "metadata": metadata,
            "status": status.render(plan.status),
        }
        try:
            written = await self._client.update(job.resource, body, job.namespace, "status", type=Object)
        except NoSuchObject:
            return False
        except Invalid as error:
            self._tell(job, "Warning", "FailedUpdateStatus", STANDS_STILL.format(error.message), repeat=False)
            raise
        self._world.cache(job.resource).wrote(written)
        return True

    async def _carry_out(self, actions: Sequence[Action], job: Job) -> Outcome:
        outcome = Outcome()
        for order, stage in groupby(sorted(actions, key=_order), key=_order):
            waiting = deque(stage)
            async with asyncio.TaskGroup() as group:
                for lane in range(min(IN_FLIGHT_OF_ONE, len(waiting))):
                    group.create_task(self._attempt(waiting, job, outcome), name=f"write {job.name} {order}.{lane}")
            if outcome.failed:
                break
        return outcome

    async def _attempt(self, waiting: deque[Action], job: Job, outcome: Outcome) -> None:
        """Carry out one action after another until none is left. Each builds its body only when it has its slot, so
        that of ten thousand pods few are in memory at a time."""
        while waiting:
            action = waiting.popleft()
            async with self._slots:
                try:
                    is_news = await self._do(action, job)
                except KubeError as error:
                    outcome.failed.append((action, _without_frames(error)))
                else:
                    outcome.done += [action] if is_news else []

    def _check_leading(self) -> None:
        if not self._may_write():
            raise NotLeading("another process may be leading by now")

    async def _do(self, action: Action, job: Job) -> bool:
        """Whether users are to hear of it."""
        match action:
            case Create():
                return await self._create(action, job)
            case Patch(resource, target, body):
                changed = await self._client.patch(
                    resource, target.name, body, target.namespace, type=self._world.type(resource)
                )
                self._world.cache(resource).wrote(changed)
            case Delete():
                await self._delete(action)
        return True

    async def _create(self, action: Create, job: Job) -> bool:
        """Whether it is new: what an older operator has made is not."""
        resource = action.resource
        kind = self._world.type(resource)
        body = {**action.body, **action.secret()} if action.secret is not None else action.body
        try:
            made, is_new = await self._client.create(resource, body, job.namespace, type=kind), True
        except AlreadyExists:
            made, is_new = await self._adopt(action, job)
        self._world.cache(resource).wrote(made)
        return is_new

    async def _adopt(self, action: Create, job: Job) -> tuple[Stored, bool]:
        """The object that stands there, if it is the job's: made by a pass we forgot, or by an older operator.
        That one may have labelled it otherwise, so that our watch does not see it: then it gets our labels too."""
        resource, kind = action.resource, self._world.type(action.resource)
        held: Stored = await self._client.get(resource, action.name, job.namespace, type=kind)
        if not held.metadata.is_controlled_by(job.meta.uid):
            if action.yields and held.metadata.controller is None:
                return held, False
            raise _taken(resource, held, job)
        wanted = action.body["metadata"].get("labels", {})
        if labels.JOB_NAME not in wanted or labels.JOB_NAME in held.metadata.labels:
            return held, True
        body = {"metadata": {"resourceVersion": held.metadata.resource_version, "labels": wanted}}
        return await self._client.patch(resource, action.name, body, job.namespace, type=kind), False

    async def _delete(self, action: Delete) -> None:
        resource, target = action.resource, action.target
        cache = self._world.cache(resource)
        try:
            left = await self._client.delete(
                resource, target.name, target.namespace, uid=target.uid, type=self._world.type(resource)
            )
        except NoSuchObject:
            left = None
        if left is None:
            cache.removed(target.key, target.uid)
        else:
            cache.wrote(left)

    def _report(self, job: Job, outcome: Outcome) -> None:
        """Events and counts for what was done, one event per sort however many objects it names."""
        sorts = _by_sort(outcome.done)
        for (verb, resource), names in sorts.items():
            count = self._metrics.created if verb == "Create" else self._metrics.deleted
            for _ in names:
                count(resource)
        # Pods come with their Services: one event tells of both.
        along = sorts.pop(("Create", SERVICES), []) if ("Create", PODS) in sorts else []
        for (verb, resource), names in sorts.items():
            noun = "Job" if resource == job.resource else resource.kind
            more = f"; {_named('Service', along)}" if along and (verb, resource) == ("Create", PODS) else ""
            self._tell(job, "Normal", f"Successful{verb}{noun}", f"{verb}d {_named(noun, names)}{more}")
        for action, error in outcome.failed:
            if isinstance(error, Conflict):
                continue  # our picture was old; the next pass has a newer one, and users need not know
            if isinstance(action, Create):
                self._metrics.not_created(action.resource)
                self._tell_failure(job, action.resource, error)
            elif isinstance(action, Delete):
                self._tell(
                    job, "Warning", f"FailedDelete{action.resource.kind}", f"Error deleting: {error}", repeat=False
                )

    def _tell_failure(self, job: Job, resource: Resource, error: KubeError) -> None:
        if isinstance(error, LeftOver):
            self._tell(job, "Normal", "WaitingForCleanup", str(error), repeat=False)
        else:
            self._tell(job, "Warning", f"FailedCreate{resource.kind}", f"Error creating: {error}", repeat=False)

    def _tell(self, job: Job, type: EventType, reason: str, message: str, *, repeat: bool = True) -> None:
        reference = Reference(job.resource.api_version, job.kind, job.namespace, job.name, job.meta.uid)
        self._recorder.event(reference, type, reason, message, repeat=repeat)


def _without_frames(error: KubeError) -> KubeError:
    """Drop the stack of an error that is kept: in its frames are the body and the bytes of what was refused."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error


def _order(action: Action) -> int:
    """Deletes, then what is created or changed by stage."""
    match action:
        case Delete():
            return -1
        case Patch():
            return 0
        case Create(stage=stage):
            return int(stage)


def _by_sort(actions: Iterable[Action]) -> dict[tuple[str, Resource], list[str]]:
    sorts: dict[tuple[str, Resource], list[str]] = {}
    for action in sorted(actions, key=lambda action: (_order(action), action.name)):
        if not isinstance(action, Patch):
            verb = "Create" if isinstance(action, Create) else "Delete"
            sorts.setdefault((verb, action.resource), []).append(action.name)
    return sorts


def _named(noun: str, names: Sequence[str]) -> str:
    """`pod: a`, `pods: a, b`, in the wording that scripts know from upstream."""
    word = {"Pod": "pod", "Service": "service", "Job": "job"}.get(noun, noun)
    return f"{word}: {names[0]}" if len(names) == 1 else f"{word}s: {', '.join(names)}"


def _makes_pod(action: Action) -> bool:
    return isinstance(action, Create) and action.resource == PODS


def _refused(outcome: Outcome) -> TemplateRefused | None:
    for action, error in outcome.failed:
        if isinstance(error, Invalid) and isinstance(action, Create) and action.resource in (PODS, JOBS):
            return TemplateRefused(action.name, error)
    return None


def _taken(resource: Resource, held: Stored, job: Job) -> NameTaken:
    what, owner = f'{resource.plural} "{held.metadata.name}"', held.metadata.controller
    mine = (job.resource.group, job.kind, job.name)
    if owner is not None and (owner.api_version.partition("/")[0], owner.kind, owner.name) == mine:
        return LeftOver(
            f"{what} is left over from the {job.kind} {job.name} that was deleted; waiting until it is gone"
        )
    if held.metadata.is_terminating:
        return LeftOver(f"{what} of {_owner(held)} is being deleted; waiting until it is gone")
    return NameTaken(f"{what} already exists and belongs to {_owner(held)}; rename the job, or remove that object")


def _owner(held: Stored) -> str:
    owner = held.metadata.controller
    return f"{owner.kind} {owner.name}" if owner is not None else "nobody's job"
