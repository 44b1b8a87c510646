"""Ctrl-C, SIGTERM and `down`: ranks may save what they have, and nobody need wait for those that will not end."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.bed import CONFIG, a_job, connected, container_of, processes, wait_for_none
from tests.integration.commands import said, started, trainmaster, warned
from tests.machine import BOTH

from trainmaster.testing.patience import PATIENCE

pytestmark = pytest.mark.sandbox

SAVING = "trap 'echo saved > /kept/checkpoint; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
DEAF = "trap 'echo not yet' TERM; echo ready; while :; do sleep 0.05; done"


def a_rank(kept: Path, shell: str, grace: int = 30) -> dict[str, Any]:
    volumes = [{"name": "kept", "hostPath": {"path": str(kept)}}]
    container = {"volumeMounts": [{"name": "kept", "mountPath": "/kept"}], "command": ["sh", "-c", shell]}
    pod = {"volumes": volumes, "terminationGracePeriodSeconds": grace}
    return a_job("JAXJob", "ending", "", restart="Never", pod=pod, container=container, replicas={"Worker": 1})


@pytest.mark.parametrize("sandbox", BOTH)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_ranks_of_a_run_that_is_ended_may_save(tmp_path, number, sandbox):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    given = yaml.safe_dump(a_rank(tmp_path, SAVING.replace("/kept", str(tmp_path))))
    with started("run", "-", "--sandbox", sandbox, given=given, TMPDIR=str(temporary)) as command:
        said(command, "ready")

        command.send_signal(number)
        _, told = command.communicate(timeout=PATIENCE)

    assert command.returncode == 128 + number
    assert (tmp_path / "checkpoint").read_text() == "saved\n"
    assert told.splitlines()[-1] == "interrupted: everything that was started has been stopped"
    assert list(temporary.iterdir()) == []
    assert processes("ending") == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_second_signal_ends_at_once_what_does_not_listen(tmp_path, number):
    with started("run", "-", given=yaml.safe_dump(a_rank(tmp_path, DEAF, grace=1000))) as command:
        said(command, "ready")

        command.send_signal(number)
        told = warned(command, "ending")
        command.send_signal(number)
        _, rest = command.communicate(timeout=PATIENCE)

    assert told == "ending 1 container; Ctrl-C again ends it at once\n"
    assert rest == "interrupted: everything that was started has been stopped\n"
    assert command.returncode == 128 + number
    assert processes("ending") == []


def test_a_run_killed_while_it_waits_leaves_nothing_running(tmp_path):
    with started("run", "-", given=yaml.safe_dump(a_rank(tmp_path, DEAF, grace=1000)), TMPDIR=str(tmp_path)) as command:
        said(command, "ready")
        assert processes("ending") != []

        command.send_signal(signal.SIGINT)
        warned(command, "ending 1 container")
        command.kill()

        wait_for_none("ending")


def test_a_run_that_has_ended_keeps_its_result_when_what_is_left_is_ended_at_once(tmp_path):
    job = a_rank(tmp_path, "until [ -e /kept/begun ]; do sleep 0.05; done", grace=1000)
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1000, **rank_of(a_rank(tmp_path, DEAF))}
    pod["containers"][0]["command"][2] = "touch /kept/begun;" + DEAF
    survivor = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "survivor"}, "spec": pod}
    with started("run", "-", given=yaml.safe_dump_all([survivor, job])) as command:
        told = warned(command, "ending")
        command.send_signal(signal.SIGINT)
        command.communicate(timeout=PATIENCE)

    assert told == "ending 1 container; Ctrl-C ends it at once\n"
    assert command.returncode == 0
    assert processes("ending") == []


def rank_of(job: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = job["spec"]["jaxReplicaSpecs"]["Worker"]["template"]["spec"]
    return {**spec, "terminationGracePeriodSeconds": 1000}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "cluster"
    assert trainmaster("up", "-d", "--data-dir", directory, "--config", CONFIG).returncode == 0
    yield directory
    assert trainmaster("down", "--data-dir", directory).returncode == 0
    assert processes("ending") == []


def begin(home: Path, job: dict[str, Any]) -> None:
    with connected(home / "kubeconfig") as cluster:
        cluster.submit(job)
        cluster.says("ending-worker-0", "ready")


def test_down_lets_ranks_save_and_the_next_cluster_finds_what_a_crash_would_have_left(tmp_path, home):
    begin(home, a_rank(tmp_path, SAVING))

    ended = trainmaster("down", "--data-dir", home)
    assert trainmaster("up", "-d", "--data-dir", home, "--config", CONFIG).returncode == 0

    assert ended.returncode == 0
    assert "is down" in ended.stdout
    assert (tmp_path / "checkpoint").read_text() == "saved\n"
    with connected(home / "kubeconfig") as cluster:
        pod = cluster.pod("ending-worker-0", lambda pod: "terminated" in container_of(pod)["state"])
    assert container_of(pod)["state"]["terminated"]["reason"] == "ContainerStatusUnknown"


def test_down_waits_as_long_as_pods_may_take(tmp_path, home):
    begin(home, a_rank(tmp_path, DEAF, grace=3))

    ended = trainmaster("down", "--data-dir", home)

    assert ended.returncode == 0
    assert "is down" in ended.stdout
    assert processes("ending") == []


@pytest.mark.parametrize("how", ["Ctrl-C", "down again"])
def test_down_says_how_long_it_may_take_and_can_be_hurried(tmp_path, home, how):
    begin(home, a_rank(tmp_path, DEAF, grace=1000))

    with started("down", "--data-dir", home) as command:
        assert command.stderr is not None
        told = command.stderr.readline()
        if how == "Ctrl-C":
            command.send_signal(signal.SIGINT)
        else:
            assert trainmaster("down", "--data-dir", home).returncode == 0
        printed, _ = command.communicate(timeout=PATIENCE)

    assert re.fullmatch("ending 1 container; Ctrl-C ends it at once; otherwise it takes 9.. s at most\n", told)
    assert command.returncode == 0
    assert "is down" in printed
    assert processes("ending") == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_cluster_in_the_foreground_lets_ranks_save(tmp_path, number):
    home = tmp_path / "cluster"
    with started("up", "--data-dir", home, "--config", CONFIG) as command:
        said(command, "KUBECONFIG")
        begin(home, a_rank(tmp_path, SAVING))

        command.send_signal(number)
        command.communicate(timeout=PATIENCE)

    assert command.returncode == 0
    assert (tmp_path / "checkpoint").read_text() == "saved\n"
    assert processes("ending") == []
    assert not (home / "cluster.json").exists()
