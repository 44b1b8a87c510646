"""The verbs of the Kubernetes API, for any resource: JSON in, values out, refusals as errors.

What flows in is a `Resource`, a name, a body; what flows out is decoded straight into the type the caller asks for
(a slim Struct of `objects`, or a dict). Carrying bytes is `transport`'s work, keeping a picture of the cluster
`watch`'s and `cache`'s.

Retries. A read is repeated when the server could not be reached, was too busy (429) or failed (5xx). A write is
repeated on 429, which says that nothing was done, and, where doing it twice cannot harm, when the answer was lost:
deletes (by uid), updates and patches that name a resourceVersion, creates that name the object. Such a repeat may
meet the traces of its first attempt: a create answers AlreadyExists, a delete NotFound, an update Conflict. Callers
treat these three as news about the cluster anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import random as randomness
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeAlias

from msgspec import Raw, Struct

import trainmaster
from trainmaster.kube import errors
from trainmaster.kube.codec import Head, HeadMeta, Page, T, decode, decode_page, encode
from trainmaster.kube.transport import Request, Response, Transport
from trainmaster.objects.learning import learn
from trainmaster.objects.resource import Resource

Observer: TypeAlias = Callable[[str, str, int | str, float], None]
"""Told of every attempt: method, plural, status or "unreachable", seconds."""

MERGE_PATCH = "application/merge-patch+json"
JSON = "application/json"

_DICT: Any = dict
_BASE, _CAP = 0.1, 5.0  # seconds of backoff: the first step and the last
_LONGEST_WAIT = 30.0  # a server that wants more patience gets it from the caller, who holds a worker meanwhile
_REPEATABLE_WRITE = (502, 503, 504)
_WATCH_GRACE = 15.0  # seconds a server may take beyond timeoutSeconds to end a watch
_HEADERS = {"Accept": JSON, "User-Agent": f"trainmaster/{trainmaster.__version__}"}


@dataclass(frozen=True)  # no slots: with them, WatchEvent[Pod](...) fails in Python 3.11
class WatchEvent(Generic[T]):
    type: str
    """ADDED, MODIFIED, DELETED or BOOKMARK; an ERROR is raised."""
    object: T | None
    """None in a BOOKMARK, which only says how far the watch has come."""
    resource_version: str


class _Repeat(Enum):
    """After which failures a request may be sent again, beyond 429."""

    READ = "any"
    WRITE = "lost answers"
    NEVER = "none"


class _Line(Struct):
    type: str
    object: Raw


class _Failure(Struct):
    code: int = 500


class Client:
    """All requests of one process to one API server. Safe to share between tasks of one event loop."""

    def __init__(
        self,
        transport: Transport,
        *,
        observer: Observer | None = None,
        max_retries: int = 5,
        timeout: float = 60.0,
        random: Callable[[], float] = randomness.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        permit: Callable[[], None] = lambda: None,
    ) -> None:
        self._transport = transport
        self._observer = observer or _unobserved
        self._max_retries = max_retries
        self._timeout = timeout
        self._random = random
        self._sleep = sleep
        self._permit = permit

    def fenced(self, permit: Callable[[], None]) -> Client:
        """The same client, for one who may lose the right to write: `permit` is asked before every attempt of a write
        and raises where there may be none. A process that was frozen may wake up in the middle of its repeats."""
        return Client(
            self._transport,
            observer=self._observer,
            max_retries=self._max_retries,
            timeout=self._timeout,
            random=self._random,
            sleep=self._sleep,
            permit=permit,
        )

    async def get(self, resource: Resource, name: str, namespace: str = "", *, type: type[T] = _DICT) -> T:
        request = self._request("GET", resource.path(namespace, name))
        return decode(await self._call(request, resource.plural, _Repeat.READ), type)

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_: str = "",
        resource_version: str | None = None,
        type: type[T] = _DICT,
    ) -> Page[T]:
        """One page, which is everything unless there is a `limit`. `msgspec.Raw` as type leaves items undecoded."""
        params = _params(
            labelSelector=label_selector,
            fieldSelector=field_selector,
            limit=limit,
            resourceVersion=resource_version,
            **{"continue": continue_},
        )
        request = self._request("GET", resource.path(namespace), params)
        return decode_page(await self._call(request, resource.plural, _Repeat.READ), type)

    async def pages(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        accept: str = JSON,
        insists: bool = True,
    ) -> AsyncGenerator[tuple[HeadMeta, bytes], None]:
        """All pages of a list as they come, each with its metadata. Who does not insist gets the first failure to see:
        a first page that fails is then not asked for again. Others are, lest those before them be for nothing."""
        continue_, repeat = "", _Repeat.READ if insists else _Repeat.NEVER
        while True:
            params = _params(
                labelSelector=label_selector, fieldSelector=field_selector, limit=limit, **{"continue": continue_}
            )
            request = self._request("GET", resource.path(namespace), params, accept=accept)
            content = await self._call(request, resource.plural, repeat)
            head = decode(content, Head).metadata
            yield head, content
            continue_, repeat = head.continue_ or "", _Repeat.READ
            if not continue_:
                return

    async def create(
        self, resource: Resource, body: Mapping[str, Any] | bytes, namespace: str = "", *, type: type[T] = _DICT
    ) -> T:
        content = encode(body)
        meta = decode(content, Head).metadata
        repeat = _Repeat.WRITE if meta.name else _Repeat.NEVER  # a generated name is a new one each time
        path = resource.path(namespace or meta.namespace or "")
        return decode(await self._call(self._request("POST", path, body=content), resource.plural, repeat), type)

    async def update(
        self,
        resource: Resource,
        body: Mapping[str, Any] | bytes,
        namespace: str = "",
        subresource: str = "",
        *,
        type: type[T] = _DICT,
    ) -> T:
        content = encode(body)
        meta = decode(content, Head).metadata
        if not meta.name:
            raise ValueError(f"an update of {resource.plural} needs metadata.name")
        repeat = _Repeat.WRITE if meta.resource_version else _Repeat.NEVER
        path = resource.path(namespace or meta.namespace or "", meta.name, subresource)
        return decode(await self._call(self._request("PUT", path, body=content), resource.plural, repeat), type)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any] | bytes,
        namespace: str = "",
        subresource: str = "",
        *,
        content_type: str = MERGE_PATCH,
        type: type[T] = _DICT,
    ) -> T:
        content = encode(body)
        is_guarded = content_type == MERGE_PATCH and bool(decode(content, Head).metadata.resource_version)
        request = self._request(
            "PATCH", resource.path(namespace, name, subresource), body=content, content_type=content_type
        )
        repeat = _Repeat.WRITE if is_guarded else _Repeat.NEVER
        return decode(await self._call(request, resource.plural, repeat), type)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: str = "Background",
        grace_seconds: int | None = None,
        type: type[T] = _DICT,
    ) -> T | None:
        """None when the object is gone; the object when it only was marked, and lives on until its end is confirmed."""
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
            "gracePeriodSeconds": grace_seconds,
            "preconditions": {key: value for key, value in preconditions.items() if value} or None,
        }
        content = encode({key: value for key, value in options.items() if value is not None})
        request = self._request("DELETE", resource.path(namespace, name), body=content)
        # Without a uid, a repeat might hit the namesake that someone made meanwhile.
        body = await self._call(request, resource.plural, _Repeat.WRITE if uid or resource_version else _Repeat.NEVER)
        return decode(body, type) if _lives_on(decode(body, Head)) else None

    async def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        resource_version: str,
        timeout_seconds: int,
        label_selector: str = "",
        field_selector: str = "",
        bookmarks: bool = True,
        type: type[T] = _DICT,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """What happens after that version, until the server ends the stream. Wrap it in contextlib.aclosing."""
        async with self.stream(
            resource,
            namespace,
            resource_version=resource_version,
            timeout_seconds=timeout_seconds,
            label_selector=label_selector,
            field_selector=field_selector,
            bookmarks=bookmarks,
        ) as events:
            async for kind, raw in events:
                version = decode(raw, Head).metadata.resource_version or ""
                yield WatchEvent(kind, None if kind == "BOOKMARK" else decode(raw, type), version)

    @contextlib.asynccontextmanager
    async def stream(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        resource_version: str,
        timeout_seconds: int,
        label_selector: str = "",
        field_selector: str = "",
        bookmarks: bool = True,
        accept: str = JSON,
    ) -> AsyncIterator[AsyncIterator[tuple[str, Raw]]]:
        """`watch` before decoding: entered when the server has agreed, it gives event types and raw objects."""
        params = _params(
            watch="true",
            allowWatchBookmarks="true" if bookmarks else "",
            resourceVersion=resource_version,
            timeoutSeconds=timeout_seconds,
            labelSelector=label_selector,
            fieldSelector=field_selector,
        )
        path, idle = resource.path(namespace), timeout_seconds + _WATCH_GRACE
        headers = {**_HEADERS, "Accept": accept}
        request = Request("GET", path, params, headers, timeout=self._timeout, stream=True, idle=idle)
        response = await self._attempt(request, resource.plural)
        async with response, contextlib.aclosing(_events(response, request)) as events:
            yield events

    async def open(
        self, path: str, params: tuple[tuple[str, str], ...] = (), *, idle: float = 600.0, accept: str = "*/*"
    ) -> Response:
        """A stream of something that is not an object, such as a log. Not repeated; close it."""
        headers = {**_HEADERS, "Accept": accept}
        request = Request("GET", path, params, headers, timeout=self._timeout, stream=True, idle=idle)
        return await self._attempt(request, "")

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: tuple[tuple[str, str], ...] = (),
        body: bytes = b"",
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> bytes:
        """Anything else: discovery, /version, /openapi. Only a GET is repeated."""
        request = self._request(method, path, params, body=body, content_type=content_type, accept=accept)
        return await self._call(request, "", _Repeat.READ if method == "GET" else _Repeat.NEVER)

    async def close(self) -> None:
        await self._transport.close()

    def _request(
        self,
        method: str,
        path: str,
        params: tuple[tuple[str, str], ...] = (),
        *,
        body: bytes = b"",
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Request:
        headers = {**_HEADERS, "Accept": accept, **({"Content-Type": content_type} if body else {})}
        return Request(method, path, params, headers, body, self._timeout)

    async def _call(self, request: Request, plural: str, repeat: _Repeat) -> bytes:
        attempt = 0
        while True:
            try:
                async with await self._attempt(request, plural) as response:
                    return await response.read()
            except errors.KubeError as error:
                wait = self._wait_before_repeat(error, attempt, repeat)
                if wait is None:
                    raise
            attempt += 1
            await self._sleep(wait)

    async def _attempt(self, request: Request, plural: str) -> Response:
        """The answer if it is a yes; a no is raised."""
        if request.method != "GET":
            self._permit()
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            response = await self._transport.send(request)
        except errors.KubeError:
            self._observer(request.method, plural, "unreachable", clock() - started)
            raise
        self._observer(request.method, plural, response.status, clock() - started)
        if 200 <= response.status < 300:
            return response
        async with response:
            raise errors.of(response.status, await response.read(), response.headers, request=str(request))

    def _wait_before_repeat(self, error: errors.KubeError, attempt: int, repeat: _Repeat) -> float | None:
        """Seconds; None when it is the caller's turn. Full jitter on top of what the server asks for: all are told the
        same time to come back, and need not all come at once."""
        asked = (error.retry_after if isinstance(error, errors.ApiError) else None) or 0.0
        if attempt >= self._max_retries or asked > _LONGEST_WAIT or not _may_repeat(error, repeat):
            return None
        return asked + self._random() * min(_CAP, _BASE * 2.0**attempt)


def _unobserved(method: str, plural: str, code: int | str, seconds: float) -> None: ...


def _may_repeat(error: errors.KubeError, repeat: _Repeat) -> bool:
    if isinstance(error, errors.TooManyRequests):
        return True
    if repeat is _Repeat.NEVER:
        return False
    if isinstance(error, errors.ServerError):
        return repeat is _Repeat.READ or error.status in _REPEATABLE_WRITE
    return isinstance(error, errors.Unreachable)


async def _events(response: Response, request: Request) -> AsyncGenerator[tuple[str, Raw], None]:
    async with contextlib.aclosing(response.lines()) as lines:
        async for line in lines:
            if line and not line.isspace():
                event = decode(line, _Line)
                if event.type == "ERROR":
                    raise _error_in(event.object, request)
                yield event.type, event.object


def _lives_on(head: Head) -> bool:
    """Whether the answer to a delete shows an object that still waits for its grace period or its finalizers."""
    meta = head.metadata
    if head.kind == "Status" or meta.deletion_timestamp is None:
        return False
    return bool(meta.finalizers) or meta.deletion_grace_period_seconds != 0


def _params(**values: str | int | None) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(value)) for name, value in values.items() if value)


def _error_in(status: Raw, request: Request) -> errors.ApiError:
    """An ERROR event carries the Status that an answer would have had."""
    return errors.of(decode(status, _Failure).code, bytes(status), request=str(request))


learn(_Line, _Failure)
