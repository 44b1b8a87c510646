"""What a plain word of YAML is: mostly by the rules of the library with which Kubernetes reads it.

That library takes `y`, `n`, `1e-3`, `08` and `0o17` for other things than texts. Here they have always been texts, in
names, arguments and variables, and remain so.
"""

from __future__ import annotations

import math
import re

_WORDS: dict[str, bool | None] = {
    **{
        spelt: meaning
        for meaning, words in ((True, "yes true on"), (False, "no false off"))
        for word in words.split()
        for spelt in (word, word.capitalize(), word.upper())
    },
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
}
_NOT_IN_JSON = {sign + word for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")} | {".nan", ".NaN", ".NAN"}
_NUMERIC = frozenset("+-.0123456789")
_FLOAT = re.compile(r"^[-+]?(?:[1-9][0-9]*|(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+][0-9]+)?)")
_OCTAL = re.compile(r"[-+]?0[0-7]+")
_WHOLE = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)")
_LONGEST = 400
"""Digits and all. No number that Kubernetes knows is longer; Python would take long over it, or refuse."""


def resolved(text: str) -> str | int | float | bool | None:
    """ValueError for numbers that JSON does not have."""
    if text in _WORDS:
        return _WORDS[text]
    if text in _NOT_IN_JSON:
        raise ValueError(f"unsupported value: {text}")
    if text[0] not in _NUMERIC or len(text) > _LONGEST:
        return text
    plain = text.replace("_", "")
    whole = _whole(plain)
    if whole is not None:
        return whole
    return _number(plain) if _FLOAT.fullmatch(plain) else text


def _whole(plain: str) -> int | None:
    """Of 64 bits, with a sign or without; None for anything else."""
    if _OCTAL.fullmatch(plain):
        value = int(plain, 8)
    elif _WHOLE.fullmatch(plain) and not plain.lstrip("+-").startswith(tuple("0" + digit for digit in "0123456789")):
        value = int(plain, 0)
    else:
        return None
    return value if -(2**63) <= value < 2**64 else None


def _number(plain: str) -> float | str:
    """What is whole is written so; what no float holds stays text."""
    value = float(plain)
    if math.isinf(value):
        return plain
    return int(value) if value.is_integer() and abs(value) < 2**63 else value
