"""MPIJobs as processes, with plain programs in place of an MPI: a launcher that calls every host of its hostfile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.integration.bed import MARK, Bed, Json, bed, processes

from trainmaster.cli.embedded import EmbeddedOptions, embedded_operator
from trainmaster.objects.resource import JOBS, PODS

pytestmark = pytest.mark.sandbox

DOMAIN = "cluster.local"
EACH = "for host in $(cut -d' ' -f1 /etc/mpi/hostfile); do {agent} $host 'echo reached $HERE' || exit 1; done"
CALL = {
    "v1": EACH.format(agent="/etc/mpi/kubexec.sh"),
    "v1alpha2": EACH.format(agent="/etc/mpi/kubexec.sh"),
    "v2beta1": EACH.format(agent="ssh"),
}
"""Every worker says its name."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    operator = replace(embedded_operator(), cluster_domain=DOMAIN)
    with bed(EmbeddedOptions(str(tmp_path_factory.mktemp("mpi") / "cluster"), operator=operator)) as running:
        yield running
    assert processes() == []


def an_mpijob(
    version: str,
    name: str,
    script: str = "",
    *,
    workers: int = 2,
    restart: str = "",
    policy: Json | None = None,
    pod: Json | None = None,
    **spec: Any,
) -> Json:
    here = {"name": "HERE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    env = [{"name": "MARK", "value": MARK}, {"name": "JOB", "value": name}, here]
    container: Json = {"name": "mpi", "image": "any", "env": env}

    def role(replicas: int, **own: Any) -> Json:
        template = {"containers": [{**container, **own}], "terminationGracePeriodSeconds": 2, **(pod or {})}
        return {"replicas": replicas, "template": {"spec": template}}

    waits = {"launcherCreationPolicy": "WaitForWorkersReady"} if version == "v2beta1" else {}
    launcher = role(1, command=["sh", "-c", script or CALL[version]])
    launcher |= {"restartPolicy": restart} if restart else {}
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "MPIJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "runPolicy": policy or {},
            "mpiReplicaSpecs": {"Launcher": launcher, **({"Worker": role(workers)} if workers else {})},
            **waits,
            **spec,
        },
    }


def launchers(cluster: Bed, job: str) -> list[str]:
    return [name for name in cluster.pods(job) if name.startswith(f"{job}-launcher")]


def reached(cluster: Bed, job: str) -> list[str]:
    """Who answered the launcher."""
    [launcher] = launchers(cluster, job)
    said = [line for line in cluster.log(launcher).splitlines() if line.startswith("reached ")]
    return [line.removeprefix(f"reached {job}-") for line in said]


def condition(cluster: Bed, job: str, type: str) -> Json:
    found: list[Json] = cluster.job("MPIJob", job)["status"]["conditions"]
    [wanted] = [each for each in found if each["type"] == type]
    return wanted


def edit(cluster: Bed, job: str, spec: Json) -> None:
    resource = cluster.resource("kubeflow.org/v1", "MPIJob")
    cluster.do(cluster.client.patch(resource, job, {"spec": spec}, "default"))


@pytest.mark.parametrize("version", CALL)
def test_the_launcher_reaches_its_workers_and_they_end_with_it_though_nobody_said_so(
    cluster: Bed, version: str
) -> None:
    name = f"plain-{version}"
    cluster.submit(an_mpijob(version, name))

    assert cluster.finished("MPIJob", name) == "Succeeded"
    cluster.pod_gone(f"{name}-worker-0")
    cluster.pod_gone(f"{name}-worker-1")
    assert reached(cluster, name) == ["worker-0", "worker-1"]


