"""Prints what the examples gave at the end: what was trained with what, by how many, for how long, and how it ended."""

from __future__ import annotations

import pytest
from tests.e2e.results import RESULTS, table


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if RESULTS:
        terminalreporter.section("examples")
        for line in table():
            terminalreporter.write_line(line)
