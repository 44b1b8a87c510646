"""Kubernetes events: what `kubectl describe` shows below an object. Best effort, and never in anyone's way.

`event` only notes down; `run` writes. The same thing said again is one Event with a count, as with client-go:
repeats that come before the first write share it, later ones patch it. An object that talks too much is muted
(a bucket of 25, one more every five minutes). `repeat=False` is for what is observed anew on every pass: it is
written when first seen and then not again while it keeps being seen.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from trainmaster.kube import logs
from trainmaster.kube.errors import AlreadyExists, Forbidden, KubeError, NotFound, ServerError, Unreachable
from trainmaster.objects import timestamp
from trainmaster.objects.resource import EVENTS, Resource

log = logs.get(__name__)

K = TypeVar("K")
V = TypeVar("V")
EventType: TypeAlias = Literal["Normal", "Warning"]
Result: TypeAlias = Literal["created", "updated", "suppressed", "filtered", "dropped", "failed"]

WINDOW = 600.0
BURST, REFILL = 25.0, 1 / 300
MAX_KEYS = 4096
MAX_MESSAGE = 1024
MAX_NAME = 253

_WRITE_TIMEOUT = 10.0
_LAST_FLUSH = 3.0
_RETRY_DELAY = 1.0


class EventClient(Protocol):
    """The part of `kube.client.Client` that is needed here."""

    async def create(self, resource: Resource, body: Mapping[str, Any], namespace: str = "") -> Any: ...
    async def patch(self, resource: Resource, name: str, body: Mapping[str, Any], namespace: str = "") -> Any: ...


@dataclass(frozen=True, slots=True)
class Reference:
    """What an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str = ""

    @property
    def identity(self) -> str:
        return self.uid or f"{self.kind} {self.namespace}/{self.name}"


@dataclass(slots=True)
class _Event:
    """One Event object, written or still to be."""

    regarding: Reference
    type: EventType
    reason: str
    message: str
    name: str
    first: float
    last: float
    count: int = 1
    is_written: bool = False

    @property
    def key(self) -> _Key:
        return (self.regarding.identity, self.type, self.reason, self.message)

    @property
    def namespace(self) -> str:
        return self.regarding.namespace or "default"


_Key: TypeAlias = tuple[str, str, str, str]


