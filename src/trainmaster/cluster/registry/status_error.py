"""Refusals as Kubernetes words them: one exception that carries a whole `Status`, and a constructor per reason.

Clients decide by `reason` and `details`, people read `message`; both are as the Kubernetes API server writes them,
so that kubectl, client libraries and our own operator cannot tell the difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from trainmaster.objects import meta

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


class Named(Protocol):
    """What a refusal says about the resource it is about."""

    @property
    def group(self) -> str: ...
    @property
    def plural(self) -> str: ...
    @property
    def kind(self) -> str: ...


class ApiError(Exception):
    """A request that gets a `Status` instead of an object."""

    def __init__(self, status: int, reason: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        body["message"] = self.message
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = dict(self.details)
        return {**body, "code": self.status}


@dataclass(frozen=True, slots=True)
class Cause:
    """One field that is wrong. `str()` is the sentence; `detail` is the sentence without the field's path."""

    reason: str
    field: str
    detail: str

    def __str__(self) -> str:
        return f"{self.field}: {self.detail}"

    def to_json(self) -> dict[str, str]:
        return {"reason": self.reason, "message": self.detail, "field": self.field}


def shown(value: object) -> str:
    """A value as Go's `%#v` shows it in field errors: text quoted, numbers bare, structures as JSON text."""
    if isinstance(value, str):
        return meta.encode(value).decode()
    if value is None:
        return '"null"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return f"[]string{{{', '.join(shown(item) for item in value)}}}" if value else "[]string(nil)"
    if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
        pairs = ", ".join(f"{shown(key)}:{shown(item)}" for key, item in sorted(value.items()))
        return f"map[string]string{{{pairs}}}" if value else "map[string]string(nil)"
    return meta.encode(value).decode()


def invalid_value(field: str, value: object, detail: str) -> Cause:
    return Cause("FieldValueInvalid", field, f"Invalid value: {shown(value)}: {detail}")


def required(field: str, detail: str = "") -> Cause:
    return Cause("FieldValueRequired", field, f"Required value: {detail}" if detail else "Required value")


def duplicate(field: str, value: object) -> Cause:
    return Cause("FieldValueDuplicate", field, f"Duplicate value: {shown(value)}")


def forbidden_field(field: str, detail: str) -> Cause:
    return Cause("FieldValueForbidden", field, f"Forbidden: {detail}")


def not_found_value(field: str, value: object) -> Cause:
    return Cause("FieldValueNotFound", field, f"Not found: {shown(value)}")


def unsupported(field: str, value: object, known: Iterable[str]) -> Cause:
    listed = ", ".join(shown(name) for name in known)
    return Cause("FieldValueNotSupported", field, f"Unsupported value: {shown(value)}: supported values: {listed}")


def not_found(resource: Named, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{_qualified(resource)} "{name}" not found', _details(resource, name))


def already_exists(resource: Named, name: str) -> ApiError:
    return ApiError(409, "AlreadyExists", f'{_qualified(resource)} "{name}" already exists', _details(resource, name))


def conflict(resource: Named, name: str, why: str = MODIFIED, *, called: str = "") -> ApiError:
    """`called`: deletions name the kind where updates name the resource."""
    subject = called or _qualified(resource)
    details = {**_details(resource, name), **({"kind": called} if called else {})}
    return ApiError(409, "Conflict", f'Operation cannot be fulfilled on {subject} "{name}": {why}', details)


def invalid(resource: Named, name: str, causes: Iterable[Cause]) -> ApiError:
    listed = list(causes)
    sentences = list(dict.fromkeys(str(cause) for cause in listed))
    text = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
    details: dict[str, Any] = {**({"name": name} if name else {})}
    if resource.group:
        details["group"] = resource.group
    if resource.kind:
        details["kind"] = resource.kind
    details["causes"] = [cause.to_json() for cause in listed]
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {text}', details)


def invalid_patch() -> ApiError:
    """A JSON patch that does not fit the object; the real server says no more than this."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def forbidden(resource: Named, name: str, why: str, causes: Iterable[Cause] = ()) -> ApiError:
    details = _details(resource, name)
    if listed := [cause.to_json() for cause in causes]:
        details["causes"] = listed
    return ApiError(403, "Forbidden", f'{_qualified(resource)} "{name}" is forbidden: {why}', details)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def too_many(message: str, seconds: int = 0) -> ApiError:
    return ApiError(429, "TooManyRequests", message, {"retryAfterSeconds": seconds} if seconds else {})


def method_not_allowed(resource: Named, verb: str) -> ApiError:
    message = f"{verb} is not supported on resources of kind {shown(_qualified(resource))}"
    details = {key: value for key, value in _details(resource, "").items() if key != "name"}
    return ApiError(405, "MethodNotAllowed", message, details)


def unsupported_media_type(supported: Iterable[str] = ()) -> ApiError:
    listed = ", ".join(supported)
    message = "the body of the request was in an unknown format"
    return ApiError(415, "UnsupportedMediaType", f"{message} - accepted media types include: {listed}")


def unknown_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def internal(message: str) -> ApiError:
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", {"causes": [{"message": message}]})


def _qualified(resource: Named) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def _details(resource: Named, name: str) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    return {**details, "kind": resource.plural}
