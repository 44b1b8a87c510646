"""Jobs that go, by hand or by themselves, and all that goes with them through the server's garbage collector.

The name puts this last: a real garbage collector learns of new kinds only after half a minute.
"""

from dataclasses import replace

import pytest
from tests.suite.cluster import named, resource_of

from trainmaster.kube import discovery
from trainmaster.objects.resource import CONFIG_MAPS, HORIZONTAL_POD_AUTOSCALERS, JOBS, PODS
from trainmaster.testing.jobs import KINDS, LEADER, ROLES, SERVED, a_small
from trainmaster.testing.scene import a_job

every_kind = pytest.mark.parametrize("kind", KINDS)


async def started(cluster, job):
    kind = job["kind"]
    await cluster.submit(job)
    await cluster.pods(job, sum(ROLES[kind].values()))
    await cluster.services(job, sum(ROLES[kind][role] for role in SERVED.get(kind, ROLES[kind])))
    await cluster.play(job, "Running")
    await cluster.last(job, "Running")


async def went(cluster, job):
    """Everything: the job, its pods, its Services."""
    await cluster.gone(resource_of(job), named(job))
    await cluster.pods(job, 0)
    await cluster.services(job, 0)


@every_kind
async def test_with_a_job_that_is_deleted_goes_all_it_had(cluster, kind):
    job = a_small(kind, f"gone-{kind.lower()}").manifest

    await started(cluster, job)
    await cluster.remove(resource_of(job), named(job))

    await went(cluster, job)


@every_kind
async def test_a_job_that_is_deleted_in_the_foreground_goes_last(cluster, kind):
    job = a_small(kind, f"front-{kind.lower()}").manifest
    held = f"{named(job)}-worker-0"

    await started(cluster, job)
    await cluster.client.patch(PODS, held, {"metadata": {"finalizers": ["example.com/held"]}}, cluster.namespace)
    await cluster.remove(resource_of(job), named(job), propagation="Foreground")
    await cluster.pods(job, [held])
    waiting = await cluster.exists(resource_of(job), named(job))
    await cluster.client.patch(PODS, held, {"metadata": {"finalizers": None}}, cluster.namespace)

    await went(cluster, job)
    assert waiting


@pytest.mark.parametrize("version", ["v1", "v1alpha2", "v2beta1"])
async def test_with_an_mpijob_go_its_launcher_and_its_companions(cluster, version):
    job = a_job("MPIJob", f"gone-{version}", version=version).role("Launcher").role("Worker").manifest
    name = named(job)

    await cluster.submit(job)
    await cluster.object(PODS, f"{name}-worker-0")
    await cluster.play(job, "Running", only="worker")
    await cluster.pods(job, 2)
    await cluster.remove(resource_of(job), name, propagation="Foreground")

    await cluster.gone(resource_of(job), name)
    await cluster.pods(job, 0)
    await cluster.gone(CONFIG_MAPS, f"{name}-config")
    await cluster.gone(JOBS, f"{name}-launcher")


async def test_pods_may_outlive_their_job(cluster):
    job = a_small("PyTorchJob", "orphans").manifest

    await started(cluster, job)
    await cluster.remove(resource_of(job), "orphans", propagation="Orphan")
    await cluster.gone(resource_of(job), "orphans")
    pods = await cluster.pods(job, 3, lambda pod: not pod["metadata"].get("ownerReferences"))

    assert all(not pod["metadata"].get("deletionTimestamp") for pod in pods.values())


@every_kind
async def test_a_finished_job_goes_with_all_it_had_when_its_time_is_over(cluster, kind):
    job = a_small(kind, f"ttl-{kind.lower()}").policy(ttlSecondsAfterFinished=1, cleanPodPolicy="None").manifest

    await started(cluster, job)
    await cluster.play(job, "Succeeded", 0, only=LEADER.get(kind, ""))

    await went(cluster, job)


async def test_a_job_of_the_same_name_can_follow_at_once(cluster):
    job = a_small("JAXJob", "again").manifest

    await started(cluster, job)
    before = await cluster.standing(job)
    await cluster.remove(resource_of(job), "again")
    stored = await cluster.submit(job)
    after = await cluster.pods(job, 2, lambda pod: pod["metadata"]["ownerReferences"][0]["uid"] == _uid(stored))

    assert not {_uid(pod) for pod in before.values()} & {_uid(pod) for pod in after.values()}


def _uid(found):
    return found["metadata"]["uid"]


async def test_an_elastic_job_has_an_autoscaler_until_it_ends(cluster):
    load = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    policy = {"minReplicas": 1, "maxReplicas": 3, "metrics": [{"type": "Resource", "resource": load}]}
    job = a_job("PyTorchJob", "elastic").role("Worker", 1).spec(elasticPolicy=policy).manifest
    scalers = await _autoscalers(cluster.client)

    await cluster.submit(job)
    await cluster.pods(job, 1)
    scaler = await cluster.object(scalers, "elastic")
    await cluster.play(job, "Succeeded", 0)
    await cluster.last(job, "Succeeded")

    await cluster.gone(scalers, "elastic")
    assert scaler["spec"]["maxReplicas"] == 3
    assert scaler["spec"]["scaleTargetRef"] == {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "name": "elastic",
    }


async def _autoscalers(client):
    """In the newest version that this server has."""
    older = replace(HORIZONTAL_POD_AUTOSCALERS, version="v2beta2")
    served = await discovery.served(client, [HORIZONTAL_POD_AUTOSCALERS, older])
    return HORIZONTAL_POD_AUTOSCALERS if HORIZONTAL_POD_AUTOSCALERS in served else older


def test_nothing_was_forbidden_to_the_operator(operators):
    """Runs last."""
    assert operators[0].refused == []
