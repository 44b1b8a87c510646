"""The list and watch of `kube.watch`, as verbs use it: with words for the user while the server is away, and an end.

A refusal ends it: credentials that have expired, a permission that is missing. So does, after a minute, what may be no
more than a server that has just started: a kind that is not served, credentials that cannot be had.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from trainmaster.kube import codec, errors
from trainmaster.kube.client import JSON, Client
from trainmaster.kube.watch import PAGE_SIZE, Away, Back, Changed, Form, Listed, Selection, Unread, Watch, pages

T = TypeVar("T")

TABLE = f"application/json;as=Table;v=v1;g=meta.k8s.io,{JSON}"

A_MINUTE = 9
"""Failures in a row after which about a minute has passed."""


class Outage:
    """Tells the user once that the server is away, and once that it is back, however many watches that cuts."""

    def __init__(self, say: Callable[[str], None] = lambda text: print(f"warning: {text}", file=sys.stderr)) -> None:
        self.say = say
        self._away: set[int] = set()
        self._is_told = False

    def begin(self, watch: object, why: errors.KubeError | None) -> None:
        self._away.add(id(watch))
        if not self._is_told:
            said = str(why) if why is not None else "it ends every watch as soon as it begins"
            self.say(f"the API server is not available: {said}. Still trying.")
            self._is_told = True

    def end(self, watch: object) -> None:
        """The others will hear from it within the same half minute."""
        if id(watch) in self._away and self._is_told:
            self.say("the API server is available again")
            self._is_told = False
        self._away.discard(id(watch))

    @property
    def is_on(self) -> bool:
        return bool(self._away)

    def forget(self, watch: object) -> None:
        """It has ended; what it last knew of the server says nothing any more."""
        self._away.discard(id(watch))
        self._is_told = self._is_told and bool(self._away)


class Documents:
    """Objects as they are in JSON, whatever they are."""

    accept = JSON
    has_bookmarks = True

    def page(self, content: bytes) -> tuple[Sequence[dict[str, Any]], Mapping[str, errors.Undecodable]]:
        return codec.decode_page(content, dict).items, {}

    def item(self, content: Raw) -> dict[str, Any]:
        return codec.decode(content, dict)

    def version(self, item: dict[str, Any]) -> str:
        return version_of(item)


class Tables(Documents):
    """Tables of any number of rows, as the server prints them; objects and lists where it makes no Tables."""

    accept = TABLE
    has_bookmarks = False
    """A bookmark has no row."""

    def page(self, content: bytes) -> tuple[Sequence[dict[str, Any]], Mapping[str, errors.Undecodable]]:
        return (codec.decode(content, dict),), {}


DOCUMENTS, TABLES = Documents(), Tables()


async def listed(client: Client, selection: Selection, accept: str = JSON) -> dict[str, Any]:
    """A List, or a Table where that is asked for and the server makes them; of all pages, one."""
    try:
        return await _merged(client, selection, accept, PAGE_SIZE)
    except errors.Gone:  # between two pages
        return await _merged(client, selection, accept, 0)


async def _merged(client: Client, selection: Selection, accept: str, size: int) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    async with aclosing(pages(client, selection, accept, size)) as contents:
        async for _, content in contents:
            page: dict[str, Any] = msgspec.json.decode(content)
            whole = whole or page
            if whole is not page:
                for part in ("items", "rows"):
                    whole[part] = [*(whole.get(part) or ()), *(page.get(part) or ())]
    return whole


async def watched(
    client: Client,
    selection: Selection,
    outage: Outage,
    form: Form[T],
    *,
    since: str = "",
) -> AsyncGenerator[Listed[T] | Changed[T], None]:
    """Everything that is there, then its changes; after a gap in history, everything again. Wrap it in aclosing."""
    watch = Watch(client, selection, form, since=since, is_final=is_final)
    try:
        async with aclosing(watch.messages()) as messages:
            async for message in messages:
                match message:
                    case Listed() | Changed():
                        yield message
                    case Away(why):
                        outage.begin(watch, why)
                    case Back():
                        outage.end(watch)
                    case Unread(_, _, error):
                        outage.say(str(error))
    except errors.ApiError:  # which is an answer
        outage.end(watch)
        raise
    finally:
        outage.forget(watch)


def is_final(error: errors.KubeError, failures: int) -> bool:
    """Whether to give up. What the server says for a moment only is waited out, and so is a server that is away."""
    match error:
        case errors.Gone() | errors.TooManyRequests() | errors.ServerError():
            return False
        case errors.NotFound() | errors.ConfigError():
            return failures >= A_MINUTE
        case _:
            return isinstance(error, errors.ApiError)


def version_of(body: Mapping[str, Any]) -> str:
    """Of an object or a list, or of the one row of a Table."""
    metadata = body.get("metadata") or {}
    if version := metadata.get("resourceVersion"):
        return str(version)
    for row in body.get("rows") or ():
        return str(((row.get("object") or {}).get("metadata") or {}).get("resourceVersion", ""))
    return ""
