"""MPI jobs that something happens to: ranks, launchers and workers killed, evicted and suspended under a real mpirun.

    python -m pytest tests/e2e/test_mpi.py -k killed

However it ends, nobody waits for ever and nothing is left on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.mpibed import MPIS, Gate, evict, kill, launcher_of, mpi_bed, mpi_job, mpirun_of, rank_of
from tests.integration.bed import Bed, Json, container_of, holding, processes, wait_for_end

from trainmaster.objects.resource import PODS

VERSIONS = ("v1", "v2beta1")
BEGUN, DONE = "have sum ", "all done with sum"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with mpi_bed(tmp_path_factory.mktemp("mpi"), *MPIS) as running:
        yield running
    assert processes() == []


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """Where namespaces are forbidden: all pods share one network and one host name."""
    with mpi_bed(tmp_path_factory.mktemp("ports"), *MPIS, sandbox="ports") as running:
        yield running


@pytest.fixture
def gate(tmp_path) -> Gate:
    return Gate(tmp_path)


def condition(cluster: Bed, job: str, type: str) -> Json:
    found: list[Json] = cluster.job("MPIJob", job)["status"]["conditions"]
    [wanted] = [each for each in found if each["type"] == type]
    return wanted


def pids(job: str) -> list[int]:
    return [ran.pid for ran in processes(job)]


def is_cleaned_up(cluster: Bed, job: str, before: list[int]) -> bool:
    """Once workers are gone, launchers over, and what ran before has ended: nothing of the job runs on this machine."""
    workers = [f"{job}-worker-0", f"{job}-worker-1"]
    for worker in workers:
        cluster.pod_gone(worker)
    for launcher in cluster.pods(job).keys() - workers:
        cluster.until(PODS, launcher, lambda pod: pod is None or pod["status"]["phase"] in ("Succeeded", "Failed"))
    wait_for_end(before)
    return processes(job) == []


def restarts(pod: Json) -> int:
    return int(container_of(pod).get("restartCount", 0))


def begun(cluster: Bed, version: str, job: str, failed: int = 0) -> Json:
    """The launcher's pod, once all ranks have met."""
    name = f"{job}-launcher" if version == "v1" else launcher_of(cluster, job, failed)["metadata"]["name"]
    return cluster.says(name, BEGUN)


def sums(cluster: Bed, launcher: str) -> list[str]:
    """What the ranks said, without what mpirun had to say."""
    return [line for line in cluster.log(launcher).splitlines() if " sum " in line]


def failed_by(role: str, job: str) -> str:
    return f"MPIJob {job} is failed because 1 {role} replica(s) failed."


@pytest.mark.parametrize("image", MPIS)
def test_v1_a_killed_rank_ends_mpirun_and_fails_the_job(cluster, gate, image):
    name = f"rank-{image}"
    cluster.submit(mpi_job("v1", name, gate, image=image, slots=2))
    begun(cluster, "v1", name)
    before = pids(name)

    kill(rank_of(name, 3))

    assert cluster.finished("MPIJob", name) == "Failed"
    assert condition(cluster, name, "Failed")["message"] == failed_by("Launcher", name)
    assert is_cleaned_up(cluster, name, before)
    launcher = container_of(cluster.pod(f"{name}-launcher"))
    assert (launcher["state"]["terminated"]["exitCode"] > 0, launcher["restartCount"]) == (True, 0)
    assert DONE not in cluster.log(f"{name}-launcher")


