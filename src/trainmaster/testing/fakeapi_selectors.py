"""Label and field selectors as the API server's query parameters write them, for `fakeapi`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_SET = re.compile(r"^(\S+)\s+(in|notin)\s+\((.*)\)$")
_EQUALITY = re.compile(r"^([^\s=!]+)\s*(!=|==|=)\s*(\S*)$")
_STRAY = re.compile(r"[\s()]")
_TERM = re.compile(r"(?:[^,(]|\([^)]*\)?)+")
"""What stands between commas that are outside parentheses."""


def matcher(labels: str, fields: str) -> Callable[[Mapping[str, Any]], bool]:
    """A test for objects; both selectors must hold. ValueError for what is neither."""
    label_tests = list(_tests(labels))
    field_tests = list(_tests(fields))

    def matches(item: Mapping[str, Any]) -> bool:
        held = item["metadata"].get("labels") or {}
        return all(test(held.get(key)) for key, test in label_tests) and all(
            test(_at(item, path)) for path, test in field_tests
        )

    return matches


def _tests(selector: str) -> Iterator[tuple[str, Callable[[str | None], bool]]]:
    for term in filter(None, map(str.strip, _TERM.findall(selector))):
        yield _test(term)


def _test(term: str) -> tuple[str, Callable[[str | None], bool]]:
    if match := _SET.match(term):
        key, operator, inside = match.groups()
        values = {value.strip() for value in inside.split(",")}
        return (key, lambda held: held in values) if operator == "in" else (key, lambda held: held not in values)
    if match := _EQUALITY.match(term):
        key, operator, value = match.groups()
        return (key, lambda held: held != value) if operator == "!=" else (key, lambda held: held == value)
    if _STRAY.search(term):
        raise ValueError(f"unable to parse requirement: {term!r}")
    if term.startswith("!"):
        return term[1:], lambda held: held is None
    return term, lambda held: held is not None


def _at(item: Mapping[str, Any], path: str) -> str | None:
    value: Any = item
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return None if value is None else str(value)
