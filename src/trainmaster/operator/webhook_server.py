"""The webhook as a part of the operator's process: serves `Admission` over HTTPS and keeps its certificate fresh.

The operator does not depend on it. A webhook without a certificate keeps the process from being ready, says why there
and in the log, and tries again; jobs run meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram

from trainmaster.kube import logs
from trainmaster.kube.errors import KubeError
from trainmaster.kube.health import Address, HealthServer, parse_address
from trainmaster.kube.http1_server import Answer
from trainmaster.kube.https import Handler, HttpsServer
from trainmaster.kube.metrics import SECONDS
from trainmaster.operator import webhook_protocol
from trainmaster.operator.options import Options
from trainmaster.operator.webhook import Admission, Result
from trainmaster.operator.webhook_certificates import REMEDY, DirectorySource, Injector, Material, SecretSource, Source
from trainmaster.operator.webhook_protocol import DEFAULT, NAME, VALIDATE
from trainmaster.operator.wiring import Parts

log = logs.get(__name__)

EVERY = 60.0
"""Seconds between two looks at the certificate and the registrations. Somebody may overwrite these at any time."""

SOON = 5.0
"""Seconds until another try to get a certificate, without which nothing is served."""

PATIENCE = 30.0
"""Seconds for one such look."""

_ADDRESS_FLAG, _SERVICE_FLAG = "--webhook-bind-address", "--webhook-service"


class BadService(KubeError):
    """A flag that names no Service."""


def add(parts: Parts, health: HealthServer, home: str) -> None:
    """To the operator, if its options ask for it. `home` is the namespace it lives in."""
    address = parse_address(parts.options.webhook_bind_address, _ADDRESS_FLAG)
    if address is None:
        return
    name, namespace = service_of(parts.options, home)
    metrics = WebhookMetrics(parts.metrics.registry)
    admission = Admission(parts.frameworks, parts.options.settings, metrics.answered)
    routes = {VALIDATE: metrics.timed(VALIDATE, admission.validate), DEFAULT: metrics.timed(DEFAULT, admission.default)}
    server = HttpsServer(address, routes, webhook_protocol.refused, flag=_ADDRESS_FLAG)
    source = _source(parts, name, namespace, address)
    keeper = Keeper(server, source, Injector(parts.client, parts.options.webhook_registration or name))
    parts.manager.add_server(server, name="webhook")
    parts.manager.add_server(keeper, name="webhook certificate")
    health.add_check("webhook", lambda: keeper.trouble or None)


def service_of(options: Options, home: str) -> tuple[str, str]:
    """Name and namespace."""
    name, dot, namespace = (options.webhook_service or f"{NAME}.{home}").partition(".")
    if not (name and dot and namespace) or "." in namespace:
        raise BadService(
            f"{_SERVICE_FLAG}: {options.webhook_service!r} is not a Service such as {NAME}.{home}: NAME.NAMESPACE"
        )
    return name, namespace


def _source(parts: Parts, name: str, namespace: str, address: Address) -> Source:
    if parts.options.webhook_cert_dir:
        return DirectorySource(Path(parts.options.webhook_cert_dir))
    service = f"{name}.{namespace}.svc"
    # Who listens on one address only may be registered by URL, with that address.
    hosts = [service, f"{service}.cluster.local", *([address.host] if address.host else [])]
    return SecretSource(parts.client, name, namespace, hosts, parts.now)


class Keeper:
    """Runs until cancelled, beside the server."""

    def __init__(self, server: HttpsServer, source: Source, injector: Injector) -> None:
        self._server, self._source, self._injector = server, source, injector
        self._shown: Material | None = None
        self._faults: dict[str, str] = {}

    @property
    def trouble(self) -> str:
        """Why nobody is to call us; empty when all may. A missing registration is no reason: people delete one to get
        the webhook out of their way."""
        waiting = "" if self._server.listening.is_set() else "not listening yet"
        return self._faults.get("certificate", waiting)

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(SOON if "certificate" in self._faults else EVERY)

    async def look(self) -> None:
        """Trust goes first: a certificate is shown only after the API server was told who signs it."""
        material = await self._tried("certificate", self._source.current)
        if material is None:
            return
        if material.trusted:
            await self._tried("registration", lambda: self._inject(material.trusted))
        if material != self._shown:
            await self._tried("certificate", lambda: self._show(material))

    async def _inject(self, trusted: bytes) -> None:
        if not await self._injector.inject(trusted):
            raise KubeError(f"the webhook is registered nowhere, so nobody calls it: {REMEDY}")

    async def _show(self, material: Material) -> None:
        self._server.present(material.certificate, material.key)
        self._shown = material

    async def _tried(self, part: str, act: Callable[[], Any]) -> Any:
        """What it gives, or None: a fault is told once, not once a minute, and the next look tries again."""
        try:
            async with asyncio.timeout(PATIENCE):
                result = await act()
        except (KubeError, TimeoutError) as error:
            fault = str(error) or f"no answer within {PATIENCE:g} s"
            if self._faults.get(part) != fault:
                log.error("webhook not in order", part=part, error=fault)
            self._faults[part] = fault
            return None
        self._faults.pop(part, None)
        return result


class WebhookMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        answers = Counter(
            "trainmaster_webhook_answers_total", "Answers to the API server", ("result",), registry=registry
        )
        self._answers = {result: answers.labels(result) for result in get_args(Result)}
        self._seconds = Histogram(
            "trainmaster_webhook_duration_seconds", "Time to decide", ("path",), buckets=SECONDS, registry=registry
        )

    def answered(self, result: Result) -> None:
        self._answers[result].inc()

    def timed(self, path: str, handler: Handler) -> Handler:
        seconds = self._seconds.labels(path)

        def handle(body: bytes) -> Answer:
            with seconds.time():
                return handler(body)

        return handle