@pytest.mark.parametrize(("version", "restart"), [("v1", "OnFailure"), ("v2beta1", "")])
def test_a_killed_mpirun_is_restarted_in_place_on_failure(cluster, gate, version, restart):
    name = f"again-{version}"
    cluster.submit(mpi_job(version, name, gate, launcher=restart))
    first = begun(cluster, version, name)
    ranks = [rank_of(name, 0), rank_of(name, 1)]

    kill(mpirun_of(name))
    second = cluster.pod(first["metadata"]["name"], lambda pod: restarts(pod) > 0)
    wait_for_end(ranks)
    gate.open()

    assert cluster.finished("MPIJob", name) == "Succeeded"
    last = cluster.pod(first["metadata"]["name"])
    assert (last["metadata"]["uid"], restarts(last)) == (first["metadata"]["uid"], 1)
    assert container_of(second)["lastState"]["terminated"]["exitCode"] == 137
    assert sums(cluster, last["metadata"]["name"])[-1] == f"{DONE} 11"
    assert is_cleaned_up(cluster, name, [])


def by_kill(cluster: Bed, job: str, pod: str) -> None:
    kill(mpirun_of(job))


def by_deletion(cluster: Bed, job: str, pod: str) -> None:
    cluster.do(cluster.client.delete(PODS, pod, "default"))


def by_eviction(cluster: Bed, job: str, pod: str) -> None:
    evict(cluster, pod)


@pytest.mark.parametrize("end", [by_kill, by_deletion, by_eviction], ids=["killed", "deleted", "evicted"])
def test_v2beta1_a_lost_launcher_is_replaced_by_its_job(cluster, gate, end):
    name = f"lost-{end.__name__.removeprefix('by_')}"
    cluster.submit(mpi_job("v2beta1", name, gate, launcher="Never"))
    first = begun(cluster, "v2beta1", name)

    end(cluster, name, first["metadata"]["name"])
    second = begun(cluster, "v2beta1", name, failed=1)
    gate.open()

    assert cluster.finished("MPIJob", name) == "Succeeded"
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert cluster.job("MPIJob", name)["status"]["replicaStatuses"]["Launcher"]["failed"] == 1
    assert is_cleaned_up(cluster, name, [])


@pytest.mark.parametrize("restart", ["OnFailure", "Never"])
def test_v2beta1_without_retries_a_killed_launcher_exceeds_the_backoff_limit(cluster, gate, restart):
    name = f"limit-{restart.lower()}"
    cluster.submit(mpi_job("v2beta1", name, gate, launcher=restart, policy={"backoffLimit": 0}))
    begun(cluster, "v2beta1", name)
    before = pids(name)

    kill(mpirun_of(name))

    assert cluster.finished("MPIJob", name) == "Failed"
    failed = condition(cluster, name, "Failed")
    assert failed["reason"].split("/")[0] == "BackoffLimitExceeded"
    assert "backoff limit" in failed["message"]
    assert is_cleaned_up(cluster, name, before)


@pytest.mark.parametrize("end", [by_deletion, by_eviction], ids=["deleted", "evicted"])
def test_v1_a_lost_worker_fails_the_job(cluster, gate, end):
    """By default neither role is restarted, and no rank can go on without the others."""
    name = f"worker-{end.__name__.removeprefix('by_')}"
    cluster.submit(mpi_job("v1", name, gate))
    begun(cluster, "v1", name)
    before = pids(name)

    end(cluster, name, f"{name}-worker-1")

    assert cluster.finished("MPIJob", name) == "Failed"
    assert condition(cluster, name, "Failed")["message"] in (failed_by("Worker", name), failed_by("Launcher", name))
    assert is_cleaned_up(cluster, name, before)


