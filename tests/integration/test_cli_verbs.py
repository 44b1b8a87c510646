"""The verbs of the command line on a real embedded cluster: pods are processes, answers come over TLS."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from trainmaster.cli.app import app
from trainmaster.testing.patience import PATIENCE

pytestmark = pytest.mark.sandbox


@dataclass(frozen=True)
class Machine:
    """A machine with nothing on it but a cluster of `trainmaster up`."""

    home: Path

    @property
    def environment(self) -> dict[str, str | None]:
        return {"HOME": str(self.home), "XDG_DATA_HOME": str(self.home), "KUBECONFIG": None, "COLUMNS": "200"}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        own = {key: value for key, value in self.environment.items() if value is not None}
        inherited = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
        command = [sys.executable, "-m", "trainmaster", *arguments]
        return subprocess.Popen(command, env={**inherited, **own}, stdout=subprocess.PIPE, text=True)

    def run(self, *arguments: str, code: int = 0, stdin: str | None = None) -> str:
        """What it prints, both streams together."""
        result = CliRunner().invoke(app, list(arguments), env=self.environment, input=stdin)
        assert result.exit_code == code, f"{arguments}: {result.exit_code}\n{result.output}\n{result.exception!r}"
        return result.output

    def wait(self, *arguments: str, code: int = 0) -> str:
        return self.run("wait", *arguments, f"--timeout={PATIENCE:g}s", code=code)

    def apply(self, body: dict[str, Any]) -> str:
        return self.run("apply", "-f", "-", stdin=yaml.safe_dump(body))


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    with machine.start("up") as cluster:
        assert cluster.stdout is not None
        assert "the cluster is up" in cluster.stdout.readline()
        yield machine
        cluster.send_signal(signal.SIGTERM)
        cluster.stdout.read()
    assert cluster.returncode == 0


def a_job(name: str, master: str, worker: str, workers: int = 1) -> dict[str, Any]:
    """Its ranks may meet at DOOR."""
    env = [{"name": "DOOR", "value": f"{name}-master-0:23456"}]

    def role(replicas: int, script: str) -> dict[str, Any]:
        container = {"name": "pytorch", "image": "any", "command": ["sh", "-c", script], "env": env}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
        return {"replicas": replicas, "restartPolicy": "Never", "template": {"spec": spec}}

    roles = {"Master": role(1, master), "Worker": role(workers, worker)}
    spec = {"pytorchReplicaSpecs": roles, "runPolicy": {"cleanPodPolicy": "None"}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}, "spec": spec}


def test_a_job_that_fails_is_told_from_cause_to_remedy(machine: Machine):
    made = machine.apply(a_job("bad", "echo all well; sleep 1000", "echo about to break; exit 3"))
    waited = machine.wait("bad", "--for=condition=Succeeded", code=1)
    told = machine.run("describe", "bad")
    listed = machine.run("get")

    assert made == "pytorchjob.kubeflow.org/bad created\n"
    assert "pytorchjob.kubeflow.org/bad failed" in waited
    assert "worker-0: container pytorch of pod bad-worker-0" in told
    assert "exit code 3 (Error)" in told
    assert "    about to break" in told
    assert "What to do: Read all that worker-0 has printed, for it failed first" in told
    assert re.search(r"^PyTorchJob +bad +Failed +\d+[sm]\w*$", listed, re.MULTILINE)

    gone = machine.run("delete", "bad", "--now")

    assert gone == 'pytorchjob.kubeflow.org "bad" deleted\n'
    assert "bad" not in machine.run("get", "pytorchjobs")


def test_logs_are_followed_to_the_end_of_the_job_and_merged_after(machine: Machine):
    # The master ends only when the worker has spoken: otherwise the job might be over before the worker began.
    listen = "python -c \"import socket; socket.create_server(('', ${DOOR#*:})).accept()\""
    knock = "python -c \"import socket; socket.create_connection(('${DOOR%:*}', ${DOOR#*:}), 5)\" 2>/dev/null"
    machine.apply(a_job("talk", f"echo first; {listen}; echo last", f"echo worker; until {knock}; do sleep 0.05; done"))

    followed = machine.run("logs", "talk", "--all", "-f")
    machine.wait("pytorchjob/talk", "--for=condition=Succeeded")

    assert sorted(followed.splitlines()) == ["[master-0] first", "[master-0] last", "[worker-0] worker"]
    assert machine.run("logs", "talk") == "first\nlast\n"
    assert machine.run("logs", "talk", "--rank", "master-0") == "first\nlast\n"
    assert machine.run("logs", "pod/talk-master-0", "--tail", "1") == "last\n"
    merged = machine.run("logs", "talk", "--all").splitlines()
    assert merged.index("[master-0] first") < merged.index("[master-0] last")


def test_apply_configures_and_leaves_alone(machine: Machine):
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}

    said = [machine.apply(body), machine.apply(body), machine.apply({**body, "data": {"b": "2"}})]

    assert said == [f"configmap/c {outcome}\n" for outcome in ("created", "unchanged", "configured")]
    assert yaml.safe_load(machine.run("get", "cm", "c", "-o", "yaml"))["data"] == {"b": "2"}
    assert "  b: '2'" in machine.run("describe", "cm/c")


def test_the_servers_own_columns_are_shown(machine: Machine):
    machine.apply(a_job("columns", "true", "true"))
    machine.wait("columns", "--for=condition=Succeeded")

    narrow, wide = machine.run("get", "po"), machine.run("get", "po", "-o", "wide", "-A")

    assert narrow.split()[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert wide.split()[:6] == ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert "NODE" in wide


def test_a_job_is_suspended_resumed_and_scaled(machine: Machine):
    machine.apply(a_job("long", "sleep 1000", "sleep 1000"))
    machine.wait("long", "--for=condition=Running")

    machine.run("suspend", "long")
    machine.wait("long", "--for=condition=Suspended")
    machine.wait("pod", "-l", "training.kubeflow.org/job-name=long", "--for=delete")
    machine.run("resume", "long")
    machine.wait("long", "--for=condition=Running")
    machine.run("scale", "long", "--replicas", "2")

    machine.wait("pod/long-worker-1", "--for=create")
    assert machine.run("get", "long", "-o", "name") == "pytorchjob.kubeflow.org/long\n"
    machine.run("delete", "long", "--now")


def test_a_watch_shows_what_happens_until_it_is_interrupted(machine: Machine):
    with machine.start("get", "cm", "-w") as watch:
        assert watch.stdout is not None
        first = watch.stdout.readline()
        machine.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "seen"}, "data": {"a": "b"}})
        lines = iter(watch.stdout.readline, "")
        seen = next(line for line in lines if line.startswith("seen"))
        watch.send_signal(signal.SIGINT)

    assert first.split() == ["NAME", "DATA", "AGE"]
    assert seen.split()[:2] == ["seen", "1"]
    assert watch.returncode == 130


def test_fields_are_explained_as_the_server_describes_them(machine: Machine):
    container = machine.run("explain", "pod.spec.containers")
    policy = machine.run("explain", "pytorchjob.spec.runPolicy")

    assert "image\t<string>" in container
    assert "GROUP:      kubeflow.org" in policy
    assert "backoffLimit\t<integer>" in policy


def test_what_is_wrong_is_told_in_a_sentence(machine: Machine):
    assert 'pytorchjobs.kubeflow.org "none" not found' in machine.run("get", "pytorchjob/none", code=1)
    assert "neither a training job" in machine.run("describe", "none", code=1)
    assert "serves no x" in machine.run("delete", "x/y", code=2)
