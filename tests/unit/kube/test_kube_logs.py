"""Logs: constant messages, fields as keywords, one line per record, no secrets."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from trainmaster.kube import logs


@pytest.fixture(autouse=True)
def _root_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def written_as_json(**fields: object) -> dict[str, object]:
    stream = io.StringIO()
    logs.setup("debug", "json", stream)
    logs.get("some.place").info("pods created", **fields)
    line: dict[str, object] = json.loads(stream.getvalue())
    return line


def written_as_text(**fields: object) -> str:
    stream = io.StringIO()
    logs.setup("debug", "text", stream)
    logs.get("some.place").info("pods created", **fields)
    return stream.getvalue()


def test_a_json_line_carries_time_level_logger_message_and_fields() -> None:
    line = written_as_json(key="ns/a", count=3)

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(line.pop("ts")))
    assert line == {"level": "info", "logger": "some.place", "msg": "pods created", "key": "ns/a", "count": 3}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param({"a": (1, None)}, {"a": [1, None]}, id="mappings and tuples"),
        pytest.param(ValueError("no"), "no", id="an exception is its text"),
        pytest.param(float("nan"), "nan", id="what JSON has no word for"),
        pytest.param({1: True}, {"1": True}, id="keys are strings"),
        pytest.param("\ud800", "\ud800", id="a broken character"),
    ],
)
def test_any_value_can_be_a_field(value: object, expected: object) -> None:
    assert written_as_json(value=value)["value"] == expected


@pytest.mark.parametrize("name", ["name", "module", "args"])
def test_fields_may_be_named_like_parts_of_a_standard_record(name: str) -> None:
    assert written_as_json(**{name: "x"})[name] == "x"


def test_a_field_does_not_hide_the_message() -> None:
    line = written_as_json(level="high")

    assert (line["level"], line["level_"]) == ("info", "high")


@pytest.mark.parametrize("name", ["token", "password", "authorization", "Authorization", "bearer_token", "accessToken"])
def test_secrets_are_masked(name: str) -> None:
    assert written_as_json(**{name: "hunter2"})[name] == "***"
    assert "hunter2" not in written_as_text(**{name: "hunter2"})


def test_secrets_are_masked_at_any_depth() -> None:
    line = written_as_json(user={"users": [{"token": "hunter2", "name": "ann"}]})

    assert line["user"] == {"users": [{"token": "***", "name": "ann"}]}


def test_extras_of_other_libraries_are_flattened() -> None:
    stream = io.StringIO()
    logs.setup("info", "json", stream)

    logging.getLogger("aiohttp").info("got %d", 3, extra={"peer": "::1"})

    line = json.loads(stream.getvalue())
    assert (line["msg"], line["peer"]) == ("got 3", "::1")


def test_an_exception_is_one_line_of_json() -> None:
    stream = io.StringIO()
    logs.setup("info", "json", stream)

    try:
        raise LookupError("nowhere")
    except LookupError:
        logs.get("x").exception("lookup failed", key="a")

    (text,) = stream.getvalue().splitlines()
    line = json.loads(text)
    assert (line["level"], line["key"]) == ("error", "a")
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("LookupError: nowhere")


def test_records_of_a_reconcile_carry_its_id() -> None:
    token = logs.reconcile_id.set("abc123")

    inside = written_as_json()
    logs.reconcile_id.reset(token)
    outside = written_as_json()

    assert inside["reconcile_id"] == "abc123"
    assert "reconcile_id" not in outside


def test_text_is_time_level_message_and_fields() -> None:
    text = written_as_text(key="ns/a", count=3, why="two words", empty="")

    assert re.fullmatch(r'\d\d:\d\d:\d\d info pods created key=ns/a count=3 why="two words" empty=""\n', text)


def test_text_shows_the_traceback_below() -> None:
    stream = io.StringIO()
    logs.setup("info", "text", stream)

    try:
        raise LookupError("nowhere")
    except LookupError:
        logs.get("x").exception("lookup failed")

    first, *_, last = stream.getvalue().splitlines()
    assert first.endswith("error lookup failed")
    assert last == "LookupError: nowhere"


@pytest.mark.parametrize(
    ("stream", "is_json"),
    [pytest.param(Terminal(), False, id="terminal"), pytest.param(io.StringIO(), True, id="file")],
)
def test_auto_is_text_on_a_terminal_and_json_elsewhere(stream: io.StringIO, is_json: bool) -> None:
    logs.setup("info", "auto", stream)

    logs.get("x").info("hello")

    assert stream.getvalue().startswith("{") is is_json


@pytest.mark.parametrize("level", ["warning", "WARNING", "warn", "Warn"])
def test_what_is_below_the_level_is_not_written(level: str) -> None:
    stream = io.StringIO()
    logs.setup(level, "text", stream)
    log = logs.get("x")

    log.debug("one")
    log.info("two")
    log.warning("three")
    log.error("four")

    assert [line.split()[-1] for line in stream.getvalue().splitlines()] == ["three", "four"]


def test_a_second_setup_replaces_the_first() -> None:
    first, second = io.StringIO(), io.StringIO()
    logs.setup("info", "json", first)
    logs.setup("info", "json", second)

    logs.get("x").info("once")

    assert first.getvalue() == ""
    assert second.getvalue().count("\n") == 1


@pytest.mark.parametrize(
    ("level", "format", "message"),
    [
        pytest.param("loud", "json", "'loud' is not one of debug, info, warning, error", id="level"),
        pytest.param("info", "xml", "'xml' is not one of json, text, auto", id="format"),
    ],
)
def test_a_wrong_setting_says_what_would_be_right(level: str, format: logs.Format, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        logs.setup(level, format)


def test_the_record_tells_the_line_of_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        logs.get("x").info("here")

    assert caplog.records[0].funcName == "test_the_record_tells_the_line_of_the_caller"
