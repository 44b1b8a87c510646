"""The stream handlers as client libraries use them; kubectl has its own tests in tests/integration."""

import asyncio
import base64
import json
from contextlib import asynccontextmanager

import aiohttp
import pytest

from trainmaster.cluster.streams.session import status_of
from trainmaster.cluster.streams.streams_spdy import size_of
from trainmaster.testing.ports import free_port
from trainmaster.testing.streambed import StreamBed

PODS = "/api/v1/namespaces/default/pods/trainer"
OUTPUTS = {"stdout": "true", "stderr": "true"}
SUCCESS = {"metadata": {}, "status": "Success"}


@asynccontextmanager
async def a_client():
    async with StreamBed().serving() as bed, aiohttp.ClientSession(f"http://127.0.0.1:{bed.port}") as client:
        yield bed, client


def ask(path, **options):
    """(status, body) of one request."""

    async def main():
        async with a_client() as (_, client), client.get(f"{PODS}/{path}", **options) as response:
            return response.status, await response.json()

    return asyncio.run(main())


@asynccontextmanager
async def a_websocket(client, path, query, *protocols):
    pairs = [(key, item) for key, value in query.items() for item in ([value] if isinstance(value, str) else value)]
    async with client.ws_connect(f"{PODS}/{path}", params=pairs, protocols=protocols) as websocket:
        yield websocket


async def to_the_end(websocket):
    """Bytes by channel."""
    channels: dict[int, bytes] = {}
    async for message in websocket:
        channels[message.data[0]] = channels.get(message.data[0], b"") + message.data[1:]
    return channels


async def run(client, command, *protocols, **query):
    async with a_websocket(client, "exec", {"command": command, **OUTPUTS, **query}, *protocols) as websocket:
        return await to_the_end(websocket)


