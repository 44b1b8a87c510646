"""Logs, exec, attach and port-forward: the requests to a pod that stay open, as HTTP handlers over a `Runtime`.

Options are read as Kubernetes reads them. What can be refused is refused before the connection is upgraded, with an
`ApiError` that the server turns into a `Status`. The handlers need aiohttp's `handler_cancellation`: a client that
hangs up must end the handler even while there is nothing to send to it.

Next door: `session` joins a client and a process, `streams_websocket` and `streams_spdy` are the two ways to upgrade,
`streams_forward` pairs the streams of port-forward.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

from aiohttp import web
from multidict import MultiMapping

from trainmaster.cluster.registry.status_error import (
    ApiError,
    Cause,
    bad_request,
    forbidden_field,
    invalid,
    invalid_value,
)
from trainmaster.cluster.streams import streams_spdy, streams_websocket
from trainmaster.cluster.streams.session import STDERR, STDIN, STDOUT, Runtime, Session, carry, release
from trainmaster.cluster.streams.spdy_stream import serving
from trainmaster.cluster.streams.streams_forward import forward
from trainmaster.objects import timestamp
from trainmaster.objects.number import number_of
from trainmaster.objects.resource import Resource

_LOG_OPTIONS = Resource("", "v1", "pods", "PodLogOptions")
_NEEDS_UPGRADE = "Upgrade request required"


async def handle_log(request: web.Request, runtime: Runtime, namespace: str, pod: str) -> web.StreamResponse:
    options = LogOptions.of(request.query, pod, now=time.time())
    lines = runtime.open_log(
        namespace,
        pod,
        options.container,
        previous=options.previous,
        follow=options.follow,
        tail=options.tail,
        since=options.since,
        timestamps=options.timestamps,
        limit_bytes=options.limit_bytes,
    )
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    try:
        await response.prepare(request)
        async for chunk in lines:
            await response.write(chunk)
        await response.write_eof()
    except ConnectionError:
        response.force_close()  # the reader has left
    finally:
        await release(lines)
    return response


async def handle_exec(request: web.Request, runtime: Runtime, namespace: str, pod: str) -> web.StreamResponse:
    options = SessionOptions.of(request.query)
    protocol = _session_protocol(request)
    command = request.query.getall("command", [])
    if not command:
        raise bad_request("you must specify at least one command for the container")
    session = await runtime.exec(namespace, pod, options.container, command, stdin=options.stdin, tty=options.tty)
    return await _serve(request, session, options, protocol)


async def handle_attach(request: web.Request, runtime: Runtime, namespace: str, pod: str) -> web.StreamResponse:
    options = SessionOptions.of(request.query)
    protocol = _session_protocol(request)
    session = await runtime.attach(namespace, pod, options.container, stdin=options.stdin, tty=options.tty)
    return await _serve(request, session, options, protocol)


async def handle_port_forward(request: web.Request, runtime: Runtime, namespace: str, pod: str) -> web.StreamResponse:
    ports = _ports(request.query)
    if streams_websocket.is_upgrade(request):
        served = (streams_websocket.TUNNEL_PROTOCOL, *streams_websocket.CHANNEL_FORWARD_PROTOCOLS)
        protocol = streams_websocket.negotiate(request, served)
        if protocol != streams_websocket.TUNNEL_PROTOCOL and not ports:
            raise bad_request('query parameter "ports" is required')
        return await _forward_in_websocket(request, runtime, namespace, pod, protocol, ports)
    if not streams_spdy.is_upgrade(request):
        raise bad_request(_NEEDS_UPGRADE)
    upgraded = streams_spdy.UpgradedConnection(request, streams_spdy.negotiate(request, streams_spdy.FORWARD_PROTOCOLS))
    await upgraded.start()
    async with serving(upgraded) as connection:
        await forward(connection, runtime, namespace, pod)
    return upgraded.response


@dataclass(frozen=True, slots=True)
class LogOptions:
    container: str
    previous: bool
    follow: bool
    timestamps: bool
    tail: int | None
    since: float | None
    limit_bytes: int | None

    @classmethod
    def of(cls, query: MultiMapping[str], pod: str, *, now: float) -> LogOptions:
        tail, seconds, limit = (_integer(query, name) for name in ("tailLines", "sinceSeconds", "limitBytes"))
        moment = _moment(query)
        causes = list(_problems(tail, seconds, limit, moment))
        if causes:
            raise invalid(_LOG_OPTIONS, pod, causes)
        return cls(
            container=query.get("container", ""),
            previous=_flag(query, "previous"),
            follow=_flag(query, "follow"),
            timestamps=_flag(query, "timestamps"),
            tail=tail,
            since=now - seconds if seconds is not None else moment,
            limit_bytes=limit,
        )


@dataclass(frozen=True, slots=True)
class SessionOptions:
    container: str
    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool

    @classmethod
    def of(cls, query: MultiMapping[str]) -> SessionOptions:
        stdin, stdout, stderr, tty = (_flag(query, name) for name in ("stdin", "stdout", "stderr", "tty"))
        if not (stdin or stdout or stderr):
            raise bad_request("you must specify at least 1 of stdin, stdout, stderr")
        return cls(query.get("container", ""), stdin, stdout, stderr and not tty, tty)  # a terminal has one output

    @property
    def streams(self) -> list[str]:
        """The SPDY streams that a client with these options opens."""
        wanted = {"stdin": self.stdin, "stdout": self.stdout, "stderr": self.stderr, "resize": self.tty}
        return ["error", *(name for name, is_wanted in wanted.items() if is_wanted)]

    @property
    def channels(self) -> frozenset[int]:
        """The same, as channels of a WebSocket."""
        wanted = {STDIN: self.stdin, STDOUT: self.stdout, STDERR: self.stderr, streams_websocket.RESIZE: self.tty}
        return frozenset(channel for channel, is_wanted in wanted.items() if is_wanted)


def _session_protocol(request: web.Request) -> str:
    if streams_websocket.is_upgrade(request):
        return streams_websocket.negotiate(request, streams_websocket.EXEC_PROTOCOLS)
    if streams_spdy.is_upgrade(request):
        return streams_spdy.negotiate(request, streams_spdy.EXEC_PROTOCOLS)
    raise bad_request(_NEEDS_UPGRADE)


async def _serve(request: web.Request, session: Session, options: SessionOptions, protocol: str) -> web.StreamResponse:
    try:
        if streams_websocket.is_upgrade(request):
            return await _serve_websocket(request, session, options, protocol)
        return await _serve_spdy(request, session, options, protocol)
    finally:
        await session.kill()


async def _serve_websocket(
    request: web.Request, session: Session, options: SessionOptions, protocol: str
) -> web.StreamResponse:
    websocket = await streams_websocket.upgrade(request, protocol)
    remote = streams_websocket.WebSocketRemote(websocket, protocol, options.channels)
    with suppress(ConnectionError):  # the client may leave at any moment
        await remote.greet()
        await carry(session, remote, stdin=options.stdin, tty=options.tty)
        await websocket.close()
    return websocket


async def _serve_spdy(
    request: web.Request, session: Session, options: SessionOptions, protocol: str
) -> web.StreamResponse:
    upgraded = streams_spdy.UpgradedConnection(request, protocol)
    await upgraded.start()
    async with serving(upgraded) as connection:
        opened = await streams_spdy.open_streams(connection, options.streams)
        if opened is not None:
            remote = streams_spdy.SpdyRemote(connection, opened)
            await carry(session, remote, stdin=options.stdin, tty=options.tty)
            await streams_spdy.let_client_close(connection)
    return upgraded.response


async def _forward_in_websocket(
    request: web.Request, runtime: Runtime, namespace: str, pod: str, protocol: str, ports: list[int]
) -> web.StreamResponse:
    websocket = await streams_websocket.upgrade(request, protocol)
    with suppress(ConnectionError):  # the client may leave at any moment
        if protocol == streams_websocket.TUNNEL_PROTOCOL:
            async with serving(streams_websocket.Tunnel(websocket)) as connection:
                await forward(connection, runtime, namespace, pod)
        else:
            channels = streams_websocket.Channels(websocket, protocol)
            await streams_websocket.forward_channels(channels, runtime, namespace, pod, ports)
        await websocket.close()
    return websocket


def _flag(query: MultiMapping[str], name: str) -> bool:
    """Kubernetes takes anything but a plain no for a yes, also a parameter without a value."""
    return name in query and query[name].lower() not in ("false", "0")


def _integer(query: MultiMapping[str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def _moment(query: MultiMapping[str]) -> float | None:
    text = query.get("sinceTime", "")
    moment = timestamp.parse(text)
    if text and moment is None:
        raise bad_request(f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": cannot parse "{text}" as "2006"')
    return moment


def _problems(tail: int | None, seconds: int | None, limit: int | None, moment: float | None) -> list[Cause]:
    causes = []
    if tail is not None and tail < 0:
        causes.append(invalid_value("tailLines", tail, "must be greater than or equal to 0"))
    if limit is not None and limit < 1:
        causes.append(invalid_value("limitBytes", limit, "must be greater than 0"))
    if seconds is not None and moment is not None:
        causes.append(forbidden_field("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    elif seconds is not None and seconds < 1:
        causes.append(invalid_value("sinceSeconds", seconds, "must be greater than 0"))
    return causes


def _ports(query: MultiMapping[str]) -> list[int]:
    """Given several times or as a list with commas."""
    texts = [text for value in query.getall("ports", []) for text in value.split(",") if text]
    for text in texts:
        if not (text.isascii() and text.isdigit()):
            raise bad_request(f'cannot convert to []int32: strconv.ParseUint: parsing "{text}": invalid syntax')
        if not number_of(text, 65535):
            raise ApiError(400, "BadRequest", f"port {text} must be between 1 and 65535")
    return [int(text) for text in texts]
