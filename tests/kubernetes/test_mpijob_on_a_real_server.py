"""MPIJobs of every API version in one CRD on a real API server: each is run as its author wrote it."""

from dataclasses import replace

import pytest
from tests.kubernetes.test_life_on_a_real_server import on, resource_of

from trainmaster.kube.errors import Invalid
from trainmaster.objects.resource import CONFIG_MAPS, JOBS, PODS, ROLES, SECRETS, SERVICES
from trainmaster.testing.scene import a_job


def mpi(version, name):
    return a_job("MPIJob", name, version=version).role("Launcher").role("Worker", 2).manifest


async def submit(cluster, job):
    """Under the version that the author wrote, and no other trace of it."""
    written = replace(resource_of(job), version=job["apiVersion"].partition("/")[2])
    metadata = {key: value for key, value in job["metadata"].items() if key != "uid"}
    await cluster.client.create(written, {**job, "metadata": metadata})


async def set_ready(cluster, name):
    await cluster.set_phase(name, "Running")
    body = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await cluster.client.patch(PODS, name, body, "default", "status")


async def started(cluster, job):
    name = job["metadata"]["name"]
    await submit(cluster, job)

    async def has_workers():
        return {f"{name}-worker-0", f"{name}-worker-1"} <= set(await cluster.pods(name))

    await cluster.until(has_workers, "the workers")
    for worker in (f"{name}-worker-0", f"{name}-worker-1"):
        await set_ready(cluster, worker)

    async def has_launcher():
        return any("launcher" in pod for pod in await cluster.pods(name))

    await cluster.until(has_launcher, "the launcher")
    return next(pod for pod in await cluster.pods(name) if "launcher" in pod)


@pytest.mark.parametrize("version", ["v1", "v1alpha2"])
def test_ranks_of_the_older_versions_are_started_by_kubectl(plane, operator, version):
    job = mpi(version, f"exec-{version}")
    name = job["metadata"]["name"]

    async def life(cluster):
        launcher = await started(cluster, job)
        assert launcher == f"{name}-launcher"
        assert (await cluster.job(job))["status"]["authoredVersion"] == version
        assert await cluster.client.get(ROLES, launcher, "default")
        data = (await cluster.client.get(CONFIG_MAPS, f"{name}-config", "default"))["data"]
        assert data["hostfile"] == f"{name}-worker-0 slots=1\n{name}-worker-1 slots=1\n"
        await cluster.set_phase(launcher, "Running")
        await cluster.until_last(job, "Running")
        await cluster.set_phase(launcher, "Succeeded", 0)
        await cluster.until_last(job, "Succeeded")

    on(plane, life)


def test_the_launcher_of_v2beta1_is_a_job_that_kubernetes_itself_runs(plane, operator):
    job = mpi("v2beta1", "ssh")

    async def life(cluster):
        launcher = await started(cluster, job)
        assert (await cluster.job(job))["status"]["authoredVersion"] == "v2beta1"
        owner = (await cluster.client.get(PODS, launcher, "default"))["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["name"]) == ("Job", "ssh-launcher")
        secret = await cluster.client.get(SECRETS, "ssh-ssh", "default")
        assert (secret["type"], sorted(secret["data"])) == (
            "kubernetes.io/ssh-auth",
            ["ssh-privatekey", "ssh-publickey"],
        )
        assert (await cluster.client.get(SERVICES, "ssh", "default"))["spec"]["clusterIP"] == "None"
        await cluster.set_phase(launcher, "Running")
        await cluster.until_last(job, "Running")
        await cluster.set_phase(launcher, "Succeeded", 0)
        await cluster.until_last(job, "Succeeded")

    on(plane, life)


def test_a_suspended_v2beta1_job_has_no_launcher_until_it_is_resumed(plane, operator):
    job = mpi("v2beta1", "paused")
    job = {**job, "spec": {**job["spec"], "runPolicy": {"suspend": True}}}

    async def life(cluster):
        await submit(cluster, job)
        await cluster.until_last(job, "Suspended")
        assert await cluster.pods("paused") == {}
        body = {"spec": {"runPolicy": {"suspend": False}}}
        await cluster.client.patch(resource_of(job), "paused", body, "default")
        await cluster.until_pods("paused", 3)
        assert await cluster.client.get(JOBS, "paused-launcher", "default")

    on(plane, life)


def test_v1alpha1_is_refused(plane, operator):
    old = {
        "apiVersion": "kubeflow.org/v1alpha1",
        "kind": "MPIJob",
        "metadata": {"name": "old", "namespace": "default"},
        "spec": {"gpus": 8, "template": {"spec": {"containers": [{"name": "mpi", "image": "x"}]}}},
    }

    async def life(cluster):
        with pytest.raises(Invalid, match="mpiReplicaSpecs"):
            await submit(cluster, old)

    on(plane, life)


def test_the_operator_was_never_refused(plane, operator):
    assert [text for code, text in operator if code == 403] == []
