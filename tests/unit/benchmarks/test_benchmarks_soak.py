"""What a soak calls flat."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from benchmarks.soak import Sample, verdicts


def samples(memory: Callable[[float], float], files: Callable[[float], int] = lambda _: 60) -> list[Sample]:
    return [Sample(at, memory(at), files(at), 4, 20.0, 3, 3, 600) for at in range(0, 1201, 20)]


@pytest.mark.parametrize(
    ("memory", "grown"),
    [
        pytest.param(lambda at: 100.0, [], id="flat"),
        pytest.param(lambda at: min(200.0, 80 + at), [], id="fills-up-first"),
        pytest.param(lambda at: 100 + 20 * (at % 100 == 0), [], id="peaks"),
        pytest.param(lambda at: 100 + at / 10, ["memory_mb"], id="grows"),
        pytest.param(lambda at: 100 - at / 20, [], id="shrinks"),
    ],
)
def test_what_is_higher_in_the_last_quarter_than_in_the_third_grows(
    memory: Callable[[float], float], grown: list[str]
) -> None:
    assert list(verdicts(samples(memory), 300.0)) == grown


def test_each_figure_is_judged_by_itself() -> None:
    assert list(verdicts(samples(lambda at: 100.0, lambda at: 60 + int(at / 10)), 300.0)) == ["files"]


def test_a_run_that_forgets_nothing_yet_judges_nothing() -> None:
    assert list(verdicts(samples(lambda at: 100.0), 3600.0)) == ["run"]
