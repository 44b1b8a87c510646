"""The part of JSONPath that printer columns use: `.a.b`, `['a/b']`, `a\\.b`, `[0]`, `[-1:]`, `[*]`, `[?(@.k=="v")]`.

A path is compiled once per column and then applied to every row. Anything else in a path makes it match nothing, as a
column that cannot be computed is an empty cell, never an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

Step = Callable[[Any], Iterator[Any]]

_TOKEN = re.compile(
    r"""\.(?P<field>(?:\\.|[^.\[\\])+)
      | \[\s*(?P<key>"[^"]*"|'[^']*')\s*\]
      | \[\s*(?P<star>\*)\s*\]
      | \[\?\(\s*@\.(?P<left>[^=!<>\s]+)\s*(?P<op>==|!=)\s*(?P<right>"[^"]*"|'[^']*'|[\w.-]+)\s*\)\]
      | \[\s*(?P<start>(?:-?\d{1,18}\s*)?)(?P<colon>:)\s*(?P<stop>(?:-?\d{1,18}\s*)?)\]
      | \[\s*(?P<index>-?\d{1,18})\s*\]""",
    re.VERBOSE,
)
_ESCAPED = re.compile(r"\\(.)")


def find(path: str, value: Any) -> list[Any]:
    """Every value the path leads to, in order."""
    found = [value]
    for step in _compiled(path):
        found = [next_value for item in found for next_value in step(item)]
    return found


@lru_cache(maxsize=1024)
def _compiled(path: str) -> tuple[Step, ...]:
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    if not text.startswith((".", "[")):
        text = f".{text}"
    steps: list[Step] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            return (_nothing,)
        steps.append(_step(match))
        position = match.end()
    return tuple(steps)


def _step(match: re.Match[str]) -> Step:
    part = match.groupdict()
    if part["field"] is not None:
        name = _ESCAPED.sub(r"\1", part["field"])
        return _every if name == "*" else _field(name)
    if part["key"] is not None:
        return _field(part["key"][1:-1])
    if part["star"]:
        return _every
    if part["op"]:
        return _where(part["left"], part["right"].strip("\"'"), equal=part["op"] == "==")
    if part["colon"]:
        return _slice(part["start"], part["stop"])
    return _index(int(part["index"]))


def _nothing(value: Any) -> Iterator[Any]:
    yield from ()


def _every(value: Any) -> Iterator[Any]:
    yield from value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()


def _field(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _index(index: int) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return step


def _slice(start: str, stop: str) -> Step:
    wanted = slice(int(start) if start else None, int(stop) if stop else None)

    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from value[wanted]

    return step


def _where(left: str, right: str, *, equal: bool) -> Step:
    def step(value: Any) -> Iterator[Any]:
        for item in value if isinstance(value, list) else ():
            found = find(left, item)
            if found and (text(found[0]) == right) is equal:
                yield item

    return step


def text(value: Any) -> str:
    """A scalar as kubectl prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
