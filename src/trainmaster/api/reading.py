"""From a stored object to a `Job`, or to everything that is wrong with it.

Reading never raises, whatever the object holds. The steps: drop nulls, find the canonical role names, check types
and rules, take each policy field from `spec.runPolicy` or else from `spec` itself, fill in defaults.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from trainmaster.api import limits, schema, validation
from trainmaster.api.framework import Framework, Role
from trainmaster.api.job import Job, Replica, RunPolicy, SchedulingPolicy
from trainmaster.api.problem import MOST, Advice, Problem, forbidden, invalid
from trainmaster.api.settings import DEFAULT, Settings
from trainmaster.api.status import status_of
from trainmaster.objects import podfields, template
from trainmaster.objects.meta import Json, meta_of
from trainmaster.objects.resource import Resource

_LONGEST_NAME = 253
REPLICA_FIELDS = ("replicas", "restartPolicy", "template")


@dataclass(frozen=True, slots=True)
class Reading:
    framework: Framework
    """Who runs the job: a dialect of the framework that it was read for, where that has several."""

    job: Job | None
    problems: tuple[Problem, ...] = ()
    advice: tuple[Advice, ...] = ()


def read(framework: Framework, raw: Json, settings: Settings = DEFAULT, resource: Resource | None = None) -> Reading:
    """`resource` is the name under which the object was found, where the framework has several."""
    try:
        spoken = framework.dialect(raw)
        if spoken.retired:
            return Reading(spoken, None, (forbidden("apiVersion", spoken.retired),))
        found = _read(spoken, raw, settings, resource or framework.resource)
    except RecursionError:
        return Reading(framework, None, (forbidden("spec", "is nested too deeply"),))
    if found.job is None or spoken is framework:
        return found
    return replace(found, job=replace(found.job, version=spoken.version))


def _read(framework: Framework, raw: Json, settings: Settings, resource: Resource) -> Reading:
    meta = meta_of(normalised(raw.get("metadata")))
    spec = normalised(raw.get("spec"))
    if not isinstance(spec, dict):
        return Reading(framework, None, (invalid("spec", spec, "must be an object"),))
    spec = _scaled(framework, spec)
    roles = _canonical_roles(framework, framework.declared(spec))
    problems = [*validation.type_problems(framework, spec)]
    typed = not problems
    problems += validation.empty_replicas(framework, raw["spec"])
    problems += validation.rule_problems(framework, meta.name, spec, roles)
    if not typed:
        return Reading(framework, None, _distinct(problems), tuple(_unknown_fields(framework, spec)))
    replicas = _replicas(framework, spec, roles)
    job = framework.default(
        Job(
            resource=resource,
            meta=meta,
            spec=spec,
            replicas=replicas,
            ports={role: _port(framework, replica) for role, replica in replicas.items()},
            policy=_policy(framework, spec, settings),
            status=framework.inherited(status_of(normalised(raw.get("status")))),
            settings=settings,
            unnumbered=frozenset(role.name for role in framework.roles if not role.numbered),
        )
    )
    problems += framework.validate(job)
    if not problems:  # replicas of others cannot be told what they would be
        problems += limits.size_problems(framework, job)
    advice = (*_unknown_fields(framework, spec), *_ignored_policies(framework, job), *framework.advice(job))
    return Reading(framework, None if problems else job, _distinct(problems), advice)


def bare(framework: Framework, resource: Resource, raw: Json, settings: Settings = DEFAULT) -> Job:
    """As much of a job as can be had from an object that did not pass: who it is, its status, how long it is kept."""
    status = framework.inherited(status_of(normalised(raw.get("status"))))
    kept = _policy_fields(_mapping(normalised(raw.get("spec"))))["ttlSecondsAfterFinished"]
    policy = RunPolicy(ttl_seconds_after_finished=kept if isinstance(kept, int) and kept >= 0 else None)
    meta = meta_of(normalised(raw.get("metadata")))
    return Job(resource, meta, {}, {}, {}, policy=policy, status=status, settings=settings)


def is_managed_elsewhere(framework: Framework, raw: Json) -> bool:
    """Whether another controller runs this job. Asked before anything else: such a job is not even validated."""
    framework = framework.dialect(raw)
    spec = _mapping(raw.get("spec"))
    manager = _mapping(spec.get("runPolicy")).get("managedBy", spec.get("managedBy"))
    return isinstance(manager, str) and manager not in framework.managers


def normalised(value: Any) -> Any:
    """Null means unset, in every field of every object; and 2.0 is the integer 2, as it is to the API server.

    Objects come out as dicts, whatever they were."""
    if isinstance(value, dict):
        # Most values are text.
        return {
            key: inner if isinstance(inner, str) else normalised(inner)
            for key, inner in value.items()
            if inner is not None
        }
    if isinstance(value, list):
        return [normalised(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return normalised(dict(value)) if isinstance(value, Mapping) else value


def _distinct(problems: list[Problem]) -> tuple[Problem, ...]:
    """A field that is both missing and of the wrong type is one problem, not two."""
    seen: dict[tuple[str, str], Problem] = {}
    for problem in problems:
        seen.setdefault((problem.path, problem.sort), problem)
    return tuple(seen.values())


def _canonical_roles(framework: Framework, replicas: object) -> dict[str, str]:
    """`Ps` and `ps` mean `PS`. Keys that mean no role are left out."""
    known = {role.name.lower(): role.name for role in framework.roles}
    keys = [key for key in replicas if isinstance(key, str)] if isinstance(replicas, dict) else []
    return {key: known[key.lower()] for key in keys if key.lower() in known}


def _scaled(framework: Framework, spec: dict[str, Any]) -> dict[str, Any]:
    """`kubectl scale` writes below the name that the CRD has for the role, whatever key the author chose: a number that
    stands there alone is the count of the role as it is written."""
    declared, role = spec.get(framework.replicas_field), framework.scalable_role
    count = declared.get(role) if isinstance(declared, dict) else None
    if not isinstance(declared, dict) or not isinstance(count, dict) or count.keys() != {"replicas"}:
        return spec
    keys = [key for key in declared if key != role and isinstance(key, str) and key.lower() == role.lower()]
    if len(keys) != 1 or not isinstance(declared[keys[0]], dict):
        return spec
    others = {key: value for key, value in declared.items() if key != role}
    return {**spec, framework.replicas_field: {**others, keys[0]: {**declared[keys[0]], **count}}}


def _replicas(framework: Framework, spec: Json, roles: Mapping[str, str]) -> dict[str, Replica]:
    declared = _mapping(framework.declared(spec))
    by_role = {canonical: declared[key] for key, canonical in roles.items()}
    present = (role for role in framework.roles if role.name in by_role)
    return {role.name: _replica(framework, role, by_role[role.name]) for role in present}


def _replica(framework: Framework, role: Role, declared: Json) -> Replica:
    pod = declared.get("template", {})
    if framework.port:
        pod = template.with_port(pod, framework.container_names, framework.port_name, framework.port)
    return Replica(
        replicas=declared.get("replicas", role.replicas),
        restart_policy=_restart_policy(framework, role, declared),
        template=pod,
        extra={key: value for key, value in declared.items() if key not in REPLICA_FIELDS},
    )


def _restart_policy(framework: Framework, role: Role, declared: Json) -> str:
    beside = declared.get("restartPolicy") or role.restart_policy or framework.restart_policy
    inside = declared.get("template", {}).get("spec", {}).get("restartPolicy")
    return str(inside or beside) if framework.restarts_by_template else str(beside)


def _port(framework: Framework, replica: Replica) -> int:
    container = template.container_named(replica.template, framework.container_names)
    return template.port_named(container, framework.port_name) or framework.port


def cleaning_told(spec: object) -> str | None:
    """Which pods go when the job has ended, in the user's words; None where the user left that open."""
    told = _policy_fields(_mapping(spec))["cleanPodPolicy"]
    return None if told is None else str(told)


