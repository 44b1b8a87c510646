"""A job's status as users see it, and the rules by which its conditions change.

The order of `conditions` is part of the interface: `kubectl get` prints the last one, the SDK reads them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from trainmaster.objects import timestamp
from trainmaster.objects.learning import learn

ConditionType = Literal["Created", "Running", "Restarting", "Succeeded", "Suspended", "Failed"]


class Condition(Struct, frozen=True, rename="camel", omit_defaults=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_update_time: str | None = None
    last_transition_time: str | None = None


class ReplicaStatus(Struct, frozen=True, omit_defaults=True):
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    selector: str = ""

    @property
    def has_any(self) -> bool:
        return bool(self.active or self.succeeded or self.failed)


class JobStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    conditions: tuple[Condition, ...] = ()
    replica_statuses: dict[str, ReplicaStatus] = {}
    start_time: str | None = None
    completion_time: str | None = None
    last_reconcile_time: str | None = None
    attempts: dict[str, int] = {}
    """How often the operator has replaced the pod of a slot (`worker-3`): survives the pod and the operator."""

    completed: dict[str, tuple[int, ...]] = {}
    """Replicas that succeeded, by role: they stay done when somebody removes their pods."""

    authored_version: str = ""
    """The API version in which the job was written, once found out: it must not change its mind."""

    report: dict[str, Any] = {}
    """Fields that only this kind of job has; they stand beside the others in the stored status."""

    def is_true(self, condition: ConditionType) -> bool:
        return any(c.type == condition and c.status == "True" for c in self.conditions)

    def condition(self, condition: ConditionType) -> Condition | None:
        return next((c for c in self.conditions if c.type == condition), None)

    @property
    def is_finished(self) -> bool:
        return self.is_true("Succeeded") or self.is_true("Failed")


_COMMON = frozenset(field.encode_name for field in msgspec.structs.fields(JobStatus)) - {"report"}


def status_of(raw: object) -> JobStatus:
    """A stored status; what cannot be read of it counts as unset, and is written anew."""
    if not isinstance(raw, dict):
        return JobStatus()
    held = {key: value for key, value in raw.items() if value is not None}
    own = {key: held.pop(key) for key in [*held] if key not in _COMMON}
    try:
        read = msgspec.convert(held, JobStatus)
    except msgspec.ValidationError:
        read = msgspec.convert(_readable(held), JobStatus)
    return msgspec.structs.replace(_dated(read), report=own)


def _readable(held: Mapping[str, Any]) -> dict[str, Any]:
    """As much of it as can be read: one bad count or condition must not hide that the job has ended."""
    conditions = held.get("conditions")
    told = [_words(condition) for condition in conditions] if isinstance(conditions, Sequence) else []
    kept = {**held, "conditions": [condition for condition in told if {"type", "status"} <= condition.keys()]}
    return {field: value for field, value in kept.items() if _is_readable(field, value)}


def _words(condition: object) -> dict[str, str]:
    """All that a condition says is text; what is not (null, mostly) is as good as not said."""
    said = condition.items() if isinstance(condition, dict) else ()
    return {field: value for field, value in said if isinstance(value, str)}


def _is_readable(field: str, value: object) -> bool:
    try:
        msgspec.convert({field: value}, JobStatus)
    except msgspec.ValidationError:
        return False
    return True


def _dated(status: JobStatus) -> JobStatus:
    """With no time that is none: the definitions of other operators let any text through, ours refuse a whole status
    for it."""
    if all(timestamp.valid(text) == text for text in _times(status)):
        return status
    conditions = tuple(
        msgspec.structs.replace(
            condition,
            last_update_time=timestamp.valid(condition.last_update_time),
            last_transition_time=timestamp.valid(condition.last_transition_time),
        )
        for condition in status.conditions
    )
    return msgspec.structs.replace(
        status,
        conditions=conditions,
        start_time=timestamp.valid(status.start_time),
        completion_time=timestamp.valid(status.completion_time),
        last_reconcile_time=timestamp.valid(status.last_reconcile_time),
    )


def _times(status: JobStatus) -> Iterator[str | None]:
    yield from (status.start_time, status.completion_time, status.last_reconcile_time)
    for condition in status.conditions:
        yield from (condition.last_update_time, condition.last_transition_time)


def inherited(status: JobStatus, kind: str, *, succeeded: bool) -> JobStatus:
    """A status whose end another operator has told in words of its own, with the condition that says so in ours."""
    if status.is_finished:
        return status
    stamp = status.completion_time or status.start_time
    name: ConditionType = "Succeeded" if succeeded else "Failed"
    message = f"{kind} had {name.lower()} under another operator."
    ended = Condition(name, "True", f"{kind}{name}", message, stamp, stamp)
    return msgspec.structs.replace(status, conditions=(*status.conditions, ended))


def render(status: JobStatus) -> dict[str, Any]:
    """As written to the API server. Old CRDs require the first two fields, so they are never left out."""
    wire: dict[str, Any] = msgspec.to_builtins(status)
    own = wire.pop("report", {})
    return {"conditions": [], "replicaStatuses": {}, **wire, **own}


def with_condition(
    status: JobStatus, condition: ConditionType, value: bool, reason: str, message: str, now: float
) -> JobStatus:
    """The status after this condition came to hold (or ceased to)."""
    text = "True" if value else "False"
    held = status.condition(condition)
    if status.is_true("Failed") or (held is not None and (held.status, held.reason) == (text, reason)):
        return status
    stamp = timestamp.render(now)
    transition = held.last_transition_time if held is not None and held.status == text else stamp
    added = Condition(condition, text, reason, message, stamp, transition)
    kept = tuple(_beside(other, condition) for other in status.conditions if _stays(other.type, condition))
    return msgspec.structs.replace(status, conditions=(*kept, added))


def _stays(other: str, added: ConditionType) -> bool:
    """Running and Restarting exclude each other; a condition of the same type is replaced."""
    return other != added and {other, added} != {"Running", "Restarting"}


def _beside(other: Condition, added: ConditionType) -> Condition:
    """A job that ended no longer runs, but that it ran stays on record."""
    if other.type == "Running" and added in ("Succeeded", "Failed"):
        return msgspec.structs.replace(other, status="False")
    return other


learn(JobStatus)
