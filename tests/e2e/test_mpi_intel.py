"""Intel MPI, in every version and by every name that jobs give to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.mpibed import Gate, mpi_bed, mpi_job, opened
from tests.integration.bed import Bed, Json, processes

from trainmaster.objects.resource import CONFIG_MAPS

MANY = 17
"""Hosts. Up to 16 the launcher starts ranks on all of them; beyond that Intel MPI would leave it to the first ones."""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with mpi_bed(tmp_path_factory.mktemp("intel"), "intelmpi") as running:
        yield running
    assert processes() == []


@pytest.fixture
def gate(tmp_path) -> Gate:
    return opened(tmp_path)


def said(cluster: Bed, job: str) -> list[str]:
    """By the first rank, in the launcher's log."""
    [launcher] = [pod for pod in cluster.pods(job) if pod.startswith(f"{job}-launcher")]
    return cluster.log(launcher).splitlines()


def hostfile(cluster: Bed, job: str) -> str:
    found = cluster.until(CONFIG_MAPS, f"{job}-config", lambda found: found is not None)
    assert found is not None
    return str(found["data"]["hostfile"])


@pytest.mark.parametrize(
    ("version", "told", "host"),
    [
        pytest.param("v1alpha2", {"mpiDistribution": "IntelMPI"}, "{}:2", id="v1alpha2 by its distribution"),
        pytest.param("v1", {"mpiDistribution": "IntelMPI"}, "{}:2", id="v1 by its distribution"),
        pytest.param("v1", {}, "{} slots=2", id="v1 that does not say"),
        pytest.param("v2beta1", {"mpiImplementation": "Intel"}, "{}.{job}.default.svc:2", id="v2beta1"),
    ],
)
def test_ranks_of_two_workers_add_up(cluster, gate, version, told, host):
    name = f"intel-{version}-{len(told)}"
    job = mpi_job(version, name, gate, image="intelmpi", slots=2)
    job["spec"] |= told

    cluster.submit(job)

    assert cluster.finished("MPIJob", name) == "Succeeded"
    workers = [f"{name}-worker-{index}" for index in range(2)]
    library, *sums = said(cluster, name)
    assert library.startswith("this is Intel(R) MPI Library")
    assert sums == [f"ranks on {' '.join(workers)} have sum 1111", "all done with sum 1111"]
    assert hostfile(cluster, name) == "".join(f"{host.format(worker, job=name)}\n" for worker in workers)


def many(name: str, gate: Gate, **env: str) -> Json:
    """One rank on each of so many workers."""
    job = mpi_job("v1", name, gate, image="intelmpi")
    roles = job["spec"]["mpiReplicaSpecs"]
    [launcher] = roles["Launcher"]["template"]["spec"]["containers"]
    launcher["command"] = ["mpirun", "-n", str(MANY), "python", "/programs/ranks.py"]
    launcher["env"] = [*launcher["env"], *({"name": key, "value": value} for key, value in env.items())]
    roles["Worker"]["replicas"] = MANY
    return job


def test_the_launcher_starts_ranks_on_many_hosts_itself(cluster, gate):
    cluster.submit(many("flat", gate))

    assert cluster.finished("MPIJob", "flat") == "Succeeded"
    assert said(cluster, "flat")[-1] == f"all done with sum {'1' * MANY}"


def test_workers_could_not_do_it_for_it(cluster, gate):
    cluster.submit(many("tree", gate, I_MPI_HYDRA_BRANCH_COUNT="16"))

    assert cluster.finished("MPIJob", "tree") == "Failed"
    assert "have sum" not in "\n".join(said(cluster, "tree"))