def is_cleaning_told(spec: object) -> bool:
    return cleaning_told(spec) is not None


def _policy_fields(spec: Json) -> Json:
    """Of all the places where they may stand."""
    nested = {**_mapping(spec.get(schema.INLINED_POLICY)), **_mapping(spec.get("runPolicy"))}
    return {name: nested.get(name, spec.get(name)) for name in schema.RUN_POLICY_FIELDS}


def _policy(framework: Framework, spec: Json, settings: Settings) -> RunPolicy:
    fields = _policy_fields(spec)
    default = framework.clean_pod_policy_2021 if settings.compat_2021 else framework.clean_pod_policy
    clean = fields["cleanPodPolicy"]
    if clean is not None and framework.clean_pod_policies:
        # An empty text is neither None nor Running, and so has always meant All.
        clean = clean.capitalize() or "All"
    return RunPolicy(
        clean_pod_policy=default if clean is None else clean,
        is_cleaning_told=clean is not None or settings.compat_2021,
        ttl_seconds_after_finished=fields["ttlSecondsAfterFinished"],
        active_deadline_seconds=fields["activeDeadlineSeconds"],
        backoff_limit=fields["backoffLimit"],
        suspend=bool(fields["suspend"]),
        managed_by=fields["managedBy"],
        scheduling=_scheduling(_mapping(fields["schedulingPolicy"])),
    )


