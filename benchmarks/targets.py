"""What we hold ourselves to, and whether a run got there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SMALL, LARGE = "100 jobs x 4", "1 job x 500"
RUNS = ("01-ring, longer", "02-pytorch-ddp", "02-pytorch-ddp, longer")
REQUESTS = ("POST", "GET", "LIST of 1000", "watch events to 50")
LEFT = ("processes", "namespaces", "mounts", "descriptors")
QUESTIONS = ("at once, every second", "one after another, 400 a second", "without a pause")


@dataclass(frozen=True, slots=True)
class Target:
    title: str
    path: tuple[str, ...]
    bound: float
    goal: float
    is_least: bool = False
    """The more, the better."""

    def verdict(self, value: float) -> str:
        sign = -1 if self.is_least else 1
        if sign * value <= sign * self.goal:
            return "goal"
        return "held" if sign * value <= sign * self.bound else "MISSED"


def _ratio(request: str) -> Target:
    return Target(f"{request}, embedded / real", ("apiserver", request, "embedded / real"), 1, 1, is_least=True)


def _run(case: str) -> Iterator[Target]:
    yield Target(f"{case}: first process, s", ("startup", case, "to the first process, s"), 1.5, 1.5)
    yield Target(f"{case}: whole / by hand", ("startup", case, "whole / by hand"), 1.15, 1.15)


def _question(shape: str) -> Target:
    return Target(f"webhook p99, {shape}, ms", ("webhook", f"200 clients, {shape}", "p99, ms"), 100, 100)


TARGETS = (
    *(_ratio(request) for request in REQUESTS),
    *(target for case in RUNS for target in _run(case)),
    Target("failures among 1,000 pods", ("pods", "failures"), 0, 0),
    *(Target(f"{what} left by them", ("pods", "left behind", what), 0, 0) for what in LEFT),
    Target("100 jobs until all succeeded / floor", ("operator", SMALL, "until all succeeded / floor"), 1.5, 1.2),
    Target("operator CPU per job of 4, ms", ("operator", SMALL, "operator CPU per job, ms"), 18, 10),
    Target("writes per job of 4", ("operator", SMALL, "writes per job"), 14, 11),
    Target("memory in that, MB", ("operator", SMALL, "operator memory, MB"), 80, 70),
    Target("500 replicas until all exist / floor", ("operator", LARGE, "until all pods exist / floor"), 1.4, 1.15),
    Target("p99 beside 2000 finished / empty", ("crowd", "a new job", "p99 beside them / empty"), 2, 1.1),
    Target("start among 10000 pods, s", ("crowd", "many pods", "start to synced caches, 10000 pods, s"), 10, 4),
    Target("memory among 10000 pods, MB", ("crowd", "many pods", "most memory, MB"), 200, 120),
    Target("10000 workers read and planned, s", ("large", "worst", "read and planned, s"), 5, 2),
    Target("10000 workers printed, s", ("large", "worst", "printed, s"), 5, 4),
    Target("10000 workers refused, s", ("large", "worst", "refused, s"), 1, 0.5),
    Target("memory in that, MB", ("large", "worst", "peak RSS, MB"), 200, 120),
    *(_question(shape) for shape in QUESTIONS),
)


def verdicts(results: Mapping[str, Any]) -> Iterator[str]:
    """A table of the targets of those benchmarks that were run."""
    found = [(target, _at(results, target.path)) for target in TARGETS if target.path[0] in results]
    if not found:
        return
    width = max(len(target.title) for target, _ in found)
    yield f"{'TARGET':<{width}}  {'BOUND':>7}  {'GOAL':>7}  {'GOT':>6}"
    for target, value in found:
        sign = "≥" if target.is_least else "≤"
        bounds = f"{sign + f'{target.bound:g}':>7}  {sign + f'{target.goal:g}':>7}"
        got = f"{value:>6g}  {target.verdict(value)}" if value is not None else f"{'-':>6}  NOT MEASURED"
        yield f"{target.title:<{width}}  {bounds}  {got}"


def _at(results: Mapping[str, Any], path: tuple[str, ...]) -> float | None:
    value: Any = results
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return float(value) if value is not None else None
