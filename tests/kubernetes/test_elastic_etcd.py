"""Elastic jobs against a real etcd: its JSON gateway is what we speak."""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from trainmaster.api.framework import Shared
from trainmaster.kube.config import Config
from trainmaster.kube.transport import HttpTransport, Request
from trainmaster.operator.elastic import Etcd, Followed, url_of
from trainmaster.testing.ports import free_port

KEY = "/paddle/default-job/np"
READY = "ready to serve client requests"


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    program = shutil.which("etcd")
    assert program, "etcd is needed on the PATH; Debian's package is etcd-server"
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    command = [program, f"--data-dir={tmp_path}", f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
    command += [
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert any(READY in line for line in running.stderr), "etcd ended before it was ready"
        yield client.removeprefix("http://")
        running.terminate()
        running.stderr.read()


async def written(endpoint: str, value: str) -> None:
    """As a launcher writes it."""
    body = {name: base64.b64encode(text.encode()).decode() for name, text in (("key", KEY), ("value", value))}
    transport = HttpTransport(Config(server=url_of(endpoint)))
    try:
        answer = await transport.send(Request("POST", "/v3/kv/put", body=msgspec.json.encode(body)))
        assert answer.status == 200
    finally:
        await transport.close()


def test_a_value_follows_once_the_launcher_has_made_its_key(endpoint: str) -> None:
    wanted = Shared(KEY, "3", "scaled replicas to 3")
    changed = []

    async def main() -> None:
        etcd = Etcd(["127.0.0.1:1", endpoint])
        async with asyncio.TaskGroup() as group:
            closing = group.create_task(etcd.run(), name="etcd")
            changed.append(await etcd.follow([wanted]))
            await written(endpoint, "2")
            changed.append(await etcd.follow([wanted]))
            changed.append(await etcd.follow([wanted]))
            closing.cancel()

    asyncio.run(main())

    assert changed == [Followed(missing=(wanted,)), Followed(changed=(wanted,)), Followed()]
