"""What the benchmarks share: medians, figures of a process, children that end with us, and the table."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

ROUNDS = 3
ROOT = Path(__file__).parent.parent
_TICKS = os.sysconf("SC_CLK_TCK")
Result: TypeAlias = dict[str, Any]
"""Figures by name; nested where a benchmark has parts."""


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of each figure over all rounds."""
    return {name: median([one[name] for one in rounds]) for name in rounds[0]}


def rounded(value: Any) -> Any:
    """Three significant digits are all that a measurement like this has."""
    if isinstance(value, float):
        return float(f"{value:.3g}") if abs(value) < 1000 else round(value)
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_mb(pid: int) -> float:
    """Most that was ever resident."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


@contextlib.contextmanager
def child(
    *arguments: str, env: Mapping[str, str] | None = None, log: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A Python module as a process of its own; asked to end, then ended, on the way out."""
    with contextlib.ExitStack() as stack:
        errors = stack.enter_context(log.open("w")) if log else None
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            yield process
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


@dataclass(frozen=True, slots=True)
class Benchmark:
    name: str
    title: str
    run: Callable[[], Result]
    minutes: int
    """That it takes, more or less: who waits wants to know."""


def lines_of(result: Mapping[str, Any], indent: str = "  ") -> Iterator[str]:
    width = max((len(key) for key, value in result.items() if not isinstance(value, dict)), default=0)
    for key, value in result.items():
        if isinstance(value, dict):
            yield f"{indent}{key}"
            yield from lines_of(value, indent + "  ")
        else:
            yield f"{indent}{key:<{width}}  {value}"
