"""suspend and resume, as Kueue relies on them; and jobs that are another controller's."""

from __future__ import annotations

import pytest

from trainmaster.api import reading
from trainmaster.objects import timestamp
from trainmaster.objects.resource import HORIZONTAL_POD_AUTOSCALERS, SERVICES
from trainmaster.testing.scene import NOW, TYPICAL, Scene, a_job, a_typical_job, created, deleted, states, told


def born_suspended(kind: str) -> Scene:
    return a_typical_job(kind).policy(suspend=True)


def running(kind: str, restart: str | None = None) -> Scene:
    return a_typical_job(kind, restart).all("Running").settled()


def suspended(kind: str) -> Scene:
    """A job that ran and was suspended a minute later."""
    return running(kind).at(60).policy(suspend=True).settled()


def resumed(kind: str) -> Scene:
    """The same, resumed another minute later, its new pods running."""
    scene = suspended(kind).at(60).policy(suspend=False).settled()
    for member in scene.job.members():
        scene = scene.pod(member.role, member.index, "Running")
    return scene.settled()


every_kind = pytest.mark.parametrize("kind", TYPICAL)


# Born suspended.


@every_kind
def test_a_job_born_suspended_makes_nothing(kind: str) -> None:
    assert born_suspended(kind).plan().actions == ()


@every_kind
def test_a_job_born_suspended_has_not_started(kind: str) -> None:
    assert born_suspended(kind).settled().at(500).plan().status.start_time is None


@every_kind
def test_a_job_born_suspended_is_created_and_suspended(kind: str) -> None:
    status = born_suspended(kind).settled().job.status

    assert [(c.type, c.status, c.reason, c.message) for c in status.conditions] == [
        ("Created", "True", f"{kind}Created", f"{kind} job is created."),
        ("Suspended", "True", f"{kind}Suspended", f"{kind} job is suspended."),
    ]


@every_kind
def test_a_job_born_suspended_starts_when_it_is_let_go(kind: str) -> None:
    scene = born_suspended(kind).settled().at(60).policy(suspend=False)

    plan = scene.plan()

    assert len(created(plan)) == len(created(plan, SERVICES)) == sum(TYPICAL[kind].values())
    assert plan.status.start_time == timestamp.render(NOW + 60)


# Suspended while it ran.


@every_kind
def test_a_running_job_before_it_is_suspended(kind: str) -> None:
    status = running(kind).job.status

    assert (states(status), status.start_time) == (["Created", "Running"], timestamp.render(NOW))


@every_kind
def test_suspending_removes_pods_and_services(kind: str) -> None:
    scene = suspended(kind)

    assert (scene.pods, scene.services) == ({}, {})


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded", "Failed", "Unknown"])
@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_suspending_does_not_ask_the_clean_policy(policy: str, phase: str) -> None:
    scene = a_typical_job("JAXJob").policy(cleanPodPolicy=policy, suspend=True).all(phase)

    assert deleted(scene.plan()) == ["job-worker-0", "job-worker-1"]


@every_kind
def test_a_suspended_job_has_nothing_active(kind: str) -> None:
    tallies = suspended(kind).job.status.replica_statuses

    assert {role: tally.active for role, tally in tallies.items()} == dict.fromkeys(TYPICAL[kind], 0)


def test_what_ended_before_the_suspension_stays_in_the_tally() -> None:
    scene = a_job("JAXJob").role("Worker", 2).all("Running").pod("Worker", 1, "Succeeded").settled()

    tally = scene.policy(suspend=True).settled().job.status.replica_statuses["Worker"]

    assert (tally.active, tally.succeeded) == (0, 1)


@every_kind
def test_a_suspended_job_keeps_its_start_time(kind: str) -> None:
    assert suspended(kind).job.status.start_time == timestamp.render(NOW)


@every_kind
def test_a_suspended_jobs_conditions(kind: str) -> None:
    status = suspended(kind).job.status

    assert [(c.type, c.status, c.reason) for c in status.conditions] == [
        ("Created", "True", f"{kind}Created"),
        ("Running", "False", f"{kind}Suspended"),
        ("Suspended", "True", f"{kind}Suspended"),
    ]


@every_kind
def test_a_suspension_is_told_once(kind: str) -> None:
    scene = running(kind).policy(suspend=True)

    first, second = told(scene.plan()), told(scene.after().plan())

    assert (first, second) == ([(f"{kind}Suspended", f"{kind} job is suspended.")], [])


def test_the_event_of_a_suspension_is_normal() -> None:
    assert [event.type for event in running("TFJob").policy(suspend=True).plan().events] == ["Normal"]


def test_pods_that_are_already_going_are_not_deleted_again() -> None:
    scene = running("JAXJob").policy(suspend=True).pod("Worker", 1, terminating=True)

    assert deleted(scene.plan()) == ["job-worker-0"]


def test_a_job_that_fails_while_it_is_suspended_has_not_failed() -> None:
    scene = running("TFJob", "Never").policy(suspend=True).pod("Worker", 0, "Failed", exit_code=1)

    assert not scene.settled().job.status.is_true("Failed")


def test_pods_of_others_survive_a_suspension() -> None:
    scene = running("JAXJob").policy(suspend=True).pod("Worker", 1, owner="other")

    assert deleted(scene.plan()) == ["job-worker-0"]


