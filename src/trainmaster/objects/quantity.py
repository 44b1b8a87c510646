"""Resource quantities: `100m`, `2Gi`, `1e3`. Read exactly, added exactly, written in the shortest plain form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction

_SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{name: Fraction(1000) ** power for power, name in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{name: Fraction(1024) ** power for power, name in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}
MAX_LENGTH = 128
"""Characters. No amount of anything needs more, and exact sums of long numbers take long."""

_FORM = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i|))", re.ASCII)
_BINARY = tuple((name, _SUFFIXES[name]) for name in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"))


def parse(text: object) -> Fraction:
    """The exact value; ValueError for anything that is not a quantity."""
    written = str(text)
    if len(written) > MAX_LENGTH:
        raise ValueError(f"{written[:16]!r}… is not a quantity: it has more than {MAX_LENGTH} characters")
    match = _FORM.fullmatch(written.strip())
    if match is None or isinstance(text, bool):
        raise ValueError(f"{text!r} is not a quantity such as 500m, 2 or 4Gi")
    number, exponent, suffix = match.groups()
    if exponent:
        return Fraction(number) * Fraction(10) ** int(exponent[1:])
    return Fraction(number) * _SUFFIXES[suffix]


def is_quantity(text: object) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def render(value: Fraction) -> str:
    """The shortest exact form: whole binary units when large, milli (or smaller) when fractional."""
    if value.denominator != 1:
        for suffix in ("m", "u", "n"):
            scaled = value / _SUFFIXES[suffix]
            if scaled.denominator == 1:
                return f"{scaled.numerator}{suffix}"
        return f"{-(-value.numerator * 10**9 // value.denominator)}n"  # finer than nano rounds up, as Kubernetes does
    for suffix, unit in _BINARY:
        if value and value % unit == 0:
            return f"{value // unit}{suffix}"
    return str(value.numerator)


def add(parts: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """The sum of resource lists, by resource name, in alphabetical order."""
    totals: dict[str, Fraction] = {}
    for part in parts:
        for name, amount in part.items():
            totals[name] = totals.get(name, Fraction(0)) + parse(amount)
    return {name: render(totals[name]) for name in sorted(totals)}
