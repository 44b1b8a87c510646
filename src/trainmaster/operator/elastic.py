"""Values that a job's own processes watch in an etcd, kept as the job has them: how many workers it is to have now.

A value is changed only where its key stands already: the processes make it when they start, and before that there is
nobody to tell. Nothing says when they have, so it is asked for again. Spoken is etcd's JSON gateway, over the same
transport as everything else.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from trainmaster.api.framework import Shared
from trainmaster.kube import logs
from trainmaster.kube.config import Config
from trainmaster.kube.errors import KubeError, Unreachable
from trainmaster.kube.transport import HttpTransport, Request, Transport

log = logs.get(__name__)

TIMEOUT = 3.0
"""Seconds for one request."""


class EtcdError(KubeError):
    """It answered, but not with what was asked for."""


def url_of(endpoint: str) -> str:
    """Endpoints are given as `host:port`, as etcd's own clients take them, or as URLs."""
    return endpoint if "://" in endpoint else f"http://{endpoint}"


def over_http(endpoint: str) -> Transport:
    return HttpTransport(Config(server=url_of(endpoint)))


@dataclass(frozen=True, slots=True)
class Followed:
    changed: tuple[Shared, ...] = ()
    missing: tuple[Shared, ...] = ()
    """Whose keys nobody has made yet."""


class Etcd:
    """A member that does not answer as it should is passed over for the next one, which is then the first to be asked.
    `run` closes what was opened, when it is ended."""

    def __init__(self, endpoints: Sequence[str], connect: Callable[[str], Transport] = over_http) -> None:
        self._members = [connect(endpoint) for endpoint in endpoints]
        self._first = 0

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for member in self._members:
                await member.close()

    async def follow(self, wanted: Iterable[Shared]) -> Followed:
        """Brings the values up to date."""
        changed, missing = [], []
        for value in wanted:
            held = await self._get(value.key)
            if held is None:
                missing.append(value)
            elif held != value.value:
                await self._ask("put", {"key": _encoded(value.key), "value": _encoded(value.value)})
                changed.append(value)
        return Followed(tuple(changed), tuple(missing))

    async def _get(self, key: str) -> str | None:
        found = (await self._ask("range", {"key": _encoded(key)})).get("kvs") or []
        return base64.b64decode(found[0].get("value", "")).decode(errors="replace") if len(found) == 1 else None

    async def _ask(self, what: str, question: dict[str, str]) -> dict[str, Any]:
        request = Request(
            "POST",
            f"/v3/kv/{what}",
            headers={"Content-Type": "application/json"},
            body=msgspec.json.encode(question),
            timeout=TIMEOUT,
        )
        *others, last = range(self._first, self._first + len(self._members))
        for turn in others:
            try:
                return await self._answer(turn, request)
            except (Unreachable, EtcdError) as error:
                log.warning("etcd member does not answer", error=str(error))
        return await self._answer(last, request)

    async def _answer(self, turn: int, request: Request) -> dict[str, Any]:
        number = turn % len(self._members)
        answer = await _answer(self._members[number], request)
        self._first = number
        return answer


async def _answer(member: Transport, request: Request) -> dict[str, Any]:
    async with await member.send(request) as response:
        body = await response.read()
    if response.status != 200:
        raise EtcdError(f"{request}: {response.status} {body[:200].decode(errors='replace')}; check --etcd-server")
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise EtcdError(f"{request}: the answer is not etcd's: {error}; check --etcd-server") from error


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
