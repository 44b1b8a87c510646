"""The scheduler's Events: written behind its back, so that nobody waits for them.

The same thing about the same object is one Event with a count and the latest message.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.objects import timestamp
from trainmaster.objects.meta import Json, encode

_log = logging.getLogger(__name__)

MAX_PENDING = 5000
MAX_KNOWN = 4096
_BATCH = 64
_MAX_NAME = 253


class EventApi(Protocol):
    """The part of the registry that is needed here."""

    async def create(self, kind: Kind, namespace: str, obj: dict[str, Any]) -> Any: ...
    async def patch(self, kind: Kind, namespace: str, name: str, patch: bytes, content_type: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class Note:
    """What to say about an object; `component` is the scheduler that the pod asked for."""

    regarding: Json
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    component: str

    @property
    def key(self) -> tuple[str, str]:
        return (str(self.regarding.get("uid")), self.reason)


@dataclass(slots=True)
class _Written:
    name: str
    count: int


class Events:
    def __init__(self, api: EventApi, kind: Kind, now: Callable[[], float]) -> None:
        self._api, self._kind, self._now = api, kind, now
        self._pending: OrderedDict[tuple[str, str], Note] = OrderedDict()
        self._known: OrderedDict[tuple[str, str], _Written] = OrderedDict()
        self._wake = asyncio.Event()
        self._stamp = 0

    def note(self, note: Note) -> None:
        """Neither waits nor raises; of too many the oldest are dropped."""
        self._pending[note.key] = note
        if len(self._pending) > MAX_PENDING:
            self._pending.popitem(last=False)
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                batch = [self._pending.popitem(last=False)[1] for _ in range(min(_BATCH, len(self._pending)))]
                async with asyncio.TaskGroup() as group:
                    for note in batch:
                        group.create_task(self._write(note), name=f"event-{note.reason}")

    async def _write(self, note: Note) -> None:
        try:
            if not await self._repeat(note):
                await self._create(note)
        except ApiError as error:
            # Its namespace is gone or going, mostly: nobody would read it.
            _log.debug("event refused", extra={"fields": {"reason": note.reason, "error": error.message}})

    async def _repeat(self, note: Note) -> bool:
        written = self._known.get(note.key)
        if written is None:
            return False
        written.count += 1
        moment = timestamp.render(self._now())
        change = encode({"count": written.count, "lastTimestamp": moment, "message": note.message})
        try:
            await self._api.patch(self._kind, _namespace(note), written.name, change, "application/merge-patch+json")
        except ApiError as error:
            if error.status != 404:
                raise
            del self._known[note.key]
            return False
        return True

    async def _create(self, note: Note) -> None:
        body = self._body(note)
        self._known[note.key] = _Written(body["metadata"]["name"], 1)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        await self._api.create(self._kind, _namespace(note), body)

    def _body(self, note: Note) -> dict[str, Any]:
        now = self._now()
        self._stamp = max(int(now * 1e9), self._stamp + 1)
        suffix = f".{self._stamp:x}"
        name = str(note.regarding.get("name"))[: _MAX_NAME - len(suffix)].rstrip("-.") + suffix
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": _namespace(note)},
            "involvedObject": dict(note.regarding),
            "reason": note.reason,
            "message": note.message,
            "type": note.type,
            "count": 1,
            "firstTimestamp": timestamp.render(now),
            "lastTimestamp": timestamp.render(now),
            "source": {"component": note.component},
            "reportingComponent": note.component,
            "reportingInstance": "",
        }


def _namespace(note: Note) -> str:
    return str(note.regarding.get("namespace") or "default")
