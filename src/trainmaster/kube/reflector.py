"""Keeps a cache true: feeds it with everything that the list and watch (`watch`) hears, for as long as it is let run.

The picture survives everything but the truth: while the server is away, too busy or forgetful, the cache stays as
it is; a new list is compared with the cache, and only the differences are told. One object that cannot be decoded is
named in the log and left as it was.
"""

from __future__ import annotations

import asyncio
import random as randomness
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Generic, TypeVar

from trainmaster.kube import errors, logs
from trainmaster.kube.cache import Cache
from trainmaster.kube.client import Client
from trainmaster.kube.watch import Away, Back, Changed, Listed, Message, Objects, Reached, Selection, Unread, Watch
from trainmaster.objects.meta import Stored
from trainmaster.objects.resource import Resource

T = TypeVar("T", bound=Stored)

log = logs.get(__name__)


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
        selection = Selection(resource, namespace, labels=label_selector, fields=field_selector)
        self._resource = resource
        self._cache = cache
        # Without an end: what is refused today may be allowed tomorrow, and a kind may be installed later.
        self._watch = Watch(client, selection, Objects(type), page_size=page_size, sleep=sleep, random=random)
        self.synced = asyncio.Event()
        """Set after the first list, and for good."""

    async def run(self) -> None:
        """Until cancelled."""
        async with aclosing(self._watch.messages()) as messages:
            async for message in messages:
                self._take(message)

    def _take(self, message: Message[T]) -> None:
        match message:
            case Changed(kind, item):
                self._cache.apply_event(kind, item)
            case Reached(version):
                self._cache.advance(version)
            case Listed(items, version, unread):
                for error in unread.values():
                    self._skip(error)
                self._cache.replace(items, version, unread=unread)
                self.synced.set()
            case Unread(kind, head, error):
                self._skip(error)
                if kind == "DELETED":
                    self._cache.removed(head.key, head.uid or "")
                self._cache.advance(head.resource_version or "")
            case Away(why):
                self._lose(why)
            case Back(failures):
                log.info("watch restored", resource=self._resource.plural, failures=failures)

    def _skip(self, error: errors.Undecodable) -> None:
        log.warning("object cannot be read, left as it was", resource=self._resource.plural, error=str(error))

    def _lose(self, why: errors.KubeError | None) -> None:
        said = str(why) if why is not None else "the watch ended as soon as it began"
        hint = "is this kind installed?" if isinstance(why, errors.NotFound) else ""
        log.warning("watch interrupted", resource=self._resource.plural, error=said, hint=hint)