def test_a_restarting_job_can_be_suspended() -> None:
    scene = a_typical_job("PyTorchJob", "ExitCode").all("Running").pod("Worker", 0, "Failed", exit_code=137).after()

    assert states(scene.policy(suspend=True).plan().status) == ["Created", "Restarting", "Suspended"]


def test_an_elastic_jobs_autoscaler_goes_with_the_suspension() -> None:
    scene = a_job("PyTorchJob", elasticPolicy={"metrics": []}).role("Worker").settled()

    plan = scene.policy(suspend=True).plan()

    assert deleted(plan, HORIZONTAL_POD_AUTOSCALERS) == ["job"]


# Resumed.


@every_kind
def test_resuming_makes_pods_and_services_again(kind: str) -> None:
    plan = suspended(kind).policy(suspend=False).plan()

    assert len(created(plan)) == len(created(plan, SERVICES)) == sum(TYPICAL[kind].values())


@every_kind
def test_resuming_starts_the_clock_anew(kind: str) -> None:
    assert resumed(kind).job.status.start_time == timestamp.render(NOW + 120)


@every_kind
def test_a_resumed_jobs_conditions(kind: str) -> None:
    status = resumed(kind).job.status

    assert [(c.type, c.status, c.reason) for c in status.conditions] == [
        ("Created", "True", f"{kind}Created"),
        ("Suspended", "False", f"{kind}Resumed"),
        ("Running", "True", f"{kind}Running"),
    ]


@every_kind
def test_resuming_is_told(kind: str) -> None:
    plan = suspended(kind).policy(suspend=False).plan()

    assert (f"{kind}Resumed", f"{kind} job is resumed.") in told(plan)


@pytest.mark.parametrize("restart", ["Always", "OnFailure", "Never", "ExitCode"])
@every_kind
def test_a_resumed_job_waits_until_its_old_pods_are_gone(kind: str, restart: str) -> None:
    scene = running(kind, restart)
    going = scene.policy(suspend=True).after()
    for member in scene.job.members():
        going = going.pod(member.role, member.index, "Running", terminating=True)

    plan = going.policy(suspend=False).plan()

    assert (plan.actions, states(plan.status)) == ((), ["Created", "Running(False)", "Suspended"])


def test_a_resumed_job_goes_on_once_its_old_pods_are_gone() -> None:
    going = running("TFJob", "Never").policy(suspend=True).after().pod("Worker", 0, terminating=True)

    plan = going.policy(suspend=False).after().gone("Worker", 0).plan()

    assert (len(created(plan)), states(plan.status)) == (4, ["Created", "Running(False)", "Suspended(False)"])


def test_a_job_resumed_before_the_operator_removed_its_pods_removes_them_first() -> None:
    scene = running("TFJob", "Never").policy(suspend=True)
    died = scene.standing(scene.plan().status).policy(suspend=False)

    plan = died.plan()

    assert (len(deleted(plan)), created(plan), plan.status.is_true("Suspended")) == (4, [], True)


def test_a_job_resumed_before_the_operator_removed_its_pods_runs_in_the_end() -> None:
    scene = running("TFJob", "Never").policy(suspend=True)
    died = scene.standing(scene.plan().status).policy(suspend=False)

    settled = died.settled()

    assert (len(settled.pods), settled.job.status.is_true("Suspended")) == (4, False)


def test_a_replica_that_succeeded_before_the_suspension_runs_again_after_it() -> None:
    scene = a_job("JAXJob").role("Worker", 2).all("Running").pod("Worker", 1, "Succeeded", exit_code=0).settled()

    back = scene.policy(suspend=True).settled().policy(suspend=False).settled()

    assert sorted(back.pods) == ["job-worker-0", "job-worker-1"]


def test_suspending_and_resuming_again_keeps_one_suspended_condition() -> None:
    scene = resumed("TFJob").policy(suspend=True).settled()

    assert states(scene.job.status) == ["Created", "Running(False)", "Suspended"]


# Finished.


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@every_kind
def test_a_finished_job_ignores_suspend(kind: str, phase: str) -> None:
    scene = a_typical_job(kind, "Never").all(phase, exit_code=0 if phase == "Succeeded" else 1).settled()

    plan = scene.policy(suspend=True).plan()

    assert (plan.status, plan.actions) == (scene.job.status, ())


# Managed by others.


@pytest.mark.parametrize(
    ("manager", "is_elsewhere"),
    [
        pytest.param(None, False, id="unset"),
        pytest.param("kubeflow.org/training-operator", False, id="ours"),
        pytest.param("kueue.x-k8s.io/multikueue", True, id="multikueue"),
        pytest.param("", True, id="empty"),
        pytest.param("example.com/other", True, id="another"),
    ],
)
@every_kind
def test_a_job_managed_by_another_controller_is_known_before_it_is_read(
    kind: str, manager: str | None, is_elsewhere: bool
) -> None:
    policy = {} if manager is None else {"managedBy": manager}
    scene = a_typical_job(kind).policy(suspend=True, **policy)

    assert reading.is_managed_elsewhere(scene.framework, scene.manifest) is is_elsewhere
