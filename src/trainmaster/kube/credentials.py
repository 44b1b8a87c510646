"""How we prove who we are: nothing, a fixed header, a token file that rotates, a plugin that is run.

`config` picks one from a kubeconfig; `transport` asks it for headers at every request and calls `refresh` once
when the server answers 401. None of these shows its secret in repr, logs or errors.

House rule "one place starts processes" has its one exception here: kubeconfigs of most managed clusters name an
exec plugin, and without running it there is no token.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import signal
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from trainmaster.kube import errors
from trainmaster.objects import timestamp
from trainmaster.objects.learning import learn

REREAD = 60.0
"""Seconds between looks at a token file; the kubelet rotates it at 80 % of an hour or more."""

EXEC_VERSIONS = tuple(f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
_EXEC_TIMEOUT = 60.0
_ASKED_JUST_NOW = 5.0  # many requests meet the same 401 at once; the plugin is run for the first of them
_LEEWAY = 5.0  # an answer this close to its end may expire on the way


class Credentials(Protocol):
    async def headers(self) -> Mapping[str, str]: ...

    async def refresh(self) -> bool:
        """Looks for something newer than what the server just refused; False when there is no point in trying again."""
        ...

    def tls(self) -> ssl.SSLContext | None:
        """A context with a client certificate that came as a credential; None: the configured one will do."""
        ...


class Fixed:
    """Headers that never change: none at all, a token, a user name with its password."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        self._headers = dict(headers or {})

    @classmethod
    def bearer(cls, token: str) -> Fixed:
        return cls({"Authorization": f"Bearer {token}"})

    @classmethod
    def basic(cls, username: str, password: str) -> Fixed:
        pair = base64.b64encode(f"{username}:{password}".encode()).decode()
        return cls({"Authorization": f"Basic {pair}"})

    async def headers(self) -> Mapping[str, str]:
        return self._headers

    async def refresh(self) -> bool:
        return False

    def tls(self) -> ssl.SSLContext | None:
        return None


class TokenFile:
    """A bearer token in a file that someone else keeps fresh."""

    def __init__(self, path: Path, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._monotonic = monotonic
        self._token = ""
        self._read_at = float("-inf")

    async def headers(self) -> Mapping[str, str]:
        if self._monotonic() - self._read_at >= REREAD:
            await self._read()
        return {"Authorization": f"Bearer {self._token}"}

    async def refresh(self) -> bool:
        await self._read()
        return True

    def tls(self) -> ssl.SSLContext | None:
        return None

    async def _read(self) -> None:
        self._read_at = self._monotonic()
        try:
            token = (await asyncio.to_thread(self._path.read_text, "utf-8")).strip()
        except (OSError, UnicodeDecodeError) as error:
            token, why = "", str(error)
        else:
            why = "it is empty"
        if token:
            self._token = token
        elif not self._token:  # a file that is gone for a moment while it rotates does not cost us the token we hold
            raise errors.ConfigError(f"token file {self._path}: {why}; a bearer token is expected there")


@dataclass(frozen=True, slots=True)
class Plugin:
    """An `exec` section: what to run, and what to tell who cannot run it."""

    source: str
    """Where it is written: the file and the user entry."""
    api_version: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = None
    """What a plugin with provideClusterInfo is told about the cluster."""


class _ExecStatus(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: str | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    kind: str
    api_version: str
    status: _ExecStatus


class Exec:
    """Asks a plugin, and keeps its answer until it expires or the server refuses it."""

    def __init__(
        self,
        plugin: Plugin,
        tls_with: Callable[[bytes], ssl.SSLContext],
        *,
        environ: Mapping[str, str] = os.environ,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._plugin = plugin
        self._tls_with = tls_with
        self._environ = environ
        self._now = now
        self._lock = asyncio.Lock()
        self._headers: Mapping[str, str] | None = None
        self._tls: ssl.SSLContext | None = None
        self._asked_at = float("-inf")
        self._expires: float | None = None

    async def headers(self) -> Mapping[str, str]:
        async with self._lock:
            if self._headers is None or (self._expires is not None and self._now() >= self._expires - _LEEWAY):
                self._headers = await self._ask()
            return self._headers

    async def refresh(self) -> bool:
        async with self._lock:
            if self._now() - self._asked_at > _ASKED_JUST_NOW:
                self._headers = await self._ask()
            return True

    def tls(self) -> ssl.SSLContext | None:
        return self._tls

    async def _ask(self) -> Mapping[str, str]:
        status = self._parse(await self._output())
        certificate, key = status.client_certificate_data or "", status.client_key_data or ""
        if bool(certificate) != bool(key) or not (status.token or certificate):
            raise self._error("gave neither a token nor a client certificate with its key")
        if certificate:
            self._tls = await self._context(f"{certificate}\n{key}".encode())
        self._asked_at = self._now()
        self._expires = timestamp.parse(status.expiration_timestamp)
        return {"Authorization": f"Bearer {status.token}"} if status.token else {}

    async def _context(self, identity: bytes) -> ssl.SSLContext:
        """A new one each time: connections that showed the old certificate are not used again."""
        try:
            return await asyncio.to_thread(self._tls_with, identity)
        except ssl.SSLError as error:
            raise self._error(f"gave a client certificate and key that do not work: {error.reason}") from None

    async def _output(self) -> bytes:
        """What the plugin prints. Its stderr is ours, as with kubectl: login prompts and reasons reach the user."""
        process = await self._start()
        try:
            async with asyncio.timeout(_EXEC_TIMEOUT):
                output, _ = await process.communicate()
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with its children, who hold its output open
            await process.wait()
            if isinstance(error, TimeoutError):
                raise self._error(f"did not end within {_EXEC_TIMEOUT:g} s") from None
            raise
        if process.returncode:
            raise self._error(f"ended with exit code {process.returncode}")
        return output

    async def _start(self) -> asyncio.subprocess.Process:
        plugin = self._plugin
        spec: dict[str, Any] = {"interactive": False}
        if plugin.cluster is not None:
            spec["cluster"] = plugin.cluster
        info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
        env = {**self._environ, **plugin.env, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
        command = shutil.which(plugin.command, path=env.get("PATH"))
        if command is None:
            raise self._error("is not installed or not executable")
        try:
            return await asyncio.create_subprocess_exec(
                command,
                *plugin.args,
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                process_group=0,
            )
        except OSError as error:
            raise self._error(f"cannot be run: {error.strerror}") from None

    def _parse(self, output: bytes) -> _ExecStatus:
        try:
            answer = msgspec.json.decode(output, type=_ExecCredential)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._error("did not print an ExecCredential with a status") from None
        if answer.kind != "ExecCredential" or answer.api_version != self._plugin.api_version:
            wanted = f"ExecCredential of {self._plugin.api_version}"
            raise self._error(f"printed a {answer.kind} of {answer.api_version}, not the {wanted} it was asked for")
        return answer.status

    def _error(self, what: str) -> errors.ConfigError:
        hint = f"\n{self._plugin.install_hint.strip()}" if self._plugin.install_hint else ""
        return errors.ConfigError(f"{self._plugin.source}: credential plugin {self._plugin.command} {what}{hint}")


learn(_ExecCredential)
