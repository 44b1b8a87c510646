"""Tokens that rotate and plugins that are run: real files, real processes."""

from __future__ import annotations

import asyncio
import json
import shlex
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from trainmaster.kube import config, credentials, errors
from trainmaster.kube.credentials import Credentials, Exec, Plugin, TokenFile

V1 = "client.authentication.k8s.io/v1"


@dataclass
class Clock:
    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def token_of(source: Credentials) -> str:
    return (await source.headers())["Authorization"].removeprefix("Bearer ")


def test_token_file_is_read_again_after_a_minute(tmp_path: Path) -> None:
    async def main() -> None:
        path, clock = tmp_path / "token", Clock()
        path.write_text("one\n")
        source = TokenFile(path, monotonic=clock)

        seen = [await token_of(source)]
        path.write_text("two\n")
        clock.now += 59
        seen.append(await token_of(source))
        clock.now += 1
        seen.append(await token_of(source))

        assert seen == ["one", "one", "two"]

    asyncio.run(main())


def test_token_file_is_read_again_when_the_token_was_refused(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "token"
        path.write_text("one")
        source = TokenFile(path)
        await source.headers()
        path.write_text("two")

        assert await source.refresh()
        assert await token_of(source) == "two"
        assert source.tls() is None

    asyncio.run(main())


@pytest.mark.parametrize("content", ["", None])
def test_token_survives_a_file_that_is_gone_for_a_moment(tmp_path: Path, content: str | None) -> None:
    async def main() -> None:
        path = tmp_path / "token"
        path.write_text("one")
        source = TokenFile(path)
        await source.headers()
        path.unlink() if content is None else path.write_text(content)
        await source.refresh()

        assert await token_of(source) == "one"

    asyncio.run(main())


@pytest.mark.parametrize(("content", "complaint"), [("", "it is empty"), (None, "No such file")])
def test_no_token_at_all_is_a_mistake_in_the_configuration(tmp_path: Path, content: str | None, complaint: str) -> None:
    async def main() -> None:
        path = tmp_path / "token"
        if content is not None:
            path.write_text(content)

        with pytest.raises(errors.ConfigError, match=f"{path}.*{complaint}"):
            await TokenFile(path).headers()

    asyncio.run(main())


@dataclass
class Script:
    """A plugin that notes each call beside itself and prints what it is told to."""

    folder: Path
    clock: Clock = field(default_factory=Clock)
    options: dict[str, Any] = field(default_factory=dict)

    def write(self, body: str) -> None:
        path = self.folder / "plugin"
        path.write_text(f"#!/bin/sh\necho called >> {self.folder}/calls\n{body}\n")
        path.chmod(0o755)

    def prints(self, status: Mapping[str, Any], **more: Any) -> None:
        answer = {"apiVersion": V1, "kind": "ExecCredential", "status": status, **more}
        (self.folder / "answer").write_text(json.dumps(answer))
        self.write(f"cat {self.folder}/answer")

    @property
    def calls(self) -> int:
        path = self.folder / "calls"
        return path.read_text().count("called") if path.exists() else 0

    def source(self, tls: ssl.SSLContext | None = None) -> Exec:
        plugin = Plugin("kubeconfig f: user 'u'", V1, str(self.folder / "plugin"), **self.options)
        context = tls or ssl.create_default_context()
        return Exec(plugin, lambda identity: context, environ={"PATH": "/usr/bin:/bin"}, now=self.clock)


def test_plugin_is_asked_once_and_again_when_its_answer_expires(tmp_path: Path) -> None:
    async def main() -> None:
        script = Script(tmp_path, Clock(0.0))
        script.prints({"token": "one", "expirationTimestamp": "1970-01-01T01:00:00Z"})
        source = script.source()

        seen = [await token_of(source), await token_of(source)]
        script.prints({"token": "two"})
        script.clock.now = 3596.0
        seen += [await token_of(source), await token_of(source)]

        assert seen == ["one", "one", "two", "two"]
        assert script.calls == 2

    asyncio.run(main())


def test_many_refusals_at_once_are_one_question(tmp_path: Path) -> None:
    async def main() -> None:
        script = Script(tmp_path)
        script.prints({"token": "one"})
        source = script.source()
        await source.headers()
        script.clock.now += 60

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(source.refresh()) for _ in range(5)]

        assert all(task.result() for task in tasks)
        assert script.calls == 2

    asyncio.run(main())


def test_plugin_is_told_what_it_is_asked_for(tmp_path: Path) -> None:
    async def main() -> None:
        script = Script(tmp_path, options={"args": ("a b", "$HOME"), "env": {"X": "y"}, "cluster": {"server": "s"}})
        script.prints({"token": "t"})
        path = tmp_path / "plugin"
        path.write_text(f'{path.read_text()}printf "%s|" "$@" "$X" "$KUBERNETES_EXEC_INFO" > {tmp_path}/told\n')
        await script.source().headers()

        *arguments, variable, info, _ = (tmp_path / "told").read_text().split("|")

        assert (arguments, variable) == (["a b", "$HOME"], "y")
        assert json.loads(info) == {
            "apiVersion": V1,
            "kind": "ExecCredential",
            "spec": {"interactive": False, "cluster": {"server": "s"}},
        }

    asyncio.run(main())


