"""The operator's process while its API server takes connections and says nothing."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainmaster.testing.patience import PATIENCE


@contextmanager
def a_silent_server(folder: Path) -> Iterator[Path]:
    """Gives its kubeconfig."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": f"http://127.0.0.1:{door.getsockname()[1]}"}}],
            "users": [{"name": "it", "user": {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }
        path = folder / "kubeconfig"
        path.write_text(json.dumps(config))
        yield path


@contextmanager
def an_operator(kubeconfig: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process once it listens, and where its health is told."""
    flags = ["--health-probe-bind-address=127.0.0.1:0", "--metrics-bind-address=0", "--log-format=json"]
    command = [sys.executable, "-m", "trainmaster", "operator", "--kubeconfig", str(kubeconfig), *flags]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            lines = (json.loads(line) for line in process.stderr)
            port = next(line["port"] for line in lines if line["msg"] == "listening")
            yield process, f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def asked(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_it_is_alive_and_not_ready_and_says_why(tmp_path: Path) -> None:
    with a_silent_server(tmp_path) as kubeconfig, an_operator(kubeconfig) as (_, place):
        alive, (ready, why) = asked(f"{place}/healthz"), asked(f"{place}/readyz")

    assert alive == (200, "ok")
    assert ready == 500
    assert "waiting for the API server" in why


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_it_ends_in_order_when_it_is_told_to(tmp_path: Path, number: signal.Signals) -> None:
    with a_silent_server(tmp_path) as kubeconfig, an_operator(kubeconfig) as (process, _):
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE)

    assert process.returncode == 0
    assert "Traceback" not in said
