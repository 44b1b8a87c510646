"""Where the webhook's certificate comes from, and who is told to trust it.

A `SecretSource` keeps one in a Secret that all replicas share: whoever finds it old replaces it, the others read it. A
`DirectorySource` reads one that somebody else keeps. `Injector` writes the authorities into the registrations of the
webhook, so that the API server trusts it.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from trainmaster.kube import logs
from trainmaster.kube.client import Client
from trainmaster.kube.errors import Conflict, KubeError, NotFound
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import SECRETS, Resource
from trainmaster.operator import certificates
from trainmaster.operator.webhook_protocol import MUTATING, VALIDATING

log = logs.get(__name__)

REMEDY = "apply what `trainmaster manifests --webhooks validating` prints"
ATTEMPTS = 5
"""To write what another replica writes at the same time."""


class NoCertificate(KubeError):
    """There is none to be had; says what to do about it."""


@dataclass(frozen=True, slots=True)
class Material:
    """All as PEM."""

    certificate: bytes
    key: bytes
    trusted: bytes = b""
    """Whom the API server is to trust; nothing leaves that to others."""


class Source(Protocol):
    async def current(self) -> Material: ...


class SecretSource:
    def __init__(
        self, client: Client, name: str, namespace: str, hosts: Sequence[str], now: Callable[[], float]
    ) -> None:
        self._client, self._name, self._namespace = client, name, namespace
        self._hosts, self._now = tuple(hosts), now

    async def current(self) -> Material:
        """What the Secret holds, replaced before if it is old."""
        for _ in range(ATTEMPTS):
            secret = await self._secret()
            held = certificates.parse(secret.get("data") or {})
            wanted = certificates.renewed(held, self._hosts, self._now())
            if wanted is held or await self._wrote(secret, wanted):
                serving = wanted.serving
                return Material(serving.pem, serving.key_pem, wanted.trusted)
        raise NoCertificate(f"Secret {self._place} changes faster than it can be written")

    @property
    def _place(self) -> str:
        return f"{self._namespace}/{self._name}"

    async def _secret(self) -> dict[str, Any]:
        try:
            return await self._client.get(SECRETS, self._name, self._namespace)
        except NotFound as error:
            raise NoCertificate(f"Secret {self._place} for the webhook's certificate is missing: {REMEDY}") from error

    async def _wrote(self, secret: Json, keyring: certificates.Keyring) -> bool:
        """Whether it was we: of several replicas one wins, and the others read again."""
        version = secret["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "data": certificates.render(keyring)}
        try:
            await self._client.patch(SECRETS, self._name, body, self._namespace)
        except Conflict:
            return False
        ends = keyring.serving.certificate.not_valid_after_utc.isoformat()
        log.info("webhook certificate renewed", secret=self._place, ends=ends)
        return True


class DirectorySource:
    """`tls.crt` and `tls.key`, as cert-manager and kubectl name them; `ca.crt` if the operator is to inject it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def current(self) -> Material:
        return await asyncio.to_thread(self._read)

    def _read(self) -> Material:
        try:
            certificate, key = (
                (self._directory / name).read_bytes() for name in (certificates.CERTIFICATE, certificates.KEY)
            )
            authorities = self._directory / certificates.AUTHORITIES
            return Material(certificate, key, authorities.read_bytes() if authorities.exists() else b"")
        except OSError as error:
            raise NoCertificate(
                f"--webhook-cert-dir must hold {certificates.CERTIFICATE} and {certificates.KEY}: {error}"
            ) from error


class Injector:
    """Writes `caBundle` into every webhook of the configurations of this name; those that are missing are left out."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self._name = client, name

    async def inject(self, trusted: bytes) -> int:
        """How many configurations there are."""
        bundle = base64.b64encode(trusted).decode()
        return sum([await self._injected(resource, bundle) for resource in (VALIDATING, MUTATING)])

    async def _injected(self, resource: Resource, bundle: str) -> bool:
        for _ in range(ATTEMPTS):
            try:
                held = await self._client.get(resource, self._name)
                wanted = [_trusting(webhook, bundle) for webhook in held.get("webhooks") or ()]
                if wanted == (held.get("webhooks") or []):
                    return True
                body = {"metadata": {"resourceVersion": held["metadata"]["resourceVersion"]}, "webhooks": wanted}
                await self._client.patch(resource, self._name, body)
            except NotFound:
                return False
            except Conflict:
                continue
            log.info("authority injected", kind=resource.kind, name=self._name)
            return True
        raise NoCertificate(f"{resource.kind} {self._name} changes faster than it can be written")


def _trusting(webhook: Json, bundle: str) -> Json:
    return {**webhook, "clientConfig": {**webhook.get("clientConfig", {}), "caBundle": bundle}}
