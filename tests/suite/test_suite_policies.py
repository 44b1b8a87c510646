"""What a job's policies do to it: restarts and their limit, deadlines, suspension, scaling, cleaning up, success."""

import pytest
from tests.suite.cluster import active, condition, conditions

from trainmaster.objects.resource import SERVICES
from trainmaster.testing.jobs import KINDS, LEADER, ROLES, SERVED, a_small, replicas_of
from trainmaster.testing.scene import a_job

every_kind = pytest.mark.parametrize("kind", KINDS)

ALONE = {"TFJob": "worker-0", "MSJob": "worker-0"}
"""Who decides before its peers have said anything: whether they are done by then is a matter of luck."""

CLEANED_BY_POLICY = ("MSJob",)
"""Whose pods go by cleanPodPolicy, which spares those that ended, also when a limit ends the job."""


def pods_of(kind, name):
    return replicas_of(kind, ROLES[kind], name)


async def started(cluster, job):
    await cluster.submit(job)
    pods = await cluster.pods(job, sum(ROLES[job["kind"]].values()))
    await cluster.play(job, "Running")
    await cluster.last(job, "Running")
    return pods


async def replaced(cluster, job, pods, name):
    """The pods, once the one of this name is another than it was."""
    uid = pods[name]["metadata"]["uid"]
    return await cluster.pods(
        job, pods, lambda pod: pod["metadata"]["name"] != name or pod["metadata"]["uid"] != uid
    )  # fmt: skip


@every_kind
async def test_a_retryable_exit_replaces_the_pod_and_a_permanent_one_fails_the_job(cluster, kind):
    name = f"exits-{kind.lower()}"
    job = a_small(kind, name, "ExitCode").manifest
    worker = f"{name}-worker-1"

    pods = await started(cluster, job)
    await cluster.set_phase(worker, "Failed", 137)
    await replaced(cluster, job, pods, worker)
    restarting = await cluster.status(job, lambda status: status.get("attempts"))
    warned = await cluster.event(job, f"{kind}Restarting")
    await cluster.set_phase(worker, "Failed", 1)
    ended = await cluster.last(job, "Failed")

    assert restarting["attempts"] == {"worker-1": 1}
    assert warned["type"] == "Warning"
    assert "Worker" in warned["message"]
    assert conditions(ended)[-1] == ("Failed", "True")
    assert "Worker" in condition(ended, "Failed")["message"]


@every_kind
async def test_pods_are_replaced_as_often_as_the_backoff_limit_says(cluster, kind):
    name = f"backoff-{kind.lower()}"
    job = a_small(kind, name, "ExitCode").policy(backoffLimit=1).manifest
    worker = f"{name}-worker-1"

    pods = await started(cluster, job)
    await cluster.set_phase(worker, "Failed", 137)
    await replaced(cluster, job, pods, worker)
    await cluster.set_phase(worker, "Failed", 137)
    ended = await cluster.last(job, "Failed")

    await cluster.pods(job, [worker] if kind in CLEANED_BY_POLICY else [])
    assert ended["attempts"] == {"worker-1": 1}
    assert condition(ended, "Failed")["message"] == (
        f"Job {name} has failed because it has reached the specified backoff limit"
    )


@every_kind
async def test_restarts_of_containers_count_against_the_backoff_limit(cluster, kind):
    name = f"crash-{kind.lower()}"
    job = a_small(kind, name, "OnFailure").policy(backoffLimit=2).manifest

    await started(cluster, job)
    await cluster.set_phase(f"{name}-worker-0", "Running", restarts=1)
    await cluster.set_phase(f"{name}-worker-1", "Running", restarts=1)
    ended = await cluster.last(job, "Failed")

    assert "backoff limit" in condition(ended, "Failed")["message"]
    await cluster.pods(job, 0)


@every_kind
async def test_a_job_that_is_active_for_too_long_fails(cluster, kind):
    name = f"late-{kind.lower()}"
    job = a_small(kind, name).policy(activeDeadlineSeconds=3600).manifest

    await started(cluster, job)
    await cluster.policy(job, activeDeadlineSeconds=1)
    ended = await cluster.last(job, "Failed")
    await cluster.pods(job, 0)
    await cluster.services(job, 0)

    assert condition(ended, "Failed")["message"] == (
        f"Job {name} has failed because it was active longer than specified deadline"
    )
    assert ended["completionTime"] > ended["startTime"]


@every_kind
async def test_suspending_takes_everything_away_and_resuming_starts_anew(cluster, kind):
    name = f"pause-{kind.lower()}"
    job = a_small(kind, name).manifest

    before = await started(cluster, job)
    begun = await cluster.status(job)
    await cluster.policy(job, suspend=True)
    paused = await cluster.last(job, "Suspended")
    await cluster.pods(job, 0)
    await cluster.services(job, 0)
    await cluster.policy(job, suspend=False)
    after = await cluster.pods(job, pods_of(kind, name))
    await cluster.services(job, replicas_of(kind, SERVED.get(kind, ROLES[kind]), name))
    await cluster.play(job, "Running")
    resumed = await cluster.last(job, "Running")

    assert conditions(paused) == [("Created", "True"), ("Running", "False"), ("Suspended", "True")]
    assert active(paused) == {}
    assert paused["startTime"] == begun["startTime"]
    assert conditions(resumed) == [("Created", "True"), ("Suspended", "False"), ("Running", "True")]
    assert condition(resumed, "Suspended")["reason"] == f"{kind}Resumed"
    assert not {p["metadata"]["uid"] for p in before.values()} & {p["metadata"]["uid"] for p in after.values()}
    for reason in (f"{kind}Suspended", f"{kind}Resumed"):
        assert (await cluster.event(job, reason))["type"] == "Normal"


