"""What the API server asks a webhook, and how it is answered: AdmissionReview, admission.k8s.io/v1. Pure.

Bytes in, a `Question` out; a `Verdict` in, bytes out. Whoever sends something else is told what is wrong with it. Also
the names under which the two find each other.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from trainmaster.api.problem import MOST, Problem, Sort, shortened
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import Resource

NAME = "trainmaster-webhook"
"""Of the Service, unless a flag says otherwise; the Secret bears the Service's name, the registrations too unless
another flag names them."""

VALIDATE, DEFAULT = "/validate", "/default"
REGISTRATION = "admissionregistration.k8s.io"
VALIDATING = Resource(
    REGISTRATION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", namespaced=False
)
MUTATING = Resource(
    REGISTRATION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False
)
VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

_CAUSES: dict[Sort, str] = {
    "Invalid": "FieldValueInvalid",
    "Required": "FieldValueRequired",
    "NotSupported": "FieldValueNotSupported",
    "Forbidden": "FieldValueForbidden",
}
_REASONS = {
    400: "BadRequest",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "Timeout",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    500: "InternalError",
    503: "ServiceUnavailable",
}


class BadQuestion(ValueError):
    """Not something that an API server would ask this webhook."""


class Answer(NamedTuple):
    status: int
    body: bytes


class Question(Struct, frozen=True, rename="camel"):
    uid: str
    operation: str
    sub_resource: str = ""
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None


class _Review(Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: Question | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Allowed, unless there is a refusal."""

    refusal: Json | None = None
    """A Status."""

    warnings: tuple[str, ...] = ()
    patch: tuple[Json, ...] = ()


ALLOWED = Verdict()
_REVIEWS = msgspec.json.Decoder(_Review)


def question_of(body: bytes) -> Question:
    try:
        review = _REVIEWS.decode(body)
    except RecursionError as error:
        raise BadQuestion("the body is nested too deeply") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadQuestion(f"the body is not an {KIND}: {error}") from error
    if review.kind != KIND or review.api_version != VERSION:
        said = f"{review.api_version} {review.kind}"
        raise BadQuestion(f"the body is not {VERSION} {KIND} but {said[:200]}")
    if review.request is None:
        raise BadQuestion(f"{KIND}.request is missing")
    return review.request


def answer_of(question: Question, verdict: Verdict) -> Answer:
    response: dict[str, Any] = {"uid": question.uid, "allowed": verdict.refusal is None}
    if verdict.refusal is not None:
        response["status"] = verdict.refusal
    if verdict.warnings:
        response["warnings"] = shortened(verdict.warnings)
    if verdict.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(verdict.patch)).decode()
    return Answer(200, msgspec.json.encode({"apiVersion": VERSION, "kind": KIND, "response": response}))


def refused(status: int, why: str) -> Answer:
    """To a request that is no question: a Status, which API servers show to their users."""
    return Answer(status, msgspec.json.encode(_status(status, _REASONS.get(status, ""), why)))


def invalid(resource: Resource, name: str, problems: Sequence[Problem]) -> Json:
    """The Status of an object that breaks rules, as the API server itself would write it."""
    texts = shortened([str(problem) for problem in problems])
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [
        {"reason": _CAUSES[problem.sort], "message": _without_path(problem), "field": problem.path}
        for problem in problems[:MOST]
    ]
    details = {"name": name, "group": resource.group, "kind": resource.kind, "causes": causes}
    message = f'{resource.kind}.{resource.group} "{name}" is invalid: {listed}'
    return {**_status(422, "Invalid", message), "details": details}


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }


def _without_path(problem: Problem) -> str:
    return str(problem).removeprefix(f"{problem.path}: ")
