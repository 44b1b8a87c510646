"""YAML as Kubernetes reads it, within limits: it comes from outside, and ten lines of aliases can stand for a billion
values.

Values are what JSON has: keys are texts, dates are texts, what looks like a number is one by Go's rules (`0777` is 511,
`1:30` is a text). Parsed by libyaml where PyYAML was built with it. Built from the parser's events, so that neither
depth nor aliases cost more than they are allowed to.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from trainmaster.objects import yamlscalar

MAX_VALUES = 1_000_000
"""Values in a document with all aliases written out. An object of 3 MB has fewer."""

MAX_DEPTH = 200
_TAG = "tag:yaml.org,2002:"
_Fastest: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class BadYaml(ValueError):
    """What is wrong, and where."""

    def __init__(self, problem: str, mark: Any = None) -> None:
        self.problem = " ".join(problem.split())
        self.where = f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        super().__init__(f"{self.where}: {self.problem}" if self.where else self.problem)


@dataclass(slots=True)
class _Open:
    """A list or mapping that has not ended."""

    anchor: str | None
    items: list[Any] | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    merged: list[dict[str, Any]] = field(default_factory=list)
    key: str | None = None
    is_merge: bool = False
    values: int = 1

    @property
    def made(self) -> Any:
        if self.items is not None:
            return self.items
        made: dict[str, Any] = {}
        for each in reversed(self.merged):
            made |= each
        return made | self.fields


@dataclass(slots=True)
class _Document:
    open: list[_Open] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)
    root: Any = None
    values: int = 0

    def take(self, event: Any) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._put(_scalar(event), 1, event)
        elif isinstance(event, yaml.AliasEvent):
            self._put(*self._known(event), event)
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(self.open) == MAX_DEPTH:
                raise BadYaml("exceeded max depth", event.start_mark)
            self.open.append(_Open(event.anchor, [] if isinstance(event, yaml.SequenceStartEvent) else None))
        elif isinstance(event, yaml.CollectionEndEvent):
            ended = self.open.pop()
            self._put(ended.made, ended.values, event, ended.anchor)

    def _known(self, event: Any) -> tuple[Any, int]:
        if any(each.anchor == event.anchor for each in self.open):
            raise BadYaml(f"anchor {event.anchor!r}: the document contains itself", event.start_mark)
        if event.anchor not in self.anchors:
            raise BadYaml(f"unknown anchor {event.anchor!r} referenced", event.start_mark)
        value, values = self.anchors[event.anchor]
        self._count(values, event)
        return _copied(value), values

    def _count(self, values: int, event: Any) -> None:
        """Before anything is made of them."""
        self.values += values
        if self.values > MAX_VALUES:
            raise BadYaml("document contains excessive aliasing", event.start_mark)

    def _put(self, value: Any, values: int, event: Any, anchor: str | None = None) -> None:
        if isinstance(event, yaml.ScalarEvent):
            anchor = event.anchor
            self._count(1, event)
        if anchor is not None:
            self.anchors[anchor] = (value, values)
        if not self.open:
            self.root = value
            return
        around = self.open[-1]
        around.values += values
        if around.items is not None:
            around.items.append(value)
        elif around.is_merge:
            around.merged += _mappings(value, event)
            around.is_merge = False
        elif around.key is not None:
            around.fields[around.key], around.key = value, None
        elif _is_merge(event):
            around.is_merge = True
        else:
            around.key = _key(value, event)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value


def _is_merge(event: Any) -> bool:
    return isinstance(event, yaml.ScalarEvent) and event.value == "<<" and not event.style


def _mappings(value: Any, event: Any) -> list[dict[str, Any]]:
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(each, dict) for each in found):
        raise BadYaml("map merge requires map or sequence of maps as the value", event.start_mark)
    return found


def _key(value: Any, event: Any) -> str:
    """JSON has no keys but texts."""
    if isinstance(value, dict | list) or value is None:
        said = "null" if value is None else "a map" if isinstance(value, dict) else "a list"
        raise BadYaml(f"invalid map key: {said} cannot be a key, which must be text", event.start_mark)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _scalar(event: Any) -> Any:
    text, tag = event.value, event.tag or ""
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise BadYaml("found invalid Unicode character escape code", event.start_mark)
    try:
        if not tag:
            return text if event.style else yamlscalar.resolved(text)
        return _tagged(tag.removeprefix(_TAG), text)
    except ValueError as error:
        raise BadYaml(str(error), event.start_mark) from None


def _tagged(tag: str, text: str) -> Any:
    """Tags that nobody knows say nothing: what they stand at is a text."""
    if tag == "binary":
        try:
            return base64.b64decode("".join(text.split()), validate=True).decode(errors="replace")
        except binascii.Error:
            raise ValueError("!!binary value contains invalid base64 data") from None
    types = {"int": int, "float": int | float, "bool": bool, "null": type(None)}
    if tag not in types:
        return text
    value = yamlscalar.resolved(text)
    if not isinstance(value, types[tag]) or (isinstance(value, bool) and tag != "bool"):
        raise ValueError(f"cannot decode {text[:40]!r} as a !!{tag}")
    return value


def documents(text: str | bytes) -> Iterator[Any]:
    """Every document in it, empty ones too; BadYaml says what is wrong."""
    document = _Document()
    try:
        for event in yaml.parse(text, Loader=_Fastest):
            if isinstance(event, yaml.DocumentEndEvent):
                yield document.root
                document = _Document()
            else:
                document.take(event)
    except yaml.YAMLError as error:
        raise BadYaml(getattr(error, "problem", None) or str(error), getattr(error, "problem_mark", None)) from None
    except UnicodeError:
        raise BadYaml("it is not text in UTF-8") from None


def document(text: str | bytes) -> Any:
    """The only one; None where there is none."""
    found = documents(text)
    first = next(found, None)
    for _ in found:
        raise BadYaml("expected a single document in the stream")
    return first
