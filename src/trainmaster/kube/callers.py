"""Who may be connected to a small server at once, and how much they may have sent: bounds that all callers share.

Any client that reaches the port may connect before its identity is known. So a crowd must cost a bounded amount of
memory, and must not keep out those whom the server is for: they ask something small, at once, and are done.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

MOST = 500
"""Connections. TLS takes 300 KB for each; API servers open one for each of the jobs that they admit at a time."""

BUDGET = 32 << 20
"""Bytes of questions that are under way, of all callers together: four of the longest."""


class Caller(Protocol):
    @property
    def held(self) -> int:
        """Bytes that it has sent of a question that is not complete."""

    @property
    def is_idle(self) -> bool:
        """Whether no question is under way."""

    @property
    def has_asked(self) -> bool:
        """Whether a question of it was answered."""

    @property
    def since(self) -> float:
        """When its last question was answered."""

    def abort(self) -> None:
        """Hang up at once."""

    def overflow(self, why: str) -> None:
        """Forget what it has sent, and tell it so."""


class Callers:
    """In the order in which they came."""

    def __init__(self, most: int = MOST, budget: int = BUDGET) -> None:
        self._most, self._budget = most, budget
        self._here: dict[Caller, None] = {}
        self._held = 0

    def __len__(self) -> int:
        return len(self._here)

    def __iter__(self) -> Iterator[Caller]:
        return iter(tuple(self._here))

    def admit(self, caller: Caller) -> bool:
        """Whether there is room for it; if need be, in place of another."""
        if len(self._here) >= self._most:
            other = self._dispensable()
            if other is None:
                return False
            self.forget(other)
            other.abort()
        self._here[caller] = None
        return True

    def _dispensable(self) -> Caller | None:
        """The stranger that came first: who asks in earnest does so at once. Else the one that is idle longest."""
        stranger = next((caller for caller in self._here if not caller.has_asked), None)
        idle = (caller for caller in self._here if caller.is_idle)
        return stranger or min(idle, key=lambda caller: caller.since, default=None)

    def forget(self, caller: Caller) -> None:
        self._here.pop(caller, None)

    def weigh(self, difference: int) -> None:
        """Count bytes that a caller has sent, or that have been dealt with. Over the budget, the largest question is
        refused: real ones are small."""
        self._held += difference
        while self._held > self._budget and self._here:
            largest = max(self._here, key=lambda caller: caller.held)
            if not largest.held:
                return
            largest.overflow(f"all questions under way together have more than {self._budget} bytes; ask again later")
