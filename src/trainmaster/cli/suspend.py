"""`trainmaster suspend` and `resume`: take a job's pods away and give them back; the job itself stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainmaster.api.status import status_of
from trainmaster.cli import targets
from trainmaster.cli.connection import Choice, Failure, Misuse, Session, carry_out
from trainmaster.cli.targets import Found


@dataclass(frozen=True, slots=True)
class SuspendOptions:
    words: tuple[str, ...]
    suspend: bool = True
    selector: str = ""
    all_of_kind: bool = False


def run(choice: Choice, options: SuspendOptions) -> int:
    verb = "suspend" if options.suspend else "resume"
    return carry_out(verb, choice, lambda session: suspend(session, options))


async def suspend(session: Session, options: SuspendOptions) -> int:
    found = await targets.objects(session, options.words, selector=options.selector, all_of_kind=options.all_of_kind)
    if not found:
        raise Failure("there are no such jobs; list them with: trainmaster get -A")
    for job in found:
        await _set(session, job, options.suspend)
    return 0


async def _set(session: Session, job: Found, wanted: bool) -> None:
    """A job of batch/v1 has the field in its spec; ours in their run policy."""
    is_plain = (job.entry.resource.group, job.entry.resource.kind) == ("batch", "Job")
    if job.entry.framework is None and not is_plain:
        raise Misuse(f"{job} is not a job, so it cannot be suspended")
    done = "suspended" if wanted else "resumed"
    if status_of(job.body.get("status")).is_finished and not is_plain:
        raise Failure(f"{job} has ended and cannot be {done}; delete it and apply it again to run it anew")
    spec = job.body.get("spec") or {}
    policy = spec if is_plain else {**spec, **(spec.get("runPolicy") or {})}
    if bool(policy.get("suspend")) == wanted:
        print(f"{job} unchanged")
        return
    change: dict[str, Any] = {} if is_plain else {"runPolicy": {"suspend": wanted}}
    if is_plain or "suspend" in spec:  # flat, as old manifests have it
        change["suspend"] = wanted
    await session.client.patch(job.entry.resource, job.name, {"spec": change}, job.namespace)
    print(f"{job} {done}")
