"""Numbers written as text, by people."""

import pytest

from trainmaster.objects.number import number_of


@pytest.mark.parametrize(
    ("text", "number"),
    [
        pytest.param("0", 0, id="nothing"),
        pytest.param("00", 0, id="nothing, twice"),
        pytest.param("35000", 35000, id="a port"),
        pytest.param("007", 7, id="zeros before"),
        pytest.param("0" * 5000 + "7", 7, id="thousands of zeros before"),
        pytest.param("65535", 65535, id="the highest"),
        pytest.param("65536", None, id="beyond it"),
        pytest.param("9" * 5000, None, id="more digits than Python reads"),
        pytest.param("", None, id="empty"),
        pytest.param("-1", None, id="negative"),
        pytest.param("+1", None, id="signed"),
        pytest.param("1.0", None, id="not whole"),
        pytest.param(" 1", None, id="spaced"),
        pytest.param("1_0", None, id="as in Python"),
        pytest.param("٣", None, id="digits of another script"),
        pytest.param("²", None, id="superscript"),
    ],
)
def test_a_number_is_plain_digits_up_to_the_highest(text, number):
    assert number_of(text, 65535) == number
