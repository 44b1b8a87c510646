"""How long ago, as kubectl says it: two units at most, coarser the older it gets."""

from __future__ import annotations

from trainmaster.objects import timestamp

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400


def human(seconds: float) -> str:
    """`45s`, `5m30s`, `3h2m`, `4d6h`, `2y1d`; a moment in the future beyond clock skew is `<invalid>`."""
    if seconds < -1:
        return "<invalid>"
    whole = max(0, int(seconds))
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < 10 * _MINUTE:
        return _pair(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _pair(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _pair(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _pair(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


def _pair(seconds: int, unit: int, letter: str, part: int, part_letter: str) -> str:
    whole, rest = divmod(seconds, unit)
    return f"{whole}{letter}{rest // part}{part_letter}" if rest // part else f"{whole}{letter}"


def since(text: object, now: float) -> str:
    """The age of an RFC 3339 time; `<unknown>` where there is none."""
    moment = timestamp.parse(text) if isinstance(text, str) else None
    return "<unknown>" if moment is None else human(now - moment)
