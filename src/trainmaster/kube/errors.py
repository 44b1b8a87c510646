"""What can go wrong between us and an API server.

    KubeError
    ├── ApiError              the server answered, and the answer is no
    │   ├── BadRequest        400
    │   ├── Unauthorized      401
    │   ├── Forbidden         403
    │   ├── NotFound          404: the kind is not served, or not yet, or
    │   │   └── NoSuchObject  the answer names the object that is not there
    │   ├── Conflict          409: someone else wrote first
    │   │   └── AlreadyExists 409 with that reason: the name is taken
    │   ├── Gone              410: the resourceVersion or the continue token is too old
    │   ├── Invalid           422
    │   ├── TooManyRequests   429: nothing was done, come back after `retry_after`
    │   └── ServerError       5xx
    ├── Unreachable           no answer: whether the request was carried out is unknown
    ├── Undecodable           an answer that is not what was asked for
    └── ConfigError           a kubeconfig that cannot work: says file, field and remedy

`of` turns an answer into the right one of them; `transport` and `config` raise the last three.
"""

from __future__ import annotations

import email.utils
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from trainmaster.objects.learning import learn

_LONGEST_TEXT = 500  # of an answer that is not a Status: enough to recognise the proxy that wrote it


class KubeError(Exception):
    """Whatever this package raises on purpose."""


class ApiError(KubeError):
    """The server's answer, as its Status object tells it."""

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        *,
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
        request: str = "",
    ) -> None:
        said = ": ".join(part for part in (reason, message) if part) or "no explanation given"
        super().__init__(f"{request or 'the API server'}: {status} {said}")
        self.status = status
        self.reason = reason
        self.message = message
        self.details: Mapping[str, Any] = details or {}
        self.retry_after = retry_after


class BadRequest(ApiError): ...


class Unauthorized(ApiError): ...


class Forbidden(ApiError): ...


class NotFound(ApiError): ...


class NoSuchObject(NotFound):
    """Any other 404 says nothing about an object: before 1.22, a server that has just started answers so for every
    custom kind."""


class Conflict(ApiError): ...


class AlreadyExists(Conflict): ...


class Gone(ApiError): ...


class Invalid(ApiError): ...


class TooManyRequests(ApiError): ...


class ServerError(ApiError): ...


class Unreachable(KubeError): ...


class Undecodable(KubeError): ...


class ConfigError(KubeError): ...


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


class _Status(msgspec.Struct):
    reason: str | None = None
    message: str | None = None
    details: dict[str, Any] | None = None


def of(
    status: int,
    body: bytes,
    headers: Mapping[str, str] | None = None,
    *,
    request: str = "",
    now: Callable[[], float] = time.time,
) -> ApiError:
    """The error an answer stands for; `request` is its method and path, for the message."""
    said = _status_of(body)
    details = said.details or {}
    return _class_of(status, said.reason or "", details)(
        status,
        said.reason or "",
        said.message or "",
        details=details,
        retry_after=_retry_after(headers or {}, details, now),
        request=request,
    )


def _class_of(status: int, reason: str, details: Mapping[str, Any]) -> type[ApiError]:
    if status == 404 and details.get("name"):
        return NoSuchObject
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExists
    if status >= 500:
        return ServerError
    return _BY_STATUS.get(status, ApiError)


def _status_of(body: bytes) -> _Status:
    """The Status object in the answer; from a proxy that knows none, its text."""
    try:
        return msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = " ".join(body.decode("utf-8", "replace").split())
        return _Status(message=text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…")


def _retry_after(headers: Mapping[str, str], details: Mapping[str, Any], now: Callable[[], float]) -> float | None:
    """Seconds to wait: the header in either of its two forms, else what the Status says."""
    header = headers.get("Retry-After", "")
    if header.strip().isdecimal():
        return float(header)
    if header:
        try:
            return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - now())
        except ValueError:
            pass  # neither form: as good as absent
    seconds = details.get("retryAfterSeconds")
    return float(seconds) if isinstance(seconds, int) and seconds > 0 else None


learn(_Status)