@every_kind
async def test_a_job_that_is_born_suspended_has_nothing_until_it_is_resumed(cluster, kind):
    name = f"unborn-{kind.lower()}"
    job = a_small(kind, name).policy(suspend=True).manifest

    await cluster.submit(job)
    unborn = await cluster.last(job, "Suspended")
    had = [await cluster.standing(job), await cluster.standing(job, SERVICES)]
    await cluster.policy(job, suspend=False)
    await cluster.pods(job, pods_of(kind, name))
    born = await cluster.status(job, lambda status: status.get("startTime"))

    assert (had, unborn.get("startTime")) == ([{}, {}], None)
    assert conditions(unborn) == [("Created", "True"), ("Suspended", "True")]
    assert conditions(born) == [("Created", "True"), ("Suspended", "False")]


@every_kind
async def test_pods_and_services_follow_the_number_of_workers(cluster, kind):
    name = f"sized-{kind.lower()}"
    scene = a_small(kind, name)
    job = scene.manifest
    others = [pod for pod in pods_of(kind, name) if "worker" not in pod]

    await cluster.submit(job)
    await cluster.pods(job, pods_of(kind, name))
    await cluster.change(job, {"spec": scene.framework.rescaled(job["spec"], "Worker", 3)})
    await cluster.pods(job, [*others, *(f"{name}-worker-{index}" for index in range(3))])
    await cluster.change(job, {"spec": scene.framework.rescaled(job["spec"], "Worker", 1)})
    last = [*others, f"{name}-worker-0"]
    await cluster.pods(job, last)

    served = SERVED.get(kind, ROLES[kind])
    await cluster.services(job, [pod for pod in last if any(role.lower() in pod for role in served)])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if a_small(kind).framework.scalable_role])
async def test_the_scale_subresource_drives_the_workers(cluster, kind):
    name = f"scaled-{kind.lower()}"
    job = a_small(kind, name).manifest
    fixed = sum(ROLES[kind].values()) - ROLES[kind]["Worker"]

    await cluster.submit(job)
    await cluster.pods(job, fixed + 2)
    await cluster.change(job, {"spec": {"replicas": 4}}, "scale")
    await cluster.pods(job, fixed + 4)
    await cluster.change(job, {"spec": {"replicas": 1}}, "scale")
    await cluster.pods(job, fixed + 1)

    selector = (await cluster.status(job))["replicaStatuses"]["Worker"]["selector"]
    assert f"training.kubeflow.org/job-name={name}" in selector.split(",")


@pytest.mark.parametrize("policy", ["Running", "All", "None"])
@every_kind
async def test_which_pods_stay_when_a_job_has_succeeded(cluster, kind, policy):
    name = f"clean-{policy.lower()}-{kind.lower()}"
    job = a_small(kind, name).policy(cleanPodPolicy=policy).manifest
    decisive = ALONE.get(kind, LEADER.get(kind, ""))
    done = [pod for pod in pods_of(kind, name) if decisive in pod]

    await started(cluster, job)
    await cluster.play(job, "Succeeded", 0, only=decisive)
    ended = await cluster.last(job, "Succeeded")

    await cluster.pods(job, {"Running": done, "All": [], "None": pods_of(kind, name)}[policy])
    assert active(ended) == {}


@pytest.mark.parametrize("policy", ["Running", "All", "None"])
async def test_which_services_stay_is_which_pods_stay(cluster, policy):
    name = f"served-{policy.lower()}"
    job = a_small("PyTorchJob", name).policy(cleanPodPolicy=policy).manifest

    await started(cluster, job)
    await cluster.play(job, "Succeeded", 0, only="master")
    await cluster.last(job, "Succeeded")

    kept = {"Running": [f"{name}-master-0"], "All": [], "None": pods_of("PyTorchJob", name)}[policy]
    await cluster.services(job, kept)


@pytest.mark.parametrize("kind", ["TFJob", "MSJob"])
async def test_worker_0_decides_unless_all_workers_are_to(cluster, kind):
    first = a_small(kind, f"one-{kind.lower()}").manifest
    every = a_small(kind, f"all-{kind.lower()}").spec(successPolicy="AllWorkers").manifest

    for job in (first, every):
        await started(cluster, job)
        await cluster.play(job, "Succeeded", 0, only="worker-0")
    await cluster.last(first, "Succeeded")
    waiting = await cluster.status(every, lambda status: status["replicaStatuses"]["Worker"].get("succeeded") == 1)
    await cluster.play(every, "Succeeded", 0, only="worker-1")
    await cluster.last(every, "Succeeded")

    assert conditions(waiting)[-1] == ("Running", "True")


@pytest.mark.parametrize("leader", ["Chief", "Master"])
async def test_a_chief_decides_a_tfjob(cluster, leader):
    name = f"led-by-{leader.lower()}"
    job = a_job("TFJob", name).role(leader).role("Worker", 2).manifest

    await cluster.submit(job)
    await cluster.pods(job, 3)
    await cluster.play(job, "Running")
    await cluster.play(job, "Succeeded", 0, only="worker")
    waiting = await cluster.status(job, lambda status: status["replicaStatuses"]["Worker"].get("succeeded") == 2)
    await cluster.play(job, "Succeeded", 0, only=leader.lower())
    await cluster.last(job, "Succeeded")

    assert conditions(waiting)[-1] == ("Running", "True")


def test_nothing_was_forbidden_to_the_operator(operators):
    """Runs last."""
    assert operators[0].refused == []
