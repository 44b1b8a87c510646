"""What only an update can break: fields that stay as they were when the job was created. Pure.

Next door, `webhook` decides which problems count; here is what those are that no look at the new job alone can find.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainmaster.api.problem import Problem, invalid
from trainmaster.api.schema import INLINED_POLICY, QUEUE_RULE
from trainmaster.objects.meta import Json

POLICIES = ("runPolicy", INLINED_POLICY)
REMEDY = "delete the job and create it anew to change it"


def update_problems(old: Json, new: Json) -> Iterator[Problem]:
    before, after = _spec(old), _spec(new)
    yield from _manager_problems(before, after)
    yield from _queue_problems(before, after)


def unprecedented(problems: Iterable[Problem], old: Iterable[Problem]) -> tuple[list[Problem], list[Problem]]:
    """The problems that the update brings, and those that the job had before. A rule that was broken at this place may
    stay broken, by another value too: whoever mends one field of a bad job need not mend them all at once."""
    known = {(problem.path, problem.sort, problem.detail) for problem in old}
    brought: list[Problem] = []
    kept: list[Problem] = []
    for problem in problems:
        (kept if (problem.path, problem.sort, problem.detail) in known else brought).append(problem)
    return brought, kept


def _manager_problems(before: Json, after: Json) -> Iterator[Problem]:
    old_path, old = _found(before, "managedBy")
    path, new = _found(after, "managedBy")
    if old != new:
        where = path if new is not None else old_path
        yield invalid(where, new, f"field is immutable: it was {_said(old)}; {REMEDY}")


def _queue_problems(before: Json, after: Json) -> Iterator[Problem]:
    """A queue may be added or removed: what a PodGroup says wins anyway."""
    _, held = _found(before, "schedulingPolicy")
    path, given = _found(after, "schedulingPolicy")
    old, new = (policy.get("queue") if isinstance(policy, Mapping) else None for policy in (held, given))
    if old is not None and new is not None and old != new:
        yield invalid(f"{path}.queue", new, f"{QUEUE_RULE['message']}: it was {_said(old)}; {REMEDY}")


def _found(spec: Json, field: str) -> tuple[str, Any]:
    """Where a policy field stands, and its value; None where it stands nowhere, or is null, which is the same."""
    for key in POLICIES:
        policy = spec.get(key)
        if isinstance(policy, Mapping) and policy.get(field) is not None:
            return f"spec.{key}.{field}", policy[field]
    return f"spec.{field}", spec.get(field)


def _said(value: object) -> str:
    return "unset" if value is None else f'"{value}"'


def _spec(raw: Json) -> Json:
    spec = raw.get("spec")
    return spec if isinstance(spec, Mapping) else {}
