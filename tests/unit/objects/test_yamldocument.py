"""YAML means what it means to kubectl, or is refused in one sentence; nothing in it takes long or much memory."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.objects import yamldocument
from trainmaster.objects.yamldocument import BadYaml

BOMB = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(24)
)
MERGES = "a: &a {x: 1, y: 2}\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} {{p: *{chr(97 + i)}, <<: [{', '.join([f'*{chr(97 + i)}'] * 9)}]}}\n"
    for i in range(24)
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("1:30", "1:30", id="no number of base 60"),
        pytest.param("2020-01-01", "2020-01-01", id="a date is text"),
        pytest.param("2020-13-99", "2020-13-99", id="a date that is none"),
        pytest.param("0777", 511, id="octal"),
        pytest.param("-017", -15, id="negative octal"),
        pytest.param("0o17", "0o17", id="octal with a letter"),
        pytest.param("08", "08", id="no octal"),
        pytest.param("0x1F", 31, id="hexadecimal"),
        pytest.param("0b11", 3, id="binary number"),
        pytest.param("1_000", 1000, id="thousands"),
        pytest.param("1e-3", "1e-3", id="exponent"),
        pytest.param("5.", 5, id="whole float"),
        pytest.param("1.5e+3", 1500, id="float with an exponent"),
        pytest.param(".5", 0.5, id="float"),
        pytest.param("1e400", "1e400", id="beyond floats"),
        pytest.param("9" * 30, 1e30, id="beyond 64 bits"),
        pytest.param("0x" + "f" * 20, "0x" + "f" * 20, id="hexadecimal beyond 64 bits"),
        pytest.param("9" * 5000, "9" * 5000, id="more digits than Python reads"),
        pytest.param("yes", True, id="yes"),
        pytest.param("y", "y", id="y"),
        pytest.param("OFF", False, id="off"),
        pytest.param("tRUE", "tRUE", id="a word in no such spelling"),
        pytest.param("~", None, id="null"),
        pytest.param("[=]", ["="], id="equals sign"),
        pytest.param("!!binary aGk=", "hi", id="binary"),
        pytest.param("!!set {a, b}", {"a": None, "b": None}, id="set"),
        pytest.param("!!omap [a: 1]", [{"a": 1}], id="ordered map"),
        pytest.param("!!python/object:os.system x", "x", id="somebody's tag"),
        pytest.param("!!int '1'", 1, id="integer by tag"),
        pytest.param("!!str 1", "1", id="text by tag"),
        pytest.param("{1: a, 1.5: b, yes: c, 2020-01-01: d}", {"1": "a", "1.5": "b", "true": "c", "2020-01-01": "d"},
                     id="keys that are not text"),
        pytest.param("{a: 1, a: 2}", {"a": 2}, id="the same key twice"),
        pytest.param("{<<: [{a: 1}, {a: 2, b: 3}], b: 4}", {"a": 1, "b": 4}, id="merged maps"),
        pytest.param("[&a {x: 1}, *a]", [{"x": 1}, {"x": 1}], id="alias"),
    ],
)  # fmt: skip
def test_a_value_is_what_it_is_to_kubectl(text: str, value: Any) -> None:
    found = yamldocument.document(f"v: {text}\n")["v"]

    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param(BOMB, "document contains excessive aliasing", id="alias bomb"),
        pytest.param(MERGES, "document contains excessive aliasing", id="merge bomb"),
        pytest.param("v: &a [*a]", "line 1, column 8: anchor 'a': the document contains itself", id="list in itself"),
        pytest.param("&a {v: *a}", "the document contains itself", id="map in itself"),
        pytest.param("v: *a", "line 1, column 4: unknown anchor 'a' referenced", id="unknown anchor"),
        pytest.param("[" * 3000 + "]" * 3000, "exceeded max depth", id="deep lists"),
        pytest.param("\n".join(" " * n + "a:" for n in range(1000)), "exceeded max depth", id="deep maps"),
        pytest.param(r'v: "\ud800"', "invalid Unicode character escape code", id="surrogate"),
        pytest.param("v: \x00", "", id="unprintable"),
        pytest.param("{~: a}", "invalid map key: null cannot be a key", id="null as key"),
        pytest.param("{[a]: b}", "invalid map key: a list cannot be a key", id="list as key"),
        pytest.param("{{a: b}: c}", "invalid map key: a map cannot be a key", id="map as key"),
        pytest.param("{<<: 1}", "map merge requires map or sequence of maps as the value", id="merged number"),
        pytest.param("v: !!binary '*'", "!!binary value contains invalid base64 data", id="no base64"),
        pytest.param("v: !!int x", "cannot decode 'x' as a !!int", id="no integer"),
        pytest.param("v: .nan", "unsupported value: .nan", id="no number of JSON"),
        pytest.param("a: 1\n---\nb: 2", "expected a single document", id="two documents"),
        pytest.param(b"v: \xff\xfe", "", id="not UTF-8"),
        pytest.param("a: b: c", "line 1, column 5: mapping values are not allowed", id="no YAML"),
    ],
)
def test_what_kubectl_does_not_take_is_refused_in_one_sentence(text: str | bytes, why: str) -> None:
    with pytest.raises(BadYaml) as refusal:
        yamldocument.document(text)

    assert why in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 300


def test_what_aliases_stand_for_is_not_shared() -> None:
    first, second = yamldocument.document("[&a {x: [1]}, *a]")

    first["x"].append(2)

    assert second == {"x": [1]}


def test_documents_come_one_by_one_and_know_nothing_of_each_other() -> None:
    found = yamldocument.documents("a: &a 1\n---\n---\nb: *a\n")

    assert [next(found), next(found)] == [{"a": 1}, None]
    with pytest.raises(BadYaml, match="unknown anchor"):
        next(found)
