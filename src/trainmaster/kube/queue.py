"""The line of keys waiting to be reconciled: level-triggered, deduplicating, delaying.

Handlers of cache events `add` keys; workers `get` one, reconcile it and say `done`. A key stands in line once
however often it is added, and is never with two workers: what arrives while it is worked on puts it back in line
when that work is done. Delays are one heap and one timer, not a task per key. Next door: `controller`, its workers.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

from trainmaster.kube.errors import KubeError

K = TypeVar("K", bound=Hashable)

BASE_DELAY = 0.005
MAX_DELAY = 300.0

_STALE = 64
"""Heap entries that no longer count are swept when there are this many more of them than of those that do."""


class QueueClosed(KubeError):
    """There will be no more keys."""


class Observer(Protocol):
    """Who counts: `kube.metrics.KubeMetrics.queue(name)`."""

    def on_add(self) -> None: ...
    def on_get(self, waited: float) -> None: ...
    def on_done(self, worked: float) -> None: ...
    def on_retry(self) -> None: ...


class WorkQueue(Generic[K]):
    """Belongs to one event loop; none of its methods may be called from another thread."""

    def __init__(
        self, *, base_delay: float = BASE_DELAY, max_delay: float = MAX_DELAY, observer: Observer | None = None
    ) -> None:
        self._base_delay, self._max_delay = base_delay, max_delay
        self._observer = observer
        self._line: asyncio.Queue[tuple[K, float] | None] = asyncio.Queue()  # None says that we are closed
        self._ready: set[K] = set()  # what stands in the line
        self._working: dict[K, float] = {}  # since when
        self._again: set[K] = set()  # added while being worked on
        self._delays = _Delays[K](self._enter)
        self._failures: dict[K, int] = {}
        self._closed = False

    @property
    def depth(self) -> int:
        """Keys that a worker could have now."""
        return len(self._ready)

    @property
    def delayed(self) -> int:
        return len(self._delays)

    def __len__(self) -> int:
        return self.depth + self.delayed

    def add(self, key: K, after: float = 0.0) -> None:
        """Puts a key in line, at once or later. Of several times the earliest counts."""
        if self._closed or key in self._ready or key in self._again:
            return
        if after > 0:
            self._delays.put(key, asyncio.get_running_loop().time() + after)
        else:
            self._delays.drop(key)
            self._enter(key)

    async def get(self) -> K:
        """The next key; it is the caller's alone until `done`. Raises QueueClosed at once when closed."""
        entry = await self._line.get()
        if self._closed or entry is None:
            self._line.put_nowait(None)  # for the next one who asks
            raise QueueClosed
        key, since = entry
        now = asyncio.get_running_loop().time()
        self._ready.discard(key)
        self._working[key] = now
        if self._observer is not None:
            self._observer.on_get(now - since)
        return key

    def done(self, key: K) -> None:
        since = self._working.pop(key)
        if self._observer is not None:
            self._observer.on_done(asyncio.get_running_loop().time() - since)
        if key in self._again:
            self._again.discard(key)
            self._enter(key)

    def retry(self, key: K) -> float:
        """Adds a key that failed, each time twice as late as before; returns the delay in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(self._base_delay * 2.0 ** min(failures, 64), self._max_delay)
        if self._observer is not None:
            self._observer.on_retry()
        self.add(key, after=delay)
        return delay

    def forget(self, key: K) -> None:
        """The key did well: its next failure is its first."""
        self._failures.pop(key, None)

    def retries(self, key: K) -> int:
        return self._failures.get(key, 0)

    def close(self) -> None:
        """Wakes all who wait in `get` with QueueClosed. What was in line is not handed out any more."""
        self._closed = True
        self._delays.clear()
        self._line.put_nowait(None)

    def _enter(self, key: K) -> None:
        if self._closed or key in self._ready:
            return
        if key in self._working:
            self._again.add(key)
            return
        self._ready.add(key)
        self._line.put_nowait((key, asyncio.get_running_loop().time()))
        if self._observer is not None:
            self._observer.on_add()


class _Delays(Generic[K]):
    """Keys with a time each, handed to `due` when it comes. One timer, set to the earliest."""

    def __init__(self, due: Callable[[K], None]) -> None:
        self._due = due
        self._times: dict[K, float] = {}
        # Entries are not removed from the middle of a heap: one counts only while `_times` still says the same.
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()  # keys need not be comparable
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._times)

    def put(self, key: K, when: float) -> None:
        if self._times.get(key, math.inf) <= when:
            return
        self._sweep()
        self._times[key] = when
        heapq.heappush(self._heap, (when, next(self._order), key))
        self._set_timer()

    def drop(self, key: K) -> None:
        self._times.pop(key, None)

    def clear(self) -> None:
        self._times.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _sweep(self) -> None:
        """A key that is added for tomorrow on every pass would otherwise leave an entry behind on every pass."""
        if len(self._heap) > 2 * len(self._times) + _STALE:
            self._heap = [entry for entry in self._heap if self._times.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def _set_timer(self) -> None:
        when = self._heap[0][0]
        if self._timer is not None and not self._timer.cancelled():
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._fire, when)

    def _fire(self, until: float) -> None:
        """`until` is what the timer was set to: the loop may call a clock tick before its time() gets there."""
        self._timer = None
        until = max(until, asyncio.get_running_loop().time())
        while self._heap and self._heap[0][0] <= until:
            when, _, key = heapq.heappop(self._heap)
            if self._times.get(key) == when:
                del self._times[key]
                self._due(key)
        if self._heap:
            self._set_timer()
