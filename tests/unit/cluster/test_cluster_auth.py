"""Certificates, tokens and the kubeconfig."""

from __future__ import annotations

import asyncio
import ssl
import stat
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from trainmaster.cluster.server import auth
from trainmaster.cluster.server.auth import Authenticator, Caller
from trainmaster.testing import clock

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_credentials_are_made_once_and_used_again(tmp_path: Path):
    first = auth.prepare(tmp_path / "pki", now=NOW)
    before = first.certificate.read_bytes()

    second = auth.prepare(tmp_path / "pki", now=NOW + timedelta(days=300))

    assert second == first
    assert second.certificate.read_bytes() == before
    assert len(first.token) >= 40


def test_files_are_readable_by_their_owner_only(tmp_path: Path):
    credentials = auth.prepare(tmp_path / "pki", now=NOW)
    auth.write_kubeconfig(tmp_path / "config" / "kubeconfig", "https://127.0.0.1:1", credentials)

    files = [*(tmp_path / "pki").iterdir(), tmp_path / "config" / "kubeconfig"]

    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert len(files) == 7


def test_server_certificate_is_renewed_before_it_expires_under_the_same_authority(tmp_path: Path):
    first = auth.prepare(tmp_path, now=NOW)
    authority, certificate = first.ca.read_bytes(), first.certificate.read_bytes()

    later = auth.prepare(tmp_path, now=NOW + timedelta(days=340))

    assert later.ca.read_bytes() == authority
    assert later.certificate.read_bytes() != certificate
    assert later.token == first.token


def test_damaged_authority_is_replaced_with_its_certificates(tmp_path: Path):
    first = auth.prepare(tmp_path, now=NOW)
    certificate = first.certificate.read_bytes()
    first.ca.write_text("nonsense")

    second = auth.prepare(tmp_path, now=NOW)

    assert second.certificate.read_bytes() != certificate
    x509.load_pem_x509_certificate(second.ca.read_bytes())


def test_kubeconfig_holds_everything_inside(tmp_path: Path):
    credentials = auth.prepare(tmp_path / "pki", now=NOW)

    auth.write_kubeconfig(tmp_path / "kubeconfig", "https://127.0.0.1:6443", credentials, name="mine")

    config = yaml.safe_load((tmp_path / "kubeconfig").read_text())
    assert config["current-context"] == "mine"
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:6443"
    assert config["users"][0]["user"] == {"token": credentials.token}
    assert "certificate-authority-data" in config["clusters"][0]["cluster"]


