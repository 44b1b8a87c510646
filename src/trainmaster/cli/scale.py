"""`trainmaster scale`: how many replicas of a role a job has, through the scale subresource where its kind has one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from trainmaster.api import reading
from trainmaster.api.framework import Framework
from trainmaster.api.status import status_of
from trainmaster.cli import targets
from trainmaster.cli.connection import Choice, Failure, Misuse, Session, carry_out
from trainmaster.cli.targets import Found
from trainmaster.cluster.registry.patch import merge
from trainmaster.objects.meta import Json, mutable


@dataclass(frozen=True, slots=True)
class ScaleOptions:
    words: tuple[str, ...]
    replicas: int
    role: str = ""
    current_replicas: int = -1


def run(choice: Choice, options: ScaleOptions) -> int:
    return carry_out("scale", choice, lambda session: scale(session, options))


async def scale(session: Session, options: ScaleOptions) -> int:
    words = options.words
    found = [await targets.one_job(session, words)] if targets.is_bare(words) else await targets.objects(session, words)
    for one in found:
        framework = one.entry.framework
        if framework is None:
            await _scale_plain(session, options, one)
        else:
            await _scale_job(session, options, one, framework)
        print(f"{one} scaled")
    return 0


async def _scale_plain(session: Session, options: ScaleOptions, found: Found) -> None:
    if options.role:
        raise Misuse(f"{found} has no roles; leave out --role")
    if "scale" not in found.entry.subresources:
        raise Misuse(f"{found}: objects of this kind cannot be scaled")
    current = await session.client.request("GET", _path(found, "scale"))
    _check_current(options, found, _replicas_in(current))
    await _patch_scale(session, options, found)


async def _scale_job(session: Session, options: ScaleOptions, job: Found, framework: Framework) -> None:
    if status_of(job.body.get("status")).is_finished:
        raise Failure(f"{job} has ended, so there is nothing to scale; delete it and apply it again")
    served, framework, spec = framework, framework.dialect(job.body), job.body.get("spec") or {}
    declared = framework.declared(spec)
    roles = declared if isinstance(declared, Mapping) else {}
    role = _role(options.role or framework.scalable_role, roles, job, framework)
    _check_current(options, job, int(roles[role].get("replicas", 1)))
    body = {"spec": framework.rescaled(spec, role, options.replicas)}
    _check_rules(options, job, served, body)
    if "scale" in job.entry.subresources and role == framework.scalable_role:
        await _patch_scale(session, options, job)
        return
    await session.client.patch(job.entry.resource, job.name, body, job.namespace)


def _role(wanted: str, roles: Mapping[str, Any], job: Found, framework: Framework) -> str:
    """The key as the job spells it; the only role, or the workers, where none is named."""
    names = ", ".join(roles)
    if not wanted:
        wanted = next(iter(roles)) if len(roles) == 1 else "Worker"
    # Beside a key of another spelling `kubectl scale` puts one of its own, whose number then counts.
    for name in sorted(roles, key=lambda name: name != framework.scalable_role):
        if name.lower() == wanted.lower():
            return name
    known = {role.name.lower() for role in framework.roles}
    if wanted.lower() in known:
        raise Failure(f"{job} has no role {wanted}, only {names}; add {framework.path(wanted)} by apply")
    raise Misuse(f"--role {wanted}: {job} has {names}")


def _check_rules(options: ScaleOptions, job: Found, framework: Framework, patch: Json) -> None:
    """The API server may know no rules beyond the schema; the operator does nothing for a job that has come to break
    them. What was wrong before is not for this number to mend."""
    before = reading.read(framework, job.body, resource=job.entry.resource).problems
    after = reading.read(framework, merge(mutable(job.body), patch), resource=job.entry.resource).problems
    if broken := [problem for problem in after if problem not in before]:
        listed = "".join(f"\n  {problem}" for problem in broken)
        raise Failure(f"{job} is not scaled, for with --replicas {options.replicas} it would not be valid:{listed}")


def _check_current(options: ScaleOptions, found: Found, current: int) -> None:
    if options.current_replicas >= 0 and options.current_replicas != current:
        raise Failure(f"{found} has {current} replicas, not the {options.current_replicas} of --current-replicas")


async def _patch_scale(session: Session, options: ScaleOptions, found: Found) -> None:
    body = {"spec": {"replicas": options.replicas}}
    await session.client.patch(found.entry.resource, found.name, body, found.namespace, "scale")


def _path(found: Found, subresource: str) -> str:
    return found.entry.resource.path(found.namespace, found.name, subresource)


def _replicas_in(scale: bytes) -> int:
    body: dict[str, Any] = msgspec.json.decode(scale)
    return int((body.get("spec") or {}).get("replicas", 0))
