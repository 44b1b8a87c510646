"""The order to end something by a certain time, which may become more urgent but never less."""

from __future__ import annotations

import asyncio


class Stop:
    def __init__(self) -> None:
        self._deadline: float | None = None
        self._changed = asyncio.Event()

    @property
    def is_ordered(self) -> bool:
        return self._deadline is not None

    @property
    def seconds_left(self) -> float:
        return 0.0 if self._deadline is None else max(0.0, self._deadline - asyncio.get_running_loop().time())

    def order(self, grace: float) -> None:
        deadline = asyncio.get_running_loop().time() + grace
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline
            self._changed.set()
            self._changed = asyncio.Event()

    async def ordered(self) -> None:
        while self._deadline is None:
            await self._changed.wait()

    async def due(self) -> None:
        """Returns when the time is up."""
        await self.ordered()
        while (left := self.seconds_left) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def sleep(self, seconds: float) -> bool:
        """Waits, or returns early with True because the order came."""
        try:
            async with asyncio.timeout(seconds):
                await self.ordered()
        except TimeoutError:
            return False
        return True
