"""MPIJobs of every API version in one CRD: each is run as its author wrote it."""

import pytest
from tests.suite.cluster import active, conditions, named

from trainmaster.kube.errors import Invalid
from trainmaster.objects.resource import CONFIG_MAPS, JOBS, PODS, ROLES, SECRETS, SERVICES
from trainmaster.testing.scene import a_job


def mpi(version, name, **policy):
    return a_job("MPIJob", name, version=version).role("Launcher").role("Worker", 2).policy(**policy).manifest


async def started(cluster, job):
    """The name of the launcher's pod, which is made once the workers are ready, or with them."""
    name = named(job)
    workers = {f"{name}-worker-0", f"{name}-worker-1"}
    await cluster.submit(job)
    labels = f"training.kubeflow.org/job-name={name}"
    await cluster.until(PODS, lambda held: workers <= held.keys(), "the workers", labels=labels)
    for worker in sorted(workers):
        await cluster.set_phase(worker, "Running")
    pods = await cluster.until(PODS, lambda held: len(held) == 3, "the launcher", labels=labels)
    return next(pod for pod in pods if "launcher" in pod)


@pytest.mark.parametrize("version", ["v1", "v1alpha2"])
async def test_ranks_of_the_older_versions_are_started_by_kubectl(cluster, version):
    job = mpi(version, f"exec-{version}")
    name = named(job)

    launcher = await started(cluster, job)
    stored = await cluster.status(job)
    role = await cluster.get(ROLES, launcher)
    data = (await cluster.get(CONFIG_MAPS, f"{name}-config"))["data"]
    await cluster.set_phase(launcher, "Running")
    await cluster.last(job, "Running")
    await cluster.set_phase(launcher, "Succeeded", 0)
    await cluster.last(job, "Succeeded")

    assert launcher == f"{name}-launcher"
    assert stored["authoredVersion"] == version
    assert role["metadata"]["ownerReferences"][0]["kind"] == "MPIJob"
    assert data["hostfile"] == f"{name}-worker-0 slots=1\n{name}-worker-1 slots=1\n"


async def test_the_launcher_of_v2beta1_is_a_job_that_kubernetes_itself_runs(cluster):
    job = mpi("v2beta1", "ssh")

    launcher = await started(cluster, job)
    stored = await cluster.status(job)
    owner = (await cluster.get(PODS, launcher))["metadata"]["ownerReferences"][0]
    secret = await cluster.get(SECRETS, "ssh-ssh")
    service = await cluster.get(SERVICES, "ssh")
    await cluster.set_phase(launcher, "Running")
    await cluster.last(job, "Running")
    await cluster.set_phase(launcher, "Succeeded", 0)
    await cluster.last(job, "Succeeded")

    assert stored["authoredVersion"] == "v2beta1"
    assert (owner["kind"], owner["name"]) == ("Job", "ssh-launcher")
    assert (secret["type"], sorted(secret["data"])) == (
        "kubernetes.io/ssh-auth",
        ["ssh-privatekey", "ssh-publickey"],
    )
    assert service["spec"]["clusterIP"] == "None"


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
async def test_a_suspended_job_has_no_launcher_until_it_is_resumed(cluster, version):
    job = mpi(version, f"paused-{version}", suspend=True)

    await cluster.submit(job)
    paused = await cluster.last(job, "Suspended")
    had = await cluster.standing(job)
    await cluster.policy(job, suspend=False)
    labels = f"training.kubeflow.org/job-name={named(job)}"
    await cluster.until(PODS, lambda held: len(held) >= 2, "the workers", labels=labels)
    await cluster.play(job, "Running")
    await cluster.pods(job, 3)

    assert (had, conditions(paused)[-1]) == ({}, ("Suspended", "True"))
    assert await cluster.exists(JOBS, f"{named(job)}-launcher") == (version == "v2beta1")


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
async def test_a_job_that_runs_can_be_suspended(cluster, version):
    job = mpi(version, f"stopped-{version}")

    launcher = await started(cluster, job)
    await cluster.set_phase(launcher, "Running")
    await cluster.last(job, "Running")
    await cluster.policy(job, suspend=True)
    paused = await cluster.last(job, "Suspended")
    await cluster.pods(job, 0)

    await cluster.gone(JOBS, f"{named(job)}-launcher")
    assert conditions(paused) == [("Created", "True"), ("Running", "False"), ("Suspended", "True")]
    assert active(paused) == {}


@pytest.mark.parametrize("version", ["v1", "v1alpha2", "v2beta1"])
async def test_workers_follow_the_scale_subresource(cluster, version):
    job = mpi(version, f"wider-{version}")
    name = named(job)

    await started(cluster, job)
    await cluster.change(job, {"spec": {"replicas": 3}}, "scale")
    await cluster.object(PODS, f"{name}-worker-2")
    grown = await cluster.object(CONFIG_MAPS, f"{name}-config", lambda held: "worker-2" in held["data"]["hostfile"])
    await cluster.change(job, {"spec": {"replicas": 1}}, "scale")
    await cluster.gone(PODS, f"{name}-worker-1")
    shrunk = await cluster.object(
        CONFIG_MAPS, f"{name}-config", lambda held: "worker-1" not in held["data"]["hostfile"]
    )  # fmt: skip

    assert [len(held["data"]["hostfile"].splitlines()) for held in (grown, shrunk)] == [3, 1]


async def test_v1alpha1_is_refused_by_the_server_itself_which_names_what_to_write_instead(cluster):
    old = {
        "apiVersion": "kubeflow.org/v1alpha1",
        "kind": "MPIJob",
        "metadata": {"name": "old", "namespace": "default"},
        "spec": {"gpus": 8, "template": {"spec": {"containers": [{"name": "mpi", "image": "x"}]}}},
    }

    with pytest.raises(Invalid) as refusal:
        await cluster.submit(old)

    assert 'apiVersion: Unsupported value: "kubeflow.org/v1alpha1": supported values: ' in str(refusal.value)
    for version in ("v1", "v1alpha2", "v2beta1"):
        assert f'"kubeflow.org/{version}"' in str(refusal.value)
    assert "mpiReplicaSpecs" not in str(refusal.value), "one problem is enough"


def test_the_operator_was_never_refused(operators):
    """Runs last."""
    assert operators[0].refused == []
