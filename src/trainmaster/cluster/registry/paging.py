"""Lists in pages: every page of a list shows the same moment, or the client is told to begin again.

The first page keeps the whole list in memory (references, no copies); later ones are cut from it. A few dozen such
lists are kept; whoever comes back too late gets 410 with a token to go on inconsistently, as from a real API server.
"""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from trainmaster.cluster.registry.status_error import ApiError, bad_request
from trainmaster.cluster.storage.store import Entry
from trainmaster.objects.learning import learn

_KEPT = 64

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Listing:
    """One page. `remaining` is None where it is not known: the last page, or a selector was given."""

    items: Sequence[Entry]
    revision: int
    continue_: str = ""
    remaining: int | None = None


class Token(msgspec.Struct, rename={"version": "v", "revision": "rv"}):
    """Opaque to clients, and the same fields as the real one. Revision -1: any, consistency given up."""

    start: str
    revision: int
    version: str = "meta.k8s.io/v1"

    def encode(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


def read_token(text: str) -> Token:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return msgspec.json.decode(raw, type=Token)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise bad_request("invalid continue token: continue key is not valid: not a token of this server") from None


class ExpiredContinue(ApiError):
    """410 whose Status carries a token to go on with."""

    def __init__(self, token: str) -> None:
        super().__init__(410, "Expired", _TOO_OLD)
        self._token = token

    def body(self) -> dict[str, object]:
        return {**super().body(), "metadata": {"continue": self._token}}


class Pages:
    """The lists that someone is in the middle of reading."""

    def __init__(self) -> None:
        self._lists: OrderedDict[tuple[str, str, str, int], Sequence[Entry]] = OrderedDict()

    def first(self, scope: tuple[str, str, str], entries: Sequence[Entry], revision: int, limit: int) -> Listing:
        if limit <= 0 or len(entries) <= limit:
            return Listing(entries, revision)
        self._lists[(*scope, revision)] = entries
        while len(self._lists) > _KEPT:
            self._lists.popitem(last=False)
        return _page(scope, entries, revision, 0, limit)

    def further(
        self, scope: tuple[str, str, str], token: Token, now: Sequence[Entry], revision: int, limit: int
    ) -> Listing:
        """`now` is the list as it is at `revision`, for who has given up consistency."""
        if token.revision == -1:
            rest = [entry for entry in now if entry.key > token.start]
            return self.first(scope, rest, revision, limit)
        entries = self._lists.get((*scope, token.revision))
        if entries is None:
            raise ExpiredContinue(Token(token.start, -1).encode())
        begin = next((i for i, entry in enumerate(entries) if entry.key > token.start), len(entries))
        return _page(scope, entries, token.revision, begin, limit or len(entries))


def _page(scope: tuple[str, str, str], entries: Sequence[Entry], revision: int, begin: int, limit: int) -> Listing:
    items = entries[begin : begin + limit]
    remaining = len(entries) - begin - len(items)
    if not remaining:
        return Listing(items, revision)
    has_selector = bool(scope[2])
    token = Token(items[-1].key, revision).encode()
    return Listing(items, revision, token, None if has_selector else remaining)


learn(Token)
