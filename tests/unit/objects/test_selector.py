"""Equality selectors."""

from __future__ import annotations

import pytest

from trainmaster.objects import selector


@pytest.mark.parametrize(
    ("wanted", "labels", "matches"),
    [
        pytest.param({"a": "1"}, {"a": "1", "b": "2"}, True, id="labels may say more"),
        pytest.param({"a": "1", "b": "2"}, {"a": "1"}, False, id="a label is missing"),
        pytest.param({"a": "1"}, {"a": "2"}, False, id="another value"),
        pytest.param({}, {"a": "1"}, True, id="an empty selector matches all"),
    ],
)
def test_a_selector_matches_when_every_label_is_equal(
    wanted: dict[str, str], labels: dict[str, str], matches: bool
) -> None:
    assert selector.matches(wanted, labels) is matches


def test_a_selector_is_written_with_sorted_keys() -> None:
    assert selector.render({"b": "2", "a": "1"}) == "a=1,b=2"
