"""Quantities in the one spelling that Kubernetes stores: `0.5` becomes `500m`, `1024Mi` becomes `1Gi`.

Clients compare what they read back with what they sent to others, so the embedded server must rewrite as the real
one does. The family (binary, decimal, exponent) is the writer's; only the number and its suffix are normalized.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from trainmaster.objects import quantity

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_PARTS = re.compile(r"^[+-]?[0-9.]+(?:([eE][+-]?\d+)|([A-Za-z]*))$", re.ASCII)
_NANO = Fraction(1, 10**9)

parsed = lru_cache(maxsize=4096)(quantity.parse)
"""The same few amounts come again and again, and an exact fraction takes 10 us to read."""

CANONICAL = r"^(0|[1-9][0-9]{0,2}([numkMGTPE]|[KMGTPE]i)?)$"
"""Accepts only canonical spellings, though not all of them: enough to skip the work for almost every quantity."""


def canonical(text: str) -> str:
    """The stored spelling; ValueError for what is not a quantity."""
    value = parsed(text)
    parts = _PARTS.match(text)
    suffix = parts[2] or "" if parts else ""
    if parts and parts[1]:
        return _exponent(value)
    if suffix.endswith("i") and abs(value) >= 1024:
        return _binary(value)
    return _decimal(value)


def _binary(value: Fraction) -> str:
    if value.denominator != 1:
        value = Fraction(-(-value.numerator // value.denominator))
    power = 0
    while value % 1024 == 0 and power < len(_BINARY) - 1:
        value /= 1024
        power += 1
    return f"{value}{_BINARY[power]}"


def _decimal(value: Fraction) -> str:
    mantissa, exponent = _thousands(value, 18)
    return f"{mantissa}{_DECIMAL[exponent]}"


def _exponent(value: Fraction) -> str:
    mantissa, exponent = _thousands(value, 999)
    return f"{mantissa}e{exponent}" if exponent else str(mantissa)


def _thousands(value: Fraction, limit: int) -> tuple[int, int]:
    """Value = mantissa * 10**exponent, exponent a multiple of three and as large as it can be."""
    if value == 0:
        return 0, 0
    nanos = value / _NANO
    mantissa = -(-nanos.numerator // nanos.denominator)  # finer than nano rounds up
    exponent = -9
    while mantissa % 1000 == 0 and exponent < limit:
        mantissa //= 1000
        exponent += 3
    return mantissa, exponent
