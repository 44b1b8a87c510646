"""The cluster's HTTP face: who is asking, what for, and an answer that stock Kubernetes clients understand.

`routes` reads the path, `resources` and `watches` serve objects, `described` what the server says of itself, `reviews`
questions about rights. What is left is here: the server's life, authentication, and a `Status` for every refusal.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from trainmaster.cluster.registry.registry import Registry
from trainmaster.cluster.registry.status_error import ApiError, internal, unauthorized
from trainmaster.cluster.server import negotiation, reviews, routes
from trainmaster.cluster.server.auth import AccountTokens, Authenticator, Caller
from trainmaster.cluster.server.described import PUBLIC, VERSION, Described, no_metrics
from trainmaster.cluster.server.discovery import Discovery
from trainmaster.cluster.server.negotiation import MAX_BODY, Form
from trainmaster.cluster.server.openapi import OpenApi
from trainmaster.cluster.server.resources import HEADERS, Resources, method_not_allowed
from trainmaster.cluster.server.routes import Target
from trainmaster.cluster.server.watches import Watches
from trainmaster.cluster.streams.session import Runtime

_LINE_LIMIT = 1 << 19
"""Label selectors of many jobs make long addresses, commands for exec still longer ones: mpirun writes a whole
environment into its own. The HTTP library's own limit is 8 KiB."""

_GRACE = 0.2
"""How long requests under way may take at shutdown. Watches never end by themselves and are cut off then."""

_IDLE = 600.0
_BACKLOG = 1024
_log = logging.getLogger(__name__)
_http_log = logging.getLogger(f"{__name__}.http")


