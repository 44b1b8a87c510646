"""Admission of jobs: what the API server asks before it stores one, answered by the rules of reading. Pure.

`validate` finds in a new job exactly what a reconcile would find, and refuses it while its author still looks on. It
decides nothing that a reconcile does not decide again: without a webhook, or while it is down, bad jobs fail instead of
being refused. `default` adds what the schema says is stored. `webhook_server` carries both to the API server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeAlias

from trainmaster.api import reading
from trainmaster.api.framework import Framework
from trainmaster.api.settings import DEFAULT, Settings
from trainmaster.objects.meta import Json, meta_of
from trainmaster.objects.resource import Resource
from trainmaster.operator import webhook_default, webhook_protocol
from trainmaster.operator.webhook_protocol import ALLOWED, Answer, BadQuestion, Question, Verdict
from trainmaster.operator.webhook_update import unprecedented, update_problems

CREATE, UPDATE = "CREATE", "UPDATE"
Result: TypeAlias = Literal["allowed", "refused", "bad"]


class Admission:
    """For the kinds that this operator runs, under all their names and versions."""

    def __init__(
        self,
        frameworks: Iterable[Framework],
        settings: Settings = DEFAULT,
        observer: Callable[[Result], None] = lambda result: None,
    ) -> None:
        self._settings, self._observer = settings, observer
        self._served = {
            (f"{resource.group}/{version}", resource.kind): (framework, resource)
            for framework in frameworks
            for resource in framework.served
            for version in versions_of(framework, resource)
        }

    def validate(self, body: bytes) -> Answer:
        return self._answered(body, is_validating=True)

    def default(self, body: bytes) -> Answer:
        return self._answered(body, is_validating=False)

    def _answered(self, body: bytes, *, is_validating: bool) -> Answer:
        try:
            question = webhook_protocol.question_of(body)
            verdict = self._judged(question, is_validating=is_validating)
        except (BadQuestion, RecursionError) as error:
            self._observer("bad")
            why = str(error) if isinstance(error, BadQuestion) else "request.object is nested too deeply"
            return webhook_protocol.refused(400, why)
        self._observer("allowed" if verdict.refusal is None else "refused")
        return webhook_protocol.answer_of(question, verdict)

    def _judged(self, question: Question, *, is_validating: bool) -> Verdict:
        if question.sub_resource or question.operation not in (CREATE, UPDATE):
            return ALLOWED  # a status is nobody's wish, and what is bad may always be deleted
        if question.object is None:
            raise BadQuestion(f"request.object is missing from the {question.operation}")
        framework, resource = self._serving(question.object)
        if not is_validating:
            return Verdict(patch=webhook_default.patch_of(framework, question.object))
        if question.operation == CREATE:
            return self._created(framework, resource, question.object)
        if question.old_object is None:
            raise BadQuestion("request.oldObject is missing from the UPDATE")
        return self._updated(framework, resource, question.old_object, question.object)

    def _serving(self, raw: Json) -> tuple[Framework, Resource]:
        api_version, kind = raw.get("apiVersion"), raw.get("kind")
        found = self._served.get((str(api_version), str(kind)))
        if found is None:
            known = ", ".join(sorted({kind for _, kind in self._served}))
            raise BadQuestion(
                f"request.object is {api_version} {kind}, which this operator does not run; it runs {known}"
            )
        return found

    def _created(self, framework: Framework, resource: Resource, raw: Json) -> Verdict:
        # The API server will drop the status; so nothing that a copied job remembers counts.
        raw = {key: value for key, value in raw.items() if key != "status"}
        read = reading.read(framework, raw, self._settings, resource)
        warnings = tuple(advice.message for advice in read.advice)
        if not read.problems:
            return Verdict(warnings=warnings)
        return Verdict(webhook_protocol.invalid(resource, _name(raw), read.problems), warnings)

    def _updated(self, framework: Framework, resource: Resource, old: Json, new: Json) -> Verdict:
        if old.get("spec") == new.get("spec") or _is_terminating(new):
            return ALLOWED  # labels, finalizers: a job that stands may be handled, whatever is wrong with it
        read = reading.read(framework, new, self._settings, resource)
        before = reading.read(framework, old, self._settings, resource).problems if read.problems else ()
        brought, kept = unprecedented(read.problems, before)
        brought += update_problems(old, new)
        warnings = tuple(advice.message for advice in read.advice)
        warnings += tuple(f"still wrong, and keeps the job from running: {problem}" for problem in kept)
        if not brought:
            return Verdict(warnings=warnings)
        return Verdict(webhook_protocol.invalid(resource, _name(new), brought), warnings)


def versions_of(framework: Framework, resource: Resource) -> tuple[str, ...]:
    """All versions in which a resource is served: aliases have one."""
    older = framework.older_versions if resource == framework.resource else ()
    return (resource.version, *older)


def _name(raw: Json) -> str:
    return meta_of(raw.get("metadata")).name


def _is_terminating(raw: Json) -> bool:
    metadata = raw.get("metadata")
    return isinstance(metadata, Mapping) and metadata.get("deletionTimestamp") is not None
