"""What Prometheus sees of MPIJobs while they live, over HTTP, under the names of both old operators."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.integration.bed import MARK, Bed, Json, a_job, bed, changes, holding, processes

from trainmaster.cli.embedded import EmbeddedOptions, embedded_operator
from trainmaster.kube.client import Client
from trainmaster.objects.resource import EVENTS
from trainmaster.testing.patience import PATIENCE
from trainmaster.testing.ports import free_port

pytestmark = pytest.mark.sandbox

MARKS = ("created", "successful", "failed", "restarted", "deleted")
Scrape = Callable[[], dict[tuple[str, str], float]]


@pytest.fixture
def address() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def cluster(address: str) -> Iterator[Bed]:
    with bed(EmbeddedOptions(operator=replace(embedded_operator(), metrics_bind_address=address))) as running:
        yield running
    assert processes() == []


@pytest.fixture
def scrape(address: str) -> Scrape:
    def samples() -> dict[tuple[str, str], float]:
        """By name and labels."""
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE) as page:
            families = text_string_to_metric_families(page.read().decode())
        found = [sample for family in families for sample in family.samples]
        return {(one.name, ",".join(one.labels[key] for key in sorted(one.labels))): one.value for one in found}

    return samples


def counts(samples: dict[tuple[str, str], float]) -> dict[str, float]:
    """Of MPIJobs by mpi-operator's names."""
    return {mark: samples[f"mpi_operator_jobs_{mark}_total", ""] for mark in MARKS}


def counts_by_framework(samples: dict[tuple[str, str], float], framework: str) -> dict[str, float]:
    """By training-operator's names, under which there is nothing before it has happened."""
    return {mark: samples.get((f"training_operator_jobs_{mark}_total", f"{framework},default"), 0) for mark in MARKS}


def known(samples: dict[tuple[str, str], float]) -> dict[str, float]:
    """The launchers of the jobs that there are."""
    return {labels: value for (name, labels), value in samples.items() if name == "mpi_operator_job_info"}


def mpi_job(version: str, name: str, script: str, directory: Path, policy: Json | None = None) -> Json:
    env = [{"name": "MARK", "value": MARK}, {"name": "JOB", "value": name}]

    def role(replicas: int, command: str) -> Json:
        mounts = [{"name": "shared", "mountPath": "/shared"}]
        container = {"name": "mpi", "image": "any", "command": ["sh", "-c", command], "env": env}
        volumes = [{"name": "shared", "hostPath": {"path": str(directory)}}]
        spec = {"containers": [{**container, "volumeMounts": mounts}], "volumes": volumes}
        return {"replicas": replicas, "template": {"spec": {**spec, "terminationGracePeriodSeconds": 2}}}

    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "MPIJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "runPolicy": policy or {},
            "mpiReplicaSpecs": {"Launcher": role(1, script), "Worker": role(1, "exec sleep 1000")},
        },
    }


def told(cluster: Bed, job: str, reason: str) -> None:
    """Until that event of the job; it is counted before it is told."""

    async def waited(client: Client) -> None:
        async with aclosing(changes(client, EVENTS, cluster.patience)) as seen:
            async for _, event in seen:
                if (event.get("reason"), event.get("involvedObject", {}).get("name")) == (reason, job):
                    return
        raise AssertionError(f"nobody told {reason} of {job}")

    cluster.do(waited(cluster.client))


def test_lives_of_mpijobs_are_counted_under_both_names_and_those_of_other_kinds_under_one(cluster, scrape, tmp_path):
    tmp_path.chmod(0o755)
    cluster.submit(a_job("JAXJob", "other", "", container={"command": ["true"]}, replicas={"Worker": 1}))
    told(cluster, "other", "JAXJobSucceeded")
    before = scrape()

    ends = {
        "good": ("v2beta1", "true", "MPIJobSucceeded"),
        "old": ("v1", "true", "MPIJobSucceeded"),
        "bad": ("v1", "exit 3", "MPIJobFailed"),
        "again": ("v1alpha2", "mkdir /shared/tried && exit 3; true", "MPIJobSucceeded"),
    }
    for name, (version, script, _) in ends.items():
        cluster.submit(mpi_job(version, name, script, tmp_path))
    for name, (_, _, reason) in ends.items():
        told(cluster, name, reason)
    after = scrape()

    lived = {"created": 4, "successful": 3, "failed": 1, "restarted": 1, "deleted": 0}
    assert (counts(before), counts(after)) == (dict.fromkeys(MARKS, 0), lived)
    assert counts_by_framework(after, "mpi") == lived
    assert counts_by_framework(after, "jax") == {**dict.fromkeys(MARKS, 0), "created": 1, "successful": 1}
    assert (before["mpi_operator_is_leader", ""], after["mpi_operator_is_leader", ""]) == (1, 1)


def test_a_job_is_known_by_its_launcher_until_it_is_gone(cluster, scrape, tmp_path):
    jobs = cluster.resource("kubeflow.org/v1", "MPIJob")
    cluster.submit(mpi_job("v1", "kept", "true", tmp_path))
    cluster.submit(mpi_job("v1", "short", "true", tmp_path, {"suspend": True, "ttlSecondsAfterFinished": 0}))
    seen = [cluster.job("MPIJob", name, holding) for name in ("kept", "short")]
    while_there = scrape()

    cluster.do(cluster.client.patch(jobs, "short", {"spec": {"runPolicy": {"suspend": False}}}, "default"))
    cluster.until(jobs, "short", lambda job: job is None)
    cluster.submit(mpi_job("v1", "next", "true", tmp_path))
    seen.append(cluster.job("MPIJob", "next", holding))  # what the operator hears of, it hears in order
    after = scrape()

    assert len(seen) == 3
    assert known(while_there) == {"kept-launcher,default": 1, "short-launcher,default": 1}
    assert known(after) == {"kept-launcher,default": 1, "next-launcher,default": 1}
    assert counts(after)["deleted"] == 1
