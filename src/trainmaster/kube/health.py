"""Two small web servers: `/healthz`, `/livez` and `/readyz` for the kubelet, `/metrics` for Prometheus.

A check is a name and a function that returns None, or the reason why not. Nothing here decides whether a process is
ready: its parts register what they know. The manager runs this first, so that a process that waits for its caches
already answers why it is not ready.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import NamedTuple, TypeAlias

from trainmaster.kube import logs, pages
from trainmaster.kube.errors import KubeError
from trainmaster.kube.pages import Page, Pages

log = logs.get(__name__)

Check: TypeAlias = Callable[[], str | None]
Render: TypeAlias = Callable[[], tuple[bytes, str]]

_HEALTH_PATHS = ("/healthz", "/livez", "/readyz")


class BindError(KubeError):
    """An address we cannot listen on; says which setting to change."""


class Address(NamedTuple):
    host: str | None  # None for all interfaces
    port: int


class HealthServer:
    """`health` and `metrics` are addresses such as `:8081`, `127.0.0.1:0` or `[::1]:8081`; `0` or nothing is off."""

    def __init__(
        self,
        *,
        health: str = ":8081",
        metrics: str = ":8080",
        render: Render | None = None,
        health_flag: str = "--health-probe-bind-address",
        metrics_flag: str = "--metrics-bind-address",
    ) -> None:
        self._health = (parse_address(health, health_flag), health_flag)
        self._metrics = (parse_address(metrics, metrics_flag) if render else None, metrics_flag)
        self._render = render
        self._checks: dict[str, Check] = {}
        self.ready = asyncio.Event()
        self.health_port = 0
        self.metrics_port = 0

    def add_check(self, name: str, check: Check) -> None:
        """For `/readyz`: while it fails, we get no traffic."""
        self._checks[name] = check

    async def run(self) -> None:
        """Serves until cancelled. `ready` and the ports are set when both servers listen."""
        async with AsyncExitStack() as stack:
            probes = {path: partial(self._health_page, path) for path in _HEALTH_PATHS}
            self.health_port = await _listen(stack, *self._health, probes)
            self.metrics_port = await _listen(stack, *self._metrics, {"/metrics": self._metrics_page})
            self.ready.set()
            await asyncio.Event().wait()  # until cancelled

    def _health_page(self, path: str, query: str) -> Page:
        checks = self._checks if path == "/readyz" else {}  # a process that answers is alive
        reasons = {name: _ask(name, check) for name, check in checks.items()}
        is_well = not any(reasons.values())
        if is_well and "verbose" not in query:
            return Page(b"ok")
        lines = [f"[-]{name} failed: {why}" if why else f"[+]{name} ok" for name, why in reasons.items()]
        lines.append(f"{path[1:]} check {'passed' if is_well else 'failed'}\n")
        return Page("\n".join(lines).encode(), status=200 if is_well else 500)

    def _metrics_page(self, _: str) -> Page:
        assert self._render is not None
        return Page(*self._render())


def parse_address(text: str, flag: str = "address") -> Address | None:
    """None for `0` or nothing: off."""
    if text in ("", "0"):
        return None
    host, colon, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host and not is_bracketed):
        raise BindError(f"{flag}: {text!r} is not an address such as :8080, 127.0.0.1:8080 or [::1]:8080 (0 is off)")
    return Address((host[1:-1] if is_bracketed else host) or None, int(port))


async def _listen(stack: AsyncExitStack, address: Address | None, flag: str, shown: Pages) -> int:
    """The port we listen on; 0 when off."""
    if address is None:
        return 0
    try:
        port = await stack.enter_async_context(pages.serving(shown, address.host, address.port))
    except OSError as error:
        raise bind_error(error, address, flag) from error
    log.info("listening", host=address.host or "*", port=port, paths=list(shown))
    return port


def bind_error(error: OSError, address: Address, flag: str) -> BindError:
    place = f"{address.host or '*'}:{address.port}"
    if error.errno == errno.EADDRINUSE:
        return BindError(f"cannot listen on {place}: another process does already; choose another address with {flag}")
    return BindError(f"cannot listen on {place}, which {flag} asks for: {error.strerror or error}")


def _ask(name: str, check: Check) -> str:
    """Why the check fails; empty when it does not."""
    try:
        return check() or ""
    except Exception as error:  # a check that breaks is one that fails, and must not hide the others
        log.exception("health check raised", check=name)
        return f"{type(error).__name__}: {error}"
