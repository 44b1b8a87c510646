"""Static Horovod, started by `horovodrun`: it reaches the workers itself, first of all to see whether it can.

With v1 it does so through `kubexec.sh` instead of ssh, if exactly that path is in a certain variable of mpirun's. These
images have a real ssh, and in workers of v1 no sshd runs: nothing else would do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import pytest
from tests.e2e.mpibed import Gate, mpi_bed, mpi_job
from tests.integration.bed import Bed, Json, processes
from tools import environments_openssh
from tools.environments import environment

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    files = environments_openssh.files(environment("openssh"))
    with mpi_bed(tmp_path_factory.mktemp("horovodrun"), "horovod", sshd="real", files=files) as running:
        yield running
    assert processes() == []


def horovod_job(version: Literal["v1", "v2beta1"], name: str, gate: Gate, controller: str) -> Json:
    """A rank on each of two workers; what Horovod found out about these hosts before is not to be believed."""
    job = mpi_job(version, name, gate, image="horovod")
    roles = {role: held["template"]["spec"]["containers"][0] for role, held in job["spec"]["mpiReplicaSpecs"].items()}
    options = ["--disable-cache", "--hostfile", "/etc/mpi/hostfile", f"--{controller}"]
    roles["Launcher"]["command"] = ["horovodrun", "-np", "2", *options, "python", "/app/train.py"]
    if version == "v2beta1":
        roles["Worker"]["readinessProbe"] = {"tcpSocket": {"port": environments_openssh.PORT}, "periodSeconds": 1}
    return job


@pytest.mark.parametrize("controller", ["gloo", "mpi"])
@pytest.mark.parametrize("version", ["v1", "v2beta1"])
def test_ranks_train_together(cluster, tmp_path, version, controller):
    name = f"static-{version}-{controller}"
    cluster.submit(horovod_job(version, name, Gate(tmp_path), controller))

    result = cluster.finished("MPIJob", name)

    [launcher] = [pod for pod in cluster.pods(name) if pod.startswith(f"{name}-launcher")]
    text = cluster.log(launcher)
    assert result == "Succeeded", text
    assert sorted(re.findall(r"rank (\d) of 2 has joined", text)) == ["0", "1"], text
    [first] = re.findall(r"step 0 loss ([\d.]+)", text)
    found = re.findall(r"rank \d final loss ([\d.]+) weights (\S+)", text)
    assert len(found) == 2, text
    assert len({weights for _, weights in found}) == 1
    assert float(found[0][0]) < 0.1 * float(first)


def test_without_the_agent_there_would_be_no_way_to_workers_of_v1(cluster, tmp_path):
    job = horovod_job("v1", "blind", Gate(tmp_path), "gloo")
    [launcher] = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
    launcher["command"] = ["env", "OMPI_MCA_plm_rsh_agent=/opt/kube/other", *launcher["command"]]

    cluster.submit(job)

    assert cluster.finished("MPIJob", "blind") == "Failed"
    assert "could not connect to some hosts via ssh" in cluster.log("blind-launcher")
