"""A job's name becomes part of Service names, so it must be a DNS-1035 label."""

from __future__ import annotations

import pytest

from trainmaster.objects import names


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("a", id="one letter"),
        pytest.param("mnist-2", id="letters digits dashes"),
        pytest.param("a--b", id="two dashes"),
        pytest.param("a" * 63, id="63 characters"),
    ],
)
def test_dns_1035_labels_are_names(name: str) -> None:
    assert names.is_dns_1035(name)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="empty"),
        pytest.param("0-test", id="digit first"),
        pytest.param("00test", id="digits first"),
        pytest.param("__test", id="underscore"),
        pytest.param("-test", id="dash first"),
        pytest.param("test-", id="dash last"),
        pytest.param("Test", id="upper case"),
        pytest.param("a.b", id="dot"),
        pytest.param("a/b", id="slash"),
        pytest.param("a b", id="space"),
        pytest.param("test\n", id="newline last"),
        pytest.param("tést", id="accent"),
        pytest.param("a" * 64, id="64 characters"),
    ],
)
def test_other_strings_are_not(name: str) -> None:
    assert not names.is_dns_1035(name)


@pytest.mark.parametrize("name", ["a", "0", "2024-resnet", "00test", "a" * 63])
def test_labels_may_begin_with_a_digit(name: str) -> None:
    assert names.is_label(name)


@pytest.mark.parametrize("name", ["", "-test", "test-", "Test", "a.b", "test\n", "a" * 64])
def test_other_strings_are_no_labels(name: str) -> None:
    assert not names.is_label(name)
