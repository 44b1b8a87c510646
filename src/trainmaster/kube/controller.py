"""Workers that take keys from a queue and reconcile them.

A reconcile ends in one of three ways: done (perhaps to be looked at again after some seconds), try again (it raised;
the queue backs off), or never again (it raised `Terminal`). Whatever it does, its worker lives on and other keys
are not kept waiting. Next door: `queue` decides when a key's turn is, `manager` when controllers start and stop.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator
from typing import Generic, Literal, Protocol

from trainmaster.kube import logs, steps
from trainmaster.kube.errors import Conflict, KubeError
from trainmaster.kube.queue import K, QueueClosed, WorkQueue

log = logs.get(__name__)

Result = Literal["success", "requeue", "error", "terminal"]

LONGEST_STEP = 60.0
"""Seconds of processor time that a reconcile may take between two waits: ten times what the largest job needs. All
other keys stand still meanwhile, and so does whoever wants to end the process."""

LONGEST_WAIT = 600.0
"""Seconds after which a key that waits for a time is looked at anyway: the wall clock, by which it waits, may have been
stepped, and our timers do not follow it."""


class Terminal(Exception):
    """Raised by a reconcile that no retry can help: the key is left alone until it is added anew."""


class ControllerMetrics(Protocol):
    """Who counts: `kube.metrics.KubeMetrics.controller(name)`."""

    def observe(self, result: Result, seconds: float) -> None: ...


class Controller(Generic[K]):
    """`reconcile(key)` returns None when done, or the seconds after which it wants to see the key again."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[float | None]],
        queue: WorkQueue[K],
        *,
        workers: int = 1,
        timeout: float = 120.0,
        longest_step: float = LONGEST_STEP,
        metrics: ControllerMetrics | None = None,
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._queue = queue
        self._count = workers
        self._timeout, self._longest_step = timeout, longest_step
        self._metrics = metrics
        self._workers: list[asyncio.Task[None]] = []
        self._in_hand: set[K] = set()
        self._ended = asyncio.Event()
        self._ended.set()

    async def run(self) -> None:
        """Returns after `stop`."""
        self._ended.clear()
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._count):
                    self._workers.append(group.create_task(self._work(), name=f"{self.name}-{number}"))
        finally:
            self._workers.clear()
            self._ended.set()

    async def stop(self, deadline: float) -> None:
        """Hands out no more keys, gives running reconciles so many seconds to finish, then cancels them."""
        self._queue.close()
        try:
            async with asyncio.timeout(deadline):
                await self._ended.wait()
        except TimeoutError:
            if self._in_hand:
                log.warning("reconciles cut short", controller=self.name, keys=sorted(map(str, self._in_hand)))
            for worker in self._workers:
                worker.cancel()
            await self._ended.wait()

    async def _work(self) -> None:
        while not _is_cancelled():  # a reconcile that swallowed our cancellation does not get another key
            try:
                key = await self._queue.get()
            except QueueClosed:
                return
            self._in_hand.add(key)
            try:
                await self._process(key)
            finally:
                self._in_hand.discard(key)
                self._queue.done(key)
            # A reconcile with nothing to do never waited, nor will a full queue: let others run, the lease among them.
            await asyncio.sleep(0)

    async def _process(self, key: K) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        token = logs.reconcile_id.set(secrets.token_hex(4))
        try:
            result = await self._attempt(key)
            log.debug("reconciled", controller=self.name, key=str(key), result=result)
        finally:
            logs.reconcile_id.reset(token)
        if self._metrics is not None:
            self._metrics.observe(result, loop.time() - started)

    async def _attempt(self, key: K) -> Result:
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                after = await self._limited(key)
        except asyncio.CancelledError as error:
            # One that escaped from a task the reconcile had cancelled would end this worker without a trace.
            if _is_cancelled():
                raise
            return self._judge(key, error, timed_out=False)
        except Exception as error:  # whatever a reconcile raises, its worker lives on
            return self._judge(key, error, timed_out=limit.expired())
        self._queue.forget(key)
        if after is None:
            return "success"
        self._queue.add(key, after=min(after, LONGEST_WAIT))
        return "requeue"

    async def _limited(self, key: K) -> float | None:
        try:
            return await steps.Limited(self._reconcile(key), self._longest_step)
        except steps.TooLong:
            why = f"it takes more than {self._longest_step:g} s of processor time; left alone until it changes"
            raise Terminal(why) from None

    def _judge(self, key: K, error: BaseException, *, timed_out: bool) -> Result:
        """Tells what went wrong, at the length it deserves, and sets the time of the next attempt."""
        causes = tuple(_leaves(error))
        text = "; ".join(dict.fromkeys(str(cause) or type(cause).__name__ for cause in causes))
        if all(isinstance(cause, Terminal) for cause in causes):
            self._queue.forget(key)
            log.error("reconcile given up", controller=self.name, key=str(key), error=text)
            return "terminal"
        fields = {"controller": self.name, "key": str(key), "retry_in": self._queue.retry(key)}
        if timed_out:
            log.warning("reconcile timed out", seconds=self._timeout, **fields)
        elif all(isinstance(cause, Conflict) for cause in causes):
            log.info("reconcile met a conflict", error=text, **fields)
        elif all(isinstance(cause, KubeError) for cause in causes):
            log.warning("reconcile failed", error=text, **fields)
        else:
            log.exception("reconcile crashed", **fields)
        return "error"


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions inside of groups: a reconcile that fans out in a TaskGroup raises those."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    else:
        yield error


def _is_cancelled() -> bool:
    """Whether someone asked the current task to end, as opposed to a CancelledError that just came by."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
