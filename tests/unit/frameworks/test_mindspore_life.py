"""MSJob from its start to its end: who decides, what a failure means, what is left behind, and when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trainmaster.objects.resource import SERVICES
from trainmaster.testing.scene import Scene, a_job, body, created, deleted, states, told

ALL: dict[str, Any] = {"successPolicy": "AllWorkers"}


def an_msjob(workers: int = 2, restart: str | None = None, **spec: Any) -> Scene:
    return a_job("MSJob", "j", **spec).role("Scheduler", 1, restart).role("Worker", workers, restart)


def running(scene: Scene) -> Scene:
    scene = scene.all("Running")
    return scene.standing(scene.plan().status)


# Conditions.


def test_a_job_runs_as_soon_as_a_worker_does() -> None:
    scene = an_msjob().all("Pending").pod("Scheduler", 0, "Running")

    waiting, working = scene.plan().status, scene.pod("Worker", 1, "Running").plan().status

    assert (states(waiting), states(working)) == (["Created"], ["Created", "Running"])
    assert [c.message for c in working.conditions] == ["MSJob j is created.", "MSJob default/j is running."]
    assert waiting.start_time is not None


def test_the_tally_counts_what_runs_has_succeeded_and_has_failed() -> None:
    scene = an_msjob(4, enableDynamicWorker=True, **ALL).all("Running")
    scene = scene.pod("Worker", 1, "Pending").pod("Worker", 2, "Succeeded", exit_code=0).pod("Worker", 3, "Failed")

    tally = scene.plan().status.replica_statuses

    assert (tally["Worker"].active, tally["Worker"].succeeded, tally["Worker"].failed) == (1, 1, 1)
    assert (tally["Scheduler"].active, tally["Scheduler"].succeeded) == (1, 0)


@pytest.mark.parametrize(
    ("spec", "done", "is_over"),
    [
        pytest.param({}, {0}, True, id="worker 0 decides"),
        pytest.param({}, {1, 2, 3}, False, id="the others do not"),
        pytest.param({}, {0, 1, 2, 3}, True, id="all of them"),
        pytest.param({"successPolicy": "Whatever"}, {0}, True, id="an unknown policy is the default"),
        pytest.param(ALL, {0}, False, id="worker 0 is not all"),
        pytest.param(ALL, {0, 1, 2}, False, id="three of four are not all"),
        pytest.param(ALL, {0, 1, 2, 3}, True, id="four of four are"),
    ],
)
def test_the_success_policy_says_which_workers_must_be_done(
    spec: dict[str, Any], done: set[int], is_over: bool
) -> None:
    scene = running(an_msjob(4, **spec))
    for index in done:
        scene = scene.pod("Worker", index, "Succeeded", exit_code=0)

    status = scene.plan().status

    assert status.is_true("Succeeded") is is_over
    assert (status.completion_time is not None) is is_over
    assert not status.is_true("Failed")


def test_success_is_told_and_what_still_ran_counts_as_succeeded() -> None:
    plan = running(an_msjob(3)).pod("Worker", 0, "Succeeded", exit_code=0).plan()

    assert states(plan.status) == ["Created", "Running(False)", "Succeeded"]
    assert ("MSJobSucceeded", "MSJob default/j successfully completed.") in told(plan)
    assert plan.status.replica_statuses["Worker"].succeeded == 3
    assert plan.status.replica_statuses["Scheduler"].succeeded == 1
    assert plan.marks == ("successful",)


def test_worker_0_must_have_exited_with_0_to_decide_alone() -> None:
    plan = running(an_msjob()).pod("Worker", 0, "Succeeded").plan()

    assert not plan.status.is_finished


@pytest.mark.parametrize("role", ["Scheduler", "PS"])
def test_the_others_success_decides_nothing(role: str) -> None:
    scene = running(an_msjob().role("PS")).pod(role, 0, "Succeeded", exit_code=0)

    assert states(scene.plan().status) == ["Created", "Running"]
    assert created(scene.plan()) == []


def test_a_failed_worker_after_the_deciding_one_is_done_changes_nothing() -> None:
    plan = running(an_msjob()).pod("Worker", 0, "Succeeded", exit_code=0).pod("Worker", 1, "Failed", exit_code=1).plan()

    assert states(plan.status) == ["Created", "Running(False)", "Succeeded"]


@pytest.mark.parametrize("spec", [{}, ALL], ids=["worker 0 decides", "all workers"])
@pytest.mark.parametrize("exit_code", [0, 1, 137, 143])
def test_a_scheduler_that_ends_when_the_workers_are_done_does_not_fail_the_job(
    spec: dict[str, Any], exit_code: int
) -> None:
    scene = running(an_msjob(**spec)).all("Succeeded", "Worker", exit_code=0)
    phase = "Failed" if exit_code else "Succeeded"

    at_once = scene.pod("Scheduler", 0, phase, exit_code=exit_code).plan()
    later = scene.after().pod("Scheduler", 0, phase, exit_code=exit_code).plan()

    assert states(at_once.status) == states(later.status) == ["Created", "Running(False)", "Succeeded"]
    assert (created(later), later.marks) == ([], ())


def test_a_scheduler_that_ends_when_the_needed_workers_are_gone_and_done_does_not_fail_the_job() -> None:
    scene = running(an_msjob(2, **ALL)).pod("Worker", 0, "Succeeded", exit_code=0)
    scene = scene.after().gone("Worker", 0).pod("Worker", 1, "Succeeded", exit_code=0)

    plan = scene.pod("Scheduler", 0, "Failed", exit_code=1).plan()

    assert plan.status.is_true("Succeeded")


@pytest.mark.parametrize(("role", "count"), [("Scheduler", 1), ("PS", 1), ("Worker", 1)])
def test_a_failed_pod_under_never_fails_the_job(role: str, count: int) -> None:
    plan = running(an_msjob(**ALL).role("PS")).pod(role, 0, "Failed", exit_code=1).plan()

    assert states(plan.status) == ["Created", "Running(False)", "Failed"]
    assert plan.status.conditions[-1].reason == "MSJobFailed"
    assert plan.status.conditions[-1].message == f"MSJob default/j has failed because {count} {role} replica(s) failed."
    assert plan.status.completion_time is not None


def test_with_dynamic_workers_a_failed_worker_does_not_fail_the_job_but_a_failed_scheduler_does() -> None:
    scene = running(an_msjob(enableDynamicWorker=True, **ALL)).pod("Worker", 1, "Failed", exit_code=1)

    without_worker, without_scheduler = scene.plan(), scene.pod("Scheduler", 0, "Failed", exit_code=1).plan()

    assert states(without_worker.status) == ["Created", "Running"]
    assert without_scheduler.status.is_true("Failed")


@pytest.mark.parametrize("ends", [("Failed", "Failed"), ("Failed", "Succeeded")], ids=["all", "worker 0 of two"])
def test_with_dynamic_workers_the_job_fails_when_none_is_left_to_decide(ends: tuple[str, str]) -> None:
    scene = running(an_msjob(enableDynamicWorker=True))
    for index, phase in enumerate(ends):
        scene = scene.pod("Worker", index, phase, exit_code=int(phase == "Failed"))

    assert states(scene.plan().status)[-1] == "Failed"


def test_with_dynamic_workers_one_that_is_replaced_is_not_lost() -> None:
    scene = running(an_msjob(1, "ExitCode", enableDynamicWorker=True)).pod("Worker", 0, "Failed", exit_code=137)

    assert states(scene.plan().status)[-1] == "Restarting"


@pytest.mark.parametrize("role", ["Scheduler", "PS"])
def test_a_scheduler_that_ends_before_the_last_worker_is_heard_of_does_not_fail_the_job(role: str) -> None:
    scene = running(an_msjob(**ALL).role("PS")).pod("Worker", 0, "Succeeded", exit_code=0)

    doubted = scene.pod(role, 0, "Failed", exit_code=1)
    heard = doubted.after().at(59).pod("Worker", 1, "Succeeded", exit_code=0)

    assert (doubted.plan().status.is_finished, doubted.plan().wake_after) == (False, 60)
    assert created(doubted.plan()) == deleted(doubted.plan()) == []
    assert heard.plan().status.is_true("Succeeded")


def test_a_scheduler_that_has_really_failed_fails_the_job_a_minute_later() -> None:
    scene = running(an_msjob(**ALL)).pod("Worker", 0, "Succeeded", exit_code=0)

    failed = scene.pod("Scheduler", 0, "Failed", exit_code=1).after().at(60)

    assert failed.plan().status.is_true("Failed")


@pytest.mark.parametrize("workers", [None, 0], ids=["no such role", "none of them"])
def test_a_job_without_workers_waits(workers: int | None) -> None:
    scene = a_job("MSJob", "j").role("Scheduler")

    scene = scene if workers is None else scene.role("Worker", workers)
    plan = scene.all("Succeeded", exit_code=0).plan()

    assert states(plan.status) == ["Created"]


# Restarts.


@pytest.mark.parametrize("exit_code", [130, 137, 138, 143])
def test_a_pod_with_an_exit_code_worth_another_try_is_replaced(exit_code: int) -> None:
    scene = running(an_msjob(restart="ExitCode")).pod("Worker", 1, "Failed", exit_code=exit_code)

    plan = scene.plan()
    again = scene.after(plan).plan()

    assert deleted(plan) == ["j-worker-1"]
    assert states(plan.status) == ["Created", "Restarting"]
    assert ("MSJobRestarting", "MSJob j is restarting because Worker replica(s) failed.") in told(plan)
    assert plan.marks == ("restarted",)
    assert created(again) == ["j-worker-1"]


def test_running_takes_the_place_of_restarting_and_stays_false_on_record_at_the_end() -> None:
    failing = running(an_msjob(restart="ExitCode")).pod("Worker", 1, "Failed", exit_code=137)

    again = failing.after().pod("Worker", 1, "Running")
    over = again.after().pod("Worker", 0, "Succeeded", exit_code=0)

    assert [states(scene.plan().status) for scene in (failing, again, over)] == [
        ["Created", "Restarting"],
        ["Created", "Running"],
        ["Created", "Running(False)", "Succeeded"],
    ]
    assert [role for role, tally in over.plan().status.replica_statuses.items() if tally.failed] == []


@pytest.mark.parametrize("exit_code", [1, 2, 3, 126, 127, 128, 129, 134, 139, 255])
def test_any_other_exit_code_is_final(exit_code: int) -> None:
    plan = running(an_msjob(restart="ExitCode")).pod("Worker", 1, "Failed", exit_code=exit_code).plan()

    assert states(plan.status) == ["Created", "Running(False)", "Failed"]
    assert plan.status.conditions[-1].message == "MSJob default/j has failed because 1 Worker replica(s) failed."


def test_a_replaced_worker_comes_back_under_its_name_and_to_the_same_scheduler() -> None:
    scene = running(an_msjob(restart="ExitCode")).pod("Worker", 1, "Failed", exit_code=137)
    first = body(an_msjob(restart="ExitCode").served().plan(), "j-worker-1")

    again = body(scene.after().plan(), "j-worker-1")

    assert again["spec"] == first["spec"]


def test_a_replaced_scheduler_keeps_its_service() -> None:
    scene = running(an_msjob(restart="ExitCode")).pod("Scheduler", 0, "Failed", exit_code=137)

    plan = scene.plan()

    assert (deleted(plan), deleted(plan, SERVICES)) == (["j-scheduler-0"], [])
    assert created(scene.after(plan).plan()) == ["j-scheduler-0"]


@pytest.mark.parametrize(("limit", "restarts", "is_over"), [(3, 2, False), (3, 3, True), (0, 1, True)])
def test_restarts_in_place_count_against_the_limit(limit: int, restarts: int, is_over: bool) -> None:
    scene = running(an_msjob(restart="OnFailure").policy(backoffLimit=limit))

    plan = scene.pod("Worker", 0, "Running", restarts=restarts).plan()

    assert plan.status.is_true("Failed") is is_over
    message = "Job j has failed because it has reached the specified backoff limit"
    assert (plan.status.conditions[-1].message == message) is is_over


@pytest.mark.parametrize("role", ["Scheduler", "PS", "Worker"])
@pytest.mark.parametrize(
    ("exit_code", "is_replaced"),
    [(130, True), (137, True), (138, True), (143, True), (1, False), (128, False), (139, False), (None, True)],
)
def test_exit_codes_count_for_every_role(role: str, exit_code: int | None, is_replaced: bool) -> None:
    """A pod without any was lost with its node, or evicted."""
    scene = running(an_msjob(restart="ExitCode").role("PS", 1, "ExitCode"))

    plan = scene.pod(role, 0, "Failed", exit_code=exit_code).plan()

    assert states(plan.status)[-1] == ("Restarting" if is_replaced else "Failed")
    assert (f"j-{role.lower()}-0" in deleted(plan)) is is_replaced


# What is left behind.


@pytest.mark.parametrize(
    ("policy", "pods", "services"),
    [
        pytest.param(None, ["j-scheduler-0", "j-worker-2"], ["j-scheduler-0"], id="Running unless said otherwise"),
        pytest.param("Running", ["j-scheduler-0", "j-worker-2"], ["j-scheduler-0"], id="Running"),
        pytest.param("None", [], [], id="None"),
        pytest.param("All", ["j-scheduler-0", "j-worker-0", "j-worker-1", "j-worker-2"], ["j-scheduler-0"], id="All"),
    ],
)
@pytest.mark.parametrize("outcome", ["Succeeded", "Failed"])
def test_the_clean_pod_policy_says_what_goes(
    outcome: str, policy: str | None, pods: list[str], services: list[str]
) -> None:
    scene = running(an_msjob(3).policy(**({"cleanPodPolicy": policy} if policy else {})))
    deciding, exit_code = (0, 0) if outcome == "Succeeded" else (1, 1)
    scene = scene.pod("Worker", 1 - deciding, "Succeeded").pod("Worker", 2, "Pending")

    plan = scene.pod("Worker", deciding, outcome, exit_code=exit_code).plan()

    assert plan.status.is_true("Succeeded") is (outcome == "Succeeded")
    assert (sorted(deleted(plan)), deleted(plan, SERVICES)) == (pods, services)


LIMITS = {
    "deadline": "Job j has failed because it was active longer than specified deadline",
    "restarts": "Job j has failed because it has reached the specified backoff limit",
}


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(
    ("policy", "gone"),
    [
        pytest.param(None, ["j-scheduler-0", "j-worker-0"], id="Running unless said otherwise"),
        pytest.param("None", [], id="None"),
        pytest.param("All", ["j-scheduler-0", "j-worker-0", "j-worker-1"], id="All"),
    ],
)
def test_the_clean_pod_policy_counts_at_a_limit_too(limit: str, policy: str | None, gone: list[str]) -> None:
    limits = {"deadline": {"activeDeadlineSeconds": 10}, "restarts": {"backoffLimit": 3}}[limit]
    scene = running(an_msjob(restart="OnFailure").policy(**limits, **({"cleanPodPolicy": policy} if policy else {})))
    scene = scene.pod("Worker", 1, "Succeeded").pod("Worker", 0, "Running", restarts=3)

    plan = scene.at(10 if limit == "deadline" else 0).plan()

    assert (sorted(deleted(plan)), plan.status.conditions[-1].reason) == (gone, "JobFailed")
    assert plan.status.conditions[-1].message == LIMITS[limit]
    assert ("JobFailed", LIMITS[limit]) in told(plan)
    assert plan.status.completion_time is not None


def test_a_scheduler_that_has_ended_keeps_its_service_under_running() -> None:
    scene = running(an_msjob().policy(cleanPodPolicy="Running")).pod("Scheduler", 0, "Succeeded", exit_code=0)

    plan = scene.pod("Worker", 0, "Succeeded", exit_code=0).plan()

    assert (deleted(plan), deleted(plan, SERVICES)) == (["j-worker-1"], [])


@pytest.mark.parametrize(("policy", "gone"), [("Running", ["j-scheduler-0"]), ("All", ["j-scheduler-0"]), ("None", [])])
def test_a_service_whose_deletion_failed_goes_although_its_pod_is_gone(policy: str, gone: list[str]) -> None:
    scene = running(an_msjob().policy(cleanPodPolicy=policy)).all("Succeeded", "Worker", exit_code=0)

    plan = replace(scene.after().gone("Scheduler", 0), services=scene.services).plan()

    assert deleted(plan, SERVICES) == gone


def test_a_pod_that_is_gone_is_made_anew_in_a_running_job_and_not_in_a_finished_one() -> None:
    scene = running(an_msjob(restart="OnFailure").policy(cleanPodPolicy="None"))
    finished = scene.pod("Worker", 0, "Succeeded", exit_code=0)

    lost, over = scene.gone("Worker", 1).plan(), finished.after().gone("Worker", 1).plan()

    assert created(lost) == ["j-worker-1"]
    assert over.actions == ()


def test_a_resumed_job_meets_at_a_new_service() -> None:
    scene = running(an_msjob())

    stopped = scene.policy(suspend=True).settled()
    resumed = stopped.policy(suspend=False).plan()

    assert (stopped.pods, stopped.services) == ({}, {})
    assert (created(resumed, SERVICES), created(resumed)) == (["j-scheduler-0"], [])
