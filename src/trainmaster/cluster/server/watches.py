"""Watches over HTTP: one JSON line per change, for as long as the client listens.

A change's JSON was encoded once, when it was stored; a line is that JSON with a few bytes around it, and all watchers
share the line. Bookmarks tell a quiet watcher how far it is, so that after a break it need not list again.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.registry import Registry
from trainmaster.cluster.registry.status_error import ApiError, Cause, expired, forbidden_field, invalid
from trainmaster.cluster.registry.watching import WatchEvent, WatchStream
from trainmaster.cluster.server import options, table
from trainmaster.cluster.server.negotiation import Form
from trainmaster.cluster.server.routes import Target
from trainmaster.cluster.storage.store import Entry
from trainmaster.objects.resource import Resource

BOOKMARK_SECONDS = 30.0
_DEFAULT_SECONDS = 1800.0
_LINES = 512
_GONE = 410
_HEADERS = {"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
_LIST_OPTIONS = Resource("meta.k8s.io", "v1", "listoptions", "ListOptions")


@dataclass(frozen=True, slots=True)
class Wish:
    """What a client wants to watch, and how."""

    kind: Kind
    namespace: str
    labels: str
    fields: str
    after: int | None
    initial: bool
    ends_initial: bool
    bookmarks: bool
    seconds: float
    form: Form
    include: str


def wish_of(request: web.BaseRequest, kind: Kind, target: Target, form: Form) -> Wish:
    query = request.query
    after = options.revision(query)
    initial = options.flag(query, "sendInitialEvents") if "sendInitialEvents" in query else None
    if causes := _problems(query.get("resourceVersionMatch", ""), initial):
        raise invalid(_LIST_OPTIONS, "", causes)
    fields = query.get("fieldSelector", "")
    if target.name:
        fields = ",".join(filter(None, (fields, f"metadata.name={target.name}")))
    seconds = options.integer(query, "timeoutSeconds")
    return Wish(
        kind=kind,
        namespace=target.namespace,
        labels=query.get("labelSelector", ""),
        fields=fields,
        after=after,
        initial=not after if initial is None else initial,
        ends_initial=bool(initial),
        bookmarks=options.flag(query, "allowWatchBookmarks"),
        seconds=float(seconds) if seconds > 0 else _DEFAULT_SECONDS * (1 + random.random()),
        form=form,
        include=query.get("includeObject", "Metadata"),
    )


def _problems(match: str, initial: bool | None) -> list[Cause]:
    if initial is None and match:
        return [forbidden_field("resourceVersionMatch", "resourceVersionMatch is forbidden for watch")]
    if initial is not None and match != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        return [forbidden_field("resourceVersionMatch", why)]
    return []


class Lines:
    """Lines by what they say. Keyed by the identity of the stored bytes, which the value keeps alive."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, int], tuple[bytes, bytes]] = {}

    def of(self, kind: str, raw: bytes) -> bytes:
        key = (kind, id(raw))
        made = self._made.get(key)
        if made is None:
            if len(self._made) >= _LINES:
                self._made.clear()
            made = self._made[key] = (raw, line(kind, raw))
        return made[1]


def line(kind: str, raw: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), raw)


