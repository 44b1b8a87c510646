"""Gang scheduling: a PodGroup that the scheduler's own definition takes, before the pods and as long as they are."""

import pytest
from tests.suite.cluster import condition, conditions, named
from tests.suite.gangs import (
    BATCH,
    GROUPS,
    NONE,
    PLUGINS,
    QUEUES,
    SCHEDULERS,
    VOLCANO,
    admitted,
    asking,
    gang_operators,
    group_of,
    home,
    make_priorities,
)
from tests.unit.frameworks.paddle_jobs import a_paddle

from trainmaster.kube.errors import Invalid
from trainmaster.objects import quantity
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import PODS, SERVICES
from trainmaster.testing.jobs import KINDS, LEADER, ROLES, a_small, replicas_of

every_kind = pytest.mark.parametrize("kind", KINDS)
every_scheduler = pytest.mark.parametrize("scheduler", SCHEDULERS)


@pytest.fixture(scope="module")
def operators():
    return gang_operators()


def pods_of(kind, name):
    return replicas_of(kind, ROLES[kind], name)


def tied(pod: Json) -> tuple[str, Json, str | None]:
    """What ties a pod to its group: the scheduler's name, annotations, a label."""
    kept = ("scheduling.k8s.io/group-name", "volcano.sh/task-spec")
    annotations = {k: v for k, v in pod["metadata"].get("annotations", {}).items() if k in kept}
    return pod["spec"]["schedulerName"], annotations, pod["metadata"]["labels"].get("scheduling.x-k8s.io/pod-group")


def ties(scheduler: str, name: str, pod: str) -> tuple[str, Json, str | None]:
    group = {"scheduling.k8s.io/group-name": name}
    role = pod.removeprefix(f"{name}-").rpartition("-")[0]
    return {
        VOLCANO: (VOLCANO, {**group, "volcano.sh/task-spec": role}, None),
        PLUGINS: (PLUGINS, {}, name),
        BATCH: (BATCH, group, None),
    }[scheduler]


async def started(cluster, scheduler, job):
    """The pods of a job whose group was admitted, all running."""
    await cluster.submit(job)
    await admitted(cluster, scheduler, named(job))
    pods = await cluster.pods(job, sum(ROLES[job["kind"]].values()))
    await cluster.play(job, "Running")
    await cluster.last(job, "Running")
    return pods


@every_scheduler
@every_kind
async def test_a_group_lives_from_before_the_pods_to_the_end_of_the_job(cluster, kind, scheduler):
    cluster, name = cluster.within(home(scheduler)), f"gang-{kind.lower()}"
    job = asking(kind, name).meta(annotations={"example.com/hint": "yes"}).policy(cleanPodPolicy="None").manifest
    world = sum(ROLES[kind].values())

    stored = await cluster.submit(job)
    group = await group_of(cluster, scheduler, name)
    await admitted(cluster, scheduler, name)
    pods = await cluster.pods(job, pods_of(kind, name))
    await cluster.play(job, "Running")
    await cluster.last(job, "Running")
    await cluster.play(job, "Succeeded", 0, only=LEADER.get(kind, ""))
    await cluster.last(job, "Succeeded")
    await cluster.gone(GROUPS[scheduler], name)
    made, removed = [await cluster.event(job, f"Successful{verb}PodGroup") for verb in ("Create", "Delete")]

    [owner] = group["metadata"]["ownerReferences"]
    resources = group["spec"].pop("minResources", {})
    assert (owner["kind"], owner["uid"], owner["controller"]) == (kind, stored["metadata"]["uid"], True)
    assert group["metadata"]["annotations"]["example.com/hint"] == "yes"
    assert group["spec"] == {"minMember": world, **({"queue": "default"} if scheduler == VOLCANO else {})}
    assert quantity.parse(resources.get("cpu", "0")) == (0 if scheduler == BATCH else quantity.parse("500m") * world)
    assert {pod: tied(pods[pod]) for pod in pods} == {pod: ties(scheduler, name, pod) for pod in pods}
    assert all(int(group["metadata"]["resourceVersion"]) < _version(pod) for pod in pods.values())
    assert (made["message"], removed["message"]) == (f"Created PodGroup: {name}", f"Deleted PodGroup: {name}")


def _version(found: Json) -> int:
    return int(found["metadata"]["resourceVersion"])


