"""A paddle-operator job: its table, its gate, its annotation, its finalizer."""

import asyncio
import subprocess

import pytest
from tests.suite.cluster import named, resource_of
from tests.unit.frameworks.paddle_jobs import a_paddle
from tools import kubectl as stock

from trainmaster.objects.resource import CONFIG_MAPS, PODS


async def table(cluster, job):
    command = [stock.kubectl(), f"--kubeconfig={cluster.server.kubeconfig}", "get", "pdj", named(job)]
    shown = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    heading, line = shown.stdout.splitlines()
    return heading.split(), line.split()[:-1]


async def addressed(cluster, job):
    """Every pod gets an address, as from a kubelet whose containers wait at the gate."""
    for number, pod in enumerate(sorted(await cluster.standing(job)), start=1):
        ip = f"10.0.0.{number}"
        body = {"status": {"phase": "Pending", "podIP": ip, "podIPs": [{"ip": ip}]}}
        await cluster.client.patch(PODS, pod, body, cluster.namespace, "status")


async def in_phase(cluster, job, phase):
    await cluster.status(job, lambda status: status.get("phase") == phase)


@pytest.mark.kubectl
@pytest.mark.parametrize("intranet", ["PodIP", "Service", "Host"])
async def test_a_job_lives_from_its_gate_to_the_table_of_the_manual(cluster, intranet):
    name = f"wide-{intranet.lower()}"
    job = a_paddle(ps=2, worker=2, intranet=intranet, withGloo=1, cleanPodPolicy="Never").meta(name=name).manifest

    await cluster.submit(job)
    await cluster.pods(job, 4)
    await addressed(cluster, job)
    gate = (await cluster.object(CONFIG_MAPS, name))["data"]
    await cluster.play(job, "Running")
    await in_phase(cluster, job, "Running")
    await cluster.play(job, "Succeeded", 0, only="worker")
    await in_phase(cluster, job, "Completed")
    annotations = (await cluster.job(job))["metadata"].get("annotations", {})

    assert await table(cluster, job) == (
        ["NAME", "STATUS", "MODE", "PS", "WORKER", "AGE"],
        [name, "Completed", "PS", "2/2", "0/2"],
    )
    assert len(gate["PADDLE_TRAINER_ENDPOINTS"].split(",")) == 2
    assert (annotations.get("host-port") == gate["PADDLE_PORT"]) == (intranet == "Host")


@pytest.mark.parametrize("roles", [{"ps": 1, "worker": 2}, {"worker": 2}], ids=["ps", "collective"])
async def test_a_failed_pod_fails_the_job(cluster, roles):
    job = a_paddle(**roles).meta(name=f"failing-{len(roles)}").manifest

    await cluster.submit(job)
    await cluster.pods(job, sum(roles.values()))
    await addressed(cluster, job)
    await cluster.play(job, "Running")
    await in_phase(cluster, job, "Running")
    await cluster.set_phase(f"{named(job)}-worker-1", "Failed", 1)

    await in_phase(cluster, job, "Failed")


async def test_the_finalizer_of_the_old_operator_does_not_hold_a_job_that_is_deleted(cluster):
    job = a_paddle(worker=1).meta(name="held", finalizers=["finalizers.paddlepaddle.org"]).manifest

    await cluster.submit(job)
    await cluster.pods(job, 1)
    await cluster.remove(resource_of(job), "held")

    await cluster.gone(resource_of(job), "held")


def test_the_operator_was_never_refused(operators):
    """Runs last."""
    assert operators[0].refused == []
