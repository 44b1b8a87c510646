"""Stock kubectl forwards ports of pods, over TLS: parallel connections, closed by halves."""

import asyncio
import contextlib
import hashlib
import os
import ssl

import pytest
import trustme
from tools import kubectl as stock

from trainmaster.testing.streambed import SPDY, WEBSOCKET, Kubectl, StreamBed

pytestmark = pytest.mark.kubectl

MEGABYTES = 12
FIRST_WITH_WEBSOCKETS = 31
both_protocols = pytest.mark.parametrize(
    "protocol", [pytest.param(WEBSOCKET, id="websocket"), pytest.param(SPDY, id="spdy")]
)


@contextlib.asynccontextmanager
async def a_bed(home, protocol):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    async with StreamBed().serving(context) as bed:
        yield bed, Kubectl(stock.kubectl(), bed.port, home, protocol)


@contextlib.asynccontextmanager
async def forwarding(kubectl, port):
    """The local port that kubectl forwards to the pod's."""
    process = await kubectl.start("port-forward", "pod/trainer", f":{port}", "--address=127.0.0.1")
    try:
        line = (await process.stdout.readline()).decode()
        assert line.startswith("Forwarding from 127.0.0.1:"), line + (await process.stderr.read()).decode()
        yield int(line.split("127.0.0.1:")[1].split(" ")[0])
    finally:
        process.kill()
        await process.communicate()


@contextlib.asynccontextmanager
async def a_server(handle):
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def answer_with_digest(reader, writer):
    """Reads to the end of the client's half, then answers: shows that half a connection can be closed."""
    digest = hashlib.sha256()
    while chunk := await reader.read(1 << 16):
        digest.update(chunk)
    writer.write(digest.hexdigest().encode())
    writer.close()


async def echo(reader, writer):
    while chunk := await reader.read(1 << 16):
        writer.write(chunk)
        await writer.drain()
    writer.close()


async def exchange(port, payload):
    """Sends all, closes its half, and returns everything that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def send():
        writer.write(payload)
        await writer.drain()
        writer.write_eof()

    async with asyncio.TaskGroup() as group:
        group.create_task(send())
        answer = await reader.read()
    writer.close()
    return answer


async def exchange_all(home, protocol, handle, payloads):
    """All at once over one port-forward."""
    async with contextlib.AsyncExitStack() as stack:
        _, kubectl = await stack.enter_async_context(a_bed(home, protocol))
        port = await stack.enter_async_context(a_server(handle))
        local = await stack.enter_async_context(forwarding(kubectl, port))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        tasks = [group.create_task(exchange(local, payload)) for payload in payloads]
    return [task.result() for task in tasks]


@both_protocols
def test_kubectl_uses_the_protocol_it_was_told_and_old_ones_the_one_they_know(tmp_path, protocol):
    async def main():
        async with a_bed(tmp_path, protocol) as (bed, kubectl), a_server(echo) as port:
            await kubectl.run("exec", "trainer", "--", "true")
            async with forwarding(kubectl, port):
                return list(bed.upgrades)

    expected = "websocket" if protocol is WEBSOCKET and stock.minor_version() >= FIRST_WITH_WEBSOCKETS else "SPDY/3.1"
    assert asyncio.run(main()) == [expected, expected]


@both_protocols
def test_parallel_connections_are_forwarded_whole_and_half_closed(tmp_path, protocol):
    payloads = [os.urandom(MEGABYTES << 20) for _ in range(4)]

    answers = asyncio.run(exchange_all(tmp_path, protocol, answer_with_digest, payloads))

    assert [answer.decode() for answer in answers] == [hashlib.sha256(p).hexdigest() for p in payloads]


@both_protocols
def test_parallel_connections_carry_megabytes_both_ways_at_once(tmp_path, protocol):
    payloads = [os.urandom(MEGABYTES << 20) for _ in range(3)]

    answers = asyncio.run(exchange_all(tmp_path, protocol, echo, payloads))

    assert [answer == payload for answer, payload in zip(answers, payloads, strict=True)] == [True] * 3


@both_protocols
def test_a_port_where_nobody_listens_is_told_to_the_user(tmp_path, protocol):
    async def main():
        async with a_bed(tmp_path, protocol) as (bed, kubectl):
            async with a_server(echo) as port:
                pass
            process = await kubectl.start("port-forward", "pod/trainer", f":{port}", "--address=127.0.0.1")
            line = (await process.stdout.readline()).decode()
            _, caller = await asyncio.open_connection("127.0.0.1", int(line.split("127.0.0.1:")[1].split(" ")[0]))
            told = await process.stderr.readline()
            caller.close()
            process.kill()
            await process.communicate()
            return told.decode(), port

    told, port = asyncio.run(main())

    assert f"error forwarding port {port} to pod trainer" in told