@pytest.mark.parametrize("end", [by_deletion, by_eviction], ids=["deleted", "evicted"])
@pytest.mark.parametrize(
    ("version", "restart"),
    [pytest.param("v1", "OnFailure", id="v1 that restarts"), pytest.param("v2beta1", "", id="v2beta1")],
)
def test_a_lost_worker_is_replaced_and_the_launcher_tries_again(cluster, gate, version, restart, end):
    name = f"heals-{version}-{end.__name__.removeprefix('by_')}"
    cluster.submit(mpi_job(version, name, gate, launcher=restart, worker=restart))
    first = begun(cluster, version, name)
    before = cluster.pod(f"{name}-worker-1")["metadata"]["uid"]

    end(cluster, name, f"{name}-worker-1")
    cluster.pod(f"{name}-worker-1", lambda pod: pod["metadata"]["uid"] != before)
    gate.open()

    assert cluster.finished("MPIJob", name) == "Succeeded"
    last = cluster.pod(first["metadata"]["name"])
    assert last["metadata"]["uid"] == first["metadata"]["uid"]
    assert restarts(last) >= 1
    assert is_cleaned_up(cluster, name, [])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_suspended_job_has_no_ranks_and_starts_anew_when_released(cluster, gate, version):
    jobs, name = cluster.resource("kubeflow.org/v1", "MPIJob"), f"paused-{version}"
    cluster.submit(mpi_job(version, name, gate))
    first = begun(cluster, version, name)
    before = pids(name)

    cluster.do(cluster.client.patch(jobs, name, {"spec": {"runPolicy": {"suspend": True}}}, "default"))
    cluster.pod_gone(first["metadata"]["name"])
    is_idle = is_cleaned_up(cluster, name, before)
    suspended = holding(cluster.job("MPIJob", name, lambda job: "Suspended" in holding(job)))
    gate.open()
    cluster.do(cluster.client.patch(jobs, name, {"spec": {"runPolicy": {"suspend": False}}}, "default"))

    assert (is_idle, suspended) == (True, {"Created", "Suspended"})
    assert cluster.finished("MPIJob", name) == "Succeeded"
    [launcher] = [pod for pod in cluster.pods(name) if pod.startswith(f"{name}-launcher")]
    assert cluster.pod(launcher)["metadata"]["uid"] != first["metadata"]["uid"]
    assert sums(cluster, launcher)[-1] == f"{DONE} 11"


@pytest.mark.parametrize("image", MPIS)
@pytest.mark.parametrize("version", VERSIONS)
def test_two_jobs_at_once_do_not_see_each_other(cluster, tmp_path, version, image):
    """One ends while the other goes on."""
    names = [f"{number}-{version}-{image}" for number in ("one", "two")]
    gates = {name: Gate(tmp_path / name) for name in names}
    for base, (name, gate) in enumerate(gates.items(), 1):
        gate.directory.mkdir()
        cluster.submit(mpi_job(version, name, gate, image=image, base=base))
    launchers = {name: begun(cluster, version, name)["metadata"]["name"] for name in names}

    results = []
    for name, gate in gates.items():
        gate.open()
        results.append(cluster.finished("MPIJob", name))

    assert results == ["Succeeded", "Succeeded"]
    assert [sums(cluster, launcher) for launcher in launchers.values()] == [
        [f"ranks on {name}-worker-0 {name}-worker-1 have sum {total}", f"{DONE} {total}"]
        for name, total in zip(names, (11, 22), strict=True)
    ]


@pytest.mark.parametrize("image", MPIS)
@pytest.mark.parametrize("version", VERSIONS)
def test_without_namespaces_ranks_meet_all_the_same(ports, gate, version, image):
    name = f"shared-{version}-{image}"
    ports.submit(mpi_job(version, name, gate, image=image, slots=2))
    launcher = begun(ports, version, name)["metadata"]["name"]

    gate.open()

    assert ports.finished("MPIJob", name) == "Succeeded"
    said = [f"ranks on {name}-worker-0 {name}-worker-1 have sum 1111", f"{DONE} 1111"]
    assert sums(ports, launcher) == said
    assert is_cleaned_up(ports, name, [])


@pytest.mark.parametrize("image", MPIS)
def test_without_namespaces_a_killed_rank_fails_the_job_all_the_same(ports, gate, image):
    name = f"broken-{image}"
    ports.submit(mpi_job("v1", name, gate, image=image, slots=2))
    begun(ports, "v1", name)
    before = pids(name)

    kill(rank_of(name, 1))

    assert ports.finished("MPIJob", name) == "Failed"
    assert condition(ports, name, "Failed")["message"] == failed_by("Launcher", name)
    assert is_cleaned_up(ports, name, before)