@pytest.mark.parametrize(
    ("query", "status", "reason", "message"),
    [
        ("tailLines=abc", 400, "BadRequest", 'strconv.ParseInt: parsing "abc": invalid syntax'),
        (
            "tailLines=-1",
            422,
            "Invalid",
            'PodLogOptions "trainer" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0',
        ),
        (
            "sinceSeconds=0",
            422,
            "Invalid",
            'PodLogOptions "trainer" is invalid: sinceSeconds: Invalid value: 0: must be greater than 0',
        ),
        (
            "limitBytes=-5&tailLines=-3",
            422,
            "Invalid",
            'PodLogOptions "trainer" is invalid: [tailLines: Invalid value: -3: must be greater than or equal to 0, '
            "limitBytes: Invalid value: -5: must be greater than 0]",
        ),
        (
            "sinceSeconds=1&sinceTime=2024-01-01T00:00:00Z",
            422,
            "Invalid",
            'PodLogOptions "trainer" is invalid: []: Forbidden: '
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
        (
            "sinceTime=yesterday",
            400,
            "BadRequest",
            'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"',
        ),
        ("container=absent", 400, "BadRequest", "container absent is not valid for pod trainer"),
    ],
)
def test_log_options_are_refused_in_the_words_of_kubernetes(query, status, reason, message):
    code, body = ask(f"log?{query}")

    assert (code, body["code"], body["reason"], body["message"]) == (status, status, reason, message)


@pytest.mark.parametrize("path", ["exec?command=true&stdout=true", "attach?stdout=true", "portforward"])
def test_a_plain_request_is_told_to_upgrade(path):
    code, body = ask(path)

    assert (code, body["reason"], body["message"]) == (400, "BadRequest", "Upgrade request required")


@pytest.mark.parametrize(
    ("path", "headers", "status", "message"),
    [
        pytest.param("exec?command=true", {}, 400, "at least 1 of stdin, stdout, stderr", id="no stream"),
        pytest.param("exec?stdout=1", {"Upgrade": "SPDY/3.1"}, 400, "X-Stream-Protocol-Version is required", id="none"),
        pytest.param(
            "exec?stdout=1",
            {"Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v9.channel.k8s.io"},
            403,
            "unable to negotiate protocol: client supports [v9.channel.k8s.io], server accepts [v4.channel.k8s.io]",
            id="unknown",
        ),
        pytest.param(
            "exec?stdout=1",
            {"Upgrade": "websocket", "Sec-WebSocket-Protocol": "chat"},
            400,
            "client supports [chat], server accepts [v5.channel.k8s.io",
            id="websocket",
        ),
        pytest.param(
            "exec?stdout=1",
            {"Upgrade": "websocket", "Sec-WebSocket-Protocol": "v5.channel.k8s.io"},
            400,
            "at least one command",
            id="no command",
        ),
        pytest.param("portforward?ports=abc", {}, 400, 'ParseUint: parsing "abc"', id="port"),
        pytest.param("portforward?ports=70000", {}, 400, "between 1 and 65535", id="port range"),
        pytest.param(
            "portforward",
            {"Upgrade": "websocket", "Sec-WebSocket-Protocol": "v4.channel.k8s.io"},
            400,
            '"ports" is required',
            id="no ports",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_before_the_upgrade(path, headers, status, message):
    code, body = ask(path, headers={**headers, "Connection": "Upgrade"})

    assert code == status
    assert message in body["message"]


def test_a_failed_handshake_ends_the_command_it_was_for():
    async def main():
        async with a_client() as (bed, client):
            query = "command=sleep&command=600&stdout=1"
            headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Protocol": "v5.channel.k8s.io"}
            async with client.get(f"{PODS}/exec?{query}", headers=headers) as response:
                return response.status, [session.was_killed for session in bed.runtime.sessions]

    assert asyncio.run(main()) == (400, [True])


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
def test_a_command_has_its_outputs_and_status_on_channels(protocol):
    async def main():
        async with a_client() as (_, client):
            return await run(client, ["sh", "-c", "echo out; echo err >&2; exit 3"], protocol)

    channels = asyncio.run(main())

    assert (channels[1], channels[2]) == (b"out\n", b"err\n")
    assert json.loads(channels[3]) == status_of(3)


@pytest.mark.parametrize("protocols", [(), ("channel.k8s.io",)], ids=["none", "first"])
def test_old_protocols_have_a_plain_error(protocols):
    async def main():
        async with a_client() as (_, client):
            return await run(client, ["sh", "-c", "exit 3"], *protocols), await run(client, ["true"], *protocols)

    failed, succeeded = asyncio.run(main())

    assert failed == {1: b"", 3: b"command terminated with non-zero exit code: exit status 3"}
    assert succeeded == {1: b""}


def test_base64_protocols_write_text():
    async def main():
        async with a_client() as (_, client):
            query = {"command": "cat", "stdin": "1", "stdout": "1"}
            async with a_websocket(client, "exec", query, "v4.base64.channel.k8s.io") as websocket:
                await websocket.send_str("0" + base64.b64encode(b"hello").decode())
                greeting = await websocket.receive_str()
                return greeting, await websocket.receive_str()

    assert asyncio.run(main()) == ("1", "1" + base64.b64encode(b"hello").decode())


def test_input_is_closed_by_its_channel_and_may_be_text():
    async def main():
        async with a_client() as (_, client):
            query = {"command": "cat", "stdin": "1", "stdout": "1"}
            async with a_websocket(client, "exec", query, "v5.channel.k8s.io") as websocket:
                await websocket.send_str("\0text ")
                await websocket.send_bytes(b"\0bytes")
                await websocket.send_bytes(b"\xff\0")
                return await to_the_end(websocket)

    channels = asyncio.run(main())

    assert channels[1] == b"text bytes"
    assert json.loads(channels[3]) == SUCCESS


def test_a_client_that_leaves_ends_its_command():
    async def main():
        async with a_client() as (bed, client):
            query = {"command": ["sleep", "600"], "stdout": "1"}
            async with a_websocket(client, "exec", query, "v4.channel.k8s.io") as websocket:
                await websocket.receive()
            return await bed.runtime.sessions[0].wait()

    assert asyncio.run(main()) == 128 + 9


def test_a_stream_that_was_not_asked_for_is_not_sent():
    async def main():
        async with a_client() as (_, client):
            command = ["sh", "-c", "echo out; echo err >&2"]
            return await run(client, command, "v4.channel.k8s.io", stdout="false")

    channels = asyncio.run(main())

    assert 1 not in channels
    assert channels[2] == b"err\n"


def test_input_that_was_not_announced_holds_nothing_up():
    async def main():
        async with a_client() as (bed, client):
            query = {"command": ["sleep", "600"], "stdout": "1"}
            async with a_websocket(client, "exec", query, "v5.channel.k8s.io") as websocket:
                for _ in range(200):
                    await websocket.send_bytes(b"\0unwanted")
                    await websocket.send_bytes(b'\4{"Width":80,"Height":24}')
            return await bed.runtime.sessions[0].wait(), bed.runtime.sessions[0].size

    assert asyncio.run(main()) == (128 + 9, None)


def test_a_terminal_gets_its_size_over_its_channel():
    async def main():
        async with a_client() as (_, client):
            until = 'until [ "$(stty size)" = "24 80" ]; do sleep 0.02; done'
            query = {"command": ["sh", "-c", until], "stdin": "1", "stdout": "1", "stderr": "1", "tty": "1"}
            async with a_websocket(client, "exec", query, "v4.channel.k8s.io") as websocket:
                await websocket.send_bytes(b'\4{"Width":80,"Height":24}')
                return await to_the_end(websocket)

    assert json.loads(asyncio.run(main())[3]) == SUCCESS


def test_a_reader_of_logs_that_leaves_lets_the_log_go():
    async def main():
        async with a_client() as (bed, client):
            await bed.runtime.log.add(b"one\n")
            async with client.get(f"{PODS}/log?follow=true") as response:
                first = await response.content.readline()
            await bed.runtime.log.released.wait()
            return first, response.headers["Content-Type"]

    assert asyncio.run(main()) == (b"one\n", "text/plain")


@pytest.mark.parametrize(
    ("query", "follows"), [("follow", True), ("follow=yes", True), ("follow=false", False), ("follow=0", False)]
)
def test_flags_are_read_as_kubernetes_reads_them(query, follows):
    async def main():
        async with a_client() as (bed, client):
            await bed.runtime.log.add(complete=True)
            async with client.get(f"{PODS}/log?{query}") as response:
                await response.read()
            return bed.runtime.asked[0]["follow"]

    assert asyncio.run(main()) is follows


async def shout(reader, writer):
    writer.write((await reader.readline()).upper())
    writer.close()


def test_ports_are_forwarded_over_plain_channels():
    async def main():
        server = await asyncio.start_server(shout, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, a_client() as (_, client):
            query = {"ports": [str(port), str(port)]}
            async with a_websocket(client, "portforward", query, "v4.channel.k8s.io") as websocket:
                await websocket.send_bytes(b"\0first\n")
                await websocket.send_bytes(b"\2second\n")
                return port.to_bytes(2, "little"), await to_the_end(websocket)

    port, channels = asyncio.run(main())

    assert channels == {0: port + b"FIRST\n", 1: port, 2: port + b"SECOND\n", 3: port}


def test_a_port_where_nobody_listens_is_told_on_its_error_channel():
    async def main():
        port = free_port()
        query, protocol = {"ports": str(port)}, "v4.channel.k8s.io"
        async with a_client() as (_, client), a_websocket(client, "portforward", query, protocol) as websocket:
            return port, await to_the_end(websocket)

    port, channels = asyncio.run(main())

    assert channels[1][2:].decode().startswith(f"error forwarding port {port} to pod trainer")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (b'{"Width":80,"Height":24}', (80, 24)),
        (b' {"Width":80,"Height":24}\n', (80, 24)),
        (b'{"Width":0,"Height":24}', None),
        (b'{"Width":70000,"Height":24}', None),
        (b'{"Width":80}', None),
        (b"80x24", None),
    ],
)
def test_the_size_of_a_terminal_is_read_or_ignored(text, size):
    assert size_of(text) == size
