"""Bodies in YAML, read as Kubernetes reads them, within limits: they come from outside, to the event loop.

Parsed by libyaml where PyYAML was built with it, which is what takes a 1 MB body from ten seconds to one. Aliases are
allowed, but not to blow a body up: ten lines of them can stand for a billion values.
"""

from __future__ import annotations

from typing import Any

import yaml

MAX_VALUES = 1_000_000
"""Values in a body with all aliases written out. An object of 3 MB has fewer."""

MAX_DEPTH = 200
_TIME = "tag:yaml.org,2002:timestamp"
_Fastest: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Fastest):  # type: ignore[valid-type,misc]  # which of the two is known only when this runs
    """A date is text."""

    yaml_implicit_resolvers = {
        letter: [(tag, pattern) for tag, pattern in resolvers if tag != _TIME]
        for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def load(body: bytes) -> Any:
    """ValueError or yaml.YAMLError says what is wrong."""
    _check_depth(body)
    value = yaml.load(body, Loader=_Loader)
    if size_of(value, {}) > MAX_VALUES:
        raise ValueError("document contains excessive aliasing")
    return value


def _check_depth(body: bytes) -> None:
    """Before anything recurses: libyaml's loader does so without Python's limit, and would take the process with it."""
    depth = 0
    for event in yaml.parse(body, Loader=_Fastest):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise ValueError("exceeded max depth")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def size_of(value: Any, known: dict[int, int]) -> int:
    """How many values it holds; what several aliases share is looked at once and counted every time."""
    if not isinstance(value, dict | list):
        return 1
    found = known.get(id(value))
    if found == 0:
        raise ValueError("document contains itself")
    if found is None:
        known[id(value)] = 0
        inner = value.values() if isinstance(value, dict) else value
        found = known[id(value)] = 1 + sum(size_of(each, known) for each in inner)
    return found