class Recorder:
    def __init__(
        self,
        client: EventClient,
        *,
        component: str,
        host: str = "",
        now: Callable[[], float] = time.time,
        max_pending: int = 1000,
        on_result: Callable[[Result], None] = lambda result: None,
    ) -> None:
        self._client = client
        self._component, self._host = component, host
        self._now = now
        self._max_pending = max_pending
        self._on_result = on_result
        self._known: OrderedDict[_Key, _Event] = OrderedDict()
        self._pending: OrderedDict[_Key, _Event] = OrderedDict()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens left, and when
        self._last_stamp = 0
        self._dropped = 0  # since we last told
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()

    def event(self, regarding: Reference, type: EventType, reason: str, message: str, *, repeat: bool = True) -> None:
        """Notes an event down. Neither waits nor raises."""
        now = self._now()
        event = _Event(regarding, type, reason, _shorten(message), self._new_name(regarding.name, now), now, now)
        known = self._known.get(event.key)
        if known is not None and now - known.last <= WINDOW:
            known.last = now
            self._known.move_to_end(event.key)
            if not repeat:
                self._on_result("suppressed")
                return
            known.count += 1
            event = known
        if event.key in self._pending:
            return  # what will be written is up to date
        if not self._has_token(event, now):
            self._on_result("filtered")
            return
        _remember(self._known, event.key, event)
        self._put(event)

    async def run(self) -> None:
        """Writes until cancelled, then what is left, briefly."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self.flush()
        finally:
            try:
                # Not asyncio.timeout: before Python 3.11.3 it raises CancelledError in a task that was cancelled.
                await asyncio.wait_for(self.flush(), _LAST_FLUSH)
            except TimeoutError:
                log.warning("events not written", count=len(self._pending))

    async def flush(self) -> None:
        """Returns when everything noted down so far has been written or given up."""
        async with self._writing:
            while self._pending:
                self._tell_dropped()
                key, event = self._pending.popitem(last=False)
                try:
                    self._on_result(await self._write(event))
                except asyncio.CancelledError:
                    self._pending.setdefault(key, event)  # for the last flush
                    raise

    def _put(self, event: _Event) -> None:
        if len(self._pending) >= self._max_pending:
            key, dropped = self._pending.popitem(last=False)
            self._dropped += 1
            self._on_result("dropped")
            if not dropped.is_written:
                self._known.pop(key, None)
        self._pending[event.key] = event
        self._wake.set()

    def _tell_dropped(self) -> None:
        """Once per write at most: a line for each would drown the log just when someone reads it."""
        if self._dropped:
            log.warning("events dropped, too many are waiting", count=self._dropped)
            self._dropped = 0

    def _has_token(self, event: _Event, now: float) -> bool:
        """client-go's spam filter: each object has a bucket of its own."""
        owner = event.regarding.identity
        tokens, since = self._buckets.get(owner, (BURST, now))
        tokens = min(BURST, tokens + max(0.0, now - since) * REFILL)
        has_token = tokens >= 1
        _remember(self._buckets, owner, (tokens - has_token, now))
        return has_token

    def _new_name(self, name: str, now: float) -> str:
        """`<object>.<hex of time>`, like client-go's; no two alike, even in the same nanosecond."""
        self._last_stamp = max(int(now * 1e9), self._last_stamp + 1)
        suffix = f".{self._last_stamp:x}"
        return name[: MAX_NAME - len(suffix)].rstrip("-.") + suffix

    async def _write(self, event: _Event) -> Result:
        for is_last in (False, True):
            try:
                async with asyncio.timeout(_WRITE_TIMEOUT):
                    return await self._send(event)
            except (Unreachable, ServerError, TimeoutError) as error:
                if is_last:
                    log.debug("event given up", reason=event.reason, object=event.regarding.name, error=str(error))
                else:
                    await asyncio.sleep(_RETRY_DELAY)
            except KubeError as error:
                # A namespace that is gone or going takes no events, and nobody would read them.
                if not (isinstance(error, NotFound) or _is_terminating(error)):
                    log.warning("event refused", reason=event.reason, object=event.regarding.name, error=str(error))
                break
        if not event.is_written and event.key not in self._pending:
            self._known.pop(event.key, None)
        return "failed"

    async def _send(self, event: _Event) -> Result:
        if event.is_written:
            change = {"count": event.count, "lastTimestamp": timestamp.render(event.last)}
            try:
                await self._client.patch(EVENTS, event.name, change, event.namespace)
            except NotFound:  # events live for an hour
                event.is_written = False
                event.name = self._new_name(event.regarding.name, self._now())
            else:
                return "updated"
        with suppress(AlreadyExists):  # by our own first attempt, whose answer was lost
            await self._client.create(EVENTS, self._body(event), event.namespace)
        event.is_written = True
        return "created"

    def _body(self, event: _Event) -> dict[str, Any]:
        regarding = {
            "apiVersion": event.regarding.api_version,
            "kind": event.regarding.kind,
            "namespace": event.regarding.namespace,
            "name": event.regarding.name,
            "uid": event.regarding.uid,
            "resourceVersion": event.regarding.resource_version,
        }
        source = {"component": self._component, "host": self._host}
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": event.name, "namespace": event.namespace},
            "involvedObject": {key: value for key, value in regarding.items() if value},
            "reason": event.reason,
            "message": event.message,
            "type": event.type,
            "count": event.count,
            "firstTimestamp": timestamp.render(event.first),
            "lastTimestamp": timestamp.render(event.last),
            "source": {key: value for key, value in source.items() if value},
            "reportingComponent": self._component,
            "reportingInstance": self._host,
        }


def _shorten(message: str) -> str:
    raw = message.encode(errors="replace")
    if len(raw) <= MAX_MESSAGE:
        return raw.decode()
    return raw[: MAX_MESSAGE - 3].decode(errors="ignore") + "..."


def _is_terminating(error: KubeError) -> bool:
    return isinstance(error, Forbidden) and "being terminated" in error.message


def _remember(recent: OrderedDict[K, V], key: K, value: V) -> None:
    """A bounded memory: the entry used longest ago goes first."""
    recent[key] = value
    recent.move_to_end(key)
    if len(recent) > MAX_KEYS:
        recent.popitem(last=False)
