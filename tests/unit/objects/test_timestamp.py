"""Times as Kubernetes writes them."""

from __future__ import annotations

import pytest

from trainmaster.objects import timestamp


def test_a_time_is_written_in_whole_seconds_of_utc() -> None:
    assert timestamp.render(1_700_000_000.987) == "2023-11-14T22:13:20Z"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("2023-11-14T22:13:20Z", 1_700_000_000.0, id="utc"),
        pytest.param("2023-11-14T22:13:20.500000Z", 1_700_000_000.5, id="micro time"),
        pytest.param("2023-11-15T00:13:20+02:00", 1_700_000_000.0, id="with offset"),
        pytest.param("2023-11-14T22:13:20", 1_700_000_000.0, id="without zone counts as utc"),
    ],
)
def test_a_time_is_read_as_seconds(text: str, seconds: float) -> None:
    assert timestamp.parse(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(None, id="absent"),
        pytest.param("", id="empty"),
        pytest.param("yesterday", id="word"),
        pytest.param("2023-13-40T00:00:00Z", id="no such day"),
    ],
)
def test_what_is_no_time_reads_as_none(text: str | None) -> None:
    assert timestamp.parse(text) is None


def test_a_written_time_reads_back() -> None:
    assert timestamp.parse(timestamp.render(1_700_000_000)) == 1_700_000_000


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        pytest.param("2023-11-14T22:13:20Z", "2023-11-14T22:13:20Z", id="utc"),
        pytest.param("2023-11-14T22:13:20.500000Z", "2023-11-14T22:13:20.500000Z", id="micro time"),
        pytest.param("2023-11-15T00:13:20+02:00", "2023-11-15T00:13:20+02:00", id="with offset"),
        pytest.param("2023-11-14T22:13:20", "2023-11-14T22:13:20Z", id="without zone"),
        pytest.param("2023-11-14 22:13:20+00:00", "2023-11-14T22:13:20Z", id="with a blank"),
        pytest.param("2023-02-30T00:00:00Z", None, id="no such day"),
        pytest.param("yesterday", None, id="word"),
        pytest.param("", None, id="empty"),
        pytest.param(None, None, id="absent"),
    ],
)
def test_a_server_gets_a_time_as_it_takes_them_or_none(text: str | None, taken: str | None) -> None:
    assert timestamp.valid(text) == taken
