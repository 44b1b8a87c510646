"""Removes Events an hour after they were last written, as kube-apiserver's `--event-ttl` does.

Nothing is kept in memory about them: their own times say when, so a restart changes nothing. It looks when the oldest
is due, and at most once a minute; with no Events it waits for the first one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

import msgspec

from trainmaster.cluster.controllers.control import Registry
from trainmaster.cluster.storage.store import Entry, Expired, Missing, Stale
from trainmaster.objects import timestamp

EVENT_SECONDS = 3600.0
_PAUSE = 60.0
_AT_ONCE = 100
"""How many are removed before others get their turn."""

_log = logging.getLogger(__name__)


class _Metadata(msgspec.Struct, rename="camel"):
    creation_timestamp: str | None = None


class _Series(msgspec.Struct, rename="camel"):
    last_observed_time: str | None = None


class _Times(msgspec.Struct, rename="camel"):
    """The part of an Event that is decoded: a tenth of what all of it takes, and none of it stays."""

    metadata: _Metadata
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _Series | None = None


_TIMES = msgspec.json.Decoder(_Times)


def last_written(entry: Entry) -> float:
    """The latest of an Event's own times. 0 for one without a time that can be read: it is old."""
    try:
        times = _TIMES.decode(entry.raw)
    except msgspec.DecodeError:  # what the schema lets through, such as a number in the place of a time
        return 0.0
    series = times.series.last_observed_time if times.series else None
    said = (times.metadata.creation_timestamp, times.last_timestamp, times.event_time, series)
    return max((timestamp.parse(moment) or 0.0 for moment in said), default=0.0)


class EventKeeper:
    def __init__(self, registry: Registry, *, now: Callable[[], float], seconds: float = EVENT_SECONDS) -> None:
        kind = registry.kinds.lookup("", "v1", "events")
        assert kind is not None, "events are always served"
        self._store, self._prefix = registry.store, kind.prefix
        self._now, self._seconds = now, seconds

    async def run(self) -> None:
        while True:
            oldest = await self._remove_old()
            if oldest is None:
                await self._until_there_is_one()
                oldest = self._now()
            await asyncio.sleep(max(min(_PAUSE, self._seconds), oldest + self._seconds - self._now()))

    async def _remove_old(self) -> float | None:
        """When the oldest that stays was written."""
        limit = self._now() - self._seconds
        removed, oldest = 0, None
        for entry, written in self._dated():
            if written > limit:
                # One that claims to be of the future is looked at as if it were of now.
                written = min(written, self._now())
                oldest = written if oldest is None else min(oldest, written)
                continue
            await self._remove(entry)
            removed += 1
            if removed % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return oldest

    def _dated(self) -> Iterator[tuple[Entry, float]]:
        for entry in self._store.list(self._prefix):
            yield entry, last_written(entry)

    async def _remove(self, entry: Entry) -> None:
        try:
            await self._store.remove(self._prefix, entry.key, expect=entry.revision)
        except (Missing, Stale) as error:  # it is gone, or has been written again
            _log.debug("event stays", extra={"fields": {"key": entry.key, "error": str(error)}})

    async def _until_there_is_one(self) -> None:
        after = self._store.revision
        if self._store.list(self._prefix):
            return
        try:
            async for _ in self._store.watch(self._prefix, after):
                return
        except Expired:
            return
