"""What the tests of this directory have to tell, row by row."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class Result:
    example: str
    framework: str
    ranks: int
    seconds: float
    result: str


RESULTS: list[Result] = []


def table() -> list[str]:
    head = ("EXAMPLE", "FRAMEWORK", "RANKS", "SECONDS", "RESULT")
    rows = [head, *(tuple(map(_shown, astuple(result))) for result in RESULTS)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _shown(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)
