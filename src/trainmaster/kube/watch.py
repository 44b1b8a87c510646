"""The one list and watch: everything there is, then what happens to it, whatever the server does meanwhile.

`Watch.messages` never ends by itself. It lists in pages and watches from there. A watch that ends is resumed from
where it was; where history has a gap (410), everything is listed again and given as one message, so that what vanished
in the gap is noticed. After a failure, and after a watch that ended as soon as it began, there is a pause, longer each
time and never the same for two clients. That the server is away is said once, and once that it is back.

What becomes of the messages is others' business: `reflector` keeps a cache with them, the command line follows jobs.
"""

from __future__ import annotations

import asyncio
import random as randomness
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeAlias, TypeVar

from msgspec import Raw

from trainmaster.kube import codec, errors, logs
from trainmaster.kube.cache import is_older
from trainmaster.kube.client import JSON, Client
from trainmaster.kube.codec import HeadMeta
from trainmaster.objects.meta import Stored
from trainmaster.objects.resource import Resource

T = TypeVar("T")
S = TypeVar("S", bound=Stored)

log = logs.get(__name__)

PAGE_SIZE = 500
"""Objects per page of a list, as kubectl asks for."""

_BASE, _CAP = 0.5, 30.0  # seconds of backoff: the first step and the last
_BUSY_CAP = 4.0  # the last step where short watches do bring news: waiting longer would only make them old
_HEALTHY = 5.0  # seconds a watch must last to be called one
_PATIENCE = 3  # failures in a row until we list anew
_LONGEST_WAIT = 300.0  # seconds that a server may ask for
_WATCH_SECONDS = (240, 480)  # at random between them, lest all watches of all clients end at once


@dataclass(frozen=True, slots=True)
class Selection:
    """Objects of one kind, by name or by selectors."""

    resource: Resource
    namespace: str = ""
    """Empty: all namespaces."""
    name: str = ""
    labels: str = ""
    fields: str = ""

    @property
    def field_selector(self) -> str:
        return ",".join(term for term in (f"metadata.name={self.name}" if self.name else "", self.fields) if term)


@dataclass(frozen=True)  # no slots: with them, generic dataclasses fail in Python 3.11
class Listed(Generic[T]):
    """Everything there is at that version. What was there before and is not in it has gone."""

    items: Sequence[T]
    resource_version: str
    unread: Mapping[str, errors.Undecodable] = field(default_factory=dict)
    """By key, objects that are there and could not be decoded."""


@dataclass(frozen=True)
class Changed(Generic[T]):
    kind: str
    """ADDED, MODIFIED or DELETED."""
    item: T


@dataclass(frozen=True, slots=True)
class Unread:
    """A change of an object that could not be decoded."""

    kind: str
    head: HeadMeta
    error: errors.Undecodable


