"""Connections to one server, opened when needed, kept when free; through a proxy where the kubeconfig names one."""

from __future__ import annotations

import asyncio
import base64
import ssl
import urllib.parse
from asyncio.sslproto import SSLProtocol
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from trainmaster.kube import http1
from trainmaster.kube.http1 import Answer, Connection, Disconnected

KEPT = 90.0
"""Seconds that a free connection is kept; kube-apiserver closes after 180."""

BUFFER = 64 * 1024
"""Bytes of TLS that are read at once: four of its records."""

_PORTS = {"http": 80, "https": 443}
Dial: TypeAlias = Callable[[asyncio.Protocol], Awaitable[None]]
"""Connects somebody to a server that needs no network to be reached, because it is in this very process."""


def slim_down() -> None:
    """For programs of our own, as it holds for the whole process.

    asyncio keeps 256 KB for every connection with TLS, and asks for as much memory again at every read, though that
    yields one record of 16 KB at most.
    """
    SSLProtocol.max_size = BUFFER


class ConnectFailed(http1.HttpError):
    """No connection came about; the cause says why."""


@dataclass(frozen=True, slots=True)
class Address:
    scheme: str
    host: str
    port: int
    authorization: str = ""

    @classmethod
    def of(cls, url: str) -> Address:
        parts = urllib.parse.urlsplit(url)
        if parts.hostname is None:
            raise ValueError(f"{parts.scheme}:// names no host")
        secret = ""
        if parts.username is not None:
            pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            secret = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return cls(parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme], secret)

    @property
    def authority(self) -> str:
        """Without the port, where it goes without saying."""
        return self._shown_host if self.port == _PORTS[self.scheme] else self.full_authority

    @property
    def full_authority(self) -> str:
        return f"{self._shown_host}:{self.port}"

    @property
    def _shown_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


class Connections:
    """To one server. A connection serves one TLS context only: another may show another certificate."""

    def __init__(self, server: str, *, proxy: str = "", server_name: str = "", dial: Dial | None = None) -> None:
        self._server = Address.of(server)
        self._dial = dial
        self._proxy = Address.of(proxy) if proxy else None
        self._server_name = server_name or self._server.host
        self._free: dict[Connection, tuple[ssl.SSLContext | None, float]] = {}  # since when, the longest first
        self._clearing: asyncio.TimerHandle | None = None
        self._all: set[Connection] = set()

    async def send(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, tls: ssl.SSLContext | None
    ) -> tuple[Answer, Connection]:
        if self._proxy is not None and tls is None:
            target = f"{self._server.scheme}://{self._server.authority}{target}"
            headers = {**headers, **self._credentials()}
        request = http1.encode(method, target, self._server.authority, headers, body)
        kept = self._take(tls)
        if kept is not None:
            try:
                return await kept.exchange(request), kept
            except Disconnected:
                # The server may have closed it just as we began. Whether a write may be sent twice, and whether we
                # may still write at all, `client` knows.
                if method != "GET":
                    raise
        connection = await self._open(tls)
        return await connection.exchange(request), connection

    async def close(self) -> None:
        if self._clearing is not None:
            self._clearing.cancel()
        for connection in [*self._all]:
            connection.abort()
        for connection in [*self._all]:
            await connection.closed
        self._free.clear()

    def _take(self, tls: ssl.SSLContext | None) -> Connection | None:
        """The one used last: those beyond what is needed grow old and go."""
        self._clear()
        for connection, (context, _) in reversed([*self._free.items()]):
            if context is tls and connection.is_open:
                del self._free[connection]
                return connection
        return None

    def _keep(self, connection: Connection, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        self._free[connection] = (tls, loop.time())
        if self._clearing is None:
            self._clearing = loop.call_later(KEPT, self._clear_later)

    def _clear_later(self) -> None:
        """Also where nobody asks for anything any more."""
        self._clear()
        loop, first = asyncio.get_running_loop(), next(iter(self._free.values()), None)
        self._clearing = loop.call_at(first[1] + KEPT, self._clear_later) if first is not None else None

    def _clear(self) -> None:
        oldest = asyncio.get_running_loop().time() - KEPT
        for connection, (_, since) in [*self._free.items()]:
            if since > oldest:
                break
            del self._free[connection]
            connection.abort()

    async def _open(self, tls: ssl.SSLContext | None) -> Connection:
        connection = Connection(lambda connection: self._keep(connection, tls))
        try:
            if self._dial is not None:
                await self._dial(connection)
            elif self._proxy is None:
                await self._connect(self._server, connection, tls, self._server_name)
            else:
                await self._connect_through(self._proxy, connection, tls)
        except OSError as error:
            raise ConnectFailed from error
        self._all.add(connection)
        connection.closed.add_done_callback(lambda _: self._forget(connection))
        return connection

    def _forget(self, connection: Connection) -> None:
        self._all.discard(connection)
        self._free.pop(connection, None)

    async def _connect(
        self, address: Address, connection: Connection, tls: ssl.SSLContext | None, server_name: str
    ) -> None:
        await asyncio.get_running_loop().create_connection(
            lambda: connection,
            address.host,
            address.port,
            ssl=tls,
            server_hostname=server_name if tls is not None else None,
            happy_eyeballs_delay=0.25,
        )

    async def _connect_through(self, proxy: Address, connection: Connection, tls: ssl.SSLContext | None) -> None:
        outer = ssl.create_default_context() if proxy.scheme == "https" else None
        await self._connect(proxy, connection, outer, proxy.host)
        if tls is None:
            return
        try:
            await connection.tunnel(self._server.full_authority, self._credentials(), tls, self._server_name)
        except BaseException:
            connection.abort()
            raise

    def _credentials(self) -> dict[str, str]:
        secret = self._proxy.authorization if self._proxy is not None else ""
        return {"Proxy-Authorization": secret} if secret else {}
