"""How long the webhook lets the API server wait, when 200 clients ask about jobs of all kinds.

The whole operator runs in a process of its own, over an API server in memory; beside it a floor: the same server, that
answers without thinking. Every client keeps its connection, as API servers do. Three shapes: all ask at the same time,
once a second; they come one after another; they ask again as soon as they are answered. In the first two, time counts
from when a question was due, so that a server that falls behind cannot hide it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import ssl
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.measure import ROUNDS, Result, child, cpu_seconds, median, memory_mb
from trainmaster import frameworks
from trainmaster.kube import connections
from trainmaster.kube.health import Address
from trainmaster.kube.https import HttpsServer
from trainmaster.objects.resource import SECRETS
from trainmaster.operator import certificates
from trainmaster.operator.main import operate
from trainmaster.operator.options import Options
from trainmaster.operator.webhook_protocol import DEFAULT, MUTATING, NAME, VALIDATE, VALIDATING, refused
from trainmaster.testing.fakeapi import FakeApi
from trainmaster.testing.jobs import KINDS, a_small

CLIENTS = 200
SHAPES = {
    "at once, every second": (5, 1.0, 0.0),
    "one after another, 400 a second": (10, 0.5, 0.5),
    "without a pause": (25, 0.0, 0.0),
}
"""Questions of each client, seconds from one to its next, and seconds over which the clients are spread."""

HOST = "127.0.0.1"
HOME = "default"


def run() -> Result:
    shown = {name: _compared(*shape) for name, shape in SHAPES.items()}
    return {f"{CLIENTS} clients, {name}": result for name, result in shown.items()}


def _compared(questions: int, pause: float, spread: float) -> Result:
    """Rounds of ours and of the floor alternate: whatever else the machine does hits both alike."""
    with _serving("operator") as ours, _serving("floor") as floor:
        rounds = [(ours.asked(questions, pause, spread), floor.asked(questions, pause, spread)) for _ in range(ROUNDS)]
        figures = _figures([one for one, _ in rounds])
        bare = _figures([other for _, other in rounds])
        more = {"CPU per question, ms": ours.cpu_per_question, "peak RSS, MB": memory_mb(ours.pid)}
    return {**figures, **more, "floor": {**bare, "CPU per question, ms": floor.cpu_per_question}}


class Served:
    """A server in a process of its own, and what was asked of it."""

    def __init__(self, pid: int, port: int, context: ssl.SSLContext) -> None:
        self.pid, self._port, self._context = pid, port, context
        self._used, self._count = 0.0, 0

    @property
    def cpu_per_question(self) -> float:
        return self._used / self._count * 1000

    def asked(self, questions: int, pause: float, spread: float) -> list[float]:
        """Seconds to each answer."""
        return asyncio.run(self._asked(questions, pause, spread))

    async def _asked(self, questions: int, pause: float, spread: float) -> list[float]:
        times: list[float] = []
        texts = [*_questions()]
        connected = asyncio.Barrier(CLIENTS + 1)

        async def client(number: int) -> None:
            reader, writer = await asyncio.open_connection(HOST, self._port, ssl=self._context)
            await connected.wait()
            due = time.perf_counter() + spread * number / CLIENTS
            for turn in range(questions):
                due = max(due, time.perf_counter()) if not pause else due
                await asyncio.sleep(due - time.perf_counter())
                writer.write(texts[(number + turn) % len(texts)])
                await _answered(reader)
                times.append(time.perf_counter() - due)
                due += pause
            writer.close()
            await writer.wait_closed()

        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(client(number), name=f"client {number}")
            await connected.wait()
            before = cpu_seconds(self.pid)
        self._used += cpu_seconds(self.pid) - before
        self._count += len(times)
        return times


@contextlib.contextmanager
def _serving(what: str) -> Iterator[Served]:
    with socket.socket() as door:
        door.bind((HOST, 0))
        port = door.getsockname()[1]
    with child("-m", "benchmarks.webhook", what, str(port)) as process:
        assert process.stdout is not None
        context = ssl.create_default_context(cadata=json.loads(process.stdout.readline()))
        yield Served(process.pid, port, context)


def _figures(rounds: Sequence[list[float]]) -> Result:
    def at(share: float) -> float:
        return median([sorted(times)[int(len(times) * share)] for times in rounds]) * 1000

    return {"p50, ms": at(0.5), "p90, ms": at(0.9), "p99, ms": at(0.99)}


def _questions() -> Iterator[bytes]:
    """Creations and updates of good and bad jobs of every kind; and what a defaulting webhook is asked."""
    for kind in KINDS:
        good = a_small(kind, "asked").policy(backoffLimit=3, cleanPodPolicy="Running").manifest
        bad = a_small(kind, "asked").policy(cleanPodPolicy="Sometimes").role("Juggler").manifest
        edited = a_small(kind, "asked").policy(backoffLimit=4, cleanPodPolicy="Running").manifest
        yield _request(VALIDATE, "CREATE", good)
        yield _request(VALIDATE, "UPDATE", edited, good)
        yield _request(VALIDATE, "CREATE", bad)
        yield _request(DEFAULT, "CREATE", good)


def _request(path: str, operation: str, new: Any, old: Any = None) -> bytes:
    request = {"uid": f"{operation}-1", "operation": operation, "object": new, "oldObject": old, "dryRun": False}
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()
    head = f"POST {path}?timeout=5s HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def _answered(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(head.decode())
    _, _, rest = head.lower().partition(b"content-length: ")
    await reader.readexactly(int(rest.partition(b"\r\n")[0]))


async def _operator(port: int) -> None:
    """Until the process that started it hangs up. Prints its authority when there is one."""
    jobs = [resource for framework in frameworks.BUILT_IN for resource in framework.served]
    api = FakeApi([*jobs, SECRETS, VALIDATING, MUTATING])
    api.put(SECRETS, {"metadata": {"name": NAME, "namespace": HOME}})
    api.put(VALIDATING, {"metadata": {"name": NAME}, "webhooks": []})
    options = Options(webhook_bind_address=f"{HOST}:{port}", metrics_bind_address="0", health_probe_bind_address="0")
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(operate(options, api, stop, home=HOME), name="operator")
        await _until_open(port)
        await _tell(base64.b64decode(api.object(SECRETS, HOME, NAME)["data"][certificates.AUTHORITIES]))
        stop.set()


async def _floor(port: int) -> None:
    keyring = certificates.renewed(None, [HOST], time.time())
    answer = (200, b"{}")
    server = HttpsServer(Address(HOST, port), dict.fromkeys((VALIDATE, DEFAULT), lambda _: answer), refused)
    server.present(keyring.serving.pem, keyring.serving.key_pem)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(server.run(), name="server")
        await server.listening.wait()
        await _tell(keyring.trusted)
        running.cancel()


async def _tell(authority: bytes) -> None:
    print(json.dumps(authority.decode()), flush=True)
    await asyncio.to_thread(sys.stdin.read)


async def _until_open(port: int) -> None:
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(HOST, port)
                writer.close()
                return
            await asyncio.sleep(0.01)


if __name__ == "__main__":
    connections.slim_down()  # as `trainmaster operator` does
    asyncio.run({"operator": _operator, "floor": _floor}[sys.argv[1]](int(sys.argv[2])))
