"""How `describe` tells what it found: pure functions from objects to text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from trainmaster.cli import printing
from trainmaster.cli.advice import Case, advise
from trainmaster.cli.ranks import RankView, first_to_fail
from trainmaster.cli.tables import lines_of
from trainmaster.cluster.server import age

MOST_EVENTS = 20
MOST_OBSTACLES = 3


def of_job(job: Mapping[str, Any], case: Case, now: float) -> str:
    sections = [
        _head(job, case, now),
        _first_failure(case, now),
        _obstacles(case),
        _ranks(case, now),
        _conditions(case, now),
        _events(case.events, now),
        _remedy(case),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section)


def of_object(item: dict[str, Any], events: Sequence[Mapping[str, Any]], now: float) -> str:
    text = yaml.safe_dump(printing.bare(item), sort_keys=False, allow_unicode=True, width=120).rstrip("\n")
    return "\n\n".join([text, "\n".join(_events(events, now))])


def moment(event: Mapping[str, Any]) -> str:
    """When an event was last seen, whichever of its fields says so."""
    created = (event.get("metadata") or {}).get("creationTimestamp")
    return str(event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp") or created or "")


def _head(job: Mapping[str, Any], case: Case, now: float) -> list[str]:
    metadata = job["metadata"]
    created = metadata.get("creationTimestamp")
    fields = [
        ("Name", metadata["name"]),
        ("Namespace", metadata.get("namespace", "")),
        ("Kind", f"{job.get('kind', case.kind)} ({_api_version(job, case)})"),
        ("Labels", ", ".join(f"{key}={value}" for key, value in sorted((metadata.get("labels") or {}).items()))),
        ("Created", f"{age.since(created, now)} ago ({created})"),
        ("State", _state(case, now)),
        ("Why", _why(case)),
    ]
    return lines_of([(f"{name}:", _indented(value, 13)) for name, value in fields if value])


def _api_version(job: Mapping[str, Any], case: Case) -> str:
    """As it was written, where that matters: the API server hands every job out under one version."""
    group, slash, version = str(job.get("apiVersion", "")).rpartition("/")
    return f"{group}{slash}{case.status.authored_version or version}"


def _state(case: Case, now: float) -> str:
    if not case.status.conditions:
        return "none yet"
    last = case.status.conditions[-1]
    since = last.last_transition_time
    return f"{last.type}, since {age.since(since, now)} ({since})" if since else last.type


def _why(case: Case) -> str:
    if not case.status.conditions:
        return ""
    last = case.status.conditions[-1]
    return ": ".join(part for part in (last.reason, last.message) if part)


def _indented(text: str, columns: int) -> str:
    return text.replace("\n", "\n" + " " * columns)


def _first_failure(case: Case, now: float) -> list[str]:
    found = first_to_fail(case.ranks)
    if found is None or case.status.is_true("Succeeded"):
        return []
    rank, ending = found
    when = f", {age.since(ending.at, now)} ago" if ending.at else ""
    reason = f" ({ending.reason})" if ending.reason else ""
    again = "; it was started again since" if ending.was_restarted else ""
    lines = [
        "First failure:",
        f"  {rank.title}: container {ending.container} of pod {rank.name} on node {rank.node} "
        f"ended with exit code {ending.exit_code}{reason}{when}{again}",
    ]
    if ending.message:
        lines += ["  It said at its end:", *(f"    {line}" for line in ending.message.splitlines())]
    if case.tail:
        lines += ["  Last lines of its log:", *(f"    {line}" for line in case.tail)]
    return lines


def _obstacles(case: Case) -> list[str]:
    held = [(rank.title, obstacle) for rank in case.ranks if (obstacle := rank.obstacle) is not None]
    if not held and case.gang is not None:  # pods that there are say the same
        held = [("all pods together", case.gang)]
    if not held:
        return []
    lines = [
        f"  {title}: {obstacle.reason}: {_indented(obstacle.message, 4)}" for title, obstacle in held[:MOST_OBSTACLES]
    ]
    more = [f"  … and {len(held) - MOST_OBSTACLES} more"] if len(held) > MOST_OBSTACLES else []
    return ["Held up:", *lines, *more]


def _ranks(case: Case, now: float) -> list[str]:
    if not case.ranks:
        return ["Ranks:", "  none: the job has no pods now"]
    rows = [_rank(case, rank, now) for rank in case.ranks]
    return ["Ranks:", *_table(("RANK", "POD", "NODE", "PHASE", "EXIT", "RESTARTS", "AGE"), rows)]


def _rank(case: Case, rank: RankView, now: float) -> tuple[str, ...]:
    """Restarts in place by the kubelet and replacements of the pod by the operator, together."""
    restarts = rank.restarts + case.status.attempts.get(rank.title, 0)
    created = age.since(rank.pod["metadata"].get("creationTimestamp"), now)
    return rank.title, rank.name, rank.node, rank.phase, rank.exit or "-", str(restarts), created


def _conditions(case: Case, now: float) -> list[str]:
    rows = [
        (one.type, one.status, one.reason, age.since(one.last_transition_time, now), one.message.replace("\n", " "))
        for one in case.status.conditions
    ]
    if not rows:
        return ["Conditions:", "  none"]
    return ["Conditions:", *_table(("TYPE", "STATUS", "REASON", "AGE", "MESSAGE"), rows)]


def _events(events: Sequence[Mapping[str, Any]], now: float) -> list[str]:
    if not events:
        return ["Events:", "  none"]
    rows = [_event(event, now) for event in events[-MOST_EVENTS:]]
    left_out = len(events) - len(rows)
    title = f"Events (newest last; {left_out} older ones left out):" if left_out else "Events (newest last):"
    return [title, *_table(("AGE", "TYPE", "REASON", "OBJECT", "MESSAGE"), rows)]


def _event(event: Mapping[str, Any], now: float) -> tuple[str, ...]:
    about = event.get("involvedObject") or {}
    count = int(event.get("count") or 1)
    times = f" (x{count})" if count > 1 else ""
    return (
        age.since(moment(event), now) + times,
        str(event.get("type", "")),
        str(event.get("reason", "")),
        f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
        str(event.get("message", "")).replace("\n", " "),
    )


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    return [f"  {line}" for line in lines_of([header, *rows])]


def _remedy(case: Case) -> list[str]:
    sentence = advise(case)
    return [f"What to do: {sentence}"] if sentence else []
