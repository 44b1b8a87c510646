"""Gangs of MPIJobs: a launcher that waits for its workers is not waited for, and nobody waits for ever."""

import pytest
from tests.suite.cluster import named
from tests.suite.gangs import (
    BATCH,
    GROUPS,
    PLUGINS,
    SCHEDULERS,
    VOLCANO,
    admitted,
    asking,
    gang_operators,
    group_of,
    home,
    make_priorities,
)

from trainmaster.objects import quantity
from trainmaster.objects.resource import JOBS, PODS

every_scheduler = pytest.mark.parametrize("scheduler", SCHEDULERS)
BOTH = {"Launcher": 1, "Worker": 2}


@pytest.fixture(scope="module")
def operators():
    return gang_operators()


def waiting(version, name, **spec):
    """A job whose launcher is made once its workers are ready."""
    late = {"launcherCreationPolicy": "WaitForWorkersReady"} if version == "v2beta1" else {}
    return asking("MPIJob", name, BOTH, version=version).spec(**late, **spec)


@pytest.mark.parametrize("version", ["v1", "v1alpha2", "v2beta1"])
@every_scheduler
async def test_workers_are_placed_without_their_launcher_which_follows_them(cluster, scheduler, version):
    cluster, name = cluster.within(home(scheduler)), f"follows-{version}"
    job = waiting(version, name).manifest

    await cluster.submit(job)
    group = await admitted(cluster, scheduler, name)
    workers = await cluster.pods(job, [f"{name}-worker-0", f"{name}-worker-1"])
    await cluster.play(job, "Running")
    pods = await cluster.pods(job, 3)
    launcher = next(pods[pod] for pod in pods if pod not in workers)
    await cluster.set_phase(launcher["metadata"]["name"], "Running")
    await cluster.last(job, "Running")
    await cluster.set_phase(launcher["metadata"]["name"], "Succeeded", 0)
    await cluster.last(job, "Succeeded")

    await cluster.gone(GROUPS[scheduler], name)
    assert group["spec"]["minMember"] == 2
    if scheduler != BATCH:
        assert quantity.parse(group["spec"]["minResources"]["cpu"]) == quantity.parse("1500m")
    assert {pod["spec"]["schedulerName"] for pod in pods.values()} == {scheduler}
    assert _tie(launcher, scheduler) == name


def _tie(pod, scheduler):
    if scheduler == PLUGINS:
        return pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"]
    return pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"]


@pytest.mark.parametrize(
    ("job", "members"),
    [
        pytest.param(asking("MPIJob", "at-startup", BOTH, version="v2beta1").manifest, 3, id="v2beta1 at startup"),
        pytest.param(asking("MPIJob", "lonely-v1", {"Launcher": 1}, version="v1").manifest, 1, id="v1 launcher only"),
        pytest.param(
            asking("MPIJob", "lonely-v2", {"Launcher": 1}, version="v2beta1").manifest, 1, id="v2beta1 launcher only"
        ),
        pytest.param(
            waiting("v1", "greedy-v1").policy(schedulingPolicy={"minAvailable": 3}).manifest, 2, id="v1 asks for all"
        ),
        pytest.param(
            waiting("v2beta1", "greedy-v2").policy(schedulingPolicy={"minAvailable": 3}).manifest,
            2,
            id="v2beta1 asks for all",
        ),
        pytest.param(
            waiting("v1", "modest-v1").policy(schedulingPolicy={"minAvailable": 1}).manifest, 1, id="v1 asks for one"
        ),
    ],
)
@pytest.mark.parametrize("scheduler", [VOLCANO, PLUGINS])
async def test_how_many_members_a_group_waits_for(cluster, scheduler, job, members):
    cluster = cluster.within(home(scheduler))

    await cluster.submit(job)
    await admitted(cluster, scheduler, named(job))

    await group_of(cluster, scheduler, named(job), minMember=members)
    labels = f"training.kubeflow.org/job-name={named(job)}"
    await cluster.until(PODS, lambda held: len(held) >= members, f"{members} pods", labels=labels)


async def test_the_launchers_job_is_made_only_when_volcano_has_admitted_the_group(cluster):
    cluster, name = cluster.within(home(VOLCANO)), "held-back"
    job = asking("MPIJob", name, BOTH, version="v2beta1").manifest

    await cluster.submit(job)
    await admitted(cluster, VOLCANO, name, "Pending")
    await cluster.event(job, "SuccessfulCreatePodGroup")
    had = (await cluster.standing(job), await cluster.exists(JOBS, f"{name}-launcher"))
    await admitted(cluster, VOLCANO, name, "Inqueue")
    await cluster.pods(job, 3)
    launcher = await cluster.get(JOBS, f"{name}-launcher")

    assert had == ({}, False)
    template = launcher["spec"]["template"]
    assert template["spec"]["schedulerName"] == "volcano"
    assert template["metadata"]["annotations"]["volcano.sh/task-spec"] == "launcher"


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
async def test_the_priority_of_a_group_is_the_launchers_unless_the_policy_names_one(cluster, version):
    cluster = cluster.within(home(VOLCANO))
    await make_priorities(cluster, **{"mpi-high": 1000, "mpi-low": 10})
    scene = asking("MPIJob", f"launchers-{version}", BOTH, version=version, priorityClassName="mpi-low")
    policy = scene.meta(name=f"policys-{version}").policy(schedulingPolicy={"priorityClass": "mpi-high"})

    for each in (scene.manifest, policy.manifest):
        await cluster.submit(each)

    await group_of(cluster, VOLCANO, f"launchers-{version}", priorityClassName="mpi-low")
    await group_of(cluster, VOLCANO, f"policys-{version}", priorityClassName="mpi-high")


@every_scheduler
async def test_a_group_follows_the_number_of_workers(cluster, scheduler):
    cluster, name = cluster.within(home(scheduler)), "wider"
    job = waiting("v1", name).manifest

    await cluster.submit(job)
    await admitted(cluster, scheduler, name, "Running")
    await cluster.pods(job, 2)
    await cluster.change(job, {"spec": {"replicas": 4}}, "scale")

    await group_of(cluster, scheduler, name, minMember=4)
    await cluster.pods(job, 4)


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
@every_scheduler
async def test_a_suspended_job_has_no_group_and_a_resumed_one_a_new_one(cluster, scheduler, version):
    cluster, name = cluster.within(home(scheduler)), f"stopped-{version}"
    job = waiting(version, name).manifest

    await cluster.submit(job)
    first = await admitted(cluster, scheduler, name)
    await cluster.pods(job, 2)
    await cluster.policy(job, suspend=True)
    await cluster.last(job, "Suspended")
    await cluster.gone(GROUPS[scheduler], name)
    await cluster.pods(job, 0)
    await cluster.policy(job, suspend=False)
    second = await admitted(cluster, scheduler, name)
    await cluster.pods(job, 2)

    assert first["metadata"]["uid"] != second["metadata"]["uid"]


def test_no_operator_was_refused_anything(operators):
    """Runs last."""
    assert [operator.refused for operator in operators] == [[], [], [], []]
