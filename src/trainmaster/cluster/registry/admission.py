"""What a kind demands of its objects beyond their types: defaults, preparation, rules.

A `Policy` is a handful of functions that the registry calls in order; most kinds need few of them. The policies of
pods, services, workloads and custom resources live in `admission_*`; this file has the contract and the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from trainmaster.cluster.registry.addresses import Addresses
from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.status_error import Cause
from trainmaster.cluster.registry.validation import NameRule, subdomain_problems

Object: TypeAlias = dict[str, Any]


class World(Protocol):
    """What admission may look at besides the object itself."""

    @property
    def addresses(self) -> Addresses: ...
    def find(self, prefix: str, key: str) -> Mapping[str, Any] | None: ...
    def find_all(self, prefix: str) -> list[Mapping[str, Any]]: ...
    def now(self) -> float: ...


def _nothing(*_: Any) -> None:
    return None


def _no_causes(*_: Any) -> list[Cause]:
    return []


@dataclass(frozen=True, slots=True)
class Policy:
    """Functions that change an object change it in place: it is the request's own copy."""

    defaults: Callable[[Object], None] = _nothing
    create: Callable[[Object, World], None] = _nothing
    """Before the checks of a create: status reset, references resolved. May raise ApiError."""
    reserve: Callable[[Object, World], None] = _nothing
    """After the checks: takes what only one object can have. May raise ApiError."""
    update: Callable[[Object, Mapping[str, Any], World], None] = _nothing
    check: Callable[[Mapping[str, Any]], list[Cause]] = _no_causes
    check_update: Callable[[Mapping[str, Any], Mapping[str, Any]], list[Cause]] = _no_causes
    undo: Callable[[Mapping[str, Any], World], None] = _nothing
    """The object is gone, or was never stored: gives back what `reserve` took."""
    name_rule: NameRule = subdomain_problems
    has_generation: bool = False


class Policies:
    """The policy of each kind. Built-in ones are fixed; a custom resource's comes with its definition."""

    def __init__(self, builtin: Mapping[str, Policy]) -> None:
        self._builtin = builtin
        self._custom: dict[tuple[str, str], Policy] = {}

    def of(self, kind: Kind) -> Policy:
        if kind.custom:
            return self._custom[kind.prefix, kind.version]
        return self._builtin.get(kind.prefix, _PLAIN)

    def add(self, kind: Kind, policy: Policy) -> None:
        self._custom[kind.prefix, kind.version] = policy


_PLAIN = Policy()
