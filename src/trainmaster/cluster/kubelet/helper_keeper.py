"""Starts the helper process again when it has died, with growing pauses if that goes on.

What ran under it ended with it. Pods are told at once and begin again by their restart policies as soon as there is
another helper; until then no container starts, which a file in the cluster's directory says: `trainmaster status` shows
it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from trainmaster.cluster.kubelet.kubelet_api import Timing
from trainmaster.cluster.kubelet.sandbox import Sandbox
from trainmaster.cluster.kubelet.zygote import HelperError
from trainmaster.cluster.storage import private

log = logging.getLogger(__name__)

REASON = "ContainerHelperDied"


def trouble_file(root: Path) -> Path:
    return root / "helper.trouble"


class HelperKeeper:
    def __init__(
        self,
        sandbox: Sandbox,
        timing: Timing,
        root: Path,
        *,
        lose: Callable[[], None],
        renew: Callable[[], Awaitable[None]],
        tell: Callable[[str, str], Awaitable[None]],
    ) -> None:
        """`lose` is called when the helper has died, `renew` when there is another; `tell` takes reason and message."""
        self._sandbox = sandbox
        self._timing = timing
        self._trouble = trouble_file(root)
        self._log_file = root / "helper.log"
        self._lose, self._renew, self._tell = lose, renew, tell
        self._pause = 0.0
        self._deaths = 0

    async def run(self) -> None:
        self._trouble.unlink(missing_ok=True)
        while True:
            began = asyncio.get_running_loop().time()
            await self._sandbox.lost()
            self._lose()
            if asyncio.get_running_loop().time() - began >= self._timing.helper_back_off_reset:
                self._pause, self._deaths = 0.0, 0
            await self._recover("it died")

    async def _recover(self, why: str) -> None:
        """Returns when there is another helper."""
        while True:
            await self._say(why)
            await asyncio.sleep(self._next_pause())
            try:
                await self._sandbox.restart()
                await self._renew()
            except (HelperError, OSError) as error:
                why = f"another could not be started: {error}"
            else:
                self._trouble.unlink(missing_ok=True)
                log.warning("the helper process that starts containers was started again")
                return

    def _next_pause(self) -> float:
        """The first restart is immediate."""
        pause, timing = self._pause, self._timing
        self._pause = min(max(timing.helper_back_off, 2 * pause), timing.helper_back_off_max)
        return pause

    async def _say(self, why: str) -> None:
        self._deaths += 1
        message = (
            f"no container can start: the helper process that starts containers is gone ({why}). "
            f"It is started again in {self._pause:g} s (attempt {self._deaths}). Errors of it are in {self._log_file}"
        )
        log.warning("%s", message)
        with contextlib.suppress(OSError):  # such as a full disk, which may be what ails the helper too
            await asyncio.to_thread(private.replace, self._trouble, message.encode())
        await self._tell(REASON, message)
