"""A proxy between an operator and its API server: carries everything on, keeps a record, and cuts where a test says.

    async with proxied(plane, token) as proxy:     # proxy.url goes into the operator's kubeconfig
        proxy.rule = cuts                   # told of every write, before and after it takes effect

Each operator has a proxy of its own, so that the record says who did what. Watches stream through; `hush` keeps them,
and all that is asked from then on, from being answered, as a peer does that vanished without a word.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
import time
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field

import aiohttp
import msgspec
from aiohttp import web
from tools.kubernetes.controlplane import ControlPlane

from trainmaster.testing.patience import PATIENCE

HOP_BY_HOP = ("connection", "host", "keep-alive", "transfer-encoding", "content-length")
LARGEST = 8 << 20


class Cut(Exception):
    """The connection is to end here, without an answer."""


class Busy(Exception):
    """The server is to say that it has no time now, and that nothing was done."""


@dataclass
class Exchange:
    """One request, and what became of it."""

    method: str
    path: str
    query: str = ""
    name: str = ""
    """Of the object that is written."""

    status: int = 0
    """Zero while there is no answer."""

    asked: float = field(default_factory=time.monotonic)
    answered: float = 0.0
    ended: bool = False
    """Whether the operator has its answer, or was cut off from it."""

    @property
    def is_write(self) -> bool:
        """Events tell of what was done, and a lease is nobody's job: they are not counted."""
        return self.method != "GET" and "/events" not in self.path and "/leases" not in self.path

    @property
    def is_watch(self) -> bool:
        return "watch=true" in self.query

    @property
    def took_effect(self) -> bool:
        return 200 <= self.status < 300

    @property
    def effect(self) -> tuple[str, str, str]:
        """What was done to what, whichever the namespace."""
        parts = self.path.strip("/").split("/")
        plural = parts[parts.index("namespaces") + 2] if "namespaces" in parts else parts[-1]
        verb = self.method + ("/status" if parts[-1] == "status" else "")
        return verb, plural, self.name


class Rule:
    """Told of every write; what holds it there holds the operator. Raise Cut or Busy to end it otherwise."""

    async def before(self, exchange: Exchange) -> None:
        """The API server has not heard of it."""

    async def after(self, exchange: Exchange) -> None:
        """It was answered, and the operator has not heard of that."""


