"""A web server for a handful of pages: GET, one per connection, and no more. Probes and scrapers ask nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import http
from collections.abc import AsyncIterator, Callable, Mapping
from typing import NamedTuple, TypeAlias

PATIENCE = 5.0
"""Seconds for somebody to ask, and to take the answer."""

LONGEST_HEAD = 16 << 10


class Page(NamedTuple):
    body: bytes
    type: str = "text/plain; charset=utf-8"
    status: int = 200


Pages: TypeAlias = Mapping[str, Callable[[str], Page]]
"""By path: given the query, the page."""


@contextlib.asynccontextmanager
async def serving(pages: Pages, host: str | None, port: int) -> AsyncIterator[int]:
    """Gives the port. Left when the last answer under way is out."""
    visits: set[asyncio.Task[None]] = set()

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        visits.add(task)
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(PATIENCE):
                    writer.write(_encoded(*_answer(pages, await reader.readuntil(b"\r\n\r\n"))))
                    await writer.drain()
        finally:
            visits.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(visit, host, port, limit=LONGEST_HEAD)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        if visits:
            await asyncio.wait(visits)
        await server.wait_closed()


def _answer(pages: Pages, head: bytes) -> tuple[Page, bool]:
    """The page, and whether its body is wanted."""
    method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
    path, _, query = rest.split(" ")[0].partition("?")
    if method not in ("GET", "HEAD"):
        return Page(b"ask with GET\n", status=405), True
    page = pages.get(path)
    if page is None:
        return Page(f"no such page; there is {', '.join(pages)}\n".encode(), status=404), True
    return page(query), method == "GET"


def _encoded(page: Page, has_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {page.status} {http.HTTPStatus(page.status).phrase}\r\n"
        f"Content-Type: {page.type}\r\nContent-Length: {len(page.body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (page.body if has_body else b"")
