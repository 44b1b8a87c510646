"""What pods get beside their image."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainmaster.cluster.kubelet.toolbox import Toolbox


def a_toolbox(root: Path, kind: str = "namespaces") -> Toolbox:
    sandbox: Any = SimpleNamespace(kind=kind)
    return Toolbox(root, sandbox, port=6443, ca="CA", token=lambda namespace, account: f"{account} of {namespace}")


def a_pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "team"}, "spec": spec}


def test_a_namespace_has_one_directory_with_its_account_and_programs(tmp_path):
    tools = a_toolbox(tmp_path)

    directory = tools.directory_of(a_pod())

    account = {file.name: file.read_text() for file in (directory / "account").iterdir()}
    assert account == {"server": "10.96.0.1:443", "namespace": "team", "ca.crt": "CA", "token": "default of team"}
    assert sorted(file.name for file in (directory / "bin").iterdir()) == ["kubectl-delivery", "ssh", "sshd"]
    assert tools.directory_of(a_pod()) == directory


def test_where_pods_share_the_network_of_the_machine_they_go_to_its_port(tmp_path):
    directory = a_toolbox(tmp_path, "ports").directory_of(a_pod())

    assert (directory / "account" / "server").read_text() == "127.0.0.1:6443"
    assert str(directory / "account") in (directory / "bin" / "ssh").read_text()


@pytest.mark.parametrize(
    ("prefix", "path"),
    [
        (["/venv/bin"], "/venv/bin:/.trainmaster/bin:/usr/bin"),
        (["/usr/bin"], "/.trainmaster/bin:/usr/bin:/usr/bin"),
        ([], "/.trainmaster/bin:/usr/bin"),
    ],
    ids=["environment", "system", "none"],
)
def test_our_programs_come_after_those_of_the_image_and_before_those_of_the_machine(tmp_path, prefix, path):
    env = a_toolbox(tmp_path).env(a_pod(), {"PATH": "/usr/bin", "A": "b"}, prefix)

    assert env == {"PATH": path, "A": "b"}


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        ("/usr/sbin/sshd", "/.trainmaster/bin/sshd"),
        ("mkdir -p /run/sshd; exec /usr/sbin/sshd -De", "mkdir -p /run/sshd; exec /.trainmaster/bin/sshd -De"),
        ("/usr/bin/ssh-keygen -A", "/usr/bin/ssh-keygen -A"),
        ("/opt/usr/bin/ssh", "/opt/usr/bin/ssh"),
    ],
    ids=["program", "script", "another", "elsewhere"],
)
def test_programs_named_by_their_path_are_ours(tmp_path, text, replaced):
    assert a_toolbox(tmp_path).text(a_pod(), text) == replaced


def test_a_pod_on_the_network_of_the_machine_is_told_the_port_there(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    spec = {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "targetPort": 6443}]}
    service = {"metadata": {"name": "kubernetes", "namespace": "default"}, "spec": spec}
    tools = a_toolbox(tmp_path)

    inside, outside = tools.reachable(a_pod(), service), tools.reachable(a_pod(hostNetwork=True), service)

    assert inside == service
    assert (outside["spec"]["clusterIP"], outside["spec"]["ports"][0]["port"]) == ("127.0.0.1", 6443)


def test_the_delivered_kubectl_starts_in_a_foreign_environment(tmp_path):
    directory = a_toolbox(tmp_path / "tools", "ports").directory_of(a_pod())
    env = {"PATH": "/usr/bin:/bin", "TARGET_DIR": str(tmp_path / "kube"), "PYTHONHOME": "/nowhere", "PYTHONPATH": "/no"}

    subprocess.run([str(directory / "bin" / "kubectl-delivery")], env=env, check=True)
    done = subprocess.run([str(tmp_path / "kube" / "kubectl"), "get"], env=env, capture_output=True, text=True)

    assert done.returncode == 1
    assert done.stderr.startswith("error: this kubectl, which the cluster gives to its pods, knows `exec` alone")
