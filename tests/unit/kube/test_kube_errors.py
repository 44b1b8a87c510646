"""What an answer of the API server becomes."""

from __future__ import annotations

import pytest

from trainmaster.kube import errors


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        pytest.param(400, errors.BadRequest, id="bad-request"),
        pytest.param(401, errors.Unauthorized, id="unauthorized"),
        pytest.param(403, errors.Forbidden, id="forbidden"),
        pytest.param(404, errors.NotFound, id="not-found"),
        pytest.param(409, errors.Conflict, id="conflict"),
        pytest.param(410, errors.Gone, id="gone"),
        pytest.param(422, errors.Invalid, id="invalid"),
        pytest.param(429, errors.TooManyRequests, id="too-many-requests"),
        pytest.param(500, errors.ServerError, id="internal"),
        pytest.param(503, errors.ServerError, id="unavailable"),
        pytest.param(405, errors.ApiError, id="no-class-of-its-own"),
        pytest.param(301, errors.ApiError, id="redirect"),
    ],
)
def test_status_chooses_the_class(status: int, kind: type[errors.ApiError]) -> None:
    error = errors.of(status, b"{}")

    assert type(error) is kind
    assert error.status == status


def test_an_object_that_is_not_there_is_told_from_a_kind_that_is_not_served() -> None:
    absent = errors.of(404, b'{"reason": "NotFound", "details": {"name": "x", "kind": "pods"}}')
    unknown = errors.of(404, b"404 page not found")

    assert type(absent) is errors.NoSuchObject
    assert type(unknown) is errors.NotFound


def test_taken_name_is_told_from_a_lost_race() -> None:
    error = errors.of(409, b'{"reason": "AlreadyExists", "message": "pods \\"x\\" already exists"}')

    assert type(error) is errors.AlreadyExists
    assert isinstance(error, errors.Conflict)


def test_message_says_request_and_what_the_server_said() -> None:
    body = b'{"kind": "Status", "reason": "NotFound", "message": "pods \\"x\\" not found", "details": {"name": "x"}}'

    error = errors.of(404, body, request="GET /api/v1/namespaces/default/pods/x")

    assert str(error) == 'GET /api/v1/namespaces/default/pods/x: 404 NotFound: pods "x" not found'
    assert error.details == {"name": "x"}


def test_text_of_a_proxy_is_the_message() -> None:
    error = errors.of(502, b"<html>\n  <h1>Bad\n Gateway</h1></html>\n", request="GET /api")

    assert str(error) == "GET /api: 502 <html> <h1>Bad Gateway</h1></html>"
    assert error.reason == ""


@pytest.mark.parametrize("body", [b"", b"[1, 2]", b"\xff\xfe", b'{"message": 3}', b'{"details": null}'])
def test_any_body_makes_an_error(body: bytes) -> None:
    assert errors.of(500, body).status == 500


def test_long_text_is_cut() -> None:
    error = errors.of(500, b"x" * 10_000)

    assert len(error.message) < 600


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        pytest.param("7", 7.0, id="seconds"),
        pytest.param("Thu, 01 Jan 1970 00:02:00 GMT", 20.0, id="date"),
        pytest.param("Thu, 01 Jan 1970 00:00:01 GMT", 0.0, id="date-in-the-past"),
        pytest.param("soon", None, id="neither"),
    ],
)
def test_retry_after_is_read_in_both_forms(header: str, seconds: float | None) -> None:
    error = errors.of(429, b"{}", {"Retry-After": header}, now=lambda: 100.0)

    assert error.retry_after == seconds


def test_retry_after_is_taken_from_the_status_where_there_is_no_header() -> None:
    error = errors.of(503, b'{"details": {"retryAfterSeconds": 3}}')

    assert error.retry_after == 3.0
