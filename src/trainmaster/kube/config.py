"""Where the API server is and how to speak to it: kubeconfig files, or the service account of our own pod.

`load` looks in the order kubectl does and merges as kubectl does. What comes out is a `Config`, all that
`transport` needs; who we are is left to `credentials`. Key material given inline touches the disk only in a private
directory and only while OpenSSL reads it, for OpenSSL reads files alone.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from trainmaster.kube import credentials as auth
from trainmaster.kube import errors
from trainmaster.kube.credentials import Credentials
from trainmaster.objects import yamldocument
from trainmaster.objects.learning import learn

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_CLUSTER_EXTENSION = "client.authentication.k8s.io/exec"  # the one extension that plugins are told about


@dataclass(frozen=True, slots=True)
class Config:
    server: str
    tls: ssl.SSLContext | None = None
    """None speaks plain HTTP."""
    credentials: Credentials = field(default_factory=auth.Fixed)
    namespace: str = "default"
    """Where a user without `-n` is."""
    proxy: str = field(default="", repr=False)  # may hold a password
    tls_server_name: str = ""


def load(kubeconfig: str | None = None, context: str | None = None, environ: Mapping[str, str] = os.environ) -> Config:
    """The explicit file, else $KUBECONFIG, else the pod we run in, else ~/.kube/config."""
    if kubeconfig:
        return _from_files([Path(kubeconfig).expanduser()], context, environ)
    if listed := [Path(name) for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]:
        if existing := [path for path in listed if _is_there(path)]:
            return _from_files(existing, context, environ)
        # Not on to ~/.kube/config: who set the variable did not mean that cluster.
        raise errors.ConfigError(
            f"$KUBECONFIG names no existing file: {', '.join(map(str, listed))}; correct or unset it"
        )
    if not context and environ.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").exists():
        return _in_cluster(environ)
    home = Path(environ.get("HOME") or Path.home()) / ".kube" / "config"
    if _is_there(home):
        return _from_files([home], context, environ)
    raise errors.ConfigError(
        "no cluster is configured. Looked at: --kubeconfig (not given), $KUBECONFIG (not set), "
        f"the pod's service account in {SERVICE_ACCOUNT} (not there), {home} (no such file)"
    )


def _is_there(path: Path) -> bool:
    """Also in a directory that we may not look into: reading it then says so."""
    try:
        return path.exists()
    except PermissionError:
        return True


class _Extension(msgspec.Struct):
    name: str = ""
    extension: Any = None


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None
    extensions: list[_Extension] | None = None


class _Variable(msgspec.Struct):
    name: str
    value: str


class _Exec(msgspec.Struct, rename="camel"):
    command: str
    api_version: str
    args: list[str] | None = None
    env: list[_Variable] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool | None = None


class _User(msgspec.Struct, rename="kebab"):
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    username: str | None = None
    password: str | None = None
    exec: _Exec | None = None
    auth_provider: dict[str, Any] | None = None
    impersonate: str | None = msgspec.field(default=None, name="as")


class _Context(msgspec.Struct):
    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _Cluster


class _NamedUser(msgspec.Struct):
    name: str
    user: _User


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context


class _File(msgspec.Struct, rename="kebab"):
    current_context: str | None = None
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


@dataclass(slots=True)
class _Merged:
    """Entries by name, each with the file it came from: the first file that names an entry or a context wins."""

    context: str = ""
    clusters: dict[str, tuple[_Cluster, Path]] = field(default_factory=dict)
    users: dict[str, tuple[_User, Path]] = field(default_factory=dict)
    contexts: dict[str, tuple[_Context, Path]] = field(default_factory=dict)

    def add(self, file: _File, path: Path) -> None:
        self.context = self.context or file.current_context or ""
        for cluster in file.clusters or ():
            self.clusters.setdefault(cluster.name, (cluster.cluster, path))
        for user in file.users or ():
            self.users.setdefault(user.name, (user.user, path))
        for context in file.contexts or ():
            self.contexts.setdefault(context.name, (context.context, path))


def _from_files(paths: list[Path], wanted: str | None, environ: Mapping[str, str]) -> Config:
    merged = _Merged()
    for path in paths:
        merged.add(_read(path), path)
    name = wanted or merged.context
    if name not in merged.contexts:
        what = f"has no context {name!r}" if name else "has no current-context"
        known = ", ".join(merged.contexts) or "none"
        raise errors.ConfigError(f"{', '.join(map(str, paths))} {what}; choose one with --context: {known}")
    context, path = merged.contexts[name]
    if context.cluster not in merged.clusters:
        raise errors.ConfigError(f"{path}: context {name!r} names the cluster {context.cluster!r}, which is not there")
    if context.user and context.user not in merged.users:
        raise errors.ConfigError(f"{path}: context {name!r} names the user {context.user!r}, which is not there")
    cluster = _ClusterEntry(context.cluster or "", *merged.clusters[context.cluster or ""])
    user = _UserEntry(context.user or "", *merged.users.get(context.user or "", (_User(), path)))
    return _assemble(cluster, user, context.namespace or "default", environ)


def _read(path: Path) -> _File:
    try:
        content = yamldocument.document(path.read_bytes())
    except OSError as error:
        raise errors.ConfigError(f"kubeconfig {path}: {error.strerror}") from None
    except yamldocument.BadYaml as error:
        # Neither quoted nor chained: the text around the mistake may be a token.
        line = f" at {error.where.partition(',')[0]}" if error.where else ""
        raise errors.ConfigError(f"kubeconfig {path}: not valid YAML{line}") from None
    try:
        return msgspec.convert(content or {}, _File)
    except msgspec.ValidationError as error:
        raise errors.ConfigError(f"kubeconfig {path}: {error}") from None


@dataclass(frozen=True, slots=True)
class _ClusterEntry:
    name: str
    fields: _Cluster = field(repr=False)
    path: Path

    @property
    def server(self) -> str:
        server = self.fields.server or ""
        if urlsplit(server).scheme not in ("http", "https") or not urlsplit(server).hostname:
            raise self.error("server", f"{server!r} is not a URL such as https://host:6443")
        return server

    @property
    def authority(self) -> bytes:
        fields = self.fields
        return _material(self, "certificate-authority", fields.certificate_authority, fields.certificate_authority_data)

    @property
    def proxy(self) -> str:
        proxy = self.fields.proxy_url or ""
        if proxy and urlsplit(proxy).scheme not in ("http", "https"):
            raise self.error("proxy-url", "only http:// and https:// proxies are supported")
        return proxy

    def tls(self) -> ssl.SSLContext:
        """How this cluster is recognised."""
        insecure, authority = bool(self.fields.insecure_skip_tls_verify), self.authority
        if insecure and authority:
            raise self.error("insecure-skip-tls-verify", "contradicts certificate-authority; remove one of the two")
        try:
            context = _trusting(authority)
        except ssl.SSLError as error:
            raise self.error("certificate-authority", f"not PEM certificates: {error.reason or error}") from None
        if insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def tls_showing(self, identity: bytes) -> ssl.SSLContext:
        """The same, with a certificate and key of ours; ssl.SSLError when those do not work."""
        context = self.tls()
        _show(context, identity)
        return context

    def described(self) -> dict[str, Any]:
        """As KUBERNETES_EXEC_INFO tells a plugin about it."""
        extensions = {entry.name: entry.extension for entry in self.fields.extensions or ()}
        told = {
            "server": self.server,
            "tls-server-name": self.fields.tls_server_name,
            "insecure-skip-tls-verify": self.fields.insecure_skip_tls_verify,
            "certificate-authority-data": base64.b64encode(self.authority).decode(),
            "proxy-url": self.fields.proxy_url,
            "config": extensions.get(_CLUSTER_EXTENSION),
        }
        return {name: value for name, value in told.items() if value}

    def error(self, name: str, what: str) -> errors.ConfigError:
        return errors.ConfigError(f"kubeconfig {self.path}: cluster {self.name!r}: {name}: {what}")


@dataclass(frozen=True, slots=True)
class _UserEntry:
    name: str
    fields: _User = field(repr=False)
    path: Path

    def tls(self, cluster: _ClusterEntry) -> ssl.SSLContext:
        identity = self._identity()
        try:
            return cluster.tls_showing(identity) if identity else cluster.tls()
        except ssl.SSLError as error:
            reason = f"not a matching pair of PEM texts, the key unencrypted: {error.reason or error}"
            raise self.error("client-certificate, client-key", reason) from None

    def _identity(self) -> bytes:
        """Client certificate and key as one PEM text; empty where the user has none."""
        fields = self.fields
        certificate = _material(self, "client-certificate", fields.client_certificate, fields.client_certificate_data)
        key = _material(self, "client-key", fields.client_key, fields.client_key_data)
        if bool(certificate) != bool(key):
            raise self.error("client-certificate, client-key", "these come together or not at all")
        return certificate + b"\n" + key if certificate else b""

    def credentials(self, cluster: _ClusterEntry, environ: Mapping[str, str]) -> Credentials:
        fields = self.fields
        if fields.token_file:
            return auth.TokenFile(self.path.parent / fields.token_file)
        if fields.token:
            return auth.Fixed.bearer(fields.token)
        if fields.username:
            return auth.Fixed.basic(fields.username, fields.password or "")
        if fields.exec:
            return auth.Exec(self._plugin(fields.exec, cluster), cluster.tls_showing, environ=environ)
        return auth.Fixed()

    def check(self) -> None:
        """Refuses what we would otherwise silently ignore, and then act as someone else."""
        if self.fields.auth_provider is not None:
            raise self.error("auth-provider", "no longer supported by Kubernetes; use the exec plugin of your provider")
        if self.fields.impersonate:
            raise self.error("as", "impersonation is not supported; use a user of its own")

    def _plugin(self, entry: _Exec, cluster: _ClusterEntry) -> auth.Plugin:
        if entry.api_version not in auth.EXEC_VERSIONS:
            raise self.error("exec.apiVersion", f"{entry.api_version!r} is none of {', '.join(auth.EXEC_VERSIONS)}")
        return auth.Plugin(
            source=f"kubeconfig {self.path}: user {self.name!r}",
            api_version=entry.api_version,
            # A bare name is looked up in PATH, as kubectl does; ./plugin lies beside the kubeconfig.
            command=str(self.path.parent / entry.command) if "/" in entry.command else entry.command,
            args=tuple(entry.args or ()),
            env={variable.name: variable.value for variable in entry.env or ()},
            install_hint=entry.install_hint or "",
            cluster=cluster.described() if entry.provide_cluster_info else None,
        )

    def error(self, name: str, what: str) -> errors.ConfigError:
        return errors.ConfigError(f"kubeconfig {self.path}: user {self.name!r}: {name}: {what}")


def _assemble(cluster: _ClusterEntry, user: _UserEntry, namespace: str, environ: Mapping[str, str]) -> Config:
    if urlsplit(cluster.server).scheme == "http":
        # As kubectl: secrets are not sent where anyone can read them.
        return Config(cluster.server, namespace=namespace, proxy=cluster.proxy)
    user.check()
    return Config(
        cluster.server,
        tls=user.tls(cluster),
        credentials=user.credentials(cluster, environ),
        namespace=namespace,
        proxy=cluster.proxy,
        tls_server_name=cluster.fields.tls_server_name or "",
    )


def _material(entry: _ClusterEntry | _UserEntry, name: str, file: str | None, data: str | None) -> bytes:
    """Inline data, which wins as with kubectl, or the file, relative to the kubeconfig."""
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error:
            raise entry.error(f"{name}-data", "not valid base64") from None
    if not file:
        return b""
    try:
        return (entry.path.parent / file).read_bytes()
    except OSError as error:
        raise entry.error(name, f"{error.filename}: {error.strerror}") from None


def _trusting(authority: bytes) -> ssl.SSLContext:
    """Trusts these PEM certificates, or the system's when there are none."""
    context = ssl.create_default_context(cadata=authority.decode("ascii", "ignore") if authority else None)
    # Trust what Go trusts: cluster CAs often lack the extensions that strict checking wants, and may be intermediates.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _show(context: ssl.SSLContext, identity: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="trainmaster-") as private:  # 0700
        path = Path(private) / "identity.pem"
        path.touch(mode=0o600)
        path.write_bytes(identity)
        context.load_cert_chain(path, password=b"")  # an encrypted key must fail, not ask on the terminal


def _in_cluster(environ: Mapping[str, str]) -> Config:
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        authority = (SERVICE_ACCOUNT / "ca.crt").read_bytes()
        namespace = (SERVICE_ACCOUNT / "namespace").read_text("utf-8").strip()
    except OSError as error:
        raise errors.ConfigError(f"the pod's service account: {error.filename}: {error.strerror}") from None
    return Config(
        f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        tls=_trusting(authority),
        credentials=auth.TokenFile(SERVICE_ACCOUNT / "token"),
        namespace=namespace or "default",
    )


learn(_File)