def test_client_certificate_from_a_plugin_becomes_a_context(tmp_path: Path) -> None:
    async def main() -> None:
        script, context = Script(tmp_path), ssl.create_default_context()
        script.prints({"clientCertificateData": "CERT", "clientKeyData": "KEY"})
        source = script.source(context)

        assert source.tls() is None
        assert await source.headers() == {}
        assert source.tls() is context

    asyncio.run(main())


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        pytest.param("exit 3", "ended with exit code 3", id="exit-code"),
        pytest.param("echo s3cret", "did not print an ExecCredential", id="no-json"),
        pytest.param('echo \'{"kind": "s3cret"}\'', "did not print an ExecCredential", id="incomplete"),
        pytest.param(
            'echo \'{"kind": "ExecCredential", "apiVersion": "v0", "status": {"token": "s3cret"}}\'',
            "printed a ExecCredential of v0, not the ExecCredential of client.authentication.k8s.io/v1",
            id="other-version",
        ),
        pytest.param(
            f'echo \'{{"kind": "ExecCredential", "apiVersion": "{V1}", "status": {{}}}}\'',
            "gave neither a token nor a client certificate",
            id="empty",
        ),
    ],
)
def test_plugin_that_fails_is_named_with_its_hint_and_not_its_output(tmp_path: Path, body: str, complaint: str) -> None:
    async def main() -> None:
        script = Script(tmp_path, options={"install_hint": "Install it with apt.\n"})
        script.write(body)

        with pytest.raises(errors.ConfigError, match=complaint) as caught:
            await script.source().headers()

        said = str(caught.value)
        assert said.startswith(f"kubeconfig f: user 'u': credential plugin {tmp_path}/plugin ")
        assert said.endswith("\nInstall it with apt.")
        assert "s3cret" not in said

    asyncio.run(main())


@pytest.mark.parametrize(("body", "complaint"), [(None, "is not installed"), ("", "cannot be run")])
def test_plugin_that_cannot_be_run_says_so(tmp_path: Path, body: str | None, complaint: str) -> None:
    async def main() -> None:
        if body is not None:
            (tmp_path / "plugin").write_text("#!/no/such/interpreter\n")
            (tmp_path / "plugin").chmod(0o755)

        with pytest.raises(errors.ConfigError, match=complaint):
            await Script(tmp_path).source().headers()

    asyncio.run(main())


def test_plugin_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "_EXEC_TIMEOUT", 0.05)

    async def main() -> None:
        script = Script(tmp_path)
        script.write("sleep 1000 & sleep 1000")

        with pytest.raises(errors.ConfigError, match=r"did not end within 0\.05 s"):
            await script.source().headers()

    asyncio.run(main())


def test_words_of_a_plugin_to_the_user_reach_the_user(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        script = Script(tmp_path)
        script.write("echo please log in >&2; exit 1")

        with pytest.raises(errors.ConfigError):
            await script.source().headers()

    asyncio.run(main())

    assert "please log in" in capfd.readouterr().err


def a_kubeconfig(tmp_path: Path, plugin: Mapping[str, Any], cluster: Mapping[str, Any] | None = None) -> str:
    content = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://main:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": {"exec": plugin}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(content))
    return str(path)


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_plugin_of_a_kubeconfig_lies_beside_it_and_learns_of_the_cluster(tmp_path: Path, version: str) -> None:
    async def main() -> None:
        (tmp_path / "bin").mkdir()
        script = tmp_path / "bin" / "plugin"
        program = (
            "import json, os, sys\n"
            'info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])\n'
            'token = "|".join((info["spec"]["cluster"]["server"], info["spec"]["cluster"]["config"], sys.argv[1]))\n'
            'print(json.dumps({**info, "status": {"token": token}}))\n'
        )
        script.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -S -c '{program}' \"$@\"\n")
        script.chmod(0o755)
        api_version = f"client.authentication.k8s.io/{version}"
        plugin = {"apiVersion": api_version, "command": "./bin/plugin", "args": ["x"], "provideClusterInfo": True}
        extension = {"name": "client.authentication.k8s.io/exec", "extension": "told"}

        loaded = config.load(a_kubeconfig(tmp_path, plugin, {"extensions": [extension]}), environ={})

        assert await token_of(loaded.credentials) == "https://main:6443|told|x"

    asyncio.run(main())


def test_certificate_of_a_plugin_is_loaded_with_the_authority_of_the_cluster(tmp_path: Path) -> None:
    async def main() -> None:
        authority = trustme.CA()
        certificate = authority.issue_cert("me")
        (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
        script = Script(tmp_path)
        script.prints(
            {
                "clientCertificateData": certificate.cert_chain_pems[0].bytes().decode(),
                "clientKeyData": certificate.private_key_pem.bytes().decode(),
            }
        )
        path = a_kubeconfig(tmp_path, {"apiVersion": V1, "command": "./plugin"}, {"certificate-authority": "ca.pem"})
        loaded = config.load(path, environ={"PATH": "/usr/bin:/bin"})

        await loaded.credentials.headers()
        context = loaded.credentials.tls()

        assert context is not None
        assert context is not loaded.tls
        assert context.cert_store_stats()["x509_ca"] == 1

    asyncio.run(main())


def test_broken_certificate_of_a_plugin_is_its_fault(tmp_path: Path) -> None:
    async def main() -> None:
        Script(tmp_path).prints({"clientCertificateData": "x", "clientKeyData": "y"})
        path = a_kubeconfig(tmp_path, {"apiVersion": V1, "command": "./plugin", "installHint": "hint"})
        loaded = config.load(path, environ={"PATH": "/usr/bin:/bin"})

        with pytest.raises(errors.ConfigError, match=r"plugin .* gave a client certificate and key that do not work"):
            await loaded.credentials.headers()

    asyncio.run(main())
