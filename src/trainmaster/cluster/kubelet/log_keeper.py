"""Keeps what pods that are gone have left, their logs, for a while: so many seconds, so many pods, so many bytes.

One task and a few words for each pod, whatever it was. The oldest go first.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

MAX_PODS = 10_000
MAX_BYTES = 1 << 30
_COALESCE = 1.0
"""Seconds between two looks, so that a thousand pods that end together are not a thousand of them."""


class _Kept(NamedTuple):
    name: str
    until: float
    size: int


class LogKeeper:
    """`keep` what is in the directory under that name; `run` removes it in time. Times are those of `now`."""

    def __init__(
        self,
        directory: Path,
        seconds: float,
        now: Callable[[], float],
        *,
        max_pods: int = MAX_PODS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._directory = directory
        self._seconds, self._now = seconds, now
        self._max_pods, self._max_bytes = max_pods, max_bytes
        self._kept: deque[_Kept] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._kept)

    async def keep(self, name: str) -> None:
        self._add(name, self._now(), await asyncio.to_thread(_size_of, self._directory / name))

    async def find(self, is_alive: Callable[[str], bool]) -> None:
        """Also keep what an earlier cluster left, of pods that are not there any more."""
        found = await asyncio.to_thread(_found, self._directory)
        known = {kept.name for kept in self._kept}
        for name, changed, size in found:
            if not is_alive(name) and name not in known:
                self._add(name, changed, size)

    def _add(self, name: str, ended: float, size: int) -> None:
        self._kept.append(_Kept(name, ended + self._seconds, size))
        self._bytes += size
        self._changed.set()

    async def run(self) -> None:
        while True:
            self._changed.clear()
            while self._is_due():
                kept = self._kept.popleft()
                self._bytes -= kept.size
                await asyncio.to_thread(shutil.rmtree, self._directory / kept.name, ignore_errors=True)
            await self._until_more_is_due()

    def _is_due(self) -> bool:
        if not self._kept:
            return False
        is_full = len(self._kept) > self._max_pods or self._bytes > self._max_bytes
        return is_full or self._kept[0].until <= self._now()

    async def _until_more_is_due(self) -> None:
        """Another pod is looked at when it comes: it may be one too many."""
        left = max(_COALESCE, self._kept[0].until - self._now()) if self._kept else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._changed.wait()


def _size_of(directory: Path) -> int:
    total = 0
    for path, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
    return total


def _found(parent: Path) -> list[tuple[str, float, int]]:
    """Names, times and sizes, the oldest first."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for entry in parent.iterdir():
            with contextlib.suppress(OSError):  # it is just being removed
                found.append((entry.name, entry.stat().st_mtime, _size_of(entry)))
    return sorted(found, key=lambda each: each[1])
