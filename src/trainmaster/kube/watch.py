"""Keeps a cache true: lists once, then follows the watch, for as long as it is let run.

The picture survives everything but the truth: while the server is away, too busy or forgetful, the cache stays as
it is; when the server has forgotten our place in its history (410), a new list is compared with the cache, and only
the differences are told. One object that cannot be decoded is named in the log and left as it was.
"""

from __future__ import annotations

import asyncio
import random as randomness
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from msgspec import Raw

from trainmaster.kube import codec, errors, logs
from trainmaster.kube.cache import Cache
from trainmaster.kube.client import Client
from trainmaster.objects.meta import Stored
from trainmaster.objects.resource import Resource

T = TypeVar("T", bound=Stored)

log = logs.get(__name__)

_BASE, _CAP = 0.5, 30.0  # seconds of backoff: the first step and the last
_HEALTHY = 5.0  # seconds a watch must last to be called one
_PATIENCE = 3  # failures in a row until we list anew
_WATCH_SECONDS = (240, 480)  # at random between them, lest all watches of all clients end at once


class Reflector(Generic[T]):
    """Feeds one cache with one kind, in one namespace or all, perhaps filtered by selectors."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        type: type[T],
        cache: Cache[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = 500,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        self._client = client
        self._resource = resource
        self._type = type
        self._cache = cache
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._page_size = page_size
        self._sleep = sleep
        self._random = random
        self._must_list = True
        self._failures = 0  # in a row
        self._lasted = self._heard = False  # of the current watch: that it held, that it said something
        self.synced = asyncio.Event()
        """Set after the first list, and for good."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._lasted = self._heard = False
            error = await self._round()
            if self._lasted or self._heard:
                self._recover()
            else:
                self._fail(error)
            # A watch that ended at once is never followed by another at once, whatever ended it.
            if not self._lasted or not (error is None or isinstance(error, errors.Gone)):
                await self._sleep(self._backoff())

    async def _round(self) -> errors.KubeError | None:
        """From a list, where one is due, to the end of a watch; what ended it, if not the server's good will."""
        try:
            if self._must_list:
                await self._list()
            await self._watch()
        except errors.KubeError as error:
            self._must_list = self._must_list or isinstance(error, errors.Gone)
            return error
        return None

    async def _list(self) -> None:
        """All pages of one snapshot; one that expires on the way (410) is begun anew."""
        objects: list[T] = []
        failures: dict[str, errors.Undecodable] = {}
        version, continue_ = "", ""
        while True:
            page = await self._client.list(
                self._resource,
                self._namespace,
                label_selector=self._label_selector,
                field_selector=self._field_selector,
                limit=self._page_size,
                continue_=continue_,
                type=Raw,
            )
            read, unread = codec.decode_each(page.items, self._type)
            objects += read
            failures |= unread
            version, continue_ = version or page.resource_version, page.continue_
            if not continue_:
                break
        for error in failures.values():
            self._skip(error)
        self._cache.replace(objects, version, unread=failures)
        self._must_list = False
        self.synced.set()

    async def _watch(self) -> None:
        shortest, longest = _WATCH_SECONDS
        clock = asyncio.get_running_loop().time
        async with self._client.stream(
            self._resource,
            self._namespace,
            resource_version=self._cache.resource_version,
            timeout_seconds=int(shortest + (longest - shortest) * self._random()),
            label_selector=self._label_selector,
            field_selector=self._field_selector,
        ) as events:
            opened = clock()
            try:
                async for kind, raw in events:
                    self._heard = True
                    self._take(kind, raw)
            finally:
                self._lasted = clock() - opened >= _HEALTHY

    def _take(self, kind: str, raw: Raw) -> None:
        try:
            if kind != "BOOKMARK":
                self._cache.apply_event(kind, codec.decode(raw, self._type))
                return
        except errors.Undecodable as error:
            self._skip(error)
        meta = codec.head_of(raw).metadata
        if kind == "DELETED":
            self._cache.removed(meta.key, meta.uid or "")
        self._cache.advance(meta.resource_version or "")

    def _skip(self, error: errors.Undecodable) -> None:
        log.warning("object cannot be read, left as it was", resource=self._resource.plural, error=str(error))

    def _backoff(self) -> float:
        return min(_CAP, _BASE * 2.0 ** max(0, self._failures - 1)) * (0.5 + 0.5 * self._random())

    def _fail(self, error: errors.KubeError | None) -> None:
        """Warns once per outage, and not of the first failure: streams are cut every day."""
        self._failures += 1
        if self._failures % _PATIENCE == 0:
            self._must_list = True  # our place in history itself may be wrong: a restored etcd knows no such
        write = log.warning if self._failures == 2 else log.debug
        said = str(error) if error is not None else "the watch ended as soon as it began"
        hint = "is this kind installed?" if isinstance(error, errors.NotFound) else ""
        write("watch interrupted", resource=self._resource.plural, error=said, hint=hint)

    def _recover(self) -> None:
        if self._failures >= 2:
            log.info("watch restored", resource=self._resource.plural, failures=self._failures)
        self._failures = 0