class Proxy:
    """Speaks plain HTTP with the operator, which therefore keeps its token to itself: it is added here."""

    def __init__(self, plane: ControlPlane, token: str) -> None:
        self.rule = Rule()
        self.record: list[Exchange] = []
        self.url = ""
        self.expirations = 0
        """Watches that the API server ended with 410, or refused so."""

        self._upstream = plane.url
        self._identity = {"Authorization": f"Bearer {token}"}
        self._tls = ssl.create_default_context(cafile=str(plane.authority))
        self._session: aiohttp.ClientSession | None = None
        self._speaking = asyncio.Event()
        self._speaking.set()
        self._numbers = itertools.count()
        self._streams: dict[int, web.Request] = {}
        self._muted: set[int] = set()
        self._closing = asyncio.Event()
        self._news = asyncio.Condition()

    def hush(self) -> None:
        """From now on nothing is said, neither to those who wait for an answer nor to those who will ask."""
        self._speaking.clear()

    def hush_watches(self) -> None:
        """Those that are open now say nothing any more, and do not end either."""
        self._muted |= set(self._streams)

    def speak(self) -> None:
        self._speaking.set()

    def drop_watches(self) -> None:
        """As when the network breaks: at once and without a word of parting."""
        for request in list(self._streams.values()):
            _abort(request)

    async def until(self, check: Callable[[], bool], what: str) -> None:
        """Looks at the record whenever it changes."""
        try:
            async with asyncio.timeout(PATIENCE), self._news:
                await self._news.wait_for(check)
        except TimeoutError:
            raise AssertionError(f"waited {PATIENCE:g} s for {what}") from None

    async def settled(self) -> None:
        """Returns when every write has its answer: what it did may be seen before that."""
        await self.until(lambda: all(exchange.ended for exchange in self.writes), "the last answers")

    @property
    def writes(self) -> list[Exchange]:
        return [exchange for exchange in self.record if exchange.is_write]

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Proxy]:
        app = web.Application(client_max_size=LARGEST)
        app.router.add_route("*", "/{path:.*}", self._carry)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls)
        try:
            async with aiohttp.ClientSession(
                connector=connector,
                auto_decompress=False,
                read_bufsize=LARGEST,
                timeout=aiohttp.ClientTimeout(total=None),
            ) as self._session:
                site = web.TCPSite(runner, "127.0.0.1", 0)
                await site.start()
                host, port = runner.addresses[0][:2]
                self.url = f"http://{host}:{port}"
                try:
                    yield self
                finally:
                    self.speak()
                    self._closing.set()
                    self.drop_watches()
        finally:
            await runner.cleanup()

    async def _carry(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        exchange = Exchange(request.method, request.path, request.query_string, _name_of(request, body))
        self.record.append(exchange)
        await self._tell()
        try:
            await self._speaking.wait()
            if exchange.is_write:
                await self.rule.before(exchange)
            return await self._forward(request, exchange, body)
        except Busy:
            return web.Response(status=429, headers={"Retry-After": "1"})
        except (Cut, aiohttp.ClientError, OSError):
            _abort(request)
            return web.Response()
        finally:
            exchange.ended = True
            await self._tell()

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def _forward(self, request: web.Request, exchange: Exchange, body: bytes) -> web.StreamResponse:
        assert self._session is not None
        headers = {key: value for key, value in request.headers.items() if key.lower() not in HOP_BY_HOP}
        async with self._session.request(
            request.method, self._upstream + request.raw_path, headers=headers | self._identity, data=body or None
        ) as answer:
            exchange.status, exchange.answered = answer.status, time.monotonic()
            if exchange.is_watch and answer.status == 200:
                return await self._stream(request, answer)
            content = await answer.read()
            self.expirations += exchange.is_watch and answer.status == 410
            await self._speaking.wait()
            if exchange.is_write:
                await self.rule.after(exchange)
            kept = {key: value for key, value in answer.headers.items() if key.lower() not in HOP_BY_HOP}
            return web.Response(status=answer.status, headers=kept, body=content)

    async def _stream(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        number = next(self._numbers)
        self._streams[number] = request
        await self._tell()
        try:
            while line := await answer.content.readline():
                self.expirations += line.startswith(b'{"type":"ERROR"') and b'"code":410' in line
                await self._speaking.wait()
                if number not in self._muted:
                    await response.write(line)
            if number in self._muted:
                await self._closing.wait()
        finally:
            del self._streams[number]
        return response


@contextlib.asynccontextmanager
async def proxied(plane: ControlPlane, token: str) -> AsyncIterator[Proxy]:
    async with Proxy(plane, token).serving() as proxy:
        yield proxy


class Cuts(Rule):
    """Cuts each of some jobs off at its n-th write, and holds all that it writes from then on.

    `reached` is awaited by whoever kills the operator; `release` then lets the world go on.
    """

    def __init__(self, numbers: dict[str, int], *, takes_effect: bool) -> None:
        self._numbers = dict(numbers)
        self._takes_effect = takes_effect
        self._counts = dict.fromkeys(numbers, 0)
        self._open = set(numbers)
        self._last: dict[str, Exchange] = {}
        self._released = False
        self._changed = asyncio.Condition()
        self.cut: set[str] = set()

    async def before(self, exchange: Exchange) -> None:
        job = self._job_of(exchange)
        if job is None or self._released:
            return
        self._counts[job] += 1
        await self._notify()
        is_beyond = self._counts[job] > self._numbers[job]
        if self._counts[job] == self._numbers[job]:
            self._last[job] = exchange
        if is_beyond or (self._last.get(job) is exchange and not self._takes_effect):
            await self._hold(job)

    async def after(self, exchange: Exchange) -> None:
        job = self._job_of(exchange)
        if job is not None and self._last.get(job) is exchange and self._takes_effect:
            await self._hold(job)

    async def done(self, job: str) -> None:
        """This life ended before its n-th write."""
        self._open.discard(job)
        await self._notify()

    async def reached(self, jobs: Collection[str] = ()) -> None:
        """Returns when each of them, or of all, stands at its cut, or has ended."""
        awaited = set(jobs) or set(self._numbers)
        try:
            async with asyncio.timeout(PATIENCE), self._changed:
                await self._changed.wait_for(lambda: not self._open & awaited)
        except TimeoutError:
            counts = {job: self._counts[job] for job in self._open & awaited}
            raise AssertionError(f"waited {PATIENCE:g} s for the writes of {counts}") from None

    async def release(self) -> None:
        self._released = True
        await self._notify()

    async def _hold(self, job: str) -> None:
        self.cut.add(job)
        await self.done(job)
        async with self._changed:
            await self._changed.wait_for(lambda: self._released)
        raise Cut

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _job_of(self, exchange: Exchange) -> str | None:
        return next((job for job in self._numbers if is_of(exchange.name, job)), None)


class LostAnswers(Rule):
    """The n-th write of each job takes effect, and its answer is lost on the way. Nobody is killed."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self._left = dict(numbers)

    async def after(self, exchange: Exchange) -> None:
        for job in self._left:
            if is_of(exchange.name, job):
                self._left[job] -= 1
                if self._left[job] == 0:
                    raise Cut


def is_of(name: str, job: str) -> bool:
    """Whether an object of that name is the job or one of its own."""
    return name == job or name.startswith(f"{job}-")


def _name_of(request: web.Request, body: bytes) -> str:
    if request.method == "POST":
        return str(msgspec.json.decode(body)["metadata"].get("name", ""))
    parts = [part for part in request.path.strip("/").split("/") if part != "status"]
    return parts[-1] if request.method != "GET" else ""


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
