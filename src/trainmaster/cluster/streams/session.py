"""What the API server asks of the kubelet: logs, commands inside containers, connections to their ports.

`streams` speaks the wire protocols of kubectl and calls a `Runtime`; the kubelet is one, and tests bring a small one
that runs local processes. `carry` joins a session to its client. Nothing here knows about HTTP.
"""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from trainmaster.cluster.registry.status_error import ApiError

STDIN, STDOUT, STDERR = 0, 1, 2


class Session(Protocol):
    """A command, or the main process of a container, with a client at its streams.

    A command that cannot be started is a session as well: its reason on stderr, and exit code 126 (not executable) or
    127 (not found), so that scripts see what they would see in a shell. A process ended by a signal has the code
    128 + signal.
    """

    @property
    def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """(STDOUT or STDERR, bytes) until every writer has closed; with a terminal all of it is STDOUT."""

    async def write_stdin(self, data: bytes) -> None:
        """Returns when there is room for more; BrokenPipeError or ConnectionResetError when nobody reads any more."""

    async def close_stdin(self) -> None: ...

    def resize(self, columns: int, rows: int) -> None:
        """The client's terminal has this size now; without a terminal this does nothing."""

    async def wait(self) -> int:
        """The exit code, once the output has ended."""

    async def kill(self) -> None:
        """Lets go: ends what this session started and frees what it holds. Attached, it leaves the container running.

        Called once at the end of every session, also after `wait` has returned.
        """


class Runtime(Protocol):
    """The kubelet as the API server sees it.

    An empty container name means the pod's only container, or the one its `kubectl.kubernetes.io/default-container`
    annotation names. Every method raises `ApiError` when called (not later, from the iterator it returns), so that the
    refusal can still be the answer to the HTTP request.
    """

    def open_log(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        previous: bool,
        follow: bool,
        tail: int | None,
        since: float | None,
        timestamps: bool,
        limit_bytes: int | None,
    ) -> AsyncIterator[bytes]:
        """The log from its last `tail` lines, or from `since` (seconds since 1970) on."""

    async def exec(
        self, namespace: str, pod: str, container: str, command: list[str], *, stdin: bool, tty: bool
    ) -> Session: ...

    async def attach(self, namespace: str, pod: str, container: str, *, stdin: bool, tty: bool) -> Session: ...

    async def connect(self, namespace: str, pod: str, port: int) -> tuple[StreamReader, StreamWriter]:
        """A connection to a port inside the pod; OSError when nobody listens there."""


class Remote(Protocol):
    """A client at the other end of a session, whatever protocol it speaks."""

    async def stdin(self) -> bytes:
        """The next input; b"" when the client has closed its side."""

    async def size(self) -> tuple[int, int] | None:
        """The next (columns, rows) of the client's terminal; None when there will be no more."""

    async def write(self, channel: int, data: bytes) -> None:
        """To the client's STDOUT or STDERR; ConnectionError when it is gone."""

    async def finish(self, status: Mapping[str, Any]) -> None:
        """The last word: a Kubernetes Status."""

    async def gone(self) -> None:
        """Returns when the client has left; keeps its connection alive meanwhile."""


async def carry(session: Session, remote: Remote, *, stdin: bool, tty: bool) -> None:
    """Joins the two until the session has ended and the client knows its exit code, or the client has left."""
    async with asyncio.TaskGroup() as group:
        delivering = group.create_task(_deliver(session, remote), name="session-output")
        tasks = [delivering, group.create_task(remote.gone(), name="session-client")]
        ends = list(tasks)
        if stdin:
            tasks.append(group.create_task(_feed(session, remote), name="session-stdin"))
        if tty:
            tasks.append(group.create_task(_follow_size(session, remote), name="session-size"))
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()


def status_of(code: int) -> dict[str, Any]:
    """How an exit code is told: clients take it from the cause, not from the message."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


async def release(iterator: AsyncIterator[object]) -> None:
    """Generators hold files open until they are told that nobody listens any more."""
    close = getattr(iterator, "aclose", None)
    if close is not None:
        await close()


async def _deliver(session: Session, remote: Remote) -> None:
    output = session.output
    try:
        async for channel, data in output:
            await remote.write(channel, data)
        await remote.finish(status_of(await session.wait()))
    except ApiError as refusal:
        await remote.finish(refusal.body())
    except ConnectionError:
        return  # the client has left; its session ends with it
    finally:
        await release(output)


async def _feed(session: Session, remote: Remote) -> None:
    try:
        while data := await remote.stdin():
            await session.write_stdin(data)
        await session.close_stdin()
    except ConnectionError:  # a broken pipe is one too
        while await remote.stdin():
            pass  # nobody reads it, but the client must not be held up by it


async def _follow_size(session: Session, remote: Remote) -> None:
    while (size := await remote.size()) is not None:
        session.resize(*size)
