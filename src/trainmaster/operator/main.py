"""The operator as a process: from options to an orderly end."""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
import time
from collections.abc import Callable

from trainmaster import frameworks
from trainmaster.kube import config as kubeconfig
from trainmaster.kube import connections, logs
from trainmaster.kube.client import Client, Observer
from trainmaster.kube.errors import KubeError
from trainmaster.kube.health import HealthServer
from trainmaster.kube.lease import LeaderElector
from trainmaster.kube.manager import Manager
from trainmaster.kube.metrics import KubeMetrics
from trainmaster.kube.transport import HttpTransport, Transport
from trainmaster.operator.options import Options
from trainmaster.operator.wiring import Parts, assemble

log = logs.get(__name__)

IMPATIENCE = 10.0
"""Seconds for an answer before anything runs: a server that is silent then is told of soon, and asked again."""


def run(options: Options) -> int:
    """Runs until told to stop. The exit code: 0 for an orderly end, 1 when something made it end."""
    connections.slim_down()
    try:
        asyncio.run(_run_process(options))
    except KubeError as error:
        log.error("operator stopped", error=str(error))
        return 1
    return 0


async def _run_process(options: Options) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    config = kubeconfig.load(options.kubeconfig or None, options.context or None)
    log.info("connecting", server=config.server, namespace=options.namespace or "all")
    await operate(options, HttpTransport(config), stop, home=config.namespace)


async def operate(
    options: Options,
    transport: Transport,
    stop: asyncio.Event,
    *,
    home: str = "default",
    now: Callable[[], float] = time.time,
) -> None:
    """The whole operator over any transport. `home` is the namespace it lives in."""
    metrics = KubeMetrics()
    client = Client(transport, observer=metrics.request)
    manager = Manager()
    try:
        asking = Client(transport, observer=_telling(metrics.request), timeout=IMPATIENCE)
        parts = Parts(options, frameworks.enabled(options.schemes), client, asking, manager, metrics, now)
        health = _health(options, manager, metrics)
        manager.add_server(health)
        manager.set_preparation(lambda: assemble(parts))
        if options.webhook_bind_address:
            # Certificates cost ten megabytes, which an operator without webhooks need not carry.
            from trainmaster.operator import webhook_server

            webhook_server.add(parts, health, home)
        if options.leader_elect:
            manager.set_elector(_elector(options, client, metrics, home, now))
        else:
            metrics.leader(True)
        await manager.run(stop)
    finally:
        await client.close()


def _health(options: Options, manager: Manager, metrics: KubeMetrics) -> HealthServer:
    server = HealthServer(
        health=options.health_probe_bind_address, metrics=options.metrics_bind_address, render=metrics.render
    )

    def caches() -> str | None:
        return None if manager.is_ready else f"waiting for {', '.join(manager.unsynced) or 'the API server'}"

    server.add_check("caches", caches)
    return server


def _telling(observer: Observer) -> Observer:
    def tell(method: str, plural: str, code: int | str, seconds: float) -> None:
        observer(method, plural, code, seconds)
        if isinstance(code, str) or code == 429 or code >= 500:
            log.warning("no answer from the API server yet", got=code, seconds=round(seconds, 1))

    return tell


def _elector(
    options: Options, client: Client, metrics: KubeMetrics, home: str, now: Callable[[], float]
) -> LeaderElector:
    return LeaderElector(
        client,
        name=options.leader_election_id,
        namespace=options.leader_election_namespace or home,
        identity=f"{socket.gethostname()}_{secrets.token_hex(4)}",
        now=now,
        on_change=metrics.leader,
    )
