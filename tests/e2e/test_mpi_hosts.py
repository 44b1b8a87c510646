"""More hosts than an MPI would reach by itself: past a width it has workers start ranks on others, which those cannot.

The width is made small here; as it comes, it is 64 (Open MPI).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.mpibed import Gate, mpi_bed, mpi_job
from tests.integration.bed import Bed, Json, processes

HOSTS = 5
NARROW = {"OMPI_MCA_routed_radix": "2", "PRTE_MCA_routed_radix": "2"}
AS_A_TREE = {"OMPI_MCA_plm_rsh_no_tree_spawn": "0", "PRTE_MCA_plm_ssh_no_tree_spawn": "0"}

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with mpi_bed(tmp_path_factory.mktemp("hosts"), "openmpi", "openmpi5", "mpich") as running:
        yield running
    assert processes() == []


@pytest.fixture
def gate(tmp_path) -> Gate:
    return Gate(tmp_path)


def wide(name: str, gate: Gate, image: str, **env: str) -> Json:
    """One rank on each of several workers, and a gate that is open from the start."""
    job = mpi_job("v1", name, gate, image=image)
    roles = job["spec"]["mpiReplicaSpecs"]
    [launcher] = roles["Launcher"]["template"]["spec"]["containers"]
    launcher["command"] = ["mpirun", "-n", str(HOSTS), "python", "/programs/ranks.py"]
    launcher["env"] = [*launcher["env"], *({"name": key, "value": value} for key, value in env.items())]
    roles["Worker"]["replicas"] = HOSTS
    gate.open()
    return job


@pytest.mark.parametrize("image", ["openmpi", "openmpi5", "mpich"])
def test_the_launcher_starts_ranks_on_all_hosts_itself(cluster, gate, image):
    name = f"flat-{image}"
    cluster.submit(wide(name, gate, image, **NARROW))

    assert cluster.finished("MPIJob", name) == "Succeeded"
    everywhere = " ".join(f"{name}-worker-{index}" for index in range(HOSTS))
    assert f"ranks on {everywhere} have sum 11111" in cluster.log(f"{name}-launcher")


@pytest.mark.parametrize("image", ["openmpi", "openmpi5"])
def test_workers_could_not_do_it_for_it(cluster, gate, image):
    name = f"tree-{image}"
    cluster.submit(wide(name, gate, image, **NARROW, **AS_A_TREE))

    assert cluster.finished("MPIJob", name) == "Failed"
    assert "have sum" not in cluster.log(f"{name}-launcher")
