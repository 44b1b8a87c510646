"""v2beta1 as on a cluster: ranks are started through a real sshd in every worker, by keys of the job's own.

As root, because only root can give a pod the user that it asks for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.mpibed import MPIS, RANK_VARIABLES, Gate, launcher_of, mpi_bed, mpi_job
from tests.integration.bed import Bed, Json, Ran, processes
from tools import environments_openssh
from tools.environments import environment

ROOT, ORDINARY = 0, environments_openssh.USER
PASSED = ("PATH", "MARK", "JOB", "BASE", "GATE")

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    directory = tmp_path_factory.mktemp("sshd")
    files = environments_openssh.files(environment("openssh"))
    with mpi_bed(directory, *MPIS, sshd="real", files=files | open_home(directory / "home")) as running:
        yield running
    assert processes() == []


def open_home(home: Path) -> dict[str, str]:
    """This machine's home directory as all may enter it, with no more in it than environments and their Python."""
    needed = [Path(sys.base_prefix), *(environment(name) for name in (*MPIS, "openssh"))]
    inside = [path for path in needed if path.is_relative_to(Path.home())]
    for path in (*inside, Path.home() / ".ssh"):
        (home / path.relative_to(Path.home())).mkdir(parents=True)
    return {str(Path.home()): str(home), **{str(path): str(path) for path in inside}}


@pytest.fixture
def gate(tmp_path) -> Gate:
    tmp_path.chmod(0o755)
    return Gate(tmp_path)


def job_of(user: int, name: str, gate: Gate, image: str) -> Json:
    """What sshd starts has no variables of its container: ranks have those that mpirun passes on."""
    job = mpi_job("v2beta1", name, gate, image=image, slots=2)
    roles = {role: held["template"]["spec"] for role, held in job["spec"]["mpiReplicaSpecs"].items()}
    [launcher], [worker] = roles["Launcher"]["containers"], roles["Worker"]["containers"]
    passed = [word for variable in PASSED for word in ("-x", variable)] if "open" in image else ["-genvall"]
    launcher["command"][1:1] = passed
    worker["readinessProbe"] = {"tcpSocket": {"port": environments_openssh.PORT}, "periodSeconds": 1}
    if user != ROOT:
        home = environments_openssh.HOME
        job["spec"]["sshAuthMountPath"] = f"{home}/.ssh"
        worker["command"] = ["/usr/sbin/sshd", "-De", "-f", f"{home}/.sshd_config"]
        for spec in roles.values():
            spec["securityContext"] = {"runAsUser": user, "runAsGroup": user}
    return job


def ranks_of(job: str) -> list[Ran]:
    return [ran for ran in processes(job) if any(variable in ran.env for variable in RANK_VARIABLES)]


def way(rank: Ran) -> tuple[str, str]:
    """From which address to which one the ssh session came that the rank is part of."""
    source, _, target, _ = rank.env["SSH_CONNECTION"].split()
    return source, target


@pytest.mark.parametrize("image", MPIS)
@pytest.mark.parametrize("user", [pytest.param(ROOT, id="root"), pytest.param(ORDINARY, id="ordinary user")])
def test_ranks_meet_that_a_real_sshd_has_started(cluster, gate, user, image):
    name = f"real-{user}-{image}"
    cluster.submit(job_of(user, name, gate, image))
    launcher = launcher_of(cluster, name)
    cluster.says(launcher["metadata"]["name"], "have sum 1111")
    ranks = ranks_of(name)
    ways, users = [way(rank) for rank in ranks], {os.stat(f"/proc/{rank.pid}").st_uid for rank in ranks}
    workers = [cluster.pod(f"{name}-worker-{index}")["status"]["podIP"] for index in range(2)]

    gate.open()

    assert cluster.finished("MPIJob", name) == "Succeeded"
    assert sorted(ways) == sorted((launcher["status"]["podIP"], worker) for worker in workers for _ in range(2))
    assert users == {user}
    said = cluster.log(launcher["metadata"]["name"])
    assert f"ranks on {name}-worker-0 {name}-worker-1 have sum 1111" in said
