"""The stream handlers of `cluster` on a bare server, with the few API paths that kubectl wants before it uses them."""

from __future__ import annotations

import asyncio
import ssl
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.cluster.streams import streams
from trainmaster.cluster.streams.session import Runtime
from trainmaster.testing.localruntime import LocalRuntime

WEBSOCKET = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "true", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "true"}
SPDY = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"}

_DISCOVERY: Mapping[str, Mapping[str, Any]] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [{"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": ["get"]}],
    },
}

Handler = Callable[[web.Request, Runtime, str, str], Awaitable[web.StreamResponse]]


def a_pod(*, tty: bool = False) -> dict[str, Any]:
    """Pod `trainer` with one running container, `main`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "trainer", "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "any", "stdin": True, "tty": tty}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "main", "ready": True}]},
    }


@dataclass
class StreamBed:
    """A server with its runtime; `upgrades` has what every request that asked for an upgrade wanted."""

    runtime: LocalRuntime = field(default_factory=LocalRuntime)
    pod: Mapping[str, Any] = field(default_factory=a_pod)
    upgrades: list[str] = field(default_factory=list)
    port: int = 0

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._observe])
        path = "/api/v1/namespaces/{namespace}/pods/{pod}"
        for route in (*_DISCOVERY, path):
            app.router.add_get(route, self._read)
        app.router.add_get(f"{path}/log", self._over(streams.handle_log))
        app.router.add_route("*", f"{path}/exec", self._over(streams.handle_exec))
        app.router.add_route("*", f"{path}/attach", self._over(streams.handle_attach))
        app.router.add_route("*", f"{path}/portforward", self._over(streams.handle_port_forward))
        return app

    @asynccontextmanager
    async def serving(self, context: ssl.SSLContext | None = None) -> AsyncIterator[StreamBed]:
        runner = web.AppRunner(self.app(), handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
            self.port = runner.addresses[0][1]
            yield self
        finally:
            await runner.cleanup()
            if self.runtime.main is not None:
                await self.runtime.main.kill()

    @web.middleware
    async def _observe(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if "Upgrade" in request.headers:
            self.upgrades.append(request.headers["Upgrade"])
        try:
            return await handler(request)
        except ApiError as refusal:
            return web.json_response(refusal.body(), status=refusal.status)

    async def _read(self, request: web.Request) -> web.Response:
        return web.json_response(_DISCOVERY.get(request.path, self.pod))

    def _over(self, handle: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handler(request: web.Request) -> web.StreamResponse:
            names = request.match_info
            return await handle(request, self.runtime, names["namespace"], names["pod"])

        return handler


@dataclass
class Kubectl:
    """The stock client, pointed at a server and kept out of the user's own settings."""

    program: str
    port: int
    home: Path
    env: Mapping[str, str]

    async def start(self, *arguments: str, **options: Any) -> Process:
        config = self.home / "kubeconfig"
        config.touch()
        # Without a token kubectl asks for a user name on its standard input.
        where = (f"--server=https://127.0.0.1:{self.port}", "--insecure-skip-tls-verify", "--token=any")
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), "KUBECONFIG": str(config), **self.env}
        pipes = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE, **options}
        return await asyncio.create_subprocess_exec(self.program, *where, *arguments, env=env, **pipes)

    async def run(self, *arguments: str, stdin: bytes = b"") -> tuple[int | None, bytes, str]:
        """(exit code, stdout, stderr)"""
        process = await self.start(*arguments)
        out, err = await process.communicate(stdin)
        return process.returncode, out, err.decode()