def a_client_certificate(credentials: auth.Credentials, directory: Path, user: str, group: str) -> ssl.SSLContext:
    """A context that trusts the cluster and shows a certificate signed by its authority."""
    signer = serialization.load_pem_private_key((credentials.ca.parent / "ca.key").read_bytes(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.NameAttribute(NameOID.COMMON_NAME, user), x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)]
    moment = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(names))
        .issuer_name(x509.load_pem_x509_certificate(credentials.ca.read_bytes()).subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(moment - timedelta(hours=1))
        .not_valid_after(moment + timedelta(hours=1))
        .sign(signer, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    file = directory / "client.pem"
    file.write_bytes(signed.public_bytes(serialization.Encoding.PEM) + private)
    context = ssl.create_default_context(cafile=str(credentials.ca))
    context.load_cert_chain(file)
    return context


async def asked(
    credentials: auth.Credentials, context: ssl.SSLContext, headers: dict[str, str], host: str = "127.0.0.1"
) -> Any:
    """What the authenticator of a TLS server makes of one request."""
    found: list[Caller | None] = []
    authenticator = Authenticator({credentials.token: auth.ADMIN})

    async def handle(request: web.BaseRequest) -> web.Response:
        found.append(authenticator.caller_of(request))
        return web.Response()

    runner = web.ServerRunner(web.Server(handle), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=credentials.server_context()).start()
        url = f"https://{host}:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers, ssl=context):
            return found[0]
    finally:
        await runner.cleanup()
        await closed()


async def closed() -> None:
    """Lets TLS connections say goodbye: their transports close in the loop's next turns."""
    await asyncio.sleep(1)


def over_tls(tmp_path: Path, use: Callable[[auth.Credentials], Awaitable[Any]]) -> Any:
    credentials = auth.prepare(tmp_path / "pki")

    async def main() -> Any:
        return await use(credentials)

    return clock.run(main())


def test_token_over_tls_is_the_admin(tmp_path: Path):
    async def use(credentials: auth.Credentials) -> Any:
        context = ssl.create_default_context(cafile=str(credentials.ca))
        headers = {"Authorization": f"Bearer {credentials.token}"}
        return await asked(credentials, context, headers, "localhost")

    assert over_tls(tmp_path, use) == auth.ADMIN


@pytest.mark.parametrize(
    ("header", "is_known"),
    [
        ("bearer {}", True),
        ("BEARER {}", True),
        ("Bearer {} more", True),
        ("Bearer{}", False),
        ("Bearer  {}", False),
        ("Basic {}", False),
        ("Bearer", False),
        ("{}", False),
    ],
    ids=["lower", "upper", "more-words", "no-space", "two-spaces", "basic", "no-token", "no-scheme"],
)
def test_the_scheme_of_a_token_is_bearer_in_any_case(header: str, is_known: bool) -> None:
    authenticator = Authenticator({"secret": auth.ADMIN}, auth.AccountTokens(b"key"))
    account = auth.AccountTokens(b"key").issue("default", "trainer")

    found = [
        authenticator.caller_of(make_mocked_request("GET", "/", {"Authorization": header.format(token)}))
        for token in ("secret", account)
    ]

    known = [auth.ADMIN.user, "system:serviceaccount:default:trainer"]
    assert [caller and caller.user for caller in found] == (known if is_known else [None, None])


def test_bytes_that_are_no_text_are_nobodys_token() -> None:
    authenticator = Authenticator({"secret": auth.ADMIN}, auth.AccountTokens(b"key"))

    assert authenticator.caller_of_token("a.\udcff.b") is None


def test_wrong_token_and_none_are_nobody(tmp_path: Path):
    async def use(credentials: auth.Credentials) -> Any:
        context = ssl.create_default_context(cafile=str(credentials.ca))
        wrong = await asked(credentials, context, {"Authorization": "Bearer wrong"})
        return wrong, await asked(credentials, context, {})

    assert over_tls(tmp_path, use) == (None, None)


def test_client_certificate_names_its_user_and_groups(tmp_path: Path):
    async def use(credentials: auth.Credentials) -> Any:
        context = a_client_certificate(credentials, tmp_path, "ann", "system:masters")
        return await asked(credentials, context, {})

    assert over_tls(tmp_path, use) == Caller("ann", ("system:masters", "system:authenticated"))


def test_a_token_of_a_service_account_names_its_caller_also_after_a_restart(tmp_path: Path):
    token = auth.prepare(tmp_path, now=NOW).accounts.issue("team", "launcher")

    again = auth.prepare(tmp_path, now=NOW).accounts
    caller = Authenticator({}, again).caller_of_token(token)

    assert caller == Caller(
        "system:serviceaccount:team:launcher",
        ("system:serviceaccounts", "system:serviceaccounts:team", "system:authenticated"),
    )
    assert again.issue("team", "launcher") == token


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda token: token[:-2] + ("AA" if token[-2:] != "AA" else "BB"), id="signature"),
        pytest.param(lambda token: token.replace(".", ".e", 1), id="claims"),
        pytest.param(lambda token: "", id="empty"),
        pytest.param(lambda token: "a.b.c", id="nonsense"),
    ],
)
def test_a_token_that_was_not_signed_here_names_nobody(tmp_path: Path, spoil):
    accounts = auth.prepare(tmp_path / "one", now=NOW).accounts
    token = accounts.issue("team", "launcher")
    elsewhere = auth.prepare(tmp_path / "two", now=NOW).accounts

    assert accounts.caller_of(spoil(token)) is None
    assert elsewhere.caller_of(token) is None
