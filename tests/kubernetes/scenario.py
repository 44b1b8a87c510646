"""How scenarios are written down: a function of an `Api`, under a name; most send the rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tests.kubernetes.exchange import Api

Scenario: TypeAlias = Callable[[Api], None]


class Scenarios:
    def __init__(self) -> None:
        self.all: dict[str, Scenario] = {}

    def __call__(self, function: Scenario) -> Scenario:
        self.all[function.__name__.replace("_", "-")] = function
        return function


def post_each(api: Api, path: str, rows: Mapping[str, Any], *, query: str = "") -> None:
    """A row's name says what is special about its body."""
    for label, body in rows.items():
        api.send("POST", path + query, body, label=label)
