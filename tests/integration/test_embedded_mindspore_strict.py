"""An embedded cluster whose operator refuses MSJobs that could not meet, and counts the others for Prometheus."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.integration.bed import MARK, Bed, Json, bed, holding, processes

from trainmaster.cli.embedded import EmbeddedOptions, embedded_operator
from trainmaster.testing.patience import PATIENCE
from trainmaster.testing.ports import free_port

pytestmark = pytest.mark.sandbox

VERSION = "mindspore.gitee.com/v1"


@pytest.fixture(scope="module")
def address() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def cluster(address: str) -> Iterator[Bed]:
    operator = replace(embedded_operator(strict_topology=True), metrics_bind_address=address)
    with bed(EmbeddedOptions(operator=operator)) as running:
        yield running
    assert processes() == []


def an_msjob(name: str, workers: int) -> Json:
    env = [{"name": "MARK", "value": MARK}, {"name": "JOB", "value": name}]
    container = {"name": "mindspore", "image": "any", "command": ["true"], "env": env}
    worker = {"replicas": workers, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": VERSION,
        "kind": "MSJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"msReplicaSpecs": {"Worker": worker}},
    }


def ended(cluster: Bed, name: str) -> Json:
    def is_so(job: Json | None) -> bool:
        return job is not None and bool(holding(job) & {"Succeeded", "Failed"})

    job = cluster.until(cluster.resource(VERSION, "MSJob"), name, is_so)
    assert job is not None
    return job


def counted(address: str) -> set[str]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE) as page:
        lines = page.read().decode().splitlines()
    return {line for line in lines if 'framework="mindspore"' in line and "_total{" in line}


def test_workers_without_a_scheduler_are_refused_and_a_lone_one_trains(cluster, address):
    cluster.submit(an_msjob("lost", 2), an_msjob("alone", 1))

    lost, alone = (ended(cluster, name) for name in ("lost", "alone"))

    last = lost["status"]["conditions"][-1]
    assert (last["type"], last["reason"]) == ("Failed", "MSJobFailed")
    assert last["message"].endswith(
        "spec.msReplicaSpecs[Scheduler]: Required value: 2 Worker could not find one another without it; "
        "add one with 1 replica"
    )
    assert (cluster.pods("lost"), holding(alone) & {"Succeeded", "Failed"}) == ({}, {"Succeeded"})
    labels = '{framework="mindspore",job_namespace="default"}'
    assert counted(address) >= {
        f"training_operator_jobs_created_total{labels} 2.0",
        f"training_operator_jobs_successful_total{labels} 1.0",
        f"training_operator_jobs_failed_total{labels} 1.0",
    }
