"""activeDeadlineSeconds, by a clock that a restarted operator reads the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainmaster.engine import gang
from trainmaster.objects import timestamp
from trainmaster.objects.resource import SERVICES
from trainmaster.testing.scene import NOW, TYPICAL, Scene, a_job, a_typical_job, deleted, states, told

MESSAGE = "Job job has failed because it was active longer than specified deadline"


def a_waiting_job(kind: str) -> Scene:
    """Of a kind whose deadline counts what it waits for."""
    group = {"MSJob": "mindspore.gitee.com", "PaddleJob": "batch.paddlepaddle.org"}[kind]
    role = {"MSJob": "Worker", "PaddleJob": "worker"}[kind]
    return a_job(kind, group=group).role(role, 2).policy(activeDeadlineSeconds=100)


def running(seconds: int | None) -> Scene:
    """Four workers and two servers that started now."""
    scene = a_job("TFJob").role("PS", 2).role("Worker", 4).all("Running")
    return (scene if seconds is None else scene.policy(activeDeadlineSeconds=seconds)).settled()


@pytest.mark.parametrize(
    ("deadline", "later", "is_failed"),
    [
        pytest.param(None, 10**9, False, id="none"),
        pytest.param(0, 0, True, id="0, at once"),
        pytest.param(2, 0, False, id="2, just started"),
        pytest.param(2, 1.9, False, id="2, not quite"),
        pytest.param(2, 2, True, id="2, to the second"),
        pytest.param(2, 2000, True, id="2, long ago"),
    ],
)
def test_a_job_fails_at_its_deadline(deadline: int | None, later: float, is_failed: bool) -> None:
    plan = running(deadline).at(later).plan()

    assert plan.status.is_true("Failed") is is_failed


def test_the_end_by_the_deadline_removes_everything() -> None:
    ended = running(2).at(2).after()

    assert (ended.pods, ended.services) == ({}, {})


def test_without_a_deadline_everything_stays() -> None:
    assert len(running(None).at(2).after().pods) == 6


@pytest.mark.parametrize(
    ("policy", "gone"),
    [
        pytest.param("None", [], id="None"),
        pytest.param("Running", ["job-worker-0"], id="Running"),
        pytest.param("All", ["job-worker-0", "job-worker-1"], id="All"),
        pytest.param(None, ["job-worker-0", "job-worker-1"], id="left open"),
    ],
)
def test_the_end_by_the_deadline_follows_the_clean_policy_that_the_manifest_names(
    policy: str | None, gone: list[str]
) -> None:
    scene = a_job("JAXJob").role("Worker", 2).policy(activeDeadlineSeconds=2, cleanPodPolicy=policy).all("Running")
    scene = scene.settled().pod("Worker", 1, "Succeeded")

    plan = scene.at(2).plan()

    assert deleted(plan) == deleted(plan, SERVICES) == gone


@pytest.mark.parametrize("kind", TYPICAL)
@pytest.mark.parametrize("compat", [False, True])
def test_nothing_of_a_job_goes_with_its_deadline_whose_manifest_says_none(kind: str, compat: bool) -> None:
    scene = a_typical_job(kind).policy(activeDeadlineSeconds=5, cleanPodPolicy="None").having(compat_2021=compat)
    scene = scene.all("Running").settled()

    ended = scene.at(5).settled()

    assert ended.job.status.is_true("Failed")
    assert (ended.pods, ended.services) == (scene.pods, scene.services)


def test_in_2021_the_end_by_the_deadline_followed_the_clean_policy() -> None:
    scene = a_job("JAXJob").role("Worker", 2).policy(activeDeadlineSeconds=2, cleanPodPolicy="Running")
    scene = scene.having(compat_2021=True).all("Running").settled().pod("Worker", 1, "Succeeded")

    plan = scene.at(2).plan()

    assert deleted(plan) == ["job-worker-0"]


@pytest.mark.parametrize("kind", TYPICAL)
def test_the_end_by_the_deadline_is_explained(kind: str) -> None:
    scene = a_typical_job(kind).policy(activeDeadlineSeconds=5).all("Running").settled()

    plan = scene.at(5).plan()

    failed = plan.status.conditions[-1]
    assert (failed.type, failed.reason, failed.message) == ("Failed", f"{kind}Failed", MESSAGE)
    assert (f"{kind}Failed", MESSAGE) in told(plan)


def test_the_end_by_the_deadline_is_stamped() -> None:
    status = running(2).at(60).plan().status

    assert status.completion_time == "2023-11-14T22:14:20Z"


def test_a_job_that_ran_into_its_deadline_no_longer_runs() -> None:
    assert states(running(2).at(2).plan().status) == ["Created", "Running(False)", "Failed"]


def test_the_job_is_looked_at_again_when_its_deadline_comes() -> None:
    assert running(100).at(30).plan().wake_after == 70


def test_without_a_deadline_nobody_need_look_again() -> None:
    assert running(None).plan().wake_after is None


def test_a_new_job_is_looked_at_again_when_its_deadline_comes() -> None:
    scene = a_job("TFJob").role("Worker").policy(activeDeadlineSeconds=100)

    assert scene.plan().wake_after == 100


def test_a_changed_deadline_counts_from_the_start_too() -> None:
    scene = running(100).policy(activeDeadlineSeconds=40)

    assert scene.at(30).plan().wake_after == 10


def test_the_sooner_of_deadline_and_replacement_is_waited_for() -> None:
    scene = a_job("JAXJob").role("Worker", 2, "ExitCode").policy(activeDeadlineSeconds=100).all("Running").settled()
    failed = scene.pod("Worker", 1, "Failed", exit_code=137, attempt=4)

    found = [failed.plan().wake_after, failed.policy(activeDeadlineSeconds=5).plan().wake_after]

    assert found == [16, 5]


def test_a_suspended_job_has_no_deadline() -> None:
    scene = running(2).policy(suspend=True).at(60)

    plan = scene.plan()

    assert (plan.status.is_true("Failed"), plan.wake_after) == (False, None)


def test_resuming_starts_the_clock_anew() -> None:
    scene = running(100).policy(suspend=True).at(60).settled()

    resumed = scene.policy(suspend=False).at(60).settled()

    assert resumed.plan().wake_after == 100


def test_a_job_that_succeeded_by_its_deadline_has_succeeded() -> None:
    scene = running(2).all("Succeeded", exit_code=0).at(2)

    assert states(scene.plan().status)[-1] == "Succeeded"


def test_a_finished_job_has_no_deadline() -> None:
    scene = running(100).all("Succeeded", exit_code=0).settled()

    assert scene.at(1000).plan().wake_after is None


def test_while_a_group_waits_to_be_admitted_the_deadline_does_not_run() -> None:
    scene = a_job("JAXJob").role("Worker").policy(activeDeadlineSeconds=10).having(gang_scheduler="volcano")

    held = scene.group("Pending").settled().at(1000)

    assert (held.plan().status.is_true("Failed"), held.job.status.start_time) == (False, None)


@pytest.mark.parametrize("kind", TYPICAL)
def test_a_job_that_has_started_and_waits_for_its_group_again_ends_at_its_deadline(kind: str) -> None:
    scene = a_typical_job(kind).policy(activeDeadlineSeconds=100).having(gang_scheduler="volcano")
    started = scene.group("Running").all("Running").settled()

    held = replace(started, pods={}).group("Pending").at(60)

    assert held.plan().wake_after == 40
    assert states(held.at(40).plan().status)[-1] == "Failed"


def test_the_end_of_a_job_that_waits_for_its_group_takes_the_group_away() -> None:
    scene = a_job("MSJob").role("Worker").policy(activeDeadlineSeconds=10).having(gang_scheduler="volcano")
    held = scene.settled().at(10)

    plan = held.plan()

    assert deleted(plan, gang.VOLCANO) == ["job"]
    assert ("JobFailed", MESSAGE) in told(plan)


@pytest.mark.parametrize("kind", ["MSJob", "PaddleJob"])
@pytest.mark.parametrize("phase", ["", "Pending"], ids=["new", "Pending"])
def test_where_waiting_counts_the_deadline_runs_while_the_group_waits(kind: str, phase: str) -> None:
    scene = a_waiting_job(kind).having(gang_scheduler="volcano").group(phase).settled()

    found = [scene.at(later).plan() for later in (30, 99, 100)]

    assert [plan.status.is_true("Failed") for plan in found] == [False, False, True]
    assert found[0].wake_after == 70


@pytest.mark.parametrize("kind", ["MSJob", "PaddleJob"])
def test_where_waiting_counts_the_deadline_runs_while_pods_are_pending(kind: str) -> None:
    scene = a_waiting_job(kind).all("Pending").settled()

    found = [scene.at(later).plan() for later in (30, 100)]

    assert [(plan.status.is_true("Failed"), plan.wake_after) for plan in found] == [(False, 70), (True, None)]


@pytest.mark.parametrize("kind", ["MSJob", "PaddleJob"])
def test_where_waiting_counts_resuming_starts_the_clock_anew(kind: str) -> None:
    scene = a_waiting_job(kind).having(gang_scheduler="volcano").group("Pending").settled()
    resumed = scene.at(60).policy(suspend=True).settled().at(1000).policy(suspend=False).settled()

    assert resumed.at(30).plan().wake_after == 70


def test_where_waiting_counts_the_start_under_an_older_operator_does_too() -> None:
    scene = a_waiting_job("PaddleJob").all("Running")
    started = {"phase": "Running", "startTime": timestamp.render(NOW - 60)}

    taken_over = replace(scene, manifest={**scene.manifest, "status": started})

    assert taken_over.plan().wake_after == 40


def test_a_restarted_operator_counts_from_the_recorded_start() -> None:
    scene = a_job("JAXJob").role("Worker").policy(activeDeadlineSeconds=10).all("Running")

    started = scene.after().at(4)

    assert (started.now, started.plan().wake_after) == (NOW + 4, 6)
