"""One open watch of `fakeapi`: a line of events waiting to be read."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import msgspec

from trainmaster.kube import errors
from trainmaster.objects.resource import Resource
from trainmaster.testing.fakeapi_store import Commit, Object


class Watch:
    def __init__(
        self,
        resource: Resource,
        namespace: str,
        matches: Callable[[Mapping[str, Any]], bool],
        *,
        bookmarks: bool,
        deadline: float | None,
        version: Callable[[], int],
    ) -> None:
        self._resource = resource
        self._namespace = namespace
        self._matches = matches
        self._bookmarks = bookmarks
        self._deadline = deadline
        self._version = version
        self._waiting: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._end = ""
        self._is_held = False

    def see(self, commit: Commit) -> None:
        """Queues what this watch is to hear of a write: nothing, or an event that fits its selector."""
        if commit.place.resource != self._resource or self._namespace not in ("", commit.place.namespace):
            return
        was = commit.old is not None and self._matches(commit.old)
        if commit.new is not None and self._matches(commit.new):
            self.add("MODIFIED" if was else "ADDED", commit.new)
        elif was and commit.old is not None:
            # Of what is gone, or left the selector: how it last was, under the version at which it went.
            meta = {**commit.old["metadata"], "resourceVersion": str(commit.version)}
            self.add("DELETED", {**commit.old, "metadata": meta})

    def add(self, type: str, item: Object) -> None:
        self._waiting.append(msgspec.json.encode({"type": type, "object": item}) + b"\n")
        self._wake.set()

    def bookmark(self) -> None:
        if self._bookmarks:
            meta = {"resourceVersion": str(self._version()), "creationTimestamp": None}
            kind = {"kind": self._resource.kind, "apiVersion": self._resource.api_version}
            self.add("BOOKMARK", {**kind, "metadata": meta})

    def hold(self, is_held: bool) -> None:
        self._is_held = is_held
        self._wake.set()

    def end(self, *, broken: bool) -> None:
        """Closes the stream over whatever was not read yet; broken: as a lost connection does."""
        self._end = "broken" if broken else "closed"
        self._wake.set()

    async def lines(self) -> AsyncGenerator[bytes, None]:
        while not self._end:
            if self._waiting and not self._is_held:
                yield self._waiting.popleft()
            elif not await self._woken():
                if not self._waiting:  # a bookmark says that there is nothing more
                    self.bookmark()
                    for line in self._waiting:
                        yield line
                return
        if self._end == "broken":
            raise errors.Unreachable("the watch: the connection broke in the middle of the answer")

    async def _woken(self) -> bool:
        """False when the deadline comes first."""
        self._wake.clear()
        try:
            async with asyncio.timeout_at(self._deadline):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True
