"""What the tests of this directory have to tell: for a terminal, row by row, and as a page that is kept."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass

HEAD = ("Example", "Framework", "Ranks", "Seconds", "Result")
PAGE = """\
# Every example with its real framework

What `make e2e` found when it last ran: it rewrites this page. Everything ran on the embedded cluster, every pod in
namespaces of its own. Seconds are those of `trainmaster run`, imports of the framework included.

{circumstances}

{examples}

An example has trained if its loss fell, all ranks tell the same weights or trees, and all has ended that should have.
The tests show that an example whose ranks do not exchange gradients is told from one whose ranks do, and what becomes
of jobs whose ranks are killed, hang or abort.

{tests}
"""


@dataclass(frozen=True)
class Result:
    example: str
    framework: str
    ranks: int
    seconds: float
    result: str


@dataclass
class Tally:
    """Of the tests of one file."""

    passed: int = 0
    failed: int = 0
    seconds: float = 0.0


RESULT = "example"
"""The property of a test that holds one, as a tuple: so it comes back from whatever process the test ran in."""


def table(results: Iterable[Result]) -> list[str]:
    rows = [tuple(map(str.upper, HEAD)), *_rows(results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def page(results: Iterable[Result], tallies: Mapping[str, Tally], seconds: float) -> str:
    """Markdown; seconds are those of the whole run."""
    return PAGE.format(
        circumstances=_markdown(("", ""), _circumstances(seconds)),
        examples=_markdown(HEAD, _rows(results)),
        tests=_markdown(("Tests", "Passed", "Failed", "Seconds"), _tallied(tallies)),
    )


def _rows(results: Iterable[Result]) -> Iterator[tuple[str, ...]]:
    return (tuple(map(_shown, astuple(result))) for result in results)


def _tallied(tallies: Mapping[str, Tally]) -> Iterator[tuple[str, ...]]:
    for name, tally in sorted(tallies.items()):
        yield f"`{name}`", str(tally.passed), str(tally.failed), f"{tally.seconds:.0f}"


def _circumstances(seconds: float) -> list[tuple[str, ...]]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    kept = f"{os.cpu_count()} cores, {memory:.0f} GiB, load average {os.getloadavg()[2]:.1f} over the last 15 minutes"
    return [
        ("Machine", kept),
        ("Kernel", f"{platform.system()} {platform.release()}, {platform.machine()}"),
        ("Python", platform.python_version()),
        ("Date", time.strftime("%Y-%m-%d", time.gmtime())),
        ("Total time", f"{seconds // 60:.0f} min {seconds % 60:.0f} s, environments already made"),
    ]


def _markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join([_line(head), "|" + "---|" * len(head), *map(_line, rows)])


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)