class ApiServer:
    """Serves a registry on one address until its `run` is cancelled."""

    def __init__(
        self,
        registry: Registry,
        *,
        runtime: Runtime | None,
        tokens: Mapping[str, Caller],
        tls: ssl.SSLContext | None,
        host: str = "127.0.0.1",
        port: int = 0,
        accounts: AccountTokens | None = None,
        sockets: Sequence[socket.socket] = (),
    ) -> None:
        """`sockets`, where given, are listened on instead of the address; the first one is in `url`."""
        self.ready = asyncio.Event()
        self.url = ""
        self._address = (host, port)
        self._sockets = sockets
        self._tls = tls
        self._authenticator = Authenticator(tokens, accounts)
        self._requests: Counter[tuple[str, int]] = Counter()
        self._writes: asyncio.TaskGroup | None = None
        self._server: web.Server | None = None
        self._runner: web.ServerRunner | None = None
        self._beside: web.SockSite | None = None
        watches = Watches(registry)
        self._resources = Resources(registry, watches, runtime=runtime, complete=self._complete)
        discovery = Discovery(registry.kinds, reviews.KINDS)
        openapi = OpenApi(registry.kinds, discovery, VERSION)
        self._described = Described(discovery, openapi, lambda: registry.store.revision, self._requests)

    async def run(self) -> None:
        """Listens; `ready` is set and `url` known once connections are taken."""
        async with asyncio.TaskGroup() as writes:
            self._writes = writes
            self._server = web.Server(
                self._handle,
                request_factory=_request,
                handler_cancellation=True,
                access_log=None,
                logger=_http_log,
                keepalive_timeout=_IDLE,
                max_line_size=_LINE_LIMIT,
                max_field_size=_LINE_LIMIT,
            )
            runner = web.ServerRunner(self._server, shutdown_timeout=_GRACE)
            await runner.setup()
            self._runner = runner
            try:
                await self._listen(runner)
                await asyncio.Event().wait()
            finally:
                self.ready.clear()
                self._runner = None
                await runner.cleanup()

    async def _listen(self, runner: web.ServerRunner) -> None:
        host, port = self._address
        for listening in self._sockets:
            self._beside = web.SockSite(runner, listening, ssl_context=self._tls, backlog=_BACKLOG)
            await self._beside.start()
        if not self._sockets:
            await web.TCPSite(runner, host, port, ssl_context=self._tls, backlog=_BACKLOG).start()
        bound = runner.addresses[0][1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{'https' if self._tls else 'http'}://{shown}:{bound}"
        self.ready.set()

    async def replace_door(self, listening: socket.socket) -> None:
        """Listen on this socket in place of the last one, whose network is gone. It is the server's to close."""
        if self._runner is None:
            listening.close()
            return
        if self._beside is not None:
            await self._beside.stop()
        self._beside = web.SockSite(self._runner, listening, ssl_context=self._tls, backlog=_BACKLOG)
        await self._beside.start()

    async def connect(self, client: asyncio.Protocol) -> None:
        """Connects somebody within this process, past the network and TLS. Who it is they have to say all the same."""
        if self._server is None:
            raise ConnectionRefusedError("the API server is not running")
        loop, (inner, outer) = asyncio.get_running_loop(), socket.socketpair()
        try:
            await loop.connect_accepted_socket(self._server, inner)
        except BaseException:
            outer.close()  # of what it was given, asyncio takes care itself
            raise
        await loop.create_connection(lambda: client, sock=outer)

    async def _complete(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Carries a write through even if the client hangs up, which cancels only its request."""
        if self._writes is None:
            raise RuntimeError("the API server is not running")
        value, error = await asyncio.shield(self._writes.create_task(_outcome(work), name="write"))
        if error is not None:
            raise error
        return value

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Every request, whatever becomes of it. Only a defect of ours is logged: the rest is the client's business."""
        assert isinstance(request, web.Request)  # `_request` makes them
        try:
            response = await self._serve(request)
        except ApiError as error:
            response = refusal(error)
        except ConnectionError:
            raise
        except Exception as error:
            _log.exception("request failed", extra={"method": request.method, "path": request.path})
            response = refusal(internal(f"{type(error).__name__}: {error}"))
        self._requests[request.method, response.status] += 1
        return response

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        caller = self._authenticator.caller_of(request)
        if caller is None and (path.rstrip("/") not in PUBLIC or "Authorization" in request.headers):
            raise unauthorized()
        form = negotiation.form_of(request.headers.get("Accept", ""))
        target = routes.parse(path)
        if target is None or not target.plural or caller is None:
            return self._described.answer(request, form)
        if target.group == "metrics.k8s.io":
            raise no_metrics()
        if form is None:
            raise negotiation.not_acceptable()
        return await self._resource(request, target, form, caller)

    async def _resource(self, request: web.Request, target: Target, form: Form, caller: Caller) -> web.StreamResponse:
        review = reviews.lookup(target.group, target.version, target.plural)
        if review is None:
            return await self._resources.handle(request, target, form)
        if request.method != "POST" or target.name:
            raise method_not_allowed()
        sent = await negotiation.read_object(request, review.kind)
        answer = reviews.answer(review, sent, caller, self._authenticator)
        return web.Response(body=msgspec.json.encode(answer), headers=HEADERS, status=201)


def refusal(error: ApiError) -> web.Response:
    headers = dict(HEADERS)
    if seconds := (error.details or {}).get("retryAfterSeconds"):
        headers["Retry-After"] = str(seconds)
    return web.Response(body=msgspec.json.encode(error.body()), headers=headers, status=error.status)


def _is_ours(record: logging.LogRecord) -> bool:
    """Nonsense on the wire is answered with 400; it is no defect of the server and not worth a traceback."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


_http_log.addFilter(_is_ours)


async def _outcome(work: Coroutine[Any, Any, Any]) -> tuple[Any, Exception | None]:
    """Result or error as a value: a refused write must not bring down the group it runs in."""
    try:
        return await work, None
    except Exception as error:
        return None, error


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.Request:
    """Full requests, which streams need, with the API server's limit on bodies; no router is in the way."""
    loop = asyncio.get_running_loop()
    return web.Request(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY)
