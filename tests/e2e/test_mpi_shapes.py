"""Jobs of v2beta1 in the shapes that mpi-operator itself tries end to end, each with every MPI."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.mpibed import MPIS, Gate, mpi_bed, mpi_job, opened
from tests.integration.bed import Bed, Json, holding, processes

DOMAIN = "cluster.local"

pytestmark = [pytest.mark.timeout(900), pytest.mark.parametrize("image", MPIS)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with mpi_bed(tmp_path_factory.mktemp("shapes"), *MPIS, domain=DOMAIN) as running:
        yield running
    assert processes() == []


@pytest.fixture
def gate(tmp_path) -> Gate:
    return opened(tmp_path)


def specs_of(job: Json) -> list[Json]:
    """The pods of launcher and workers."""
    return [job["spec"]["mpiReplicaSpecs"][role]["template"]["spec"] for role in ("Launcher", "Worker")]


def said(cluster: Bed, job: str) -> str:
    [launcher] = [pod for pod in cluster.pods(job) if pod.startswith(f"{job}-launcher")]
    return cluster.log(launcher)


def test_a_program_that_does_not_exist_fails_the_job_when_its_tries_are_used_up(cluster, gate, image):
    name = f"nothing-{image}"
    job = mpi_job("v2beta1", name, gate, image=image, launcher="Never", policy={"backoffLimit": 1})
    [launcher] = specs_of(job)[0]["containers"]
    launcher["command"] = ["mpirun", "-n", "2", "/no/such/program"]

    cluster.submit(job)

    assert cluster.finished("MPIJob", name) == "Failed"
    status = cluster.job("MPIJob", name)["status"]
    assert status["replicaStatuses"]["Launcher"]["failed"] == 2
    assert status["conditions"][-1]["reason"].split("/")[0] == "BackoffLimitExceeded"


def test_a_job_that_a_queue_holds_back_at_first_has_no_pod_and_then_succeeds(cluster, gate, image):
    jobs, name = cluster.resource("kubeflow.org/v1", "MPIJob"), f"queued-{image}"
    policy = {"suspend": True, "managedBy": "kubeflow.org/mpi-operator"}
    cluster.submit(mpi_job("v2beta1", name, gate, image=image, policy=policy))
    cluster.job("MPIJob", name, lambda job: "Suspended" in holding(job))
    had = cluster.pods(name)

    cluster.do(cluster.client.patch(jobs, name, {"spec": {"runPolicy": {"suspend": False}}}, "default"))

    assert cluster.finished("MPIJob", name) == "Succeeded"
    assert had == {}
    assert "all done with sum 11" in said(cluster, name)


def test_ranks_meet_on_the_network_of_the_node(cluster, gate, image):
    """Some MPIs find that the worker is where they are themselves, and need nobody's help to start ranks there."""
    name = f"host-{image}"
    job = mpi_job("v2beta1", name, gate, image=image, slots=2)
    job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = 1
    for spec in specs_of(job):
        spec["hostNetwork"] = True
    [launcher] = specs_of(job)[0]["containers"]
    launcher["command"][2] = "2"

    cluster.submit(job)

    assert cluster.finished("MPIJob", name) == "Succeeded"
    assert "have sum 11\nall done with sum 11\n" in said(cluster, name)


def test_a_launcher_that_works_too_is_found_under_a_domain_of_the_clusters_own(cluster, gate, image):
    name = f"both-{image}"
    job = mpi_job("v2beta1", name, gate, image=image)
    job["spec"] |= {"runLauncherAsWorker": True}
    [launcher] = specs_of(job)[0]["containers"]
    launcher["command"] = ["sh", "-c", "cat /etc/mpi/hostfile; exec mpirun -n 3 python /programs/ranks.py"]

    cluster.submit(job)

    assert cluster.finished("MPIJob", name) == "Succeeded"
    text = said(cluster, name)
    pods = [f"{name}-{who}" for who in ("launcher", "worker-0", "worker-1")]
    hosts = [f"{pod}.{name}.default.svc.{DOMAIN}" for pod in pods]
    assert [line.startswith(host) for line, host in zip(text.splitlines(), hosts, strict=False)] == [True] * 3, text
    assert f"ranks on {' '.join(pods)} have sum 111" in text
