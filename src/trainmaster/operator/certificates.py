"""Certificates for the webhook: an authority of our own, and what it signs. Decides and signs; stores nothing.

An authority lives for years, a serving certificate for months. Both are replaced long before their end, and at no
moment does a client that trusts yesterday's authorities meet a certificate of one it has not been told of: a new
authority is told for most of a year before the old one signs its last.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE = timedelta(days=5 * 365)
AUTHORITY_MARGIN = timedelta(days=365)
SERVING_LIFE = timedelta(days=90)
SERVING_MARGIN = timedelta(days=30)
_SKEW = timedelta(hours=1)
"""The clock of an API server may be behind ours."""

AUTHORITIES, AUTHORITY_KEYS, CERTIFICATE, KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"
"""Keys of a Secret, and names of files."""


@dataclass(frozen=True, slots=True)
class Signed:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        form = serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())

    def outlives(self, moment: datetime) -> bool:
        return self.certificate.not_valid_after_utc > moment


@dataclass(frozen=True, slots=True)
class Keyring:
    authorities: tuple[Signed, ...]
    """The oldest first. All of them are to be trusted."""

    serving: Signed

    @property
    def trusted(self) -> bytes:
        return b"".join(authority.pem for authority in self.authorities)


def renewed(held: Keyring | None, hosts: Sequence[str], now: float) -> Keyring:
    """What is to be used from now on; `held` itself while nothing in it is old."""
    moment = datetime.fromtimestamp(now, UTC)
    authorities = [one for one in (held.authorities if held else ()) if one.outlives(moment)]
    if not any(one.outlives(moment + AUTHORITY_MARGIN) for one in authorities):
        authorities.append(_authority(moment))
    serving = held.serving if held else None
    if serving is None or not _is_good(serving, authorities, hosts, moment):
        # By the oldest that lasts: it has been trusted everywhere for the longest.
        signer = next(one for one in authorities if one.outlives(moment + SERVING_LIFE))
        serving = _serving(signer, hosts, moment)
    fresh = Keyring(tuple(authorities), serving)
    return held if held == fresh else fresh


def _is_good(serving: Signed, authorities: Iterable[Signed], hosts: Sequence[str], moment: datetime) -> bool:
    names = serving.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    is_for_us = list(names) == _names(hosts)
    is_trusted = any(one.certificate.subject == serving.certificate.issuer for one in authorities)
    return is_for_us and is_trusted and serving.outlives(moment + SERVING_MARGIN)


def render(keyring: Keyring) -> dict[str, str]:
    """As the data of a Secret."""
    parts = {
        AUTHORITIES: keyring.trusted,
        AUTHORITY_KEYS: b"".join(authority.key_pem for authority in keyring.authorities),
        CERTIFICATE: keyring.serving.pem,
        KEY: keyring.serving.key_pem,
    }
    return {name: base64.b64encode(part).decode() for name, part in parts.items()}


def parse(data: Mapping[str, str]) -> Keyring | None:
    """From the data of a Secret; None where it holds anything but what `render` has written."""
    with contextlib.suppress(ValueError, KeyError, binascii.Error, TypeError, x509.ExtensionNotFound):
        parts = {name: base64.b64decode(data[name]) for name in (AUTHORITIES, AUTHORITY_KEYS, CERTIFICATE, KEY)}
        signers = x509.load_pem_x509_certificates(parts[AUTHORITIES])
        keys = [_key(pem) for pem in _split(parts[AUTHORITY_KEYS])]
        authorities = tuple(_matched(signer, key) for signer, key in zip(signers, keys, strict=True))
        serving = _matched(x509.load_pem_x509_certificate(parts[CERTIFICATE]), _key(parts[KEY]))
        serving.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        return Keyring(authorities, serving)
    return None


def _split(pem: bytes) -> list[bytes]:
    end = b"-----END PRIVATE KEY-----\n"
    return [part + end for part in pem.split(end) if part.strip()]


def _key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not a key of ours")
    return key


def _matched(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Signed:
    if certificate.public_key() != key.public_key():
        raise ValueError("a certificate with another's key")
    return Signed(certificate, key)


def _authority(moment: datetime) -> Signed:
    key = ec.generate_private_key(ec.SECP256R1())
    # The day is part of the name: chains are built by names, and two authorities must not share one.
    name = _named(f"trainmaster webhook authority {moment:%Y-%m-%d %H:%M:%S}")
    usage = _usage(key_cert_sign=True, crl_sign=True)
    builder = _builder(name, name, key, moment, AUTHORITY_LIFE, usage)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return Signed(_identified(builder, key, key), key)


def _serving(authority: Signed, hosts: Sequence[str], moment: datetime) -> Signed:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate.subject
    usage = _usage(digital_signature=True)
    builder = _builder(_named("trainmaster webhook"), issuer, key, moment, SERVING_LIFE, usage)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(x509.SubjectAlternativeName(_names(hosts)), critical=False)
    return Signed(_identified(builder, key, authority.key), key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    moment: datetime,
    life: timedelta,
    usage: x509.KeyUsage,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - _SKEW)
        .not_valid_after(moment + life)
        .add_extension(usage, critical=True)
    )


def _identified(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    above = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = builder.add_extension(own, critical=False).add_extension(above, critical=False)
    return builder.sign(signer, hashes.SHA256())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    return [_general_name(host) for host in dict.fromkeys(hosts)]


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(**allowed: bool) -> x509.KeyUsage:
    uses = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    more = ("key_cert_sign", "crl_sign", "encipher_only", "decipher_only")
    return x509.KeyUsage(**{use: allowed.get(use, False) for use in (*uses, *more)})