@every_kind
async def test_volcano_admits_the_group_before_there_is_anything_else(cluster, kind):
    cluster, name = cluster.within(home(VOLCANO)), f"waits-{kind.lower()}"
    job = a_small(kind, name).manifest

    await cluster.submit(job)
    await admitted(cluster, VOLCANO, name, "Pending")
    held = await cluster.status(job, lambda status: status.get("lastReconcileTime"))
    await cluster.event(job, "SuccessfulCreatePodGroup")
    had = [await cluster.standing(job), await cluster.standing(job, SERVICES)]
    await admitted(cluster, VOLCANO, name, "Inqueue")
    await cluster.pods(job, pods_of(kind, name))
    begun = await cluster.status(job, lambda status: status.get("startTime"))

    assert had == [{}, {}]
    assert (conditions(held), held.get("startTime")) == ([("Created", "True")], None)
    assert begun["startTime"]


@pytest.mark.parametrize("scheduler", [PLUGINS, BATCH])
async def test_other_schedulers_hold_the_pods_back_themselves(cluster, scheduler):
    cluster, name = cluster.within(home(scheduler)), "at-once"
    job = a_small("PyTorchJob", name).manifest

    await cluster.submit(job)

    await cluster.pods(job, 3)
    assert not (await group_of(cluster, scheduler, name)).get("status")


@pytest.mark.parametrize(
    ("scheduler", "spec"),
    [
        (
            VOLCANO,
            {
                "minMember": 2,
                "queue": "training",
                "priorityClassName": "gang-high",
                "minResources": {"cpu": "4", "nvidia.com/gpu": "8"},
            },
        ),
        (PLUGINS, {"minMember": 2, "scheduleTimeoutSeconds": 30, "minResources": {"cpu": "4", "nvidia.com/gpu": "8"}}),
        (BATCH, {"minMember": 3}),
    ],
    ids=SCHEDULERS,
)
async def test_a_group_says_what_the_scheduling_policy_does(cluster, scheduler, spec):
    cluster = cluster.within(home(scheduler))
    await make_priorities(cluster, **{"gang-high": 1000})
    policy = {
        "minAvailable": 2,
        "queue": "training",
        "priorityClass": "gang-high",
        "minResources": {"cpu": 4, "nvidia.com/gpu": "8"},
        "scheduleTimeoutSeconds": 30,
    }
    job = asking("PyTorchJob", "policy").policy(schedulingPolicy=policy).manifest

    await cluster.submit(job)

    assert (await group_of(cluster, scheduler, "policy"))["spec"] == spec


