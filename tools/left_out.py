"""Tests that need something which a machine may lack are left out there, and the last lines say how many and why.

A marker says what a test needs, and a function per marker says what of it is missing. Nothing is left out where
CI=true: there the tests run, and fail with the reason, unless it is meant that the machine lacks it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

Missing = Callable[[], str]
"""What is missing on this machine and what would help, as a sentence; empty where nothing is."""

_KEY = "left_out"


class LeftOut:
    """A plugin of pytest. With pytest-xdist every worker finds the same, and the controller reports it once."""

    def __init__(
        self, needs: Mapping[str, Missing], environ: Mapping[str, str] = os.environ, meant: Collection[str] = ()
    ) -> None:
        self._needs = {need: needs[need] for need in needs if need in meant or environ.get("CI") != "true"}
        self._lines: list[str] = []

    @pytest.hookimpl(trylast=True)  # after what the command line selects
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        for need, missing in self._needs.items():
            needing = [item for item in items if item.get_closest_marker(need)]
            if needing and (reason := missing()):
                items[:] = [item for item in items if item not in needing]
                config.hook.pytest_deselected(items=needing)
                self._lines.append(f"{_counted(len(needing))} left out: {reason}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_KEY] = self._lines

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._lines = getattr(node, "workeroutput", {}).get(_KEY) or self._lines

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self._lines:
            terminalreporter.write_line(line)


def _counted(number: int) -> str:
    return "1 test was" if number == 1 else f"{number} tests were"
