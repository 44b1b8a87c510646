"""Probes of a container: whether it started, whether it is ready, whether it lives."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from trainmaster.cluster.kubelet import grpc_health
from trainmaster.objects.meta import Json

_MAX_ANSWER = 1024


class Target(Protocol):
    """The container a probe looks at."""

    async def run(self, argv: Sequence[str]) -> tuple[int, str]:
        """A command inside it: exit code and output."""

    async def connect(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]: ...

    def port(self, name: int | str) -> int:
        """The number of a port given by number or by name; ValueError for a name that nobody declared."""


async def check(probe: Json, target: Target) -> str:
    """Empty when the probe succeeds; otherwise why it failed. The probe's own timeout is kept."""
    seconds = float(probe.get("timeoutSeconds") or 1)
    try:
        async with asyncio.timeout(seconds):
            return await _look(probe, target)
    except TimeoutError:
        return f"timed out after {seconds:g}s"
    except (OSError, ValueError) as error:
        return str(error) or type(error).__name__


async def _look(probe: Json, target: Target) -> str:
    if (action := probe.get("exec")) is not None:
        code, output = await target.run(action.get("command") or ())
        return "" if code == 0 else (output.strip() or f"command exited with code {code}")
    if (action := probe.get("httpGet")) is not None:
        status = await http_get(action, target)
        return "" if 200 <= status < 400 else f"HTTP probe failed with statuscode: {status}"
    if (action := probe.get("tcpSocket")) is not None:
        _, writer = await target.connect(target.port(action["port"]))
        await _close(writer)
        return ""
    if (action := probe.get("grpc")) is not None:
        number = target.port(action["port"])
        reader, writer = await target.connect(number)
        try:
            return await grpc_health.check(reader, writer, f"localhost:{number}", action.get("service") or "")
        finally:
            await _close(writer)
    return "probes of this kind are not supported here"


async def http_get(action: Json, target: Target) -> int:
    """The status code of a request as probes and hooks describe it."""
    number = target.port(action["port"])
    reader, writer = await target.connect(number)
    try:
        if str(action.get("scheme") or "HTTP").upper() == "HTTPS":
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # Kubernetes does not verify either
            await writer.start_tls(context)
        given = {header["name"]: header["value"] for header in action.get("httpHeaders") or ()}
        path = action.get("path") or "/"
        writer.write(_request(path if path.startswith("/") else f"/{path}", _headers(given, number)))
        await writer.drain()
        words = (await reader.readline())[:_MAX_ANSWER].split()
        return int(words[1]) if len(words) > 1 else 0
    finally:
        await _close(writer)


def _headers(given: Mapping[str, str], port: int) -> dict[str, str]:
    defaults = {"Host": f"localhost:{port}", "User-Agent": "kube-probe/1.0", "Accept": "*/*", "Connection": "close"}
    lower = {name.lower() for name in given}
    return {**{name: value for name, value in defaults.items() if name.lower() not in lower}, **given}


def _request(path: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def repeat(probe: Json, target: Target, tell: Callable[[bool, str], Awaitable[bool]]) -> None:
    """Probes until `tell` has had enough: it gets every verdict that has reached its threshold."""
    await asyncio.sleep(float(probe.get("initialDelaySeconds") or 0))
    period = float(probe.get("periodSeconds") or 10)
    needed = {True: int(probe.get("successThreshold") or 1), False: int(probe.get("failureThreshold") or 3)}
    streak, last = 0, False
    while True:
        failure = await check(probe, target)
        is_good = not failure
        streak = streak + 1 if is_good == last else 1
        last = is_good
        if streak >= needed[is_good] and not await tell(is_good, failure):
            return
        await asyncio.sleep(period)