@pytest.mark.parametrize("scheduler", [VOLCANO, PLUGINS])
async def test_a_smaller_group_needs_what_its_most_important_pods_do(cluster, scheduler):
    cluster = cluster.within(home(scheduler))
    await make_priorities(cluster, **{"gang-high": 1000, "gang-low": 10})
    scene = asking("TFJob", "ordered", {"PS": 1}, priorityClassName="gang-low")
    worker = {"name": "tensorflow", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    scene = scene.role("Worker", 3, containers=[worker], priorityClassName="gang-high")
    job = scene.policy(schedulingPolicy={"minAvailable": 2}).manifest

    await cluster.submit(job)
    group = await group_of(cluster, scheduler, "ordered", minMember=2)
    await admitted(cluster, scheduler, "ordered")
    pods = await cluster.pods(job, 4)

    assert group["spec"]["minResources"] == {"nvidia.com/gpu": "2"}
    assert {pod["spec"]["priority"] for pod in pods.values()} == {10, 1000}


@pytest.mark.parametrize("asked", [{"minAvailable": 0}, {}], ids=["none asked for", "no replicas"])
@every_scheduler
async def test_a_group_that_needs_nobody_is_taken_by_every_scheduler(cluster, scheduler, asked):
    cluster, workers = cluster.within(home(scheduler)), 2 if asked else 0
    name = f"nobody-{len(asked)}"
    job = asking("JAXJob", name, {"Worker": workers}).policy(schedulingPolicy=asked).manifest

    await cluster.submit(job)
    group = await admitted(cluster, scheduler, name)
    await cluster.pods(job, workers)

    least = {VOLCANO: 0, PLUGINS: 1, BATCH: workers}[scheduler]
    assert group["spec"]["minMember"] == least
    assert "FailedCreatePodGroup" not in await cluster.events(job)


@every_scheduler
async def test_a_group_follows_the_number_of_replicas(cluster, scheduler):
    cluster, name = cluster.within(home(scheduler)), "sized"
    job = asking("JAXJob", name).manifest

    await started(cluster, scheduler, job)
    await admitted(cluster, scheduler, name, "Running")
    await cluster.change(job, {"spec": {"replicas": 4}}, "scale")
    grown = await group_of(cluster, scheduler, name, minMember=4)
    await cluster.pods(job, 4)
    await cluster.change(job, {"spec": {"replicas": 1}}, "scale")
    shrunk = await group_of(cluster, scheduler, name, minMember=1)
    await cluster.pods(job, 1)

    assert [group["status"]["phase"] for group in (grown, shrunk)] == ["Running", "Running"]
    if scheduler != BATCH:
        assert [group["spec"]["minResources"]["cpu"] for group in (grown, shrunk)] == ["2", "500m"]


@every_scheduler
async def test_a_group_that_somebody_deletes_comes_back_while_the_job_runs(cluster, scheduler):
    cluster, name = cluster.within(home(scheduler)), "missed"
    job = asking("XGBoostJob", name).manifest

    pods = await started(cluster, scheduler, job)
    first = await group_of(cluster, scheduler, name)
    await cluster.remove(GROUPS[scheduler], name)
    second = await cluster.object(
        GROUPS[scheduler], name, lambda group: group["metadata"]["uid"] != first["metadata"]["uid"]
    )

    assert second["spec"] == first["spec"]
    assert _uids(await cluster.standing(job)) == _uids(pods)
    assert conditions(await cluster.status(job))[-1] == ("Running", "True")


def _uids(pods):
    return {name: pod["metadata"]["uid"] for name, pod in pods.items()}


@every_kind
@every_scheduler
async def test_a_suspended_job_has_no_group_and_a_resumed_one_a_new_one(cluster, scheduler, kind):
    cluster, name = cluster.within(home(scheduler)), f"paused-{kind.lower()}"
    job = asking(kind, name).manifest

    await started(cluster, scheduler, job)
    first = await group_of(cluster, scheduler, name)
    await cluster.policy(job, suspend=True)
    await cluster.last(job, "Suspended")
    await cluster.gone(GROUPS[scheduler], name)
    await cluster.pods(job, 0)
    await cluster.policy(job, suspend=False)
    second = await admitted(cluster, scheduler, name)
    await cluster.pods(job, pods_of(kind, name))

    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert first["spec"] == second["spec"]


@pytest.mark.parametrize("end", ["failed", "late"])
@every_scheduler
async def test_the_group_of_a_job_that_fails_goes(cluster, scheduler, end):
    cluster, name = cluster.within(home(scheduler)), f"ends-{end}"
    job = asking("PyTorchJob", name, restart="Never").policy(cleanPodPolicy="None").manifest

    await started(cluster, scheduler, job)
    if end == "failed":
        await cluster.set_phase(f"{name}-worker-0", "Failed", 1)
    else:
        await cluster.policy(job, activeDeadlineSeconds=1)
    await cluster.last(job, "Failed")

    await cluster.gone(GROUPS[scheduler], name)


async def test_a_queue_once_chosen_stays(cluster):
    cluster = cluster.within(home(VOLCANO))
    for queue in ("day", "night"):
        await cluster.client.create(QUEUES, {**_kind(QUEUES), "metadata": {"name": queue}, "spec": {"weight": 1}})
    job = asking("JAXJob", "queued").policy(schedulingPolicy={"queue": "day"}).manifest

    await started(cluster, VOLCANO, job)
    await cluster.change(job, {"spec": {"runPolicy": {"schedulingPolicy": {"queue": "night", "minAvailable": 1}}}})
    group = await group_of(cluster, VOLCANO, "queued", minMember=1)

    assert group["spec"]["queue"] == "day"


def _kind(resource):
    return {"apiVersion": resource.api_version, "kind": resource.kind}


@every_scheduler
async def test_another_scheduler_in_a_template_is_left_and_told(cluster, scheduler):
    cluster, name = cluster.within(home(scheduler)), "stubborn"
    job = asking("JAXJob", name, schedulerName="mine").manifest

    await cluster.submit(job)
    await admitted(cluster, scheduler, name)
    pods = await cluster.pods(job, 2)
    event = await cluster.event(job, "SetPodTemplateSchedulerName")

    assert {tied(pod)[0] for pod in pods.values()} == {"mine"}
    assert all(tied(pods[pod])[1:] == ties(scheduler, name, pod)[1:] for pod in pods)
    assert (event["type"], "mine" in event["message"]) == ("Warning", True)


@every_scheduler
async def test_a_group_that_the_user_made_is_waited_for_and_left_alone(cluster, scheduler):
    cluster, name = cluster.within(home(scheduler)), "users-own"
    resource = GROUPS[scheduler]
    own = {**_kind(resource), "metadata": {"name": name, "namespace": cluster.namespace}, "spec": {"minMember": 1}}
    job = asking("PyTorchJob", name).policy(cleanPodPolicy="All").manifest

    made = await cluster.client.create(resource, own)
    await started(cluster, scheduler, job)
    await cluster.play(job, "Succeeded", 0)
    await cluster.last(job, "Succeeded")
    await cluster.pods(job, 0)
    kept = await cluster.get(resource, name)

    assert (kept["metadata"]["uid"], kept["spec"]) == (made["metadata"]["uid"], made["spec"])
    assert "ownerReferences" not in kept["metadata"]


@pytest.mark.parametrize("scheduler", [NONE, VOLCANO], ids=["no flag", "flag"])
async def test_a_paddle_job_that_names_volcano_for_its_workers_has_the_group_of_its_name(cluster, scheduler):
    """As the manual of paddle-operator has it: the user makes the group, and names the scheduler in one place only."""
    cluster, name = cluster.within(home(scheduler)), "wide-ande-deep"
    resource = GROUPS[VOLCANO]
    own = {**_kind(resource), "metadata": {"name": name, "namespace": cluster.namespace}, "spec": {"minMember": 4}}
    scene = a_paddle(ps=2, withGloo=1, cleanPodPolicy="Never").role("worker", 2, schedulerName="volcano")
    job = scene.meta(name=name).manifest

    await cluster.client.create(resource, own)
    await cluster.submit(job)
    await admitted(cluster, VOLCANO, name)
    pods = await cluster.pods(job, 4)
    await cluster.play(job, "Succeeded", 0)
    await cluster.status(job, lambda status: status.get("phase") == "Completed")
    kept = await cluster.get(resource, name)

    assert {pod["spec"]["schedulerName"] for pod in pods.values()} == {"volcano"}
    assert {pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for pod in pods.values()} == {name}
    assert (kept["spec"]["minMember"], kept["metadata"].get("ownerReferences")) == (4, None)


async def test_without_gang_scheduling_there_is_no_group(cluster):
    cluster = cluster.within(home(NONE))
    job = a_small("TFJob", "alone").manifest

    await cluster.submit(job)
    pods = await cluster.pods(job, 3)

    assert [await cluster.exists(resource, "alone") for resource in GROUPS.values()] == [False, False, False]
    assert {pod["spec"]["schedulerName"] for pod in pods.values()} == {"default-scheduler"}


@every_scheduler
async def test_a_scheduling_policy_that_makes_no_sense_is_refused(cluster, scheduler):
    cluster = cluster.within(home(scheduler))
    negative = a_small("JAXJob", "negative").policy(schedulingPolicy={"minAvailable": -1}).manifest
    vague = a_small("JAXJob", "vague").policy(schedulingPolicy={"minResources": {"cpu": "lots"}}).manifest

    with pytest.raises(Invalid, match=r"spec\.runPolicy\.schedulingPolicy\.minAvailable"):
        await cluster.submit(negative)
    await cluster.submit(vague)
    failed = condition(await cluster.last(vague, "Failed"), "Failed")

    assert 'spec.runPolicy.schedulingPolicy.minResources.cpu: Invalid value: "lots"' in failed["message"]
    assert not await cluster.exists(GROUPS[scheduler], "vague")
    assert not await cluster.standing(vague, PODS)


def test_no_operator_was_refused_anything(operators):
    """Runs last: each had the rights of its own installation and no others."""
    assert [operator.refused for operator in operators] == [[], [], [], []]
