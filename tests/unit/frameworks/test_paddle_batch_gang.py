"""Volcano, both ways: by the scheduler's name in the worker's template, and by the operator's flag."""

import pytest
from tests.unit.frameworks.paddle_jobs import CONTAINERS, a_paddle, the_pod

from trainmaster.engine import gang
from trainmaster.testing.scene import body, created, deleted


def test_the_workers_scheduler_counts_for_all_pods_without_any_flag():
    scene = a_paddle(ps=1, heter=1).role("worker", 1, schedulerName="volcano")

    for name in ("job-ps-0", "job-worker-0", "job-heter-0"):
        pod = the_pod(scene, name)
        assert pod["spec"]["schedulerName"] == "volcano"
        assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "job"
    assert created(scene.plan(), gang.VOLCANO) == []


def test_the_servers_scheduler_counts_for_nobody_else():
    scene = a_paddle(worker=1).role("ps", 1, schedulerName="volcano")

    assert "schedulerName" not in the_pod(scene)["spec"]
    assert "scheduling.k8s.io/group-name" not in the_pod(scene)["metadata"]["annotations"]


def test_with_the_flag_pods_bear_volcanos_annotations():
    policy = {"queue": "night"}
    scene = a_paddle(worker=1, schedulingPolicy=policy).having(gang_scheduler="volcano").group("Inqueue")

    pod = the_pod(scene)

    assert pod["spec"]["schedulerName"] == "volcano"
    assert pod["metadata"]["annotations"].items() >= {
        "scheduling.k8s.io/group-name": "job",
        "volcano.sh/task-spec": "worker",
        "volcano.sh/job-name": "job",
        "volcano.sh/job-version": "0",
        "volcano.sh/queue-name": "night",
    }.items()  # fmt: skip


REQUESTS = {"resources": {"requests": {"cpu": "200m"}, "limits": {"cpu": "1"}}}
LIMITS = {"resources": {"limits": {"cpu": "300m"}}}


def test_with_the_flag_the_group_asks_for_all_replicas_and_what_they_request():
    scene = (
        a_paddle(schedulingPolicy={"queue": "night", "priorityClass": "low"})
        .role("ps", 2, containers=[{**CONTAINERS[0], **LIMITS}])
        .role("worker", 2, containers=[{**CONTAINERS[0], **REQUESTS}])
        .having(gang_scheduler="volcano")
    )

    made = scene.plan()

    assert body(made, "job", gang.VOLCANO)["spec"] == {
        "minMember": 4,
        "queue": "night",
        "priorityClassName": "low",
        "minResources": {"cpu": "1"},
    }
    assert created(made) == []


def test_the_users_numbers_go_before_ours():
    policy = {"minAvailable": 1, "minResources": {"cpu": 5}}
    scene = a_paddle(worker=2, schedulingPolicy=policy).having(gang_scheduler="volcano")

    spec = body(scene.plan(), "job", gang.VOLCANO)["spec"]

    assert (spec["minMember"], spec["minResources"]) == (1, {"cpu": "5"})


@pytest.mark.parametrize("phase", ["", "Pending"])
def test_a_group_of_the_users_is_waited_for_and_left_alone(phase):
    scene = a_paddle(ps=1).role("worker", 1, schedulerName="volcano").having(gang_scheduler="volcano")

    made = scene.group(phase, owner="", minMember=2).plan()

    assert made.actions == ()


@pytest.mark.parametrize("phase", ["Inqueue", "Running"])
def test_a_group_of_the_users_that_was_admitted_lets_the_pods_go(phase):
    scene = a_paddle(worker=1).having(gang_scheduler="volcano").group(phase, owner="", minMember=1)

    assert created(scene.plan()) == ["job-worker-0"]


def test_a_job_that_names_another_scheduler_is_left_to_it():
    scene = a_paddle(ps=1).role("worker", 1, schedulerName="mine").having(gang_scheduler="volcano")

    made = scene.plan()

    assert created(made, gang.VOLCANO) == []
    assert "schedulerName" not in body(made, "job-ps-0")["spec"]
    assert body(made, "job-worker-0")["spec"]["schedulerName"] == "mine"
    assert [event.message for event in made.events if event.reason == "SetPodTemplateSchedulerName"] == [
        "Another scheduler (mine) is set in the pod template of worker and will not be overwritten; "
        "the whole job is left to it, without a PodGroup"
    ]


@pytest.mark.parametrize(
    ("owner", "gone"),
    [pytest.param("", [], id="the user's"), pytest.param("job-uid", ["job"], id="ours")],
)
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_at_the_end_only_a_group_of_our_own_goes(owner, gone, phase):
    scene = a_paddle(worker=1, cleanPodPolicy="Never").having(gang_scheduler="volcano").group("Running", owner=owner)

    made = scene.all(phase).plan()

    assert made.status.is_finished
    assert deleted(made, gang.VOLCANO) == gone


@pytest.mark.parametrize(
    ("policy", "annotations", "queue"),
    [
        pytest.param({}, {}, "default", id="unsaid"),
        pytest.param({"queue": "night"}, {}, "night", id="by policy"),
        pytest.param({}, {"scheduling.volcano.sh/queue-name": "day"}, "day", id="by annotation"),
    ],
)
def test_the_group_and_its_pods_name_the_same_queue(policy, annotations, queue):
    scene = a_paddle(worker=1, schedulingPolicy=policy).meta(annotations=annotations).having(gang_scheduler="volcano")

    group = body(scene.plan(), "job", gang.VOLCANO)
    pod = the_pod(scene.group("Inqueue"))

    assert (group["spec"]["queue"], pod["metadata"]["annotations"]["volcano.sh/queue-name"]) == (queue, queue)


@pytest.mark.parametrize(
    ("phase", "count"),
    [pytest.param(phase, count, id=phase or "none yet") for phase, count in [("", 0), ("Pending", 0), ("Unknown", 1),
     ("Inqueue", 1), ("Running", 1), ("Completed", 1)]],
)  # fmt: skip
def test_pods_are_made_as_soon_as_the_group_is_past_pending(phase, count):
    """Unknown is a group that has lost members: to hold new ones back would keep it so for ever."""
    scene = a_paddle(worker=1).having(gang_scheduler="volcano").group(phase)

    assert len(created(scene.plan())) == count
