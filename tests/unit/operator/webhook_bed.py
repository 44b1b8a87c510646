"""Operators with a webhook on an API server in memory, and a client that trusts what that server is told to trust."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from cryptography import x509

from trainmaster.objects.resource import SECRETS
from trainmaster.operator import webhook_server
from trainmaster.operator.main import operate
from trainmaster.operator.options import Options
from trainmaster.operator.webhook_protocol import MUTATING, NAME, VALIDATING
from trainmaster.testing.clock import Clock
from trainmaster.testing.fakeapi import FakeApi
from trainmaster.testing.operation import OFF, an_api
from trainmaster.testing.ports import free_port
from trainmaster.testing.scene import a_job

HOME = "trainmaster-system"
HOST = f"{NAME}.{HOME}.svc"
DAY = 86400.0
NO_CHECK_TIME = 0x200000
"""Of OpenSSL: the real clock says nothing of a certificate made in virtual time. `Replica.shown` looks at its dates."""


def installed(*, secret: bool = True, registered: bool = True) -> FakeApi:
    """As `trainmaster manifests --webhooks all` leaves it, before any operator has run."""
    api = FakeApi(an_api([SECRETS, VALIDATING, MUTATING]).resources)
    if secret:
        api.put(SECRETS, {"metadata": {"name": NAME, "namespace": HOME}})
    for resource in (VALIDATING, MUTATING) if registered else ():
        webhook = {"name": "validate.trainmaster.dev", "clientConfig": {"service": {"name": NAME}}, "timeoutSeconds": 5}
        api.put(resource, {"metadata": {"name": NAME}, "webhooks": [webhook]})
    return api


def bundle(api: FakeApi, resource: Any = VALIDATING) -> str:
    """What the API server is told to trust, as PEM."""
    config = api.object(resource, "", NAME)["webhooks"][0]["clientConfig"]
    return base64.b64decode(config.get("caBundle", "")).decode()


class Calendar:
    """Virtual wall time that may jump by months while the loop's goes on by minutes."""

    def __init__(self) -> None:
        self._leapt = 0.0

    def now(self) -> float:
        return Clock().now() + self._leapt

    async def passes(self, days: float) -> None:
        """Returns when the operators have looked at it."""
        self._leapt += days * DAY
        await asyncio.sleep(2 * webhook_server.EVERY)


class Replica:
    """An operator with a webhook, and a client that trusts what the API server is told."""

    def __init__(self, api: FakeApi, calendar: Calendar | None = None, **options: Any) -> None:
        self.api, self.port = api, free_port()
        self._now = (calendar or Calendar()).now
        address = f"127.0.0.1:{self.port}"
        self._options = Options(**{**OFF, "webhook_bind_address": address, **options})
        self._stop = asyncio.Event()

    async def run(self) -> None:
        await operate(self._options, self.api, self._stop, home=HOME, now=self._now)

    def stop(self) -> None:
        self._stop.set()

    async def shown(self) -> x509.Certificate:
        """The certificate, after it was verified."""
        context = ssl.create_default_context(cadata=bundle(self.api))
        context.verify_flags |= NO_CHECK_TIME
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname=HOST)
        shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert await refuses(reader, writer)
        writer.close()
        await writer.wait_closed()
        certificate = x509.load_der_x509_certificate(shown)
        now = datetime.fromtimestamp(self._now(), UTC)
        assert certificate.not_valid_before_utc < now < certificate.not_valid_after_utc
        return certificate


async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Whether a bad job is refused over this connection."""
    job = a_job("PyTorchJob", "bad").role("Master", 2).manifest
    request = {"uid": "1", "operation": "CREATE", "object": job}
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()
    head = f"POST /validate?timeout=5s HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    said = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    answer = json.loads(await reader.readexactly(int(said.partition("content-length: ")[2].partition("\r\n")[0])))
    return answer["response"]["allowed"] is False


@asynccontextmanager
async def running(*replicas: Replica) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        for number, replica in enumerate(replicas):
            group.create_task(replica.run(), name=f"replica {number}")
        await asyncio.sleep(1)
        try:
            yield
        finally:
            for replica in replicas:
                replica.stop()


async def connects(replica: Replica, context: ssl.SSLContext) -> bool:
    held = await asyncio.open_connection("127.0.0.1", replica.port, ssl=context, server_hostname=HOST)
    answered = await refuses(*held)
    held[1].close()
    await held[1].wait_closed()
    return answered
