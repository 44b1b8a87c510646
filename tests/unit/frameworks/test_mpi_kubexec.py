"""`kubexec.sh` run for real, with a kubectl that enters nothing: what it makes of the worker's /etc/hosts."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from trainmaster.objects.resource import CONFIG_MAPS
from trainmaster.testing.scene import a_job, body

HERE = """#!/bin/sh
while [ "$1" != -c ]; do shift; done
exec /bin/sh -c "$2"
"""
WORKER = "127.0.0.1\tlocalhost\n10.0.0.9\tjob-worker-0\n"


@dataclass(frozen=True)
class Pods:
    """A launcher and a worker, as far as their hosts files go."""

    directory: Path

    @property
    def worker(self) -> Path:
        return self.directory / "worker"

    def launcher(self, *lines: str) -> Pods:
        (self.directory / "launcher").write_text("127.0.0.1\tlocalhost\n" + "".join(f"{line}\n" for line in lines))
        return self

    def call(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        scene = a_job("MPIJob").role("Launcher").role("Worker", 2)
        script = str(body(scene.plan(), "job-config", CONFIG_MAPS)["data"]["kubexec.sh"])
        script = script.replace("/opt/kube", str(self.directory))
        script = script.replace("</etc/hosts", f"<{self.directory}/launcher").replace("/etc/hosts", str(self.worker))
        command = ["/bin/sh", "-c", script, "kubexec.sh", "job-worker-0", *arguments]
        path = {"PATH": "/usr/bin:/bin"}
        return subprocess.run(command, capture_output=True, text=True, check=True, env={**path, **env})


@pytest.fixture
def pods(tmp_path: Path) -> Pods:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(HERE)
    kubectl.chmod(0o755)
    found = Pods(tmp_path).launcher("10.0.0.7\tjob-launcher")
    found.worker.write_text(WORKER)
    return found


@pytest.mark.parametrize("line", ["10.0.0.7\tjob-launcher", "10.0.0.7\tjob-launcher.x.svc\tjob-launcher"])
def test_a_worker_is_told_where_the_launcher_is(pods: Pods, line: str) -> None:
    pods.launcher(line).call("true")

    assert pods.worker.read_text() == WORKER + "10.0.0.7 job-launcher\n"


def test_it_is_told_once(pods: Pods) -> None:
    for _ in range(3):
        pods.call("true")

    assert pods.worker.read_text().count("job-launcher") == 1


def test_the_address_of_a_new_launcher_takes_the_place_of_the_old_one(pods: Pods) -> None:
    pods.call("true")

    pods.launcher("10.0.0.8\tjob-launcher").call("true")

    assert pods.worker.read_text() == WORKER + "10.0.0.8 job-launcher\n"


def test_names_that_only_contain_the_launchers_stay(pods: Pods) -> None:
    pods.worker.write_text(WORKER + "10.0.0.3 my-job-launcher\n10.0.0.4 job-launcher-x\n")

    pods.call("true")

    assert pods.worker.read_text() == WORKER + (
        "10.0.0.3 my-job-launcher\n10.0.0.4 job-launcher-x\n10.0.0.7 job-launcher\n"
    )


def test_a_host_name_that_the_template_chose_is_the_one_that_is_told(pods: Pods) -> None:
    pods.launcher("10.0.0.7\tchosen").call("true", HOSTNAME="chosen")

    assert pods.worker.read_text() == WORKER + "10.0.0.7 chosen\n"


def test_an_address_that_leads_back_to_oneself_is_not_told(pods: Pods) -> None:
    pods.launcher("127.0.1.1\tjob-launcher").call("true")

    assert pods.worker.read_text() == WORKER


@pytest.mark.parametrize("line", ["10.0.0.7\tjob-launcher", "10.0.0.7\tjob-launcher.x.svc\tjob-launcher\tother"])
def test_a_worker_that_knows_already_is_left_alone(pods: Pods, line: str) -> None:
    pods.worker.write_text(f"{line}\n")

    pods.call("true")

    assert pods.worker.read_text() == f"{line}\n"


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("hydra_pmi_proxy", "job-worker-0 cannot be told where job-launcher is: its {} is not writable\n"),
        ("orted", ""),
    ],
)
def test_hydra_is_told_of_a_hosts_file_that_cannot_be_written_and_open_mpi_needs_none(
    pods: Pods, command: str, complaint: str
) -> None:
    pods.worker.unlink()
    pods.worker.mkdir()

    done = pods.call("echo", command)

    assert (done.stdout, done.stderr) == (f"{command}\n", complaint.format(pods.worker))


def test_the_command_runs_with_its_quotes_whatever_was_told(pods: Pods) -> None:
    assert pods.call("a='b  c';", 'printf "%s|" "$a" d').stdout == "b  c|d|"
