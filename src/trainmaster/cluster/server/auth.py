"""Who may talk to the embedded cluster: its own certificate authority, one server certificate, one admin token, and
tokens of service accounts, which pods have.

Everything lives in one directory, readable by its owner only, and is used again on the next start: a kubeconfig
handed to an editor or a notebook goes on working. What has expired, or soon will, is made anew. `prepare` fills the
directory, `Authenticator` reads requests, `write_kubeconfig` tells kubectl.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import json
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trainmaster.cluster.storage import private


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request."""

    user: str
    groups: tuple[str, ...] = ()


ADMIN = Caller("kubernetes-admin", ("system:masters", "system:authenticated"))
_HOSTS = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "trainmaster",
)
_ADDRESSES = ("127.0.0.1", "::1", "10.96.0.1")
_CA_LIFE = timedelta(days=3650)
_SERVER_LIFE = timedelta(days=365)
_MARGIN = timedelta(days=30)
"""A certificate this close to its end is replaced on start, so that none expires under a cluster left running."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Where the files are, and the token that opens the door."""

    ca: Path
    certificate: Path
    key: Path
    token: str
    accounts: AccountTokens

    def server_context(self) -> ssl.SSLContext:
        """TLS for the server. A client may show a certificate of our authority instead of a token."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key)
        context.load_verify_locations(self.ca)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context


@dataclass(frozen=True, slots=True)
class AccountTokens:
    """Tokens of service accounts: JSON Web Tokens that only the holder of the key can make, so that none is stored.

    They are good for as long as the key is, which lives in the cluster's directory.
    """

    key: bytes = field(repr=False)
    _known: dict[str, Caller] = field(default_factory=dict, repr=False, compare=False)

    def issue(self, namespace: str, account: str) -> str:
        """The same every time: a file with it need not be written again."""
        claims = {
            "iss": "https://kubernetes.default.svc",
            "aud": ["https://kubernetes.default.svc"],
            "sub": f"{_ACCOUNT}{namespace}:{account}",
            "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": account}},
        }
        text = f"{_encoded(_JWT)}.{_encoded(claims)}"
        return f"{text}.{self._signature(text)}"

    def caller_of(self, token: str) -> Caller | None:
        known = self._known.get(token)
        return known or self._read(token)

    def _read(self, token: str) -> Caller | None:
        if not token.isascii():
            return None  # bytes of a header that are no text cannot even be signed
        text, _, signature = token.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(text).encode()):
            return None
        subject = _claims(text).get("sub", "")
        namespace, _, name = subject.removeprefix(_ACCOUNT).partition(":")
        if not (namespace and name and subject.startswith(_ACCOUNT)):
            return None
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        caller = self._known[token] = Caller(subject, groups)
        return caller

    def _signature(self, text: str) -> str:
        return _base64(hmac.digest(self.key, text.encode(), "sha256"))


_ACCOUNT = "system:serviceaccount:"
_JWT = {"alg": "HS256", "typ": "JWT"}


def _encoded(part: Mapping[str, Any]) -> str:
    return _base64(json.dumps(part, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _claims(text: str) -> dict[str, Any]:
    body = text.partition(".")[2]
    try:
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (ValueError, binascii.Error):
        return {}
    return claims if isinstance(claims, dict) else {}


class Authenticator:
    """Finds the caller behind a request: by bearer token, else by client certificate."""

    def __init__(self, tokens: Mapping[str, Caller], accounts: AccountTokens | None = None) -> None:
        # One lookup by keyed hash decides, with no comparison that leaks how much matched.
        self._callers = dict(tokens)
        self._accounts = accounts

    def caller_of(self, request: web.BaseRequest) -> Caller | None:
        header = request.headers.get("Authorization")
        if header is None:
            return _certified(request)
        scheme, _, rest = header.strip().partition(" ")
        return self.caller_of_token(rest.partition(" ")[0]) if scheme.lower() == "bearer" else None

    def caller_of_token(self, token: str) -> Caller | None:
        return self._callers.get(token) or self._account(token)

    def _account(self, token: str) -> Caller | None:
        return self._accounts.caller_of(token) if self._accounts is not None else None


def _certified(request: web.BaseRequest) -> Caller | None:
    """The subject of the client's certificate; TLS has already proved that our authority signed it."""
    transport = request.transport
    peer = transport.get_extra_info("peercert") if transport is not None else None
    if not peer:
        return None
    fields = [pair for part in peer.get("subject", ()) for pair in part]
    user = next((value for name, value in fields if name == "commonName"), "")
    groups = tuple(value for name, value in fields if name == "organizationName")
    return Caller(user, (*groups, "system:authenticated")) if user else None


