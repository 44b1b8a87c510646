"""A paddle-operator job on a real API server with RBAC on: its table, its gate, its annotation, its finalizer."""

import subprocess

import pytest
from tests.kubernetes.test_life_on_a_real_server import on, resource_of
from tests.unit.frameworks.paddle_jobs import a_paddle

from trainmaster.kube.errors import NotFound
from trainmaster.objects.resource import CONFIG_MAPS, PODS


def table(plane, job):
    command = ["kubectl", f"--kubeconfig={plane.kubeconfig}", "get", "pdj", job["metadata"]["name"]]
    heading, line = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return heading.split(), line.split()[:-1]


async def addressed(cluster, name):
    """Every pod gets an address, as from a kubelet whose containers wait at the gate."""
    for number, pod in enumerate(sorted(await cluster.pods(name)), start=1):
        ip = f"10.0.0.{number}"
        body = {"status": {"phase": "Pending", "podIP": ip, "podIPs": [{"ip": ip}]}}
        await cluster.client.patch(PODS, pod, body, "default", "status")


async def until_phase(cluster, job, phase):
    async def there():
        return (await cluster.job(job)).get("status", {}).get("phase") == phase

    await cluster.until(there, f"phase {phase}")


@pytest.mark.parametrize("intranet", ["PodIP", "Service", "Host"])
def test_a_job_lives_from_its_gate_to_the_table_of_the_manual(plane, operator, intranet):
    name = f"wide-{intranet.lower()}"
    job = a_paddle(ps=2, worker=2, intranet=intranet, withGloo=1, cleanPodPolicy="Never").meta(name=name).manifest
    seen = {}

    async def life(cluster):
        await cluster.submit(job)
        await cluster.until_pods(name, 4)
        await addressed(cluster, name)

        async def is_open():
            try:
                seen.update((await cluster.client.get(CONFIG_MAPS, name, "default"))["data"])
            except NotFound:
                return False
            return True

        await cluster.until(is_open, "the gate")
        for pod in await cluster.pods(name):
            await cluster.set_phase(pod, "Running")
        await until_phase(cluster, job, "Running")
        for pod in await cluster.pods(name):
            if "worker" in pod:
                await cluster.set_phase(pod, "Succeeded", 0)
        await until_phase(cluster, job, "Completed")
        seen["annotations"] = (await cluster.job(job))["metadata"].get("annotations", {})

    on(plane, life)

    assert table(plane, job) == (
        ["NAME", "STATUS", "MODE", "PS", "WORKER", "AGE"],
        [name, "Completed", "PS", "2/2", "0/2"],
    )
    assert len(seen["PADDLE_TRAINER_ENDPOINTS"].split(",")) == 2
    assert (seen["annotations"].get("host-port") == seen["PADDLE_PORT"]) == (intranet == "Host")


def test_the_finalizer_of_the_old_operator_does_not_hold_a_job_that_is_deleted(plane, operator):
    scene = a_paddle(worker=1).meta(name="held", finalizers=["finalizers.paddlepaddle.org"])
    job = scene.manifest

    async def life(cluster):
        await cluster.submit(job)
        await cluster.until_pods("held", 1)
        await cluster.client.delete(resource_of(job), "held", "default")

        async def is_gone():
            try:
                await cluster.job(job)
            except NotFound:
                return True
            return False

        await cluster.until(is_gone, "the job to go")

    on(plane, life)
