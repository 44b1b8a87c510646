"""When to say that something waits: not at once, not with every changed number, but soon and then up to date.

A pod that gets its place within a second was never worth a condition and an event. One that waits longer has its
sentence, and numbers in it that are at most REPEAT old; a thousand waiting pods do not rewrite themselves each time
one that runs has ended.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

PATIENCE = 1.0
REPEAT = 10.0


class Reports(Generic[K, V]):
    """What was said about whom, and when."""

    def __init__(self, *, patience: float = PATIENCE, repeat: float = REPEAT) -> None:
        self._patience, self._repeat = patience, repeat
        self._since: dict[K, float] = {}
        self._said: dict[K, tuple[V, float]] = {}
        self.next_at: float | None = None

    def due(self, things: Mapping[K, V], now: float, known: Collection[K] = ()) -> dict[K, V]:
        """What should be said now. `next_at` is then when more of it will be due, if nothing changes.

        Who has nothing to be said is forgotten, unless still `known`: silence need not be news.
        """
        for key in [key for key in self._since if key not in things and key not in known]:
            del self._since[key]
            self._said.pop(key, None)
        moments = {key: self._moment(key, thing, now) for key, thing in things.items()}
        later = [moment for moment in moments.values() if moment is not None and moment > now]
        self.next_at = min(later, default=None)
        return {key: things[key] for key, moment in moments.items() if moment is not None and moment <= now}

    def said(self, key: K, thing: V, now: float) -> None:
        self._said[key] = (thing, now)

    def _moment(self, key: K, thing: V, now: float) -> float | None:
        since = self._since.setdefault(key, now)
        if key not in self._said:
            return since + self._patience
        last, moment = self._said[key]
        return None if last == thing else moment + self._repeat
