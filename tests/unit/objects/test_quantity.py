"""Quantities are read and added exactly, and written in a form that Kubernetes reads as the same number."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.objects import quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("2", Fraction(2), id="plain"),
        pytest.param(2, Fraction(2), id="an integer"),
        pytest.param(0.5, Fraction(1, 2), id="a float"),
        pytest.param("0.1", Fraction(1, 10), id="decimal point"),
        pytest.param(".5", Fraction(1, 2), id="no leading digit"),
        pytest.param("5.", Fraction(5), id="no trailing digit"),
        pytest.param("+3", Fraction(3), id="plus sign"),
        pytest.param("-3", Fraction(-3), id="minus sign"),
        pytest.param("100m", Fraction(1, 10), id="milli"),
        pytest.param("1u", Fraction(1, 10**6), id="micro"),
        pytest.param("1n", Fraction(1, 10**9), id="nano"),
        pytest.param("1k", Fraction(1000), id="kilo"),
        pytest.param("1M", Fraction(10**6), id="mega"),
        pytest.param("1.5G", Fraction(15 * 10**8), id="giga"),
        pytest.param("1E", Fraction(10**18), id="exa is no exponent"),
        pytest.param("1e3", Fraction(1000), id="exponent"),
        pytest.param("1E-3", Fraction(1, 1000), id="negative exponent"),
        pytest.param("1Ki", Fraction(1024), id="kibi"),
        pytest.param("4Gi", Fraction(4 * 2**30), id="gibi"),
        pytest.param("2Ei", Fraction(2 * 2**60), id="exbi"),
        pytest.param(" 1 ", Fraction(1), id="space around it"),
    ],
)
def test_a_quantity_is_read_exactly(text: object, value: Fraction) -> None:
    assert quantity.parse(text) == value


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("lots", id="word"),
        pytest.param("1GB", id="byte suffix"),
        pytest.param("1ki", id="kibi in lower case"),
        pytest.param("1mi", id="binary milli"),
        pytest.param("1 Gi", id="space inside"),
        pytest.param("1e", id="exponent without digits"),
        pytest.param("1e3Gi", id="exponent and unit"),
        pytest.param("--1", id="two signs"),
        pytest.param(".", id="only a point"),
        pytest.param("nan", id="not a number"),
        pytest.param("\u0661", id="digits of another script"),
        pytest.param(True, id="boolean"),
        pytest.param(None, id="null"),
        pytest.param({}, id="mapping"),
        pytest.param("1" * 200_000, id="more digits than anybody needs"),
        pytest.param("1" * 200_000 + "x", id="long, and no quantity at its end"),
        pytest.param(10**5000, id="a number that Python does not write"),
    ],
)
def test_anything_else_is_no_quantity(text: object) -> None:
    assert not quantity.is_quantity(text)
    with pytest.raises(ValueError):
        quantity.parse(text)


def test_a_refusal_does_not_repeat_what_is_long() -> None:
    with pytest.raises(ValueError, match="has more than 128 characters") as refusal:
        quantity.parse("1" * 200_000)

    assert len(str(refusal.value)) < 100


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(Fraction(0), "0", id="zero"),
        pytest.param(Fraction(3), "3", id="whole"),
        pytest.param(Fraction(1000), "1000", id="decimal thousand stays plain"),
        pytest.param(Fraction(1024), "1Ki", id="binary thousand"),
        pytest.param(Fraction(3 * 2**29), "1536Mi", id="largest unit that divides"),
        pytest.param(Fraction(2**60), "1Ei", id="largest unit"),
        pytest.param(Fraction(1, 10), "100m", id="milli"),
        pytest.param(Fraction(3, 2), "1500m", id="one and a half"),
        pytest.param(Fraction(1, 10**6), "1u", id="micro"),
        pytest.param(Fraction(1, 10**9), "1n", id="nano"),
        pytest.param(Fraction(1, 10**10), "1n", id="finer than nano rounds up"),
        pytest.param(Fraction(-1, 2), "-500m", id="negative"),
    ],
)
def test_a_quantity_is_written_in_its_shortest_plain_form(value: Fraction, text: str) -> None:
    assert quantity.render(value) == text


@given(st.fractions(max_denominator=1000).filter(lambda value: 10**9 % value.denominator == 0))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_what_is_written_reads_back_as_the_same_number(value: Fraction) -> None:
    assert quantity.parse(quantity.render(value)) == value


def test_sums_are_exact_by_resource_and_sorted_by_name() -> None:
    parts: list[dict[str, object]] = [
        {"memory": "1Gi", "cpu": "100m"},
        {"memory": "512Mi", "nvidia.com/gpu": 1},
        {"cpu": 0.9},
    ]

    total = quantity.add(parts)

    assert total == {"cpu": "1", "memory": "1536Mi", "nvidia.com/gpu": "1"}
    assert list(total) == ["cpu", "memory", "nvidia.com/gpu"]


def test_the_sum_of_nothing_is_nothing() -> None:
    assert quantity.add([]) == {}
