"""Light tests are marked, and at the end it is told what was trained with what, by how many, how long, and how it went.

python -m pytest tests/e2e -m light                        # those whose frameworks are installed quickly
python -m pytest tests/e2e --table docs/proof/e2e.md       # all, and the page that is kept of it
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.results import RESULT, Result, Tally, page, table

STARTED = time.monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--table", metavar="FILE", type=Path, help="write what the examples gave as Markdown, too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "light: needs nothing but plain Python or what pip installs in a minute or two")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    results = list(_results(terminalreporter))
    if not results:
        return
    terminalreporter.section("examples")
    for line in table(results):
        terminalreporter.write_line(line)
    kept: Path | None = config.getoption("--table")
    if kept is not None:
        kept.write_text(page(results, _tallies(terminalreporter), time.monotonic() - STARTED))
        terminalreporter.write_line(f"kept in {kept}")


def _reports(reporter: pytest.TerminalReporter, *outcomes: str) -> Iterator[pytest.TestReport]:
    for outcome in outcomes:
        yield from reporter.stats.get(outcome, ())


def _results(reporter: pytest.TerminalReporter) -> Iterator[Result]:
    for report in _reports(reporter, "passed", "failed"):
        told: dict[str, Any] = dict(report.user_properties)
        if RESULT in told:
            yield Result(*told[RESULT])


def _tallies(reporter: pytest.TerminalReporter) -> dict[str, Tally]:
    """By file, of whatever was called or failed before it could be."""
    found: dict[str, Tally] = defaultdict(Tally)
    for outcome in ("passed", "failed", "error"):
        for report in _reports(reporter, outcome):
            tally = found[Path(report.nodeid.partition("::")[0]).name]
            tally.seconds += report.duration
            if outcome == "passed":
                tally.passed += report.when == "call"
            else:
                tally.failed += 1
    return found
