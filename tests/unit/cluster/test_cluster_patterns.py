"""Patterns of CRDs mean what they mean in Go, and take time in proportion to the text."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.cluster.registry import patterns, schema_check, structural
from trainmaster.cluster.registry.pattern_classes import BadPattern

LONG = 100_000
"""On an engine that backtracks these texts take longer than the universe is old, or minutes at least."""


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        pytest.param(r"^[a-z]+$", ["abc"], ["aBc", "abc\n", ""], id="the end is the end of the text"),
        pytest.param(r"b", ["abc"], ["ac"], id="found anywhere"),
        pytest.param(r"\Aa\z", ["a"], ["a\n", "ba"], id="begin and end of Perl"),
        pytest.param(r"^a(?i)b|c$", ["aB", "ab", "xC"], ["Ab"], id="flags hold to the end of the group"),
        pytest.param(r"^(?i:a)b$", ["Ab"], ["AB"], id="flags of a group"),
        pytest.param(r"^((?i)a)b$", ["Ab"], ["aB"], id="flags end with their group"),
        pytest.param(r"(?m)^b$", ["a\nb\nc"], ["ab"], id="lines"),
        pytest.param(r"^a.c$", ["abc", "a\rc"], ["a\nc"], id="any letter but the end of a line"),
        pytest.param(r"(?s)^a.c$", ["a\nc"], ["ac"], id="any letter at all"),
        pytest.param(r"^(?P<year>\d{4})-(?<month>\d\d)$", ["2026-11"], ["26-11", "\u0662026-11"], id="named groups"),
        pytest.param(r"^[[:alpha:]][[:^digit:]]$", ["ab"], ["a1", "1a"], id="named classes"),
        pytest.param(r"^[]a]+$", ["]a"], ["b"], id="a bracket that comes first"),
        pytest.param(r"^[\d-z]+$", ["1-z"], ["a"], id="a minus behind a class"),
        pytest.param(r"^[a&&b~~[-]+$", ["a&b-~["], ["d"], id="letters that other dialects take for operators"),
        pytest.param(r"^[^\s]\S$", ["ab", "\va"], ["a ", " a"], id="no space"),
        pytest.param(r"^\Qa.*\E$", ["a.*"], ["ab"], id="quoted"),
        pytest.param(r"^\x41\x{42}\103\a$", ["ABC\x07"], ["abc"], id="letters by number"),
        pytest.param(r"^\pL\p{Greek}\P{L}\p{^L}$", ["éα12"], ["1α12"], id="classes of Unicode"),
        pytest.param(r"^a{,2}{$", ["a{,2}{"], ["aa"], id="brackets that are no repetition"),
        pytest.param(r"^(?U)a{2,3}?b*?$", ["aa", "aaab"], ["a"], id="repetitions"),
        pytest.param(r"^\_\-\/$", ["_-/"], [""], id="marks behind a backslash"),
        pytest.param("", ["", "a"], [], id="empty"),
    ],
)
def test_a_pattern_means_what_it_means_in_go(pattern: str, fitting: list[str], others: list[str]) -> None:
    assert [text for text in fitting if not patterns.fits(pattern, text)] == []
    assert [text for text in others if patterns.fits(pattern, text)] == []


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        pytest.param("(", "missing closing ): `(`", id="group"),
        pytest.param("a)", "unexpected ): `a)`", id="end of no group"),
        pytest.param("[a", "missing closing ]: `[a`", id="class"),
        pytest.param("*a", "missing argument to repetition operator: `*`", id="nothing to repeat"),
        pytest.param("a(|+)", "missing argument to repetition operator: `+`", id="nothing to repeat in a group"),
        pytest.param("a(?i)*", "missing argument to repetition operator: `*`", id="flags repeated"),
        pytest.param("a**", "invalid nested repetition operator: `**`", id="repeated repetition"),
        pytest.param("a{2}{3}", "invalid nested repetition operator: `{2}{3}`", id="repeated count"),
        pytest.param("a{1001}", "invalid repeat count: `{1001}`", id="count"),
        pytest.param("a{3,2}", "invalid repeat count: `{3,2}`", id="count upside down"),
        pytest.param("(?=a)", "invalid or unsupported Perl syntax: `(?=`", id="looking ahead"),
        pytest.param("(?<!a)", "invalid or unsupported Perl syntax: `(?<`", id="looking behind"),
        pytest.param(r"(a)\1", r"invalid escape sequence: `\1`", id="what a group held"),
        pytest.param(r"\Z", r"invalid escape sequence: `\Z`", id="escape"),
        pytest.param("a\\", "trailing backslash", id="backslash"),
        pytest.param("[b-a]", "invalid character class range: `b-a`", id="range"),
        pytest.param("[[:letter:]]", "invalid character class range: `[:letter:]`", id="named class"),
        pytest.param("(?P<n", "invalid named capture: `(?P<n`", id="name"),
        pytest.param("(" * 5000 + ")" * 5000, "nests too deeply or is too large", id="depth"),
        pytest.param("((a{1000}){1000}){1000}", "nests too deeply or is too large", id="size"),
        pytest.param("a" * 10_001, "more than 10000 characters", id="length"),
    ],
)
def test_what_go_refuses_is_refused_in_its_words(pattern: str, why: str) -> None:
    with pytest.raises(BadPattern) as refusal:
        patterns.check(pattern)

    assert why in str(refusal.value)


def test_a_definition_with_a_bad_pattern_is_refused() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=a)"}}}

    [cause] = structural.check_root(schema, "schema")

    assert cause.field == "schema.properties[a].pattern"
    assert "must be a valid regular expression, but isn't: error parsing regexp: invalid or unsupported" in cause.detail


@pytest.mark.parametrize("pattern", [r"^(a+)+$", r"^(a|a)*$", r"^(a*)*b$", r"^(.*a){20}$", r"\s*:"])
def test_no_pattern_takes_long_over_a_long_text(pattern: str) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    text = ("a" if "a" in pattern else " ") * LONG + "!"
    validator = schema_check.compiled(schema)

    assert validator is not None
    assert not validator.is_valid({"a": text})
    assert [cause.field for cause in schema_check.complaints(schema, {"a": text})] == ["a"]


def test_a_pattern_whose_flags_would_be_said_again_without_end_is_refused() -> None:
    with pytest.raises(BadPattern, match="too large"):
        patterns.check("(?i)|" * 1_500)
