"""Two small web servers: `/healthz`, `/livez` and `/readyz` for the kubelet, `/metrics` for Prometheus.

A check is a name and a function that returns None, or the reason why not. Nothing here decides whether a process is
well: its parts register what they know. The manager runs this first, so that a process that waits for its caches
already answers why it is not ready.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias

from aiohttp import web

from trainmaster.kube import logs
from trainmaster.kube.errors import KubeError

log = logs.get(__name__)

Check: TypeAlias = Callable[[], str | None]
Render: TypeAlias = Callable[[], tuple[bytes, str]]
_Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

_HEALTH_PATHS = ("/healthz", "/livez", "/readyz")

_SHUTDOWN_SECONDS = 1.0
"""For answers under way: they are all short, and a probe asks again."""


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
        self._live_checks: dict[str, Check] = {}
        self._ready_checks: dict[str, Check] = {}
        self.ready = asyncio.Event()
        self.health_port = 0
        self.metrics_port = 0

    def add_live_check(self, name: str, check: Check) -> None:
        """For `/healthz` and `/livez`: when it fails, the kubelet restarts us."""
        self._live_checks[name] = check

    def add_ready_check(self, name: str, check: Check) -> None:
        """For `/readyz`: while it fails, we get no traffic."""
        self._ready_checks[name] = check

    async def run(self) -> None:
        """Serves until cancelled. `ready` and the ports are set when both servers listen."""
        runners: list[web.AppRunner] = []
        try:
            self.health_port = await _listen(runners, *self._health, dict.fromkeys(_HEALTH_PATHS, self._answer_health))
            self.metrics_port = await _listen(runners, *self._metrics, {"/metrics": self._answer_metrics})
            self.ready.set()
            await asyncio.Event().wait()  # until cancelled
        finally:
            for runner in runners:
                await runner.cleanup()

    async def _answer_health(self, request: web.Request) -> web.Response:
        checks = self._ready_checks if request.path == "/readyz" else self._live_checks
        reasons = {name: _ask(name, check) for name, check in checks.items()}
        is_well = not any(reasons.values())
        if is_well and "verbose" not in request.query:
            return web.Response(text="ok")
        lines = [f"[-]{name} failed: {why}" if why else f"[+]{name} ok" for name, why in reasons.items()]
        lines.append(f"{request.path[1:]} check {'passed' if is_well else 'failed'}\n")
        return web.Response(text="\n".join(lines), status=200 if is_well else 500)

    async def _answer_metrics(self, _: web.Request) -> web.Response:
        assert self._render is not None
        body, content_type = self._render()
        return web.Response(body=body, headers={"Content-Type": content_type})


def parse_address(text: str, flag: str = "address") -> Address | None:
    """None for `0` or nothing: off."""
    if text in ("", "0"):
        return None
    host, colon, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host and not is_bracketed):
        raise BindError(f"{flag}: {text!r} is not an address such as :8080, 127.0.0.1:8080 or [::1]:8080 (0 is off)")
    return Address((host[1:-1] if is_bracketed else host) or None, int(port))


async def _listen(
    runners: list[web.AppRunner], address: Address | None, flag: str, routes: Mapping[str, _Handler]
) -> int:
    """The port we listen on; 0 when off. What was started is in `runners`, for the caller to clean up."""
    if address is None:
        return 0
    app = web.Application()
    for path, handler in routes.items():
        app.router.add_get(path, handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
    runners.append(runner)
    await runner.setup()
    try:
        await web.TCPSite(runner, address.host, address.port).start()
    except OSError as error:
        raise BindError(_explain(error, address, flag)) from error
    port: int = runner.addresses[0][1]
    log.info("listening", host=address.host or "*", port=port, paths=list(routes))
    return port


def _explain(error: OSError, address: Address, flag: str) -> str:
    place = f"{address.host or '*'}:{address.port}"
    if error.errno == errno.EADDRINUSE:
        return f"cannot listen on {place}: another process does already; choose another address with {flag}"
    return f"cannot listen on {place}, which {flag} asks for: {error.strerror or error}"


def _ask(name: str, check: Check) -> str:
    """Why the check fails; empty when it does not."""
    try:
        return check() or ""
    except Exception as error:  # a check that breaks is one that fails, and must not hide the others
        log.exception("health check raised", check=name)
        return f"{type(error).__name__}: {error}"