def prepare(directory: Path, *, now: datetime | None = None) -> Credentials:
    """The directory's credentials; whatever is missing, unreadable or about to expire is made first."""
    moment = now or datetime.now(UTC)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca, ca_key = directory / "ca.crt", directory / "ca.key"
    certificate, key = directory / "server.crt", directory / "server.key"
    if not _is_usable(ca, ca_key, moment):
        _make_authority(ca, ca_key, moment)
        certificate.unlink(missing_ok=True)
    if not _is_usable(certificate, key, moment):
        _make_server(certificate, key, ca, ca_key, moment)
    accounts = AccountTokens(_token(directory / "accounts.key").encode())
    return Credentials(ca, certificate, key, _token(directory / "admin.token"), accounts)


def _token(path: Path) -> str:
    known = private.read(path).decode().strip() if path.exists() else ""
    if not known:
        known = secrets.token_urlsafe(32)
        private.replace(path, known.encode())
    return known


def _is_usable(certificate: Path, key: Path, now: datetime) -> bool:
    try:
        made = x509.load_pem_x509_certificate(private.read(certificate))
        serialization.load_pem_private_key(private.read(key), password=None)
    except (OSError, ValueError):
        return False
    return made.not_valid_before_utc <= now < made.not_valid_after_utc - _MARGIN


def _make_authority(certificate: Path, key: Path, now: datetime) -> None:
    own = ec.generate_private_key(ec.SECP256R1())
    name = _named("trainmaster-ca")
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    builder = _begun(name, name, own.public_key(), now, _CA_LIFE)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True)
    _write_pair(certificate, key, builder.sign(own, hashes.SHA256()), own)


def _make_server(certificate: Path, key: Path, ca: Path, ca_key: Path, now: datetime) -> None:
    authority = x509.load_pem_x509_certificate(ca.read_bytes())
    signer = serialization.load_pem_private_key(ca_key.read_bytes(), password=None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{ca_key} does not hold an elliptic-curve key; delete {ca_key.parent} to make a new one")
    own = ec.generate_private_key(ec.SECP256R1())
    names: list[x509.GeneralName] = [x509.DNSName(host) for host in _HOSTS]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in _ADDRESSES]
    builder = _begun(_named("trainmaster-apiserver"), authority.subject, own.public_key(), now, _SERVER_LIFE)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = builder.add_extension(authority_key, critical=False)
    _write_pair(certificate, key, builder.sign(signer, hashes.SHA256()), own)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _begun(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    """What both certificates have. It starts an hour back, for clients whose clock lags behind."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _write_pair(certificate: Path, key: Path, signed: x509.Certificate, own: ec.EllipticCurvePrivateKey) -> None:
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    private.replace(key, own.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    private.replace(certificate, signed.public_bytes(pem))


def write_kubeconfig(path: Path, url: str, credentials: Credentials, *, name: str = "trainmaster") -> None:
    """A kubeconfig with everything inside, so that it may be copied elsewhere on this machine."""
    authority = base64.b64encode(credentials.ca.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority-data": authority}}],
        "users": [{"name": name, "user": {"token": credentials.token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    }
    private.replace(path, yaml.safe_dump(config, sort_keys=False).encode())