class Watches:
    """Serves every watch of one server."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._lines = Lines()

    async def serve(self, request: web.BaseRequest, wish: Wish) -> web.StreamResponse:
        """Streams until the client leaves, the time is up or the history has been left behind."""
        first, events = self._opened(wish)
        response = web.StreamResponse(headers=_HEADERS)
        response.enable_chunked_encoding()
        try:
            await response.prepare(request)
            if first:
                await response.write(first)
            if events is not None:
                await self._stream(response, wish, events)
            await response.write_eof()
        except ConnectionError:
            pass  # the client has left: nobody is there to be told
        finally:
            if events is not None:
                events.close()
        return response

    def _opened(self, wish: Wish) -> tuple[bytes, WatchStream | None]:
        """What is sent at once, and what follows it: nothing when the revision asked for is not to be had."""
        after, current = wish.after or 0, self._registry.store.revision
        if after > current:
            return error_line(expired(f"too large resource version: {after}, this cluster is at {current}")), None
        first = b""
        if wish.initial:
            first, after = self._initial(wish)
        try:
            events = self._registry.watch(
                wish.kind, wish.namespace, after=after or current, labels=wish.labels, fields=wish.fields
            )
        except ApiError as error:
            if error.status != _GONE:
                raise
            return error_line(error), None
        return first, events

    def _initial(self, wish: Wish) -> tuple[bytes, int]:
        """All there is now as ADDED, as a client gets that names no revision."""
        listing = self._registry.list(wish.kind, wish.namespace, labels=wish.labels, fields=wish.fields)
        parts = [self._rendered(wish, "ADDED", entry) for entry in listing.items]
        if wish.ends_initial and wish.bookmarks:
            parts.append(self._bookmark(wish, listing.revision, ends_initial=True))
        return b"".join(parts), listing.revision

    async def _stream(self, response: web.StreamResponse, wish: Wish, events: WatchStream) -> None:
        """Changes as they come, and a bookmark at every tick; one timer per tick, none per change."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wish.seconds
        try:
            while loop.time() < deadline:
                tick = min(deadline, loop.time() + BOOKMARK_SECONDS)
                if not await self._tell_until(tick, response, wish, events):
                    return
                if wish.bookmarks:
                    await response.write(await self._caught_up(wish, events))
        except ApiError as error:
            await response.write(error_line(error))

    async def _tell_until(self, moment: float, response: web.StreamResponse, wish: Wish, events: WatchStream) -> bool:
        """False when the watch has ended. Time may be up in the middle of a write: its bytes are on their way."""
        try:
            async with asyncio.timeout_at(moment):
                while found := await events.batch():
                    await response.write(self._joined(wish, found))
        except TimeoutError:
            return True
        return False

    async def _caught_up(self, wish: Wish, events: WatchStream) -> bytes:
        """A bookmark of now, after whatever came in while time was up."""
        revision = self._registry.store.revision
        late: list[WatchEvent] = []
        try:
            async with asyncio.timeout(0):
                late = await events.batch()
        except TimeoutError:
            pass  # nothing had come
        return self._joined(wish, late) + self._bookmark(wish, revision)

    def _joined(self, wish: Wish, events: list[WatchEvent]) -> bytes:
        if len(events) == 1:
            return self._rendered(wish, events[0].type, events[0].entry)
        return b"".join([self._rendered(wish, event.type, event.entry) for event in events])

    def _rendered(self, wish: Wish, kind: str, entry: Entry) -> bytes:
        if not wish.form.kind:
            return self._lines.of(kind, entry.raw)
        if wish.form.kind == "Table":
            return line(kind, msgspec.json.encode(self._table(wish, [entry.value], entry.revision)))
        version = f"meta.k8s.io/{wish.form.version}"
        return line(kind, msgspec.json.encode(table.partial(entry.value, api_version=version)))

    def _table(self, wish: Wish, items: list[dict[str, Any]], revision: int) -> dict[str, Any]:
        metadata = {"resourceVersion": str(revision)}
        now, version = self._registry.now(), wish.form.version
        return table.table(wish.kind, items, now=now, metadata=metadata, version=version, include=wish.include)

    def _bookmark(self, wish: Wish, revision: int, *, ends_initial: bool = False) -> bytes:
        if wish.form.kind == "Table":
            return line("BOOKMARK", msgspec.json.encode(self._table(wish, [], revision)))
        metadata: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
        if ends_initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        mark = {"kind": wish.kind.kind, "apiVersion": wish.kind.api_version, "metadata": metadata}
        if wish.form.kind:
            mark = table.partial(mark, api_version=f"meta.k8s.io/{wish.form.version}")
        return line("BOOKMARK", msgspec.json.encode(mark))


def error_line(error: ApiError) -> bytes:
    return line("ERROR", msgspec.json.encode(error.body()))
