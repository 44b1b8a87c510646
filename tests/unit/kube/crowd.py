"""Measures what clients that each send half of the largest body make a server take, and whether it still answers.

python tests/unit/kube/crowd.py 100
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import ssl
import sys
from multiprocessing.connection import Connection

import trustme

from trainmaster.kube.health import Address
from trainmaster.kube.https import LIMIT, HttpsServer

HOST = "127.0.0.1"
HEAD = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


def status(name: str) -> int:
    """In MiB."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) >> 10


def reset_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def serve(talk: Connection) -> None:
    async def main() -> None:
        leaf = trustme.CA().issue_cert(HOST)
        server = HttpsServer(Address(HOST, 0), {"/echo": lambda body: (200, b"{}")}, lambda code, why: (code, b"{}"))
        server.present(b"".join(pem.bytes() for pem in leaf.cert_chain_pems), leaf.private_key_pem.bytes())
        async with asyncio.TaskGroup() as group:
            running = group.create_task(server.run(), name="server")
            await server.listening.wait()
            reset_peak()
            before = status("VmRSS")
            talk.send(server.port)
            await asyncio.to_thread(talk.recv)
            talk.send(status("VmHWM") - before)
            running.cancel()

    asyncio.run(main())


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    return await asyncio.open_connection(HOST, port, ssl=anybody)


async def send_half(port: int) -> asyncio.StreamWriter | None:
    with contextlib.suppress(OSError):
        _, writer = await connect(port)
        writer.write(HEAD.format(LIMIT).encode())
        for _ in range(LIMIT // 2 >> 16):
            writer.write(b"x" * (1 << 16))
            await writer.drain()
        return writer
    return None


async def ask(port: int) -> int:
    """The status of the answer to something small. On a busy machine it may take us more than one try to be in time."""
    while True:
        with contextlib.suppress(OSError, IndexError):
            reader, writer = await connect(port)
            writer.write(HEAD.format(2).encode() + b"{}")
            answered = int((await reader.readline()).split()[1])
            writer.transport.abort()
            if answered == 200:
                return answered


async def crowd(port: int, clients: int) -> int:
    """What is answered to who asks amid them."""
    writers = await asyncio.gather(*(send_half(port) for _ in range(clients)))
    answered = await ask(port)
    for writer in filter(None, writers):
        writer.transport.abort()
    return answered


def main(clients: int) -> None:
    here, there = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    answered = asyncio.run(crowd(here.recv(), clients))
    here.send("measure")
    sys.stdout.write(json.dumps({"answered": answered, "grown_mib": here.recv()}))
    server.join()


if __name__ == "__main__":
    main(int(sys.argv[1]))
