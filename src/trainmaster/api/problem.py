"""What is wrong with an object, in the words of the Kubernetes API: a field path, the value, the remedy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Sort = Literal["Invalid", "Required", "NotSupported", "Forbidden"]

MOST = 50
"""Problems and warnings told at once. Who has more has one mistake many times over."""

_SHOWN = 120
"""Longer values are cut in messages: a pod template in an event helps nobody."""


@dataclass(frozen=True, slots=True)
class Problem:
    path: str
    sort: Sort
    detail: str
    value: Any = None

    def __str__(self) -> str:
        match self.sort:
            case "Required":
                return f"{self.path}: Required value: {self.detail}"
            case "Forbidden":
                return f"{self.path}: Forbidden: {self.detail}"
            case "NotSupported":
                return f"{self.path}: Unsupported value: {_shown(self.value)}: {self.detail}"
            case _:
                return f"{self.path}: Invalid value: {_shown(self.value)}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Advice:
    """What the user should know although the job runs; becomes a Warning event."""

    reason: str
    message: str


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def shortened(texts: Sequence[str]) -> list[str]:
    """The first of them, and how many more there are."""
    left_out = len(texts) - MOST
    return [*texts[:MOST], *([f"and {left_out} more"] if left_out > 0 else [])]


def required(path: str, detail: str) -> Problem:
    return Problem(path, "Required", detail)


def invalid(path: str, value: Any, detail: str) -> Problem:
    return Problem(path, "Invalid", detail, value)


def forbidden(path: str, detail: str) -> Problem:
    return Problem(path, "Forbidden", detail)


def unsupported(path: str, value: Any, supported: Iterable[str]) -> Problem:
    return Problem(path, "NotSupported", "supported values: " + ", ".join(f'"{s}"' for s in supported), value)
