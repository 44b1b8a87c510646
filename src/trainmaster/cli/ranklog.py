"""The log of one container, followed through breaks of its stream: no line is given twice, and none is left out.

An API server that restarts cuts all streams of logs, and many a proxy cuts those that are quiet. Lines are asked for
with their times, so that the stream goes on after the last one that was given.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from trainmaster.kube.client import Client
from trainmaster.kube.errors import KubeError, ServerError, TooManyRequests, Unreachable
from trainmaster.objects.pod import Pod
from trainmaster.objects.resource import PODS

FOLLOW, PREVIOUS = ("follow", "true"), ("previous", "true")
TIMED = ("timestamps", "true")

PATIENCE = 5
"""Failures in a row after which a log is given up, unless it is known that the server is away."""

_BASE, _CAP = 0.5, 30.0  # seconds between two attempts: the first and the last
_BEGINNINGS = ("tailLines", "sinceSeconds")
"""Parameters that say where a log is to begin. Once it has begun, the last line says it."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One life of a container: it was started again so many times before."""

    pod: Pod
    container: str
    restarts: int


class RankLog:
    def __init__(
        self, client: Client, attempt: Attempt, log: tuple[tuple[str, str], ...], is_away: Callable[[], bool]
    ) -> None:
        """`log` are parameters such as `tailLines`."""
        self._client, self._attempt, self._log, self._is_away = client, attempt, log, is_away
        self._given = 0
        self._stamp = ""  # of the last line that was given
        self._same = 0  # how many in a row were given that bear it
        self._to_skip = ("", 0)  # of the stream under way: what was given of it before

    async def lines(self) -> AsyncGenerator[str, None]:
        """Until the container has ended. Wrap it in contextlib.aclosing."""
        failures = 0
        while True:
            given = self._given
            try:
                which = await self._going_on() if failures else FOLLOW
                async with aclosing(self._stream(which)) as lines:
                    async for line in lines:
                        yield line
            except (Unreachable, ServerError, TooManyRequests):
                failures = 1 if self._given > given else failures + 1
                if not self._can_go_on or (failures > PATIENCE and not self._is_away()):
                    raise
            else:
                return
            await asyncio.sleep(min(_CAP, _BASE * 2.0 ** min(10, failures - 1)))

    @property
    def _can_go_on(self) -> bool:
        """Some servers give no times: then nobody knows where a log that has begun is to go on."""
        return bool(self._stamp) or not self._given

    async def _going_on(self) -> tuple[str, str]:
        """Where the rest is to be had: the container may have been started again meanwhile."""
        meta, attempt = self._attempt.pod.metadata, self._attempt
        pod = await self._client.get(PODS, meta.name, meta.namespace, type=Pod)
        statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
        restarts = next((one.restart_count for one in statuses if one.name == attempt.container), attempt.restarts)
        if pod.metadata.uid != meta.uid or restarts > attempt.restarts + 1:
            raise KubeError("the container was started again before the rest could be read")
        return FOLLOW if restarts == attempt.restarts else PREVIOUS

    async def _stream(self, which: tuple[str, str]) -> AsyncGenerator[str, None]:
        meta = self._attempt.pod.metadata
        self._to_skip = (self._stamp, self._same)
        params = (("container", self._attempt.container), which, *self._beginning())
        response = await self._client.open(PODS.path(meta.namespace, meta.name, "log"), params)
        async with response, aclosing(response.lines()) as lines:
            async for raw in lines:
                line = self._if_new(raw.decode(errors="replace").rstrip("\r"))
                if line is not None:
                    yield line

    def _beginning(self) -> tuple[tuple[str, str], ...]:
        if not self._stamp:
            return (*(one for one in self._log if one != TIMED), TIMED)
        kept = (one for one in self._log if one != TIMED and one[0] not in _BEGINNINGS)
        return (*kept, TIMED, ("sinceTime", self._stamp))

    def _if_new(self, line: str) -> str | None:
        """As it is to be shown; None for one that was given before. Times have as many digits as one another."""
        stamp, _, text = line.partition(" ")
        if not _is_stamp(stamp):
            self._given += 1
            return line
        last, count = self._to_skip
        if stamp < last or (stamp == last and count):
            self._to_skip = (last, count - 1) if stamp == last else self._to_skip
            return None
        self._same = self._same + 1 if stamp == self._stamp else 1
        self._stamp = stamp
        self._given += 1
        return line if TIMED in self._log else text


def _is_stamp(text: str) -> bool:
    return len(text) >= len("2006-01-02T15:04:05Z") and text[4] == "-" and text[10] == "T"
