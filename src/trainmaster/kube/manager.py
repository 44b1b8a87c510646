"""Starts what a process is made of in order, and stops it in reverse.

    servers (health, webhooks) -> preparation -> caches until synced -> lease -> controllers

The preparation is for what must be known before the other parts can be made, and may add them, servers too: so a
process that still asks the API server what it has is already alive for the kubelet, and ends when it is told to.
Controllers never run without synced caches, nor without the lease where there is an elector. Each stage is a task
group inside the one before it, so that leaving a stage, however it happens, first ends all that depends on it.
What fails in any of them is kept, everything stops in order, and `run` raises it at the end.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeAlias, TypeVar

from trainmaster.kube import logs
from trainmaster.kube.errors import KubeError

log = logs.get(__name__)

T = TypeVar("T")
Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

SYNC_WARNING = 10.0
"""Seconds between two warnings that name the caches we wait for."""


class SyncTimeout(KubeError):
    """Some caches never got their first list."""

    def __init__(self, names: list[str], seconds: float) -> None:
        super().__init__(
            f"no first list after {seconds:g} s of: {', '.join(names)}. Are these kinds installed (kubectl "
            "api-resources), and may we list and watch them (kubectl auth can-i list <kind> --as=<our account>)?"
        )
        self.names = names


class LeaderLost(KubeError):
    """Another process may be leading by now; this one must end and start over."""


class Runnable(Protocol):
    """Runs until cancelled. One with an asyncio.Event named `ready` is waited for before the next stage."""

    async def run(self) -> None: ...


class Cache(Protocol):
    @property
    def synced(self) -> asyncio.Event: ...
    async def run(self) -> None: ...


class Elector(Protocol):
    @property
    def is_leader(self) -> bool: ...
    async def acquire(self) -> None: ...
    async def hold(self) -> None: ...
    async def release(self) -> None: ...


class Stoppable(Protocol):
    """A controller: it drains before it ends."""

    @property
    def name(self) -> str: ...
    async def run(self) -> None: ...
    async def stop(self, deadline: float) -> None: ...


class Manager:
    """Made, filled and run once."""

    def __init__(self, *, drain: float = 10.0, sync_timeout: float | None = None) -> None:
        self._drain_seconds = drain
        self._sync_timeout = math.inf if sync_timeout is None else sync_timeout
        self._servers: dict[str, Runnable] = {}
        self._caches: dict[str, Cache] = {}
        self._controllers: dict[str, Stoppable] = {}
        self._elector: Elector | None = None
        self._preparation: Work | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._synced = False
        self._halt = asyncio.Event()  # time to stop, for whatever reason
        self._lost = asyncio.Event()  # the lease is gone: no time to drain
        self._failure: BaseException | None = None

    def add_server(self, server: Runnable, name: str = "") -> None:
        _put(self._servers, name or type(server).__name__, server)

    def add_cache(self, name: str, cache: Cache) -> None:
        _put(self._caches, name, cache)

    def add_controller(self, controller: Stoppable) -> None:
        _put(self._controllers, controller.name, controller)

    def set_preparation(self, work: Work) -> None:
        self._preparation = work

    def set_elector(self, elector: Elector) -> None:
        self._elector = elector

    def on_synced(self, callback: Callable[[], None]) -> None:
        """Called once, when all caches are synced, before the lease is sought."""
        self._callbacks.append(callback)

    @property
    def is_ready(self) -> bool:
        return self._synced and not self._halt.is_set()

    @property
    def is_leader(self) -> bool:
        """Whether we may write. Ask before acting: the answer takes a process that was frozen into account."""
        return self._elector is None or self._elector.is_leader

    @property
    def unsynced(self) -> list[str]:
        return [name for name, cache in self._caches.items() if not cache.synced.is_set()]

    async def run(self, stop: asyncio.Event) -> None:
        """Returns after `stop` is set and everything has ended; raises what made it end otherwise."""

        async def obey() -> None:
            await stop.wait()
            self._halt.set()

        first = dict(self._servers)
        async with self._running({"stop": obey, **_runs("server", first)}):
            if await self._before(self._halt, "servers", self._wait_for_servers) and await self._is_prepared():
                added = {name: server for name, server in self._servers.items() if name not in first}
                async with self._running(_runs("server", added)):
                    await self._fill_and_lead()
        if self._failure is not None:
            raise self._failure

    async def _is_prepared(self) -> bool:
        return self._preparation is None or await self._before(self._halt, "preparation", self._preparation)

    async def _fill_and_lead(self) -> None:
        if await self._before(self._halt, "servers", self._wait_for_servers):
            async with self._running(_runs("cache", self._caches)):
                if await self._before(self._halt, "caches", self._wait_for_caches):
                    await self._lead()

    async def _lead(self) -> None:
        if self._elector is None:
            await self._control()
        elif await self._before(self._halt, "lease", self._elector.acquire):
            try:
                async with self._running({"lease": self._hold}):
                    await self._control()
            finally:
                await self._elector.release()

    async def _control(self) -> None:
        async with self._running(_runs("controller", self._controllers)):
            log.info("controllers started", names=list(self._controllers))
            await self._halt.wait()
            # The lease is still being renewed while we drain; should it be lost, the drain is over.
            await self._before(self._lost, "drain", lambda: self._stop_controllers(self._drain_seconds))
            await self._watch("drain", lambda: self._stop_controllers(0))

    async def _hold(self) -> None:
        assert self._elector is not None
        try:
            await self._elector.hold()
        except KubeError as error:
            raise LeaderLost(str(error)) from error
        finally:
            self._lost.set()
        raise LeaderLost("the lease is no longer ours")

    async def _stop_controllers(self, deadline: float) -> None:
        async with asyncio.TaskGroup() as group:
            for name, controller in self._controllers.items():
                group.create_task(controller.stop(deadline), name=f"stop {name}")

    async def _wait_for_servers(self) -> None:
        for server in self._servers.values():
            ready = getattr(server, "ready", None)
            if isinstance(ready, asyncio.Event):
                await ready.wait()

    async def _wait_for_caches(self) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        while waiting := self.unsynced:
            left = started + self._sync_timeout - loop.time()
            if left <= 0:
                raise SyncTimeout(waiting, self._sync_timeout)
            try:
                async with asyncio.timeout(min(left, SYNC_WARNING)):
                    for name in waiting:
                        await self._caches[name].synced.wait()
            except TimeoutError:
                log.warning("caches not synced yet", waiting=self.unsynced, seconds=round(loop.time() - started))
        log.info("caches synced", count=len(self._caches), seconds=round(loop.time() - started, 3))
        for callback in self._callbacks:
            callback()
        self._synced = True

    @asynccontextmanager
    async def _running(self, works: Mapping[str, Work]) -> AsyncIterator[None]:
        """Runs them beside the body and cancels them after it."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._supervise(name, work), name=name) for name, work in works.items()]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

    async def _supervise(self, name: str, work: Work) -> None:
        if await self._watch(name, work) and not self._halt.is_set():
            self._fail(name, RuntimeError(f"{name} ended by itself"))

    async def _before(self, event: asyncio.Event, name: str, work: Work) -> bool:
        """Whether the work was done before the event; if not, it is cancelled."""
        if event.is_set():
            return False
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._watch(name, work), name=name)
            other = group.create_task(event.wait(), name=f"{name}: or not")
            await asyncio.wait((task, other), return_when=asyncio.FIRST_COMPLETED)
            task.cancel()
            other.cancel()
        return not task.cancelled() and task.result()

    async def _watch(self, name: str, work: Work) -> bool:
        """Whether the work was done. What it raises is kept for the end of `run`, not lost."""
        try:
            await work()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._fail(name, RuntimeError(f"{name} let a CancelledError escape"))
        except Exception as error:  # re-raised by `run`, when what depends on this has ended
            self._fail(name, error)
        else:
            return True
        return False

    def _fail(self, name: str, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
            log.error("stopping", because=name, error=str(error))
        else:
            log.error("failed while stopping", name=name, error=str(error))
        self._halt.set()


def _runs(sort: str, runnables: Mapping[str, Runnable]) -> dict[str, Work]:
    return {f"{sort} {name}": runnable.run for name, runnable in runnables.items()}


def _put(group: dict[str, T], name: str, member: T) -> None:
    if name in group:
        raise ValueError(f"there is already one named {name!r}")
    group[name] = member
