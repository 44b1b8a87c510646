"""Tables as kubectl prints them: the server's own columns where it makes Tables, name and age where it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from trainmaster.api.status import JobStatus, status_of
from trainmaster.cluster.server import age

Answer: TypeAlias = dict[str, Any]
"""A Table (meta.k8s.io/v1), a List, or one object."""

GAP = 3


@dataclass(frozen=True, slots=True)
class Shape:
    wide: bool = False
    with_namespace: bool = False
    with_labels: bool = False
    headers: bool = True
    prefix: str = ""
    """`pod/` before every name, where several kinds are shown."""


class Printer:
    """Prints a table, and later rows below it: a watch goes on in the columns that the list began."""

    def __init__(self, shape: Shape, now: Callable[[], float], write: Callable[[str], None] = print) -> None:
        self._shape = shape
        self._now = now
        self._write = write
        self._columns: list[dict[str, Any]] = []
        self._widths: list[int] = []
        self._is_begun = False

    def show(self, answer: Answer) -> int:
        """How many rows it had."""
        table = as_table(answer, self._now())
        self._columns = self._columns or table.get("columnDefinitions") or []
        rows = [self._row(row) for row in table.get("rows") or ()]
        if rows:
            self._print([self._header()] if self._shape.headers and not self._is_begun else [], rows)
            self._is_begun = True
        return len(rows)

    def _print(self, head: list[list[str]], rows: list[list[str]]) -> None:
        lines = [*head, *rows]
        self._widths = self._widths or widths_of(lines)
        for line in lines:
            self._write(aligned(line, self._widths))

    def _shown(self) -> list[int]:
        return [i for i, column in enumerate(self._columns) if self._shape.wide or not column.get("priority")]

    def _header(self) -> list[str]:
        names = [str(self._columns[i]["name"]).upper() for i in self._shown()]
        before = ["NAMESPACE"] if self._shape.with_namespace else []
        return [*before, *names, *(["LABELS"] if self._shape.with_labels else [])]

    def _row(self, row: Answer) -> list[str]:
        metadata = (row.get("object") or {}).get("metadata") or {}
        cells = [_text(row["cells"][i]) for i in self._shown()]
        if self._shape.prefix and cells:
            cells[0] = f"{self._shape.prefix}{cells[0]}"
        labels = ",".join(f"{key}={value}" for key, value in sorted((metadata.get("labels") or {}).items()))
        before = [metadata.get("namespace", "")] if self._shape.with_namespace else []
        return [*before, *cells, *([labels or "<none>"] if self._shape.with_labels else [])]


def widths_of(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) + GAP for column in zip(*lines, strict=True)]


def aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    """A cell that fills its column still has a space behind it."""
    padded = [f"{cell} ".ljust(width) for cell, width in zip(line[:-1], widths, strict=False)]
    return "".join([*padded, line[-1]]).rstrip()


def lines_of(rows: Sequence[Sequence[str]]) -> list[str]:
    """A whole table; nothing for nothing."""
    widths = widths_of(rows) if rows else []
    return [aligned(row, widths) for row in rows]


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value).replace("\n", " ")


def as_table(answer: Answer, now: float) -> Answer:
    if answer.get("kind") == "Table":
        return answer
    items = answer["items"] if isinstance(answer.get("items"), list) else [answer]
    rows = [_row_of(item, [item["metadata"]["name"], _age(item, now)]) for item in items]
    return _table(("Name", "Age"), (), rows)


def overview(jobs: Iterable[tuple[str, Answer]], now: float) -> Answer:
    """Jobs of any kinds in one table; `wide` has more of it."""
    rows = [_row_of(job, [kind, *_job_cells(job, now)]) for kind, job in jobs]
    return _table(("Kind", "Name", "State", "Age"), ("Ranks", "Message"), rows)


def _job_cells(job: Answer, now: float) -> Sequence[str]:
    status = status_of(job.get("status"))
    last = status.conditions[-1] if status.conditions else None
    state, message = (last.type, last.message) if last is not None else ("<none>", "")
    return job["metadata"]["name"], state, _age(job, now), _ranks(status), message


def _ranks(status: JobStatus) -> str:
    counts = status.replica_statuses.values()
    totals = [(sum(getattr(one, what) for one in counts), what) for what in ("active", "succeeded", "failed")]
    return ", ".join(f"{count} {what}" for count, what in totals if count) or "none"


def _row_of(item: Answer, cells: list[str]) -> Answer:
    return {"cells": cells, "object": {"metadata": item["metadata"]}}


def _table(names: Sequence[str], wide: Sequence[str], rows: list[Answer]) -> Answer:
    columns = [{"name": name, "priority": 0} for name in names] + [{"name": name, "priority": 1} for name in wide]
    return {"kind": "Table", "columnDefinitions": columns, "rows": rows}


def _age(item: Answer, now: float) -> str:
    return age.since(item["metadata"].get("creationTimestamp"), now)
