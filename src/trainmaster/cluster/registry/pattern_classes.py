"""Letters and classes of letters in Go's regular expressions, said as the linear engine takes them."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Ranges: TypeAlias = Sequence[tuple[int, int]]

_HIGHEST = 0x10FFFF
_PLAIN = frozenset(string.ascii_letters + string.digits + "_")
_SPECIAL = {"a": 0x07, "f": 0x0C, "t": 0x09, "n": 0x0A, "r": 0x0D, "v": 0x0B}
_DIGIT, _UPPER, _LOWER, _LINE = (0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A), (0x5F, 0x5F)
_PERL: dict[str, Ranges] = {
    "d": [_DIGIT],
    "w": [_DIGIT, _UPPER, _LINE, _LOWER],
    "s": [(0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20)],
}
"""In ASCII alone, and without the vertical tab."""

_NAMED: dict[str, Ranges] = {
    "alnum": [_DIGIT, _UPPER, _LOWER],
    "alpha": [_UPPER, _LOWER],
    "ascii": [(0, 0x7F)],
    "blank": [(0x09, 0x09), (0x20, 0x20)],
    "cntrl": [(0, 0x1F), (0x7F, 0x7F)],
    "digit": [_DIGIT],
    "graph": [(0x21, 0x7E)],
    "lower": [_LOWER],
    "print": [(0x20, 0x7E)],
    "punct": [(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)],
    "space": [(0x09, 0x0D), (0x20, 0x20)],
    "upper": [_UPPER],
    "word": _PERL["w"],
    "xdigit": [_DIGIT, (0x41, 0x46), (0x61, 0x66)],
}


class BadPattern(ValueError):
    """Says what is wrong in the words of Go's parser."""


@dataclass(slots=True)
class Source:
    text: str
    at: int = 0

    @property
    def rest(self) -> str:
        return self.text[self.at :]

    def take(self, count: int = 1) -> str:
        taken = self.text[self.at : self.at + count]
        self.at += count
        return taken

    def take_if(self, start: str) -> str:
        return self.take(len(start)) if self.text.startswith(start, self.at) else ""


def literal(letter: str) -> str:
    return letter if letter in _PLAIN else _code(ord(letter))


def _code(point: int) -> str:
    if 0xD800 <= point <= 0xDFFF:
        raise BadPattern("invalid UTF-8")
    return f"\\u{{{point:x}}}"


def _said(ranges: Ranges) -> str:
    return "".join(_code(low) if low == high else f"{_code(low)}-{_code(high)}" for low, high in ranges)


def _others(ranges: Ranges) -> Ranges:
    """All that is not in them; they are in order. Surrogates are no letters."""
    found, start = [], 0
    for low, high in [*ranges, (0xD800, 0xDFFF), (_HIGHEST + 1, _HIGHEST + 1)]:
        if start < low:
            found.append((start, low - 1))
        start = high + 1
    return found


def escape(source: Source) -> str:
    """What stands behind a backslash, outside brackets."""
    if source.take_if("\\Q"):
        quoted, _, _ = source.rest.partition("\\E")
        source.take(len(quoted) + 2)
        return "".join(map(literal, quoted))
    for name, said in (("\\A", "(?:(?-m:^))"), ("\\z", "(?:(?-m:$))"), ("\\b", r"(?:\b)"), ("\\B", r"(?:\B)")):
        if source.take_if(name):
            return said
    group = _class(source)
    return f"[{group}]" if group else _code(_point(source))


def _class(source: Source) -> str:
    """A class behind a backslash, as it stands within brackets; empty where none stands."""
    kind = source.rest[1:2]
    if kind.lower() in _PERL and kind:
        source.take(2)
        ranges = _PERL[kind.lower()]
        return _said(ranges if kind.islower() else _others(ranges))
    if kind not in ("p", "P"):
        return ""
    source.take(2)
    name = source.take()
    if name == "{":
        name, _, _ = source.rest.partition("}")
        source.take(len(name) + 1)
    is_negated = (kind == "P") is not name.startswith("^")
    name = name.removeprefix("^")
    if not name or not set(name) <= _PLAIN:
        raise BadPattern(f"invalid character class range: `\\{kind}{{{name}}}`")
    return _said([(0, 0xD7FF), (0xE000, _HIGHEST)]) if name == "Any" else f"\\{'P' if is_negated else 'p'}{{{name}}}"


def _point(source: Source) -> int:
    """The one letter that stands behind a backslash."""
    source.take()
    letter = source.take()
    if letter in _SPECIAL:
        return _SPECIAL[letter]
    if letter == "x":
        return _hexadecimal(source)
    if letter == "0" or (letter in "1234567" and letter and source.rest[:1] in tuple("01234567")):
        digits = letter + "".join(source.take() for _ in range(2) if source.rest[:1] in tuple("01234567"))
        return int(digits, 8)
    if letter and letter.isascii() and not letter.isalnum():
        return ord(letter)
    raise BadPattern(
        f"invalid escape sequence: `\\{letter}`" if letter else "trailing backslash at end of expression: ``"
    )


def _hexadecimal(source: Source) -> int:
    digits = source.take(2)
    if digits.startswith("{"):
        source.at -= len(digits) - 1
        digits, _, _ = source.rest.partition("}")
        source.take(len(digits) + 1)
    if not digits or len(digits) > 8 or not set(digits) <= {*string.hexdigits} or int(digits, 16) > _HIGHEST:
        raise BadPattern(f"invalid escape sequence: `\\x{digits[:10]}`")
    return int(digits, 16)


def bracket(source: Source) -> str:
    """`[…]`, in which a first `]` is a letter."""
    written = source.rest
    source.take()
    parts = ["[^" if source.take_if("^") else "["]
    while len(parts) == 1 or source.rest[:1] != "]":
        if not source.rest:
            raise BadPattern(f"missing closing ]: `{written[:200]}`")
        parts.append(_item(source))
    source.take()
    return "".join(parts) + "]"


def _item(source: Source) -> str:
    if source.rest.startswith("[:"):
        name, closed, _ = source.rest[2:20].partition(":]")
        if closed:
            return _named(source, name)
    if source.rest.startswith("\\"):
        group = _class(source)
        if group:
            return group
    low = high = _single(source)
    if source.rest.startswith("-") and source.rest[1:2] not in ("]", ""):
        source.take()
        high = _single(source)
        if high < low:
            raise BadPattern(f"invalid character class range: `{chr(low)}-{chr(high)}`")
    return _said([(low, high)])


def _named(source: Source, name: str) -> str:
    ranges = _NAMED.get(name.removeprefix("^"))
    if ranges is None:
        raise BadPattern(f"invalid character class range: `[:{name}:]`")
    source.take(len(name) + 4)
    return _said(_others(ranges) if name.startswith("^") else ranges)


def _single(source: Source) -> int:
    return _point(source) if source.rest.startswith("\\") else ord(source.take())