@pytest.mark.parametrize("version", CALL)
def test_a_launcher_that_is_out_of_tries_fails_the_job_and_leaves_its_log(cluster: Bed, version: str) -> None:
    name = f"tries-{version}"
    cluster.submit(an_mpijob(version, name, "echo trying; exit 3", restart="Never", policy={"backoffLimit": 1}))

    assert cluster.finished("MPIJob", name) == "Failed"
    cluster.pod_gone(f"{name}-worker-0")
    job = cluster.job("MPIJob", name, lambda job: not job["status"]["replicaStatuses"]["Worker"].get("active"))
    assert job["status"]["replicaStatuses"]["Launcher"]["failed"] == (1 if version == "v1" else 2)
    assert {cluster.log(launcher) for launcher in launchers(cluster, name)} == {"trying\n"}


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
def test_a_job_that_is_created_suspended_has_no_pod_and_runs_when_it_is_resumed(cluster: Bed, version: str) -> None:
    name = f"asleep-{version}"
    cluster.submit(an_mpijob(version, name, policy={"suspend": True}))
    asleep = cluster.job("MPIJob", name, lambda job: "Suspended" in str(job.get("status")))
    before = cluster.pods(name)

    edit(cluster, name, {"runPolicy": {"suspend": False}})

    assert cluster.finished("MPIJob", name) == "Succeeded"
    assert before == {}
    assert "startTime" not in asleep["status"]
    assert reached(cluster, name) == ["worker-0", "worker-1"]


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
def test_a_job_on_the_network_of_its_node_runs(cluster: Bed, version: str) -> None:
    name = f"host-{version}"
    cluster.submit(an_mpijob(version, name, workers=1, pod={"hostNetwork": True}))

    assert cluster.finished("MPIJob", name) == "Succeeded"
    assert reached(cluster, name) == ["worker-0"]


@pytest.mark.namespaces  # without them volumes stay where only the owner of the cluster may go
def test_a_job_of_another_user_may_read_its_keys_where_it_wants_them(cluster: Bed) -> None:
    script = "cd /home/mpiuser/.ssh && cat id_rsa id_rsa.pub authorized_keys"
    user = {"securityContext": {"runAsUser": 1000}}
    cluster.submit(an_mpijob("v2beta1", "user", script, workers=0, pod=user, sshAuthMountPath="/home/mpiuser/.ssh"))

    assert cluster.finished("MPIJob", "user") == "Succeeded"
    [launcher] = launchers(cluster, "user")
    lines = cluster.log(launcher).splitlines()
    assert lines[0] == "-----BEGIN EC PRIVATE KEY-----"
    assert [line.split()[0] for line in lines[-2:]] == ["ecdsa-sha2-nistp521"] * 2


def test_a_job_that_names_mpi_operator_as_its_manager_runs(cluster: Bed) -> None:
    cluster.submit(an_mpijob("v2beta1", "managed", policy={"managedBy": "kubeflow.org/mpi-operator"}))

    assert cluster.finished("MPIJob", "managed") == "Succeeded"


def test_a_launcher_that_works_too_is_found_by_names_in_a_domain_of_the_clusters_own(cluster: Bed) -> None:
    cluster.submit(an_mpijob("v2beta1", "both", "cat /etc/mpi/hostfile; " + CALL["v2beta1"], runLauncherAsWorker=True))

    assert cluster.finished("MPIJob", "both") == "Succeeded"
    [launcher] = launchers(cluster, "both")
    hosts = [line.split()[0] for line in cluster.log(launcher).splitlines() if "slots=" in line]
    assert hosts == [f"both-{who}.both.default.svc.{DOMAIN}" for who in ("launcher", "worker-0", "worker-1")]
    assert reached(cluster, "both")[1:] == ["worker-0", "worker-1"]


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
def test_a_node_that_evicts_a_worker_ends_the_job_and_everything_that_ran(cluster: Bed, version: str) -> None:
    name = f"evicted-{version}"
    cluster.submit(an_mpijob(version, name, "echo here; exec sleep 1000"))
    cluster.job("MPIJob", name, lambda job: "MPIJobRunning" in str(job.get("status")))

    evicted = {"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}}
    cluster.do(cluster.client.patch(PODS, f"{name}-worker-1", evicted, "default", "status"))

    assert cluster.finished("MPIJob", name) == "Failed"
    told = condition(cluster, name, "Failed")
    assert (told["reason"], told["message"]) == ("MPIJobEvicted", "1/2 workers are evicted")
    cluster.pod_gone(f"{name}-worker-0")
    if version == "v2beta1":
        cluster.until(JOBS, f"{name}-launcher", lambda job: job is None)
    for launcher in launchers(cluster, name):
        cluster.pod_gone(launcher)