@dataclass(frozen=True, slots=True)
class Reached:
    """Nothing else has happened up to that version."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class Away:
    """Two attempts in a row have failed."""

    why: errors.KubeError | None
    """None: the server agrees to every watch and ends it at once."""


@dataclass(frozen=True, slots=True)
class Back:
    """The end of what `Away` began."""

    failures: int


Message: TypeAlias = Listed[T] | Changed[T] | Unread | Reached | Away | Back


class Form(Protocol[T]):
    """What answers are asked for, and how they are read."""

    accept: str
    has_bookmarks: bool

    def page(self, content: bytes) -> tuple[Sequence[T], Mapping[str, errors.Undecodable]]: ...
    def item(self, content: Raw) -> T: ...
    def version(self, item: T) -> str: ...


class Objects(Generic[S]):
    """Objects of a type that has their metadata."""

    accept = JSON
    has_bookmarks = True

    def __init__(self, type: type[S]) -> None:
        self._type = type

    def page(self, content: bytes) -> tuple[Sequence[S], Mapping[str, errors.Undecodable]]:
        return codec.decode_each(codec.decode_page(content, Raw).items, self._type)

    def item(self, content: Raw) -> S:
        return codec.decode(content, self._type)

    def version(self, item: S) -> str:
        return item.metadata.resource_version


def pages(
    client: Client, selection: Selection, accept: str = JSON, size: int = PAGE_SIZE, *, insists: bool = True
) -> AsyncGenerator[tuple[HeadMeta, bytes], None]:
    """A list, page by page: the metadata of each, and all of it. Wrap it in contextlib.aclosing."""
    return client.pages(
        selection.resource,
        selection.namespace,
        label_selector=selection.labels,
        field_selector=selection.field_selector,
        limit=size,
        accept=accept,
        insists=insists,
    )


def never(error: errors.KubeError, failures: int) -> bool:
    """For those who wait for ever."""
    return False


class Watch(Generic[T]):
    def __init__(
        self,
        client: Client,
        selection: Selection,
        form: Form[T],
        *,
        since: str = "",
        is_final: Callable[[errors.KubeError, int], bool] = never,
        page_size: int = PAGE_SIZE,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        """`since` is the version of a list that the caller has: it is not made again. `is_final` says of an error, and
        how many failures there were in a row, whether to raise it instead of trying again."""
        self._client, self._selection, self._form = client, selection, form
        self._is_final, self._page_size, self._sleep, self._random = is_final, page_size, sleep, random
        self._version = since
        self._must_list = not since
        self._failures = 0  # rounds in a row that brought nothing
        self._short = 0  # rounds in a row that did not last
        self._away: Away | None = None
        self._opened_at: float | None = None  # of the current round: when the server agreed to its watch
        self._heard = False  # of the current round: that its watch said something

    async def messages(self) -> AsyncGenerator[Message[T], None]:
        """Wrap it in contextlib.aclosing."""
        while True:
            self._opened_at, self._heard = None, False
            error: errors.KubeError | None = None
            try:
                if self._must_list:
                    yield await self._list()
                async with self._opened() as events:
                    if self._away is not None and self._away.why is not None:
                        yield self._back()
                    async for kind, raw in events:
                        self._heard = True
                        yield self._message(kind, raw)
            except errors.KubeError as raised:
                error = raised
            for message in self._judged(error):
                yield message
            # A watch that ended at once is never followed by another at once, whatever ended it.
            if self._short or not (error is None or isinstance(error, errors.Gone)):
                await self._sleep(self._pause(error))

    async def _list(self) -> Listed[T]:
        """All pages of one snapshot; one that expires on the way (410) is begun anew."""
        items: list[T] = []
        unread: dict[str, errors.Undecodable] = {}
        version = ""
        async with aclosing(self._pages()) as contents:
            async for head, content in contents:
                read, failed = self._form.page(content)
                items += read
                unread |= failed
                version = version or head.resource_version or ""
        self._version, self._must_list = version, False
        return Listed(items, version, unread)

    def _pages(self) -> AsyncGenerator[tuple[HeadMeta, bytes], None]:
        return pages(self._client, self._selection, self._form.accept, self._page_size, insists=False)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[AsyncIterator[tuple[str, Raw]]]:
        shortest, longest = _WATCH_SECONDS
        async with self._client.stream(
            self._selection.resource,
            self._selection.namespace,
            resource_version=self._version,
            timeout_seconds=int(shortest + (longest - shortest) * self._random()),
            label_selector=self._selection.labels,
            field_selector=self._selection.field_selector,
            bookmarks=self._form.has_bookmarks,
            accept=self._form.accept,
        ) as events:
            self._opened_at = asyncio.get_running_loop().time()
            yield events

    def _message(self, kind: str, raw: Raw) -> Message[T]:
        if kind == "BOOKMARK":
            version = codec.head_of(raw).metadata.resource_version or ""
            self._advance(version)
            return Reached(version)
        try:
            item = self._form.item(raw)
        except errors.Undecodable as error:
            head = codec.head_of(raw).metadata
            self._advance(head.resource_version or "")
            return Unread(kind, head, error)
        self._advance(self._form.version(item))
        return Changed(kind, item)

    def _advance(self, version: str) -> None:
        if version and not is_older(version, self._version):  # some servers tell of a deletion under an old version
            self._version = version

    def _judged(self, error: errors.KubeError | None) -> Iterator[Message[T]]:
        """What a round that has ended says about the server."""
        has_lasted = self._opened_at is not None and asyncio.get_running_loop().time() - self._opened_at >= _HEALTHY
        self._short = 0 if has_lasted else self._short + 1
        self._failures = 0 if has_lasted or self._heard else self._failures + 1
        if error is not None and self._is_final(error, self._failures):
            raise error
        if isinstance(error, errors.Gone) or (self._failures and self._failures % _PATIENCE == 0):
            # Where watching fails, our place in history itself may be wrong: a restored etcd knows no such.
            self._must_list = True
        if not self._failures:
            if self._away is not None:
                yield self._back()
            return
        log.debug("watch failed", resource=self._selection.resource.plural, error=str(error), failures=self._failures)
        is_refused = error is not None and self._opened_at is None
        is_second = self._failures == 2 and not isinstance(error, errors.Gone)
        if self._away is None and (is_second or (self._failures > 2 and is_refused)):
            self._away = Away(error)
            yield self._away

    def _back(self) -> Back:
        self._away = None
        return Back(self._failures)

    def _pause(self, error: errors.KubeError | None) -> float:
        """Seconds, not the same for all who lost the same server."""
        cap = _BUSY_CAP if self._heard else _CAP
        pause = min(cap, _BASE * 2.0 ** min(10, max(0, self._short - 1))) * (0.5 + 0.5 * self._random())
        asked = error.retry_after if isinstance(error, errors.ApiError) else None
        return max(pause, min(_LONGEST_WAIT, asked or 0.0))
