"""Durations as Go programs take them: `90`, `30s`, `1h30m`, `250ms`."""

from __future__ import annotations

import re

from trainmaster.cli.connection import Misuse

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BARE = re.compile(r"\d+(\.\d+)?", re.ASCII)
_PART = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)(ms|s|m|h)", re.ASCII)


def seconds(text: str, flag: str) -> float:
    """A bare number is seconds."""
    sign, digits = (-1.0, text[1:]) if text.startswith("-") else (1.0, text)
    if _BARE.fullmatch(digits):
        return sign * float(digits)
    parts = _PART.findall(digits)
    if not parts or "".join(number + unit for number, unit in parts) != digits:
        raise Misuse(f"{flag}: {text!r} is not a duration; write it like 90s, 5m or 1h30m")
    return sign * sum(float(number) * _UNITS[unit] for number, unit in parts)
