"""How many steps Python's engine may take over a text, counted and not timed.

Python's engine backtracks: an expression that can read the same text in several ways takes quadratic or exponential
time. `steps` walks the parsed expression as the engine does and counts; `hard_texts` makes, from an expression, the
texts that such expressions are slow on: parts of it said many times, with an end that does not fit.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from itertools import chain
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

LIMIT = 50_000
"""Steps after which a count ends: an exponential expression reaches it at once."""

_FOREIGN = "\x01"
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)
Then = Callable[[int], bool]


class _Counter:
    def __init__(self, text: str, flags: int) -> None:
        self.text, self.flags, self.steps = text, flags, 0
        self.groups: dict[int, tuple[int, int]] = {}

    def find_all(self, nodes: Any) -> None:
        at = 0
        while at <= len(self.text):
            ends: list[int] = []
            self.sequence(nodes, 0, at, lambda end, ends=ends: not ends.append(end))  # type: ignore[misc]
            at = max([at + 1, *ends])

    def sequence(self, nodes: Any, index: int, at: int, then: Then) -> bool:
        if index == len(nodes):
            return then(at)
        return self.node(nodes[index], at, lambda end: self.sequence(nodes, index + 1, end, then))

    def node(self, node: Any, at: int, then: Then) -> bool:
        self._step()
        kind, value = node
        if kind is op.SUBPATTERN:
            return self._group(value[0], value[3], at, then)
        if kind is op.BRANCH:
            return any(self.sequence(branch, 0, at, then) for branch in value[1])
        if kind in _REPEATS:
            return self._repeat(kind, value, at, then)
        if kind in (op.ASSERT, op.ASSERT_NOT):
            return self._looks(value, at) is (kind is op.ASSERT) and then(at)
        if kind is op.AT:
            return self._is_at(value, at) and then(at)
        if kind is op.GROUPREF:
            start, end = self.groups.get(value, (0, -1))
            said = self.text[start:end]
            return end >= start and self.text.startswith(said, at) and then(at + len(said))
        return at < len(self.text) and self._fits(node, self.text[at]) and then(at + 1)

    def _step(self) -> None:
        self.steps += 1
        if self.steps > LIMIT:
            raise OverflowError

    def _group(self, number: int | None, inner: Any, at: int, then: Then) -> bool:
        def closed(end: int) -> bool:
            if number is not None:
                self.groups[number] = (at, end)
            return then(end)

        return self.sequence(inner, 0, at, closed)

    def _repeat(self, kind: Any, value: Any, at: int, then: Then) -> bool:
        least, most, inner = value
        if len(inner) == 1 and _is_single(inner[0]):
            return self._repeat_single(kind, least, most, inner[0], at, then)

        def again(count: int, here: int) -> bool:
            def more(end: int) -> bool:
                return end > here and again(count + 1, end)

            if kind is op.MIN_REPEAT and count >= least and then(here):
                return True
            if count < most and self.sequence(inner, 0, here, more):
                return True
            return kind is not op.MIN_REPEAT and count >= least and then(here)

        return again(0, at)

    def _repeat_single(self, kind: Any, least: int, most: int, node: Any, at: int, then: Then) -> bool:
        ends = [at]
        while len(ends) <= most and ends[-1] < len(self.text) and self._fits(node, self.text[ends[-1]]):
            self._step()
            ends.append(ends[-1] + 1)
        possible = ends[least:] if kind is op.MIN_REPEAT else ends[least:][::-1]
        if kind is op.POSSESSIVE_REPEAT:
            possible = possible[:1]
        return any(self._tried(end, then) for end in possible)

    def _tried(self, end: int, then: Then) -> bool:
        self._step()
        return then(end)

    def _looks(self, value: Any, at: int) -> bool:
        direction, inner = value
        start = at if direction > 0 else at - inner.getwidth()[0]
        return start >= 0 and self.sequence(inner, 0, start, lambda _: True)

    def _is_at(self, place: Any, at: int) -> bool:
        is_line = bool(self.flags & re.MULTILINE)
        match place:
            case op.AT_BEGINNING | op.AT_BEGINNING_STRING:
                return at == 0 or (is_line and self.text[at - 1] == "\n")
            case op.AT_END:
                return at == len(self.text) or self.text[at:] == "\n" or (is_line and self.text[at] == "\n")
            case op.AT_END_STRING:
                return at == len(self.text)
        is_within = self._is_word(at - 1) == self._is_word(at)
        return is_within is not (place is op.AT_BOUNDARY)

    def _is_word(self, at: int) -> bool:
        return 0 <= at < len(self.text) and re.match(r"\w", self.text[at]) is not None

    def _fits(self, node: Any, letter: str) -> bool:
        kind, value = node
        same = {letter, letter.lower(), letter.upper()} if self.flags & re.IGNORECASE else {letter}
        match kind:
            case op.ANY:
                return letter != "\n" or bool(self.flags & re.DOTALL)
            case op.LITERAL:
                return chr(value) in same
            case op.NOT_LITERAL:
                return chr(value) not in same
            case op.IN:
                is_negated = value[0][0] is op.NEGATE
                return any(_holds(part, each) for part in value for each in same) is not is_negated
        raise NotImplementedError(kind)


def _is_single(node: Any) -> bool:
    return bool(node[0] in (op.ANY, op.LITERAL, op.NOT_LITERAL, op.IN))


_CATEGORIES = {op.CATEGORY_DIGIT: r"\d", op.CATEGORY_WORD: r"\w", op.CATEGORY_SPACE: r"\s"}
_OPPOSITES = {op.CATEGORY_NOT_DIGIT: r"\D", op.CATEGORY_NOT_WORD: r"\W", op.CATEGORY_NOT_SPACE: r"\S"}


def _holds(part: Any, letter: str) -> bool:
    kind, value = part
    match kind:
        case op.LITERAL:
            return letter == chr(value)
        case op.RANGE:
            return bool(value[0] <= ord(letter) <= value[1])
        case op.CATEGORY:
            return bool(re.match((_CATEGORIES | _OPPOSITES)[value], letter))
    return False


def steps(pattern: re.Pattern[str], text: str) -> int:
    """Of looking for it everywhere, and of one that must reach the end: whichever takes more."""
    everywhere, whole = _Counter(text, pattern.flags), _Counter(text, pattern.flags)
    with suppress(OverflowError):
        everywhere.find_all(_parsed(pattern))
    with suppress(OverflowError):
        whole.sequence(_parsed(pattern), 0, 0, lambda end: end == len(text))
    return max(everywhere.steps, whole.steps)


@cache
def _parsed(pattern: re.Pattern[str]) -> Any:
    return parser.parse(pattern.pattern, pattern.flags)


def hard_texts(pattern: re.Pattern[str], times: int) -> Iterator[str]:
    """In the same order whatever the number of times, so that texts can be compared."""
    tree = _parsed(pattern)
    heads = {"", *_heads(tree, "")}
    for head in sorted(heads):
        for pump in sorted({*heads, *_letters(tree), *_examples(tree)} - {""}):
            yield head + pump * times + _FOREIGN
            yield head + pump * times


def _heads(nodes: Any, before: str) -> Iterator[str]:
    """What may stand before each repetition."""
    for node in nodes:
        if node[0] in _REPEATS:
            yield before
        for inner in _inside(node):
            yield from _heads(inner, before)
        before += _example([node])


def _inside(node: Any) -> list[Any]:
    kind, value = node
    if kind is op.SUBPATTERN:
        return [value[3]]
    if kind is op.BRANCH:
        return list(value[1])
    if kind in _REPEATS:
        return [value[2]]
    return [value[1]] if kind in (op.ASSERT, op.ASSERT_NOT) else []


def _examples(nodes: Any) -> Iterator[str]:
    """What each part fits, and the whole."""
    yield _example(nodes)
    for inner in chain.from_iterable(map(_inside, nodes)):
        yield from _examples(inner)


def _example(nodes: Any) -> str:
    return "".join(map(_said, nodes))


def _said(node: Any) -> str:
    kind, value = node
    if _is_single(node):
        return next(iter(_letters([node])), "")
    if kind is op.SUBPATTERN:
        return _example(value[3])
    if kind is op.BRANCH:
        return _example(value[1][0])
    return _example(value[2]) * max(value[0], 1) if kind in _REPEATS else ""


def _letters(nodes: Any) -> list[str]:
    """A digit, a letter, a space and a mark, of every class of letters in it."""
    found: dict[str, None] = {}
    for node in nodes:
        if _is_single(node):
            fit = [letter for letter in string.printable if _Counter("", 0)._fits(node, letter)]
            kinds = {(each.isdigit(), each.isalpha(), each.isspace()): each for each in reversed(fit)}
            found |= dict.fromkeys(kinds.values())
        for inner in _inside(node):
            found |= dict.fromkeys(_letters(inner))
    return [*found]
