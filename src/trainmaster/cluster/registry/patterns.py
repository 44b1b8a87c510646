"""Patterns in the schemas of CRDs: Go's regular expressions, matched in time in proportion to the text.

Users write the patterns in CRDs and the texts in objects. On an engine that backtracks, `^(a+)+$` holds the API
server for as long as they like. The engine that checks schemas has a linear mode, in the
dialect of JavaScript. So a pattern is read here as Go reads it, said again in that dialect, and refused in Go's words.
"""

from __future__ import annotations

import string
from dataclasses import dataclass, field, replace
from functools import lru_cache

import jsonschema_rs

from trainmaster.cluster.registry import pattern_classes
from trainmaster.cluster.registry.pattern_classes import BadPattern, Source, literal

LINEAR = jsonschema_rs.RegexOptions()
MOST_REPEATS = 1000
MAX_LENGTH = 10_000
_MOST_SAID = 20 * MAX_LENGTH
"""Characters of a translation: a letter may take ten, as an escape."""


@dataclass(frozen=True, slots=True)
class _Flags:
    """Of a group. What is not asked for does not matter to whether a text fits, or is said in other ways."""

    any_is_all: bool = False
    opened: tuple[str, ...] = ()
    """Groups that stand for flags which hold to the end of the group around them."""


@dataclass(slots=True)
class _Reader:
    source: Source
    flags: _Flags = field(default_factory=_Flags)
    groups: list[_Flags] = field(default_factory=list)
    is_repeatable: bool = False

    def read(self) -> str:
        parts = []
        while self.source.rest:
            parts.append(self._part())
        if self.groups:
            raise BadPattern(f"missing closing ): `{self.source.text}`")
        return "".join(parts) + self._close()

    def _part(self) -> str:
        letter = self.source.rest[0]
        repeat = self._repeat()
        if repeat:
            return repeat
        self.is_repeatable = letter not in "(|"
        if letter == "\\":
            return pattern_classes.escape(self.source)
        if letter == "[":
            return pattern_classes.bracket(self.source)
        if letter == "(":
            return self._open()
        self.source.take()
        match letter:
            case "|":
                return f"{self._close()}|{''.join(self.flags.opened)}"
            case ")":
                return self._end()
            case ".":
                return r"[\s\S]" if self.flags.any_is_all else r"[^\n]"
            case "^" | "$":
                return f"(?:{letter})"
        return literal(letter)

    def _close(self) -> str:
        return ")" * len(self.flags.opened)

    def _end(self) -> str:
        if not self.groups:
            raise BadPattern(f"unexpected ): `{self.source.text}`")
        closed = f"{self._close()})"
        self.flags = self.groups.pop()
        return closed

    def _repeat(self) -> str:
        """Empty where none stands."""
        repeat = self._repeat_operator()
        if not repeat:
            return ""
        if not self.is_repeatable:
            raise BadPattern(f"missing argument to repetition operator: `{repeat}`")
        lazy = self.source.take_if("?")
        again = self._repeat_operator()
        if again:
            raise BadPattern(f"invalid nested repetition operator: `{repeat}{lazy}{again}`")
        return repeat + lazy

    def _repeat_operator(self) -> str:
        if self.source.rest[:1] in ("*", "+", "?"):
            return self.source.take()
        inside, closed, _ = self.source.rest[1:12].partition("}")
        least, comma, most = inside.partition(",")
        is_one = self.source.rest.startswith("{") and closed and _is_count(least) and (not most or _is_count(most))
        if not is_one:
            return ""
        whole = self.source.take(len(inside) + 2)
        if max(int(least), int(most or 0)) > MOST_REPEATS or (most and int(most) < int(least)):
            raise BadPattern(f"invalid repeat count: `{whole}`")
        return f"{{{int(least)}{comma}{most and int(most)}}}"

    def _open(self) -> str:
        self.source.take()
        self.groups.append(self.flags)
        self.flags = replace(self.flags, opened=())
        if not self.source.take_if("?"):
            return "(?:"
        for start in ("P<", "<"):
            if self.source.rest.startswith(start) and self.source.rest[len(start) :][:1] not in ("=", "!"):
                return self._named(start)
        return self._flagged()

    def _named(self, start: str) -> str:
        name, closed, _ = self.source.rest[len(start) :].partition(">")
        if not closed or not name or not set(name) <= {*string.ascii_letters, *string.digits, "_"}:
            raise BadPattern(f"invalid named capture: `(?{start}{name}{closed}`")
        self.source.take(len(start) + len(name) + 1)
        return "(?:"

    def _flagged(self) -> str:
        """`(?i)` holds to the end of the group around it, `(?i:…)` in its own."""
        size = next((at for at, letter in enumerate(self.source.rest) if letter not in "imsU-"), None)
        written = self.source.rest[: size or 0]
        end = self.source.rest[len(written) : len(written) + 1]
        on, minus, off = written.partition("-")
        if end not in (":", ")") or "-" in off or (minus and not off) or (end == ")" and not written):
            raise BadPattern(f"invalid or unsupported Perl syntax: `(?{written}{end}`")
        self.source.take(len(written) + 1)
        any_is_all = ("s" in on or self.flags.any_is_all) and "s" not in off
        group = _group(on, off)
        if end == ":":
            self.flags = replace(self.flags, any_is_all=any_is_all)
            return group
        self.is_repeatable = False
        around = self.groups.pop()
        self.flags = replace(around, any_is_all=any_is_all, opened=(*around.opened, group))
        return group


def _group(on: str, off: str) -> str:
    """A group under those flags which the engine is to know of."""
    kept_on, kept_off = ("".join(sorted({*flags} & {"i", "m"})) for flags in (on, off))
    kept_on = "".join(flag for flag in kept_on if flag not in kept_off)
    return f"(?{kept_on}{'-' if kept_off else ''}{kept_off}:"


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit()


@lru_cache(maxsize=1024)
def translated(pattern: str) -> str:
    """In the engine's dialect; BadPattern in Go's words for what Go does not take."""
    if len(pattern) > MAX_LENGTH:
        raise BadPattern(f"expression too large: it has more than {MAX_LENGTH} characters")
    said = _Reader(Source(pattern)).read()
    if len(said) > _MOST_SAID:  # flags are said again in every alternative
        raise BadPattern("expression too large: it repeats flags in too many alternatives")
    return said


@lru_cache(maxsize=1024)
def _matcher(pattern: str) -> jsonschema_rs.Validator:
    said = translated(pattern)
    try:
        return jsonschema_rs.Draft4Validator({"pattern": said}, pattern_options=LINEAR)
    except (ValueError, jsonschema_rs.ValidationError):
        raise BadPattern(f"expression nests too deeply or is too large: `{pattern[:200]}`") from None


def check(pattern: str) -> None:
    """BadPattern for what is no expression."""
    _matcher(pattern)


def fits(pattern: str, text: str) -> bool:
    """Whether it is found anywhere in the text; BadPattern for what is no expression."""
    return _matcher(pattern).is_valid(text)
