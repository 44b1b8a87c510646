"""PaddleJobs written as tasks: `spec.mode` and a list of named groups of replicas, as paddle-operator was to have them.

A task's name up to its first `-` is its type: `ps-1` and `ps-2` are both of the type PS. Every object has roles of its
own here, so each set of task names is a dialect of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import ClassVar, NamedTuple

from trainmaster.api.framework import Count, Framework, Role
from trainmaster.api.job import Job, Member
from trainmaster.api.problem import Problem, forbidden, invalid, unsupported
from trainmaster.api.status import JobStatus
from trainmaster.frameworks import paddle_batch_contract as contract
from trainmaster.frameworks import paddle_batch_status as statuses
from trainmaster.frameworks.paddle_batch_roles import PaddleRoles
from trainmaster.objects import names
from trainmaster.objects.meta import Json

PS, COLLECTIVE, SINGLE, CUSTOM = MODES = ("PS", "Collective", "Single", "Custom")
PARTY = {"PS": "PSERVER", "HETER": "HETER", "DRIVER": "DRIVER"}
DIALECTS = 256
MOST_TASKS = 1000
"""The status describes each of them, and has to fit into an object with the job itself."""


class Place(NamedTuple):
    """Of a task among the others."""

    rank: int
    party: str
    before_in_party: int
    """How many replicas of its party are counted before its own."""

    before_in_type: int


ROLES = PaddleRoles()


class PaddleTasks(PaddleRoles):
    """All tasks but parameter servers decide."""

    restart_policy = "OnFailure"
    replica_fields: ClassVar[tuple[str, ...]] = ("name", *PaddleRoles.replica_fields)

    def declared(self, spec: Json) -> object:
        return {task["name"]: task for task in _tasks(spec)}

    def rescaled(self, spec: Json, role: str, replicas: int) -> Json:
        """The whole list: a merge patch cannot reach into one."""
        return {
            "tasks": [{**task, **({"replicas": replicas} if task["name"] == role else {})} for task in _tasks(spec)]
        }

    def checked_as(self) -> Framework:
        return ROLES

    def path(self, role: str = "") -> str:
        return f"spec.tasks[{role}]" if role else "spec.tasks"

    def validate(self, job: Job) -> Iterator[Problem]:
        yield from super().validate(job)
        if job.spec.get("mode") not in MODES:
            yield unsupported("spec.mode", job.spec.get("mode"), MODES)
        for role in PaddleRoles.roles:
            if role.name in job.spec:
                yield forbidden(f"spec.{role.name}", "must not stand beside spec.tasks; make it one of them")
        given = [task["name"] for task in _tasks(job.spec)]
        if len(given) > MOST_TASKS:
            detail = f"must be at most {MOST_TASKS} tasks, for the status describes each; give tasks more replicas"
            yield invalid("spec.tasks", len(given), detail)
        for name, times in Counter(given).items():
            if not names.is_dns_1035(name):
                yield invalid(f"{self.path(name)}.name", name, f"should match: {names.DNS_1035}")
            if times > 1:
                yield forbidden(f"{self.path(name)}.name", "must be the name of one task only")

    def mode(self, job: Job) -> str:
        return str(job.spec["mode"])

    def identity(self, member: Member) -> tuple[str, int]:
        place = member.job.once(self._places)[member.role]
        return place.party, place.before_in_party + member.index

    def _places(self, job: Job) -> Mapping[str, Place]:
        in_party, in_type = Counter[str](), Counter[str]()
        found = {}
        for rank, role in enumerate(job.replicas):
            party = self._party(job, role)
            found[role] = Place(rank, party, in_party[party], in_type[_type(role)])
            in_party[party] += job.count(role)
            in_type[_type(role)] += job.count(role)
        return found

    def parties(self, job: Job) -> contract.Parties:
        found: dict[str, list[contract.Slot]] = {}
        for member in job.members():
            found.setdefault(self._party(job, member.role), []).append((member.role, member.index))
        return found

    def _party(self, job: Job, role: str) -> str:
        if self.mode(job) == CUSTOM:
            return _type(role)
        return PARTY.get(_type(role), "TRAINER") if self.mode(job) == PS else "TRAINER"

    def labels(self, member: Member) -> Mapping[str, str]:
        return {**super().labels(member), "paddle-pod-key": member.name, "paddle-task-name": member.role}

    def annotations(self, member: Member) -> Mapping[str, str]:
        place = member.job.once(self._places)[member.role]
        return {
            **super().annotations(member),
            "paddle-task-type": _type(member.role),
            "paddle-task-rank": str(place.rank),
            "paddle-pod-rank": str(member.index),
            "paddle-global-rank": str(member.rank),
            "paddle-local-rank": str(place.before_in_type + member.index),
        }

    def variables(self, job: Job) -> Mapping[str, str]:
        data = dict(super().variables(job))
        types: dict[str, list[contract.Slot]] = {}
        for member in job.members():
            types.setdefault(_type(member.role), []).append((member.role, member.index))
        match self.mode(job):
            case "PS":
                data |= {f"PADDLE_{t}_ENDPOINTS": ",".join(contract.endpoints(job, s)) for t, s in types.items()}
            case "Custom":
                data |= {f"PADDLE_{t}_HOST": ",".join(contract.hosts(job, s)) for t, s in types.items()}
            case _:
                data["PADDLE_TRAINERS_TYPES"] = ",".join(_type(member.role) for member in job.members())
        return data

    def awaited(self, job: Job) -> Iterable[str]:
        working = [role for role in job.replicas if self._party(job, role) != "PSERVER" and job.count(role)]
        return working or job.replicas

    def scheduling(self, job: Job) -> Iterable[str]:
        return self.awaited(job)

    def may_start(self, role: str, job: Job, counts: Mapping[str, Count]) -> bool:
        """In order means: once those before have addresses. They could not run yet, for all wait for everybody's."""
        return not job.spec.get("startInOrder") or role in job.once(_called)

    def report(self, job: Job, status: JobStatus, counts: Mapping[str, Count]) -> Json:
        tasks = statuses.roles(job)
        mode = self.mode(job) if tasks else ""
        return {**statuses.report(job, status, mode), **({"tasks": tasks} if tasks else {})}


def dialect_of(raw: Json) -> PaddleTasks | None:
    """The dialect of a job that has tasks; None of any other."""
    spec = raw.get("spec")
    given = tuple(dict.fromkeys(task["name"] for task in _tasks(spec if isinstance(spec, Mapping) else {})))
    return _speaking(given) if given else None


@lru_cache(DIALECTS)
def _speaking(tasks: tuple[str, ...]) -> PaddleTasks:
    roles = tuple(Role(name) for name in tasks)
    kind: type[PaddleTasks] = type("PaddleTasks", (PaddleTasks,), {"roles": roles, "decides": tasks})
    return kind()


def _tasks(spec: Json) -> list[Json]:
    """Those that are well-formed enough to have a name."""
    listed = spec.get("tasks")
    tasks = listed if isinstance(listed, list) else []
    return [task for task in tasks if isinstance(task, Mapping) and isinstance(task.get("name"), str)]


def _called(job: Job) -> frozenset[str]:
    """The tasks up to the first whose replicas have not all got addresses."""
    found = []
    for task in job.replicas:
        found.append(task)
        if not all(contract.is_reachable(job, (task, index)) for index in range(job.count(task))):
            break
    return frozenset(found)


def _type(task: str) -> str:
    return task.partition("-")[0].upper()
