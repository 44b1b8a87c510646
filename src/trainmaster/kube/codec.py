"""Bytes of the API server to values, and back.

Every body that `client` sends or receives passes here. Objects are decoded into the type the caller names; whatever
does not fit is reported with the object's name, for one odd object must not hide which one it is. `Raw` parts are
copied out of the buffer they came in, so that keeping one object does not keep a page of five hundred.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, cast

import msgspec
from msgspec import Raw, Struct

from trainmaster.kube import errors
from trainmaster.objects.learning import learn

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # Who names no type gets a dict; only the type checker has to know.
    T = TypeVar("T", default=dict[str, Any])
else:
    from typing import TypeVar

    T = TypeVar("T")


class HeadMeta(Struct, frozen=True, rename="camel"):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: tuple[str, ...] | None = None
    continue_: str | None = msgspec.field(default=None, name="continue")
    remaining_item_count: int | None = None

    @property
    def key(self) -> str:
        """`namespace/name`, as `objects.meta` has it."""
        return "/".join(part for part in (self.namespace, self.name) if part)


class Head(Struct, frozen=True):
    """As much of any object as the machinery itself wants to know; what is null is as good as absent."""

    kind: str | None = None
    metadata: HeadMeta = HeadMeta()


@dataclass(frozen=True)  # no slots: with them, Page[Pod](...) fails in Python 3.11
class Page(Generic[T]):
    items: tuple[T, ...]
    resource_version: str = ""
    continue_: str = ""
    """Not empty when there is more: the token to ask for it with."""
    remaining: int | None = None


class _List(Struct):
    metadata: HeadMeta = HeadMeta()
    items: list[Raw] | None = None


def encode(body: Mapping[str, Any] | bytes) -> bytes:
    return body if isinstance(body, bytes) else msgspec.json.encode(body)


def decode(content: bytes | Raw, type: type[T]) -> T:
    """The object as that type; errors.Undecodable names the object and the field. `Raw` stays in its buffer."""
    target: Any = type  # the type checker does not believe that types can be hashed
    try:
        value = _decoder(target).decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.Undecodable(f"{_name_of(content)} is not a {type.__name__}: {error}") from None
    for field in _raw_fields(target):
        # The struct is new and nobody else's yet, so its being frozen binds no one.
        msgspec.structs.force_setattr(value, field, getattr(value, field).copy())
    return cast(T, value)


def decode_each(items: Iterable[Raw], type: type[T]) -> tuple[list[T], dict[str, errors.Undecodable]]:
    """Those that can be decoded; of the others, by key, why not."""
    values: list[T] = []
    failures: dict[str, errors.Undecodable] = {}
    with _collector_paused():
        for item in items:
            try:
                values.append(decode(item, type))
            except errors.Undecodable as error:
                failures[head_of(item).metadata.key] = error
    return values, failures


def decode_page(content: bytes, type: type[T]) -> Page[T]:
    page = decode(content, _List)
    values, failures = decode_each(page.items or (), type)
    for failure in failures.values():
        raise failure
    meta = page.metadata
    return Page(tuple(values), meta.resource_version or "", meta.continue_ or "", meta.remaining_item_count)


def head_of(content: bytes | Raw) -> Head:
    """Of an object that may be broken: what cannot be read is absent."""
    try:
        return cast(Head, _decoder(Head).decode(content))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Head()


def _name_of(content: bytes | Raw) -> str:
    head = head_of(content)
    return f"{head.kind or 'object'} {head.metadata.key}".strip() if head != Head() else "the answer"


@cache
def _decoder(type: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type)


@cache
def _raw_fields(type: Any) -> tuple[str, ...]:
    """Only of the object itself: `spec` and `status` are where the weight is."""
    if not (inspect.isclass(type) and issubclass(type, Struct)):
        return ()
    return tuple(field.name for field in msgspec.structs.fields(type) if field.type is Raw)


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Decoding makes objects by the thousand and no garbage: each collection on the way would be for nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


learn(Head, _List)
