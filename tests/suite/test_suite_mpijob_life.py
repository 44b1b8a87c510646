"""MPIJobs of v2beta1, whose launcher a Job runs: what is told in turn, who waits for whom, and how it fails."""

import pytest
from tests.suite.cluster import condition, conditions, named
from tests.suite.gangs import PLUGINS, VOLCANO, admitted, asking, gang_operators, group_of, home

from trainmaster.objects.resource import CONFIG_MAPS, JOBS, PODS, SECRETS, SERVICES
from trainmaster.testing.scene import a_job


@pytest.fixture(scope="module")
def operators():
    return gang_operators()


def mpi(name, restart=None, policy=None, **spec):
    scene = a_job("MPIJob", name, version="v2beta1", **spec).role("Launcher", 1, restart).role("Worker", 2)
    return scene.policy(**(policy or {})).manifest


def workers(job):
    return [f"{named(job)}-worker-{index}" for index in range(2)]


def tally(status):
    """What is counted of each role, without the selector and what is zero."""
    counted = ("active", "succeeded", "failed")
    return {
        role: {key: held[key] for key in counted if held.get(key)} for role, held in status["replicaStatuses"].items()
    }


async def launcher(cluster, job, among):
    """The name of the launcher's pod, once there is one that is not among these."""
    labels = f"training.kubeflow.org/job-name={named(job)},training.kubeflow.org/job-role=launcher"
    pods = await cluster.until(PODS, lambda held: held.keys() - among, "a launcher", labels=labels)
    return next(iter(pods.keys() - among))


async def test_a_job_is_told_and_counted_in_turn_and_only_its_workers_go(cluster):
    cluster, job = cluster.within(home("")), mpi("in-turn", policy={"cleanPodPolicy": "Running"})

    await cluster.submit(job)
    created = await cluster.event(job, "MPIJobCreated")
    await cluster.pods(job, 3)
    first = await launcher(cluster, job, set())
    for worker in workers(job):
        await cluster.set_phase(worker, "Running")
    waiting = await cluster.status(job, lambda status: tally(status)["Worker"] == {"active": 2})
    await cluster.set_phase(first, "Running")
    running = await cluster.event(job, "MPIJobRunning")
    both = await cluster.status(job, lambda status: tally(status)["Launcher"] == {"active": 1})
    await cluster.set_phase(first, "Succeeded", 0)
    succeeded = await cluster.event(job, "MPIJobSucceeded")
    ended = await cluster.last(job, "Succeeded")
    await cluster.pods(job, [first])

    assert [event["type"] for event in (created, running, succeeded)] == ["Normal"] * 3
    assert (conditions(waiting), tally(waiting)["Launcher"]) == ([("Created", "True")], {})
    assert tally(both) == {"Launcher": {"active": 1}, "Worker": {"active": 2}}
    assert tally(ended) == {"Launcher": {"succeeded": 1}, "Worker": {}}
    left = {CONFIG_MAPS: "in-turn-config", SECRETS: "in-turn-ssh", SERVICES: "in-turn", JOBS: "in-turn-launcher"}
    assert [await cluster.exists(resource, name) for resource, name in left.items()] == [True] * 4


async def test_a_launcher_that_is_to_wait_is_made_when_its_workers_are_ready_and_not_when_they_run(cluster):
    cluster, job = cluster.within(home("")), mpi("patient", launcherCreationPolicy="WaitForWorkersReady")
    unready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}}

    await cluster.submit(job)
    await cluster.pods(job, workers(job))
    for worker in workers(job):
        await cluster.client.patch(PODS, worker, unready, cluster.namespace, "status")
    running = await cluster.status(job, lambda status: tally(status)["Worker"] == {"active": 2})
    had = await cluster.exists(JOBS, "patient-launcher")
    for worker in workers(job):
        await cluster.set_phase(worker, "Running")
    await cluster.object(JOBS, "patient-launcher")

    assert (conditions(running), had) == ([("Created", "True")], False)


async def test_a_failed_try_is_counted_and_the_last_one_fails_the_job(cluster):
    policy = {"cleanPodPolicy": "Running", "backoffLimit": 1}
    cluster, job = cluster.within(home("")), mpi("two-tries", "Never", policy)

    await cluster.submit(job)
    await cluster.pods(job, 3)
    first = await launcher(cluster, job, set())
    await cluster.play(job, "Running")
    await cluster.set_phase(first, "Failed", 1)
    once = await cluster.status(job, lambda status: tally(status)["Launcher"].get("failed") == 1)
    second = await launcher(cluster, job, {first})
    await cluster.set_phase(second, "Failed", 1)
    ended = await cluster.last(job, "Failed")
    told = await cluster.event(job, "BackoffLimitExceeded")
    await cluster.pods(job, [first, second])

    assert "Failed" not in dict(conditions(once))
    assert tally(ended) == {"Launcher": {"failed": 2}, "Worker": {}}
    assert (told["type"], told["message"]) == ("Warning", condition(ended, "Failed")["message"])


@pytest.mark.parametrize(
    ("scheduler", "policy", "spec"),
    [
        pytest.param(PLUGINS, {"scheduleTimeoutSeconds": 100}, {"scheduleTimeoutSeconds": 100}, id="scheduler-plugins"),
        pytest.param(VOLCANO, {"minAvailable": 2}, {"minMember": 2}, id="volcano"),
    ],
)
async def test_the_group_of_a_live_job_follows_its_policy(cluster, scheduler, policy, spec):
    cluster, name = cluster.within(home(scheduler)), "follows"
    job = asking("MPIJob", name, {"Launcher": 1, "Worker": 2}, version="v2beta1").manifest

    await cluster.submit(job)
    await admitted(cluster, scheduler, name)
    before = await group_of(cluster, scheduler, name, minMember=3)
    await cluster.policy(job, schedulingPolicy=policy)
    after = await group_of(cluster, scheduler, name, **spec)

    assert not before["spec"].items() >= spec.items()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


def test_no_operator_was_refused_anything(operators):
    """Runs last."""
    assert [operator.refused for operator in operators] == [[], [], [], []]
