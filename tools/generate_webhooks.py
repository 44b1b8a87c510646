"""The chart's webhooks: what the installation has where it wants them, each part under the value that asks for it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from tools.generate_rights import PLACE, WATCHED
from tools.generate_text import yaml_text
from trainmaster.api.framework import Framework
from trainmaster.objects.meta import Json, mutable
from trainmaster.operator.install import Installation, manifests

FAILURE = "HELM-FAILURE"
RULES = re.compile(r"^(?P<indent> *)- HELM-RULES\n", re.MULTILINE)
EXPRESSIONS = re.compile(r"^(?P<indent> *)- HELM-EXPRESSIONS\n", re.MULTILINE)
VALUES = {FAILURE: "{{ .Values.webhooks.failurePolicy }}", WATCHED: "{{ .Values.watchNamespace }}"}


def webhooks(frameworks: tuple[Framework, ...]) -> str:
    parts = ["{{- if .Values.webhooks.mode }}\n"]
    for item in _objects(frameworks):
        text = f"---\n{_registration(frameworks, item)}" if "webhooks" in item else f"---\n{yaml_text(item)}"
        is_defaulting = item["kind"].startswith("Mutating")
        parts.append(_when('eq .Values.webhooks.mode "all"', text) if is_defaulting else text)
    text = "".join([*parts, "{{- end }}\n"])
    for mark, expression in VALUES.items():
        text = text.replace(mark, expression)
    return text


def _objects(frameworks: tuple[Framework, ...]) -> list[Json]:
    """What is there with webhooks and not without."""
    plain = Installation(frameworks, **PLACE, watch_namespace=WATCHED)
    hooked = replace(plain, webhooks="all", webhook_failure_policy=FAILURE)
    known = {(item["kind"], item["metadata"]["name"]) for item in manifests(plain)}
    return [item for item in manifests(hooked) if (item["kind"], item["metadata"]["name"]) not in known]


def _registration(frameworks: tuple[Framework, ...], item: Json) -> str:
    held = mutable(item)
    [webhook] = held["webhooks"]
    rules, webhook["rules"] = webhook["rules"], ["HELM-RULES"]
    selector = webhook["namespaceSelector"]
    expressions, selector["matchExpressions"] = selector["matchExpressions"], ["HELM-EXPRESSIONS"]
    text = RULES.sub(lambda match: _rules(frameworks, rules, match["indent"]), yaml_text(held))
    return EXPRESSIONS.sub(lambda match: _expressions(expressions, match["indent"]), text)


def _expressions(expressions: list[Json], indent: str) -> str:
    """The last names the watched namespace, those before it all but our own."""
    not_ours, watched = (_indented(yaml_text(part), indent) for part in (expressions[:-1], expressions[-1:]))
    return _when("ne .Values.watchNamespace .Release.Namespace", not_ours) + _when(".Values.watchNamespace", watched)


def _rules(frameworks: tuple[Framework, ...], rules: Iterable[Json], indent: str) -> str:
    """One for every resource that is served, in their order."""
    kinds = [framework.kind for framework in frameworks for _ in framework.served]
    return "".join(
        _when(f'include "trainmaster.runs" (list $ "{kind}")', _indented(yaml_text([rule]), indent))
        for kind, rule in zip(kinds, rules, strict=True)
    )


def _when(condition: str, text: str) -> str:
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"


def _indented(text: str, indent: str) -> str:
    return "".join(f"{indent}{line}\n" for line in text.splitlines())
