"""RFC 3339 times as Kubernetes writes them (whole seconds, UTC), to and from seconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_WRITTEN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)


def render(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse(text: str | None) -> float | None:
    """None for an absent or malformed time."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def valid(text: str | None) -> str | None:
    """The time as an API server takes it, of any text: itself, the same in another form, or None for no time."""
    moment = parse(text)
    if text is None or moment is None:
        return None
    return text if _WRITTEN.fullmatch(text) else render(moment)
