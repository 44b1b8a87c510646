"""Kubeconfigs and service accounts: where they are looked for, how they are merged, what is wrong with them."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from cryptography.hazmat.primitives import serialization

from trainmaster.kube import config, errors
from trainmaster.kube.config import Config

CA = trustme.CA()
CERTIFICATE = CA.issue_cert("operator")
CA_PEM = CA.cert_pem.bytes()
CERTIFICATE_PEM = CERTIFICATE.cert_chain_pems[0].bytes()
KEY_PEM = CERTIFICATE.private_key_pem.bytes()


def in_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def kubeconfig(
    path: Path,
    cluster: Mapping[str, Any] | None = None,
    user: Mapping[str, Any] | None = None,
    *,
    name: str = "main",
    namespace: str | None = None,
    current: str | None = "main",
) -> str:
    """A file with one context; its path."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443", **(cluster or {})}}],
        "users": [{"name": name, "user": dict(user or {})}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return str(path)


def authorization(loaded: Config) -> str | None:
    return asyncio.run(_headers(loaded)).get("Authorization")


async def _headers(loaded: Config) -> Mapping[str, str]:
    return await loaded.credentials.headers()


def test_minimal_file_gives_server_and_default_namespace(tmp_path: Path) -> None:
    loaded = config.load(kubeconfig(tmp_path / "config"), environ={})

    assert loaded.server == "https://main:6443"
    assert loaded.namespace == "default"
    assert loaded.tls is not None
    assert loaded.tls.verify_mode == ssl.CERT_REQUIRED
    assert authorization(loaded) is None


def test_context_chooses_cluster_user_and_namespace(tmp_path: Path) -> None:
    one = kubeconfig(tmp_path / "one", user={"token": "t1"}, namespace="n1")
    two = kubeconfig(tmp_path / "two", user={"token": "t2"}, name="other", namespace="n2", current=None)

    loaded = config.load(context="other", environ={"KUBECONFIG": f"{one}:{two}"})

    assert (loaded.server, loaded.namespace) == ("https://other:6443", "n2")
    assert authorization(loaded) == "Bearer t2"


def test_first_definition_wins_when_files_are_merged(tmp_path: Path) -> None:
    one = kubeconfig(tmp_path / "one", {"server": "https://first"})
    two = kubeconfig(tmp_path / "two", {"server": "https://second"}, current="other")

    loaded = config.load(environ={"KUBECONFIG": f"{tmp_path}/absent:{one}:{two}:"})

    assert loaded.server == "https://first"


def test_explicit_file_comes_before_the_variable(tmp_path: Path) -> None:
    one = kubeconfig(tmp_path / "one", {"server": "https://first"})
    two = kubeconfig(tmp_path / "two", {"server": "https://second"})

    assert config.load(one, environ={"KUBECONFIG": two}).server == "https://first"


def test_home_is_the_last_resort(tmp_path: Path) -> None:
    kubeconfig(tmp_path / ".kube" / "config", {"server": "https://home"})

    assert config.load(environ={"HOME": str(tmp_path)}).server == "https://home"


def test_nothing_anywhere_names_all_places_looked_at(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        config.load(environ={"HOME": str(tmp_path)})

    for place in ("--kubeconfig", "$KUBECONFIG", "serviceaccount", f"{tmp_path}/.kube/config"):
        assert place in str(caught.value)


def test_variable_that_leads_nowhere_does_not_fall_back_to_home(tmp_path: Path) -> None:
    kubeconfig(tmp_path / ".kube" / "config")

    with pytest.raises(errors.ConfigError, match=r"\$KUBECONFIG names no existing file: /nowhere"):
        config.load(environ={"HOME": str(tmp_path), "KUBECONFIG": "/nowhere"})


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the kubelet mounts into every pod."""
    account = tmp_path / "serviceaccount"
    account.mkdir()
    (account / "token").write_text("pod-token\n")
    (account / "ca.crt").write_bytes(CA_PEM)
    (account / "namespace").write_text("team\n")
    monkeypatch.setattr(config, "SERVICE_ACCOUNT", account)
    return account


@pytest.mark.parametrize(
    ("host", "server"), [("10.96.0.1", "https://10.96.0.1:6443"), ("fd00::1", "https://[fd00::1]:6443")]
)
def test_pod_uses_its_service_account(pod: Path, host: str, server: str) -> None:
    loaded = config.load(environ={"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "6443"})

    assert (loaded.server, loaded.namespace) == (server, "team")
    assert authorization(loaded) == "Bearer pod-token"
    assert loaded.tls is not None
    assert loaded.tls.cert_store_stats()["x509_ca"] == 1


def test_variable_comes_before_the_pod(pod: Path, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config")

    loaded = config.load(environ={"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBECONFIG": path})

    assert loaded.server == "https://main:6443"


def test_named_context_is_not_looked_for_in_the_pod(pod: Path, tmp_path: Path) -> None:
    kubeconfig(tmp_path / ".kube" / "config")

    loaded = config.load(context="main", environ={"KUBERNETES_SERVICE_HOST": "10.96.0.1", "HOME": str(tmp_path)})

    assert loaded.server == "https://main:6443"


def test_pod_without_its_certificate_says_so(pod: Path) -> None:
    (pod / "ca.crt").unlink()

    with pytest.raises(errors.ConfigError, match=r"service account: .*ca\.crt"):
        config.load(environ={"KUBERNETES_SERVICE_HOST": "10.96.0.1"})


def test_authority_is_trusted_from_data_and_from_a_file_beside_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes("# Zertifikat für uns\n".encode() + CA_PEM)

    inline = config.load(kubeconfig(tmp_path / "a", {"certificate-authority-data": in_base64(CA_PEM)}), environ={})
    beside = config.load(kubeconfig(tmp_path / "b", {"certificate-authority": "ca.pem"}), environ={})

    for loaded in (inline, beside):
        assert loaded.tls is not None
        assert loaded.tls.cert_store_stats()["x509_ca"] == 1
        assert loaded.tls.check_hostname


def test_verification_is_skipped_on_demand_only(tmp_path: Path) -> None:
    loaded = config.load(kubeconfig(tmp_path / "a", {"insecure-skip-tls-verify": True}), environ={})

    assert loaded.tls is not None
    assert loaded.tls.verify_mode == ssl.CERT_NONE
    assert not loaded.tls.check_hostname


def test_client_certificate_comes_from_data_or_files_and_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    loads = ssl.SSLContext.load_cert_chain

    def spy(self: ssl.SSLContext, path: Path, **options: Any) -> None:
        modes.extend((path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777))
        loads(self, path, **options)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", spy)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "key.pem").write_bytes(KEY_PEM)

    user = {"client-certificate-data": in_base64(CERTIFICATE_PEM), "client-key": "key.pem"}
    config.load(kubeconfig(tmp_path / "a", user=user), environ={})

    assert modes == [0o600, 0o700]
    assert os.listdir(tmp_path / "tmp") == []


def test_token_file_wins_over_token_and_lies_beside_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")

    loaded = config.load(kubeconfig(tmp_path / "a", user={"tokenFile": "token", "token": "inline"}), environ={})

    assert authorization(loaded) == "Bearer from-file"


def test_user_name_and_password_are_basic_authentication(tmp_path: Path) -> None:
    loaded = config.load(kubeconfig(tmp_path / "a", user={"username": "me", "password": "pässword"}), environ={})

    assert authorization(loaded) == f"Basic {in_base64('me:pässword'.encode())}"


def test_plain_http_gets_no_secrets(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "a", {"server": "http://127.0.0.1:8001"}, {"token": "secret"})

    loaded = config.load(path, environ={})

    assert loaded.tls is None
    assert authorization(loaded) is None


def test_proxy_and_server_name_are_passed_on(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "a", {"proxy-url": "http://u:p4ss@proxy:3128", "tls-server-name": "kubernetes"})

    loaded = config.load(path, environ={})

    assert (loaded.proxy, loaded.tls_server_name) == ("http://u:p4ss@proxy:3128", "kubernetes")
    assert "p4ss" not in repr(loaded)


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    loaded = config.load(kubeconfig(tmp_path / "a", user={"token": "s3cret"}), environ={})

    assert "s3cret" not in f"{loaded!r} {loaded.credentials!r}"


def encrypted_key() -> bytes:
    key = serialization.load_pem_private_key(KEY_PEM, None)
    form, protection = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"password")
    return key.private_bytes(serialization.Encoding.PEM, form, protection)


ANOTHER_KEY = CA.issue_cert("other").private_key_pem.bytes()


@pytest.mark.parametrize(
    ("cluster", "user", "complaint"),
    [
        pytest.param({"server": "main:6443"}, {}, r"server: 'main:6443' is not a URL", id="server-without-scheme"),
        pytest.param({"server": None}, {}, r"server: '' is not a URL", id="no-server"),
        pytest.param({"server": 3}, {}, r"Expected `str \| null`, got `int` - at `\$\.clusters\[0\]", id="wrong-type"),
        pytest.param({"certificate-authority": "absent"}, {}, r"certificate-authority: .*absent: No such", id="no-ca"),
        pytest.param(
            {"certificate-authority-data": "!"}, {}, r"certificate-authority-data: not valid base64", id="base64"
        ),
        pytest.param(
            {"certificate-authority-data": in_base64(b"no pem")}, {}, "certificate-authority: not PEM", id="no-pem"
        ),
        pytest.param(
            {"certificate-authority-data": in_base64(CA_PEM), "insecure-skip-tls-verify": True},
            {},
            "insecure-skip-tls-verify: contradicts certificate-authority",
            id="insecure-with-ca",
        ),
        pytest.param({"proxy-url": "socks5://x"}, {}, "proxy-url: only http:// and https://", id="socks"),
        pytest.param({}, {"client-key-data": in_base64(KEY_PEM)}, "come together or not at all", id="key-alone"),
        pytest.param(
            {},
            {"client-certificate-data": in_base64(CERTIFICATE_PEM), "client-key-data": in_base64(ANOTHER_KEY)},
            "client-key: not a matching pair",
            id="wrong-key",
        ),
        pytest.param(
            {},
            {"client-certificate-data": in_base64(CERTIFICATE_PEM), "client-key-data": in_base64(encrypted_key())},
            "the key unencrypted",
            id="encrypted-key",
        ),
        pytest.param({}, {"auth-provider": {"name": "gcp"}}, "auth-provider: no longer supported", id="auth-provider"),
        pytest.param({}, {"as": "admin"}, "as: impersonation is not supported", id="impersonation"),
        pytest.param(
            {}, {"exec": {"command": "x", "apiVersion": "v9"}}, "exec.apiVersion: 'v9' is none", id="exec-version"
        ),
        pytest.param({}, {"exec": {"apiVersion": "v1"}}, "missing required field `command`", id="exec-command"),
    ],
)
def test_mistakes_are_named_with_file_and_field(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], complaint: str
) -> None:
    path = kubeconfig(tmp_path / "config", cluster, user)

    with pytest.raises(errors.ConfigError, match=complaint) as caught:
        config.load(path, environ={})

    assert path in str(caught.value)


@pytest.mark.parametrize(
    ("context", "complaint"),
    [
        pytest.param("absent", "has no context 'absent'; choose one with --context: main", id="unknown-context"),
        pytest.param(None, "has no current-context; choose one with --context: main", id="no-current-context"),
    ],
)
def test_context_that_is_not_there_is_answered_with_those_that_are(
    tmp_path: Path, context: str | None, complaint: str
) -> None:
    path = kubeconfig(tmp_path / "config", current=None)

    with pytest.raises(errors.ConfigError, match=complaint):
        config.load(path, context, environ={})


@pytest.mark.parametrize("missing", ["clusters", "users"])
def test_context_that_names_nothing_says_what(tmp_path: Path, missing: str) -> None:
    path = Path(kubeconfig(tmp_path / "config"))
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), missing: None}))

    with pytest.raises(errors.ConfigError, match=f"names the {missing[:-1]} 'main', which is not there"):
        config.load(str(path), environ={})


def test_context_without_a_user_is_anonymous(tmp_path: Path) -> None:
    path = Path(kubeconfig(tmp_path / "config"))
    content = yaml.safe_load(path.read_text())
    del content["contexts"][0]["context"]["user"]
    path.write_text(yaml.safe_dump(content))

    assert authorization(config.load(str(path), environ={})) is None


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param("a: [s3cret\nb: }", "not valid YAML at line 2", id="broken"),
        pytest.param("s3cret: !!python/object:os.system {}", "has no current-context", id="unsafe"),
        pytest.param("s3cret: &a [*a]", "not valid YAML at line 1$", id="in-itself"),
        pytest.param("users: " + "[" * 3000, "not valid YAML at line 1$", id="deep"),
        pytest.param("[s3cret]", "Expected `object`, got `array`", id="not-a-mapping"),
        pytest.param("", "has no current-context", id="empty"),
        pytest.param(None, "No such file", id="absent"),
    ],
)
def test_file_that_is_no_kubeconfig_says_where_and_shows_nothing(
    tmp_path: Path, content: str | None, complaint: str
) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)

    with pytest.raises(errors.ConfigError, match=complaint) as caught:
        config.load(str(path), environ={})

    assert str(path) in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_home_that_may_not_be_looked_into_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    for look in ("exists", "read_bytes"):  # root, who may be running this, is refused nothing
        monkeypatch.setattr(Path, look, refuse)

    with pytest.raises(errors.ConfigError, match=f"{tmp_path}/.kube/config.*[Pp]ermission denied"):
        config.load(environ={"HOME": str(tmp_path)})
