"""How a run of the benchmarks is held against what we want of it."""

from __future__ import annotations

import pytest
from benchmarks.targets import Target, verdicts

MOST = Target("a time", ("x",), bound=2, goal=1)
LEAST = Target("a rate", ("x",), bound=1, goal=2, is_least=True)


@pytest.mark.parametrize(
    ("target", "value", "verdict"),
    [
        pytest.param(MOST, 1, "goal", id="as little as wanted"),
        pytest.param(MOST, 1.5, "held", id="little enough"),
        pytest.param(MOST, 2.1, "MISSED", id="too much"),
        pytest.param(LEAST, 2, "goal", id="as much as wanted"),
        pytest.param(LEAST, 1.5, "held", id="much enough"),
        pytest.param(LEAST, 0.9, "MISSED", id="too little"),
    ],
)
def test_a_figure_reaches_its_goal_or_its_bound_or_neither(target: Target, value: float, verdict: str) -> None:
    assert target.verdict(value) == verdict


def test_only_benchmarks_that_were_run_are_judged() -> None:
    head, line, *_ = verdicts({"pods": {"failures": 0}})

    assert head.startswith("TARGET")
    assert line.split()[-3:] == ["≤0", "0", "goal"]


def test_a_figure_that_a_run_should_have_and_has_not_is_named() -> None:
    _, line, *_ = verdicts({"pods": {}})

    assert line.endswith("NOT MEASURED")