def _scheduling(fields: Json) -> SchedulingPolicy:
    resources = fields.get("minResources")
    return SchedulingPolicy(
        min_available=fields.get("minAvailable"),
        queue=fields.get("queue", ""),
        min_resources={name: str(amount) for name, amount in resources.items()} if resources else None,
        priority_class=fields.get("priorityClass", ""),
        schedule_timeout_seconds=fields.get("scheduleTimeoutSeconds"),
    )


def _mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _unknown_fields(framework: Framework, spec: Json) -> Iterator[Advice]:
    """The first of them, and how many more there are: looking for what was meant takes time."""
    found = _unknown_of(framework, spec)
    yield from (_advice_of(*each) for each in islice(found, MOST))
    more = sum(1 for _ in found)
    if more:
        yield Advice("UnknownField", f"{more} more fields are not known and are ignored")


def _advice_of(path: str, name: str, known: Set[str], is_of_pod: bool) -> Advice:
    field = f"{path}.{name}" if len(name) <= _LONGEST_NAME else f"{path}.{name[:_LONGEST_NAME]}…"
    # What is in a pod, the API server decides: of a field that is newer than our list it may know more.
    said = "is not a known field of pods" if is_of_pod else "is not a known field and is ignored"
    return Advice("UnknownField", f"{field} {said}{_meant(name, known)}")


def _unknown_of(framework: Framework, spec: Json) -> Iterator[tuple[str, str, Set[str], bool]]:
    policy = set(schema.RUN_POLICY_FIELDS)
    declared = _mapping(framework.declared(spec))
    places = {framework.replicas_field} if framework.replicas_field else set(declared)
    yield from _unknown(spec, {*places, "runPolicy", schema.INLINED_POLICY, *policy, *framework.fields}, "spec")
    for key in ("runPolicy", schema.INLINED_POLICY):
        yield from _unknown(_mapping(spec.get(key)), policy, f"spec.{key}")
    for key, replica in declared.items():
        fields = _mapping(replica)
        yield from _unknown(fields, {*REPLICA_FIELDS, *framework.replica_fields}, framework.path(key))
        for path, name, known in podfields.unknown(fields.get("template"), f"{framework.path(key)}.template"):
            yield path, name, known, True


def _unknown(fields: Json, known: set[str], path: str) -> Iterator[tuple[str, str, Set[str], bool]]:
    yield from ((path, str(name), known, False) for name in fields if name not in known)


def _meant(name: str, known: Set[str]) -> str:
    if len(name) > _LONGEST_NAME:
        return ""
    by_lower = {one.lower(): one for one in sorted(known)}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.8)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""


def _ignored_policies(framework: Framework, job: Job) -> Iterator[Advice]:
    for role, replica in job.replicas.items():
        if not framework.restarts_by_template and replica.template.get("spec", {}).get("restartPolicy"):
            message = f"Restart policy in pod template of {role} will be overwritten by restart policy in replica spec"
            yield Advice("SetPodTemplateRestartPolicy", message)
