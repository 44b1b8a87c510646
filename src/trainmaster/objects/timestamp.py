"""RFC 3339 times as Kubernetes writes them (whole seconds, UTC), to and from seconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime


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
