"""Label and field selectors as requests carry them: parsed once, then asked about each object.

Labels follow the grammar of `kubectl -l` (equality and set-based); fields only know a few paths per kind, and any
other is refused, as on a real cluster, instead of matching nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.status_error import ApiError, bad_request
from trainmaster.cluster.registry.validation import label_key_problems, label_value_problems

Matcher: TypeAlias = Callable[[Mapping[str, Any]], bool]
_Test: TypeAlias = Callable[[str | None], bool]

_TOKEN = re.compile(r"\s+|(==|!=|=|!|\(|\)|,|<|>|[^\s=!(),<>]+)")
_TERM = re.compile(r"^([^=!\s]+)\s*(!=|==|=)(.*)")
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_OPERATORS = frozenset({"=", "==", "!=", "in", "notin", "<", ">"})
_SYMBOLS = frozenset({"=", "==", "!=", "!", "(", ")", ",", "<", ">"})

_META_FIELDS = frozenset({"metadata.name", "metadata.namespace"})
_EVENT_FIELDS = frozenset(
    {
        *(f"involvedObject.{name}" for name in ("kind", "namespace", "name", "uid", "apiVersion")),
        *(
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ),
    }
)
_POD_FIELDS = frozenset(
    {
        *("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork"),
        *("status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName"),
    }
)
FIELDS: Mapping[str, frozenset[str]] = {
    "/pods": _POD_FIELDS,
    "/events": _EVENT_FIELDS,
    "/secrets": frozenset({"type"}),
    "/nodes": frozenset({"spec.unschedulable"}),
    "/namespaces": frozenset({"status.phase"}),
    "batch/jobs": frozenset({"status.successful"}),
    "apps/replicasets": frozenset({"status.replicas"}),
}


def matcher(kind: Kind, labels: str, fields: str) -> Matcher | None:
    """A test for objects of a kind, or None if both selectors are empty."""
    label_test = label_matcher(labels) if labels.strip() else None
    field_test = field_matcher(kind, fields) if fields.strip() else None
    if label_test is None or field_test is None:
        return label_test or field_test
    return lambda value: label_test(value) and field_test(value)


def label_matcher(selector: str) -> Matcher:
    requirements = parse_labels(selector)

    def matches(value: Mapping[str, Any]) -> bool:
        labels = value["metadata"].get("labels") or {}
        return all(test(labels.get(key)) for key, test in requirements)

    return matches


def parse_labels(selector: str) -> list[tuple[str, _Test]]:
    """The requirements of a selector; ApiError 400 in the words of Kubernetes' own parser."""
    return _Parser(_tokens(selector)).requirements()


def _tokens(selector: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    while match := _TOKEN.match(selector, position):
        if match[1]:
            tokens.append(match[1])
        position = match.end()
    return tokens


class _Parser:
    """Recursive descent over the tokens; the end of input is the empty token."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._position = 0

    def requirements(self) -> list[tuple[str, _Test]]:
        found: list[tuple[str, _Test]] = []
        while token := self._peek():
            if token in _SYMBOLS and token != "!":
                raise bad_request(f"found '{token}', expected: !, identifier, or 'end of string'")
            found.append(self._requirement())
            separator = self._next()
            if separator not in ("", ","):
                raise bad_request(f"found '{separator}', expected: ',' or 'end of string'")
            if separator == "," and (not self._peek() or self._peek() in (",", ")")):
                raise bad_request(f"found '{self._peek()}', expected: identifier after ','")
        return found

    def _requirement(self) -> tuple[str, _Test]:
        is_negated = self._peek() == "!"
        if is_negated:
            self._next()
        key = self._next()
        if not key or key in _SYMBOLS:
            raise _unparsable(f"found '{key}', expected: identifier")
        _check(label_key_problems(key), f'invalid label key "{key}"')
        if is_negated:
            return key, lambda held: held is None
        if self._peek() in ("", ","):
            return key, lambda held: held is not None
        return key, self._operator(key)

    def _operator(self, key: str) -> _Test:
        operator = self._next()
        if operator not in _OPERATORS:
            raise _unparsable(f"found '{operator}', expected: {_EXPECTED}")
        if operator in ("in", "notin"):
            values = self._values(key)
            return (lambda held: held in values) if operator == "in" else (lambda held: held not in values)
        value = self._value()
        if operator in ("<", ">"):
            return _comparison(operator, value)
        _check_value(key, value)
        return (lambda held: held != value) if operator == "!=" else (lambda held: held == value)

    def _value(self) -> str:
        if self._peek() in ("", ","):
            return ""
        value = self._next()
        if value in _SYMBOLS:
            raise _unparsable(f"found '{value}', expected: identifier")
        return value

    def _values(self, key: str) -> frozenset[str]:
        opening = self._next()
        if opening != "(":
            raise _unparsable(f"found '{opening}' expected: '('")
        values: set[str] = set()
        while True:
            token = self._next()
            if token in (",", ")"):
                values.add("")
            elif not token or token in _SYMBOLS:
                raise _unparsable(f"found '{token}', expected: ',', ')' or identifier")
            else:
                _check_value(key, token)
                values.add(token)
                token = self._next()
                if token not in (",", ")"):
                    raise _unparsable(f"found '{token}', expected: ',' or ')'")
            if token == ")":
                return frozenset(values)

    def _peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._position += 1
        return token


_EXPECTED = "'=', '!=', '==', 'in', notin'"


def _comparison(operator: str, value: str) -> _Test:
    if not _INTEGER.fullmatch(value):
        raise _unparsable("for 'Gt', 'Lt' operators, the value must be an integer")
    limit = int(value)

    def compare(held: str | None) -> bool:
        if held is None or not _INTEGER.fullmatch(held):
            return False
        return int(held) < limit if operator == "<" else int(held) > limit

    return compare


def _check(problems: list[str], subject: str) -> None:
    if problems:
        raise _unparsable(f"{subject}: {'; '.join(problems)}")


def _check_value(key: str, value: str) -> None:
    _check(label_value_problems(value), f'invalid label value: "{value}": at key: "{key}"')


def _unparsable(why: str) -> ApiError:
    return bad_request(f"unable to parse requirement: {why}")


def field_matcher(kind: Kind, selector: str) -> Matcher:
    tests = [_field_test(kind, term) for term in selector.split(",") if term.strip()]
    return lambda value: all(test(value) for test in tests)


def _field_test(kind: Kind, term: str) -> Matcher:
    match = _TERM.fullmatch(term.lstrip())
    if match is None:
        raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    path, operator, wanted = match[1], match[2], match[3].strip()
    if path not in _META_FIELDS and path not in FIELDS.get(kind.prefix, ()):
        raise bad_request(f"field label not supported: {path}")
    steps = ("metadata", path.split(".")[1]) if path in _META_FIELDS else tuple(path.split("."))
    if operator == "!=":
        return lambda value: _at(value, steps) != wanted
    return lambda value: _at(value, steps) == wanted


def _at(value: Mapping[str, Any], steps: tuple[str, ...]) -> str:
    found: Any = value
    for step in steps:
        found = found.get(step) if isinstance(found, Mapping) else None
    if steps == ("source",) and isinstance(found, Mapping):
        return str(found.get("component") or "")
    if isinstance(found, bool) or steps == ("spec", "unschedulable"):
        return "true" if found else "false"
    return "" if found is None else str(found)
