"""Equality label selectors: the only sort our objects need."""

from __future__ import annotations

from collections.abc import Mapping


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())


def render(selector: Mapping[str, str]) -> str:
    """`a=1,b=2`, keys sorted, as the scale subresource and the API's `labelSelector` take it."""
    return ",".join(f"{key}={selector[key]}" for key in sorted(selector))
