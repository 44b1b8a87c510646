"""What we hold ourselves to, and whether a run got there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SMALL, LARGE = "100 jobs x 4", "1 job x 500"


@dataclass(frozen=True, slots=True)
class Target:
    title: str
    path: tuple[str, ...]
    most: float
    goal: float


TARGETS = (
    Target("100 jobs until all succeeded / floor", ("operator", SMALL, "until all succeeded / floor"), 1.5, 1.2),
    Target("operator CPU per job of 4, ms", ("operator", SMALL, "operator CPU per job, ms"), 18, 10),
    Target("writes per job of 4", ("operator", SMALL, "writes per job"), 14, 11),
    Target("memory in that, MB", ("operator", SMALL, "operator memory, MB"), 80, 70),
    Target("500 replicas until all exist / floor", ("operator", LARGE, "until all pods exist / floor"), 1.4, 1.15),
    Target("p99 beside 2000 finished / empty", ("crowd", "a new job", "p99 beside them / empty"), 2, 1.1),
    Target("start among 10000 pods, s", ("crowd", "many pods", "start to synced caches, 10000 pods, s"), 10, 4),
    Target("memory among 10000 pods, MB", ("crowd", "many pods", "most memory, MB"), 200, 120),
)


def verdicts(results: Mapping[str, Any]) -> Iterator[str]:
    """A table of the targets that this run has measured."""
    found = [(target, value) for target in TARGETS if (value := _at(results, target.path)) is not None]
    if not found:
        return
    width = max(len(target.title) for target, _ in found)
    yield f"{'TARGET':<{width}}  {'MOST':>6}  {'GOAL':>6}  {'GOT':>6}"
    for target, value in found:
        verdict = "goal" if value <= target.goal else "held" if value <= target.most else "MISSED"
        yield f"{target.title:<{width}}  {target.most:>6g}  {target.goal:>6g}  {value:>6g}  {verdict}"


def _at(results: Mapping[str, Any], path: tuple[str, ...]) -> float | None:
    value: Any = results
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return float(value) if value is not None else None
