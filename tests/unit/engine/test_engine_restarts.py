"""What becomes of a failed replica: replaced now or later, waited for, or the end of the job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from trainmaster.engine.restarts import LONGEST_DELAY, failures_of, is_retryable
from trainmaster.objects.pod import ContainerState, ContainerStatus, Terminated
from trainmaster.testing.scene import NOW, TYPICAL, Scene, a_job, a_typical_job, created, deleted, states, told

STRICT = ("XGBoostJob", "MXJob")
LENIENT = tuple(kind for kind in TYPICAL if kind not in STRICT)


def failing(kind: str, restart: str, exit_code: int | None = None, **pod: Any) -> Scene:
    """Everything runs but worker 1, which has failed."""
    return a_typical_job(kind, restart).all("Running").pod("Worker", 1, "Failed", exit_code=exit_code, **pod)


@pytest.mark.parametrize("code", [1, 2, 3, 126, 127])
def test_an_exit_code_below_128_is_permanent(code: int) -> None:
    assert not is_retryable(code, compat_2021=False)


@pytest.mark.parametrize("code", [128, 130, 137, 138, 139, 143, 255])
def test_an_exit_code_from_128_on_is_retryable(code: int) -> None:
    assert is_retryable(code, compat_2021=False)


@pytest.mark.parametrize("code", [130, 137, 138, 143])
def test_in_2021_four_exit_codes_were_retryable(code: int) -> None:
    assert is_retryable(code, compat_2021=True)


@pytest.mark.parametrize("code", [0, 1, 2, 126, 127, 128, 129, 139, 255])
def test_in_2021_all_other_exit_codes_were_permanent(code: int) -> None:
    assert not is_retryable(code, compat_2021=True)


REPLACED = ("Restarting", "job-worker-1")
FAILED = ("Failed",)


def outcome(scene: Scene) -> tuple[str, ...]:
    """The last condition, and the pods that go. At the end nothing does, so that only replacements show."""
    plan = scene.policy(cleanPodPolicy="None").plan()
    return (plan.status.conditions[-1].type, *deleted(plan))


@pytest.mark.parametrize(
    ("restart", "exit_code", "expected"),
    [
        pytest.param("Always", 1, REPLACED, id="Always"),
        pytest.param("OnFailure", 1, REPLACED, id="OnFailure"),
        pytest.param("OnFailure", None, REPLACED, id="OnFailure, evicted"),
        pytest.param("Never", 1, FAILED, id="Never"),
        pytest.param("Never", 137, FAILED, id="Never, killed"),
        pytest.param("ExitCode", 130, REPLACED, id="ExitCode 130"),
        pytest.param("ExitCode", 139, REPLACED, id="ExitCode 139"),
        pytest.param("ExitCode", None, REPLACED, id="ExitCode, no code known"),
        pytest.param("ExitCode", 1, FAILED, id="ExitCode 1"),
        pytest.param("ExitCode", 0, FAILED, id="ExitCode 0"),
    ],
)
@pytest.mark.parametrize("kind", LENIENT)
def test_a_failed_pod(kind: str, restart: str, exit_code: int | None, expected: tuple[str, ...]) -> None:
    assert outcome(failing(kind, restart, exit_code)) == expected


@pytest.mark.parametrize(
    ("restart", "exit_code", "expected"),
    [
        pytest.param("Always", 1, FAILED, id="Always"),
        pytest.param("OnFailure", 1, FAILED, id="OnFailure"),
        pytest.param("OnFailure", None, FAILED, id="OnFailure, evicted"),
        pytest.param("Never", 1, FAILED, id="Never"),
        pytest.param("ExitCode", 130, REPLACED, id="ExitCode 130"),
        pytest.param("ExitCode", 139, REPLACED, id="ExitCode 139"),
        pytest.param("ExitCode", None, REPLACED, id="ExitCode, no code known"),
        pytest.param("ExitCode", 1, FAILED, id="ExitCode 1"),
    ],
)
@pytest.mark.parametrize("kind", STRICT)
def test_a_failed_pod_of_a_kind_that_replaces_by_exit_code_only(
    kind: str, restart: str, exit_code: int | None, expected: tuple[str, ...]
) -> None:
    assert outcome(failing(kind, restart, exit_code)) == expected


@pytest.mark.parametrize(
    ("restart", "exit_code", "expected"),
    [
        pytest.param("Always", 1, FAILED, id="Always"),
        pytest.param("OnFailure", 1, FAILED, id="OnFailure"),
        pytest.param("Never", 1, FAILED, id="Never"),
        pytest.param("ExitCode", 130, REPLACED, id="ExitCode 130"),
        pytest.param("ExitCode", 143, REPLACED, id="ExitCode 143"),
        pytest.param("ExitCode", 128, FAILED, id="ExitCode 128"),
        pytest.param("ExitCode", 139, FAILED, id="ExitCode 139"),
        pytest.param("ExitCode", 1, FAILED, id="ExitCode 1"),
    ],
)
@pytest.mark.parametrize("kind", TYPICAL)
def test_a_failed_pod_in_2021(kind: str, restart: str, exit_code: int, expected: tuple[str, ...]) -> None:
    scene = failing(kind, restart, exit_code).having(compat_2021=True)

    assert outcome(scene) == expected


def test_the_exit_code_is_that_of_the_training_container() -> None:
    scene = failing("TFJob", "ExitCode", 1)
    ended = ContainerStatus(name="sidecar", state=ContainerState(terminated=Terminated(exit_code=1)))
    status = msgspec.structs.replace(scene.pods["job-worker-1"].status, container_statuses=(ended,))
    pod = msgspec.structs.replace(scene.pods["job-worker-1"], status=status)

    lost = replace(scene, pods={**scene.pods, pod.name: pod})

    assert outcome(lost) == REPLACED


def test_every_role_follows_its_own_policy() -> None:
    scene = a_job("TFJob").role("PS", restart="Never").role("Worker", 2, "ExitCode").all("Running")

    found = [outcome(scene.pod(role, 0, "Failed", exit_code=137))[0] for role in ("PS", "Worker")]

    assert found == ["Failed", "Restarting"]


def test_a_permanent_failure_beside_a_passing_one_ends_the_job() -> None:
    scene = a_typical_job("JAXJob", "ExitCode").pod("Worker", 0, "Failed", exit_code=137)

    plan = scene.pod("Worker", 1, "Failed", exit_code=1).plan()

    assert (states(plan.status)[-1], deleted(plan), plan.status.attempts) == ("Failed", [], {})


def test_the_failed_pod_is_counted_in_the_pass_that_removes_it() -> None:
    status = failing("PyTorchJob", "ExitCode", 137).plan().status

    assert (status.replica_statuses["Worker"].failed, status.replica_statuses["Worker"].active) == (1, 1)


def test_the_new_pod_is_made_when_the_old_one_is_gone() -> None:
    scene = failing("PyTorchJob", "ExitCode", 137)

    plans = [scene.plan(), scene.after().plan()]

    assert [(deleted(plan), created(plan)) for plan in plans] == [(["job-worker-1"], []), ([], ["job-worker-1"])]


def test_the_service_of_a_replaced_pod_stays() -> None:
    scene = failing("PyTorchJob", "ExitCode", 137)

    assert "job-worker-1" in scene.after().services


def test_the_others_keep_running_while_one_is_replaced() -> None:
    scene = failing("TFJob", "ExitCode", 137).settled()

    assert sum(pod.status.phase == "Running" for pod in scene.pods.values()) == 3


def test_a_restart_is_told_and_counted() -> None:
    plan = failing("TFJob", "ExitCode", 137).plan()

    assert ("TFJobRestarting", "job job is restarting because Worker replica(s) failed.") in told(plan)
    assert plan.marks.count("restarted") == 1


def test_the_event_of_a_restart_is_a_warning() -> None:
    plan = failing("TFJob", "ExitCode", 137).plan()

    assert [event.type for event in plan.events if event.reason == "TFJobRestarting"] == ["Warning"]


def test_the_job_runs_again_as_soon_as_nothing_is_failed() -> None:
    scene = failing("PyTorchJob", "ExitCode", 137).after()

    assert states(scene.plan().status) == ["Created", "Running"]


def test_a_failed_pod_that_is_already_going_is_not_deleted_again() -> None:
    scene = failing("PyTorchJob", "ExitCode", 137)
    scene = scene.pod("Worker", 1, "Failed", exit_code=137, terminating=True)

    assert deleted(scene.plan()) == []


def test_dynamic_workers_may_fail_without_ending_the_job() -> None:
    scene = failing("TFJob", "Never", 1).spec(enableDynamicWorker=True)

    plan = scene.plan()

    assert (states(plan.status), deleted(plan)) == (["Created", "Running"], [])


def test_dynamic_workers_that_fail_in_passing_are_replaced() -> None:
    scene = failing("TFJob", "ExitCode", 137).spec(enableDynamicWorker=True)

    assert outcome(scene) == REPLACED


def test_dynamic_workers_do_not_excuse_a_parameter_server() -> None:
    scene = a_typical_job("TFJob").spec(enableDynamicWorker=True).all("Running").pod("PS", 0, "Failed", exit_code=1)

    assert states(scene.plan().status)[-1] == "Failed"


# A pod that somebody else deletes.


def leaving(kind: str, restart: str) -> Scene:
    return a_typical_job(kind, restart).all("Running").pod("Worker", 1, "Running", terminating=True)


@pytest.mark.parametrize("restart", ["Always", "OnFailure", "ExitCode"])
@pytest.mark.parametrize("kind", TYPICAL)
def test_a_running_pod_that_is_deleted_by_others_is_waited_for(kind: str, restart: str) -> None:
    plan = leaving(kind, restart).plan()

    assert (states(plan.status), plan.actions) == (["Created", "Restarting"], ())


@pytest.mark.parametrize("restart", ["Always", "OnFailure", "ExitCode"])
def test_a_pod_deleted_by_others_is_replaced_once_it_is_gone(restart: str) -> None:
    scene = leaving("PyTorchJob", restart).settled().gone("Worker", 1)

    assert created(scene.plan()) == ["job-worker-1"]


def test_a_pod_deleted_by_others_costs_no_attempt() -> None:
    scene = leaving("PyTorchJob", "OnFailure").settled().gone("Worker", 1).settled()

    assert (scene.job.status.attempts, scene.pods["job-worker-1"].metadata.annotations) == ({}, {})


def test_a_pod_deleted_by_others_is_no_restart_in_metrics() -> None:
    assert "restarted" not in leaving("PyTorchJob", "OnFailure").plan().marks


@pytest.mark.parametrize("kind", TYPICAL)
def test_a_running_pod_that_is_deleted_by_others_under_never_fails_the_job(kind: str) -> None:
    assert states(leaving(kind, "Never").plan().status)[-1] == "Failed"


# Attempts.


def test_an_attempt_is_counted_with_the_removal_of_the_pod() -> None:
    plan = failing("PyTorchJob", "ExitCode", 137).plan()

    assert plan.status.attempts == {"worker-1": 1}


def test_every_slot_has_its_own_count() -> None:
    scene = failing("PyTorchJob", "ExitCode", 137).pod("Worker", 0, "Failed", exit_code=137, attempt=2, ended=NOW - 900)

    assert scene.plan().status.attempts == {"worker-0": 3, "worker-1": 1}


def test_an_attempt_is_counted_once_although_the_operator_dies_before_it_removes_the_pod() -> None:
    scene = failing("PyTorchJob", "ExitCode", 137)
    died = scene.standing(scene.plan().status)

    plan = died.plan()

    assert (plan.status.attempts, deleted(plan)) == ({"worker-1": 1}, ["job-worker-1"])


def test_a_restart_is_marked_once_although_the_operator_dies_before_it_removes_the_pod() -> None:
    scene = failing("PyTorchJob", "ExitCode", 137)
    died = scene.standing(scene.plan().status)

    assert "restarted" not in died.plan().marks


def test_an_attempt_is_counted_once_however_long_the_pod_takes_to_go() -> None:
    scene = failing("PyTorchJob", "ExitCode", 137)
    scene = scene.standing(scene.plan().status).pod("Worker", 1, "Failed", exit_code=137, terminating=True)

    settled = scene.at(30).settled()

    assert settled.job.status.attempts == {"worker-1": 1}


def test_a_pod_made_from_an_old_record_does_not_turn_the_count_back() -> None:
    scene = failing("PyTorchJob", "ExitCode", 137)
    scene = scene.standing(msgspec.structs.replace(scene.job.status, attempts={"worker-1": 3}))

    assert scene.plan().status.attempts == {"worker-1": 3}


def test_the_new_pod_carries_its_attempt() -> None:
    scene = failing("PyTorchJob", "ExitCode", 137).settled()

    assert scene.pods["job-worker-1"].metadata.annotations == {"trainmaster.dev/attempt": "1"}


def test_attempts_add_up_over_pods_of_a_slot() -> None:
    scene = failing("PyTorchJob", "ExitCode", 137).settled()

    again = scene.pod("Worker", 1, "Failed", exit_code=137, attempt=1, ended=NOW - 60).settled()

    assert again.job.status.attempts == {"worker-1": 2}


# Delays.


@pytest.mark.parametrize(
    ("attempt", "delay"),
    [
        pytest.param(0, 0, id="the first is immediate"),
        pytest.param(1, 2, id="second"),
        pytest.param(2, 4, id="third"),
        pytest.param(3, 8, id="fourth"),
        pytest.param(8, 256, id="ninth"),
        pytest.param(9, LONGEST_DELAY, id="bounded"),
        pytest.param(5000, LONGEST_DELAY, id="bounded for ever"),
    ],
)
def test_the_delay_before_a_replacement_grows_and_is_bounded(attempt: int, delay: float) -> None:
    scene = failing("PyTorchJob", "ExitCode", 137, attempt=attempt)

    (failure,) = failures_of(scene.observed())

    assert failure.delay(NOW) == delay


def test_a_pod_is_left_alone_until_its_delay_is_over() -> None:
    scene = failing("PyTorchJob", "ExitCode", 137, attempt=3)

    plan = scene.at(7).plan()

    assert (deleted(plan), plan.status.attempts, plan.wake_after) == ([], {}, 1)


def test_a_pod_is_replaced_when_its_delay_is_over() -> None:
    scene = failing("PyTorchJob", "ExitCode", 137, attempt=3)

    plan = scene.at(8).plan()

    assert (deleted(plan), plan.status.attempts, plan.wake_after) == (["job-worker-1"], {"worker-1": 4}, None)


def test_the_job_is_restarting_while_the_delay_lasts() -> None:
    scene = failing("PyTorchJob", "ExitCode", 137, attempt=3)

    assert states(scene.plan().status) == ["Created", "Restarting"]


def test_a_pod_that_ended_in_the_future_waits_no_longer_than_its_delay() -> None:
    scene = failing("PyTorchJob", "ExitCode", 137, attempt=3, ended=NOW + 9999)

    assert scene.plan().wake_after == 8


def test_a_pod_that_ended_long_ago_is_replaced_at_once() -> None:
    scene = failing("PyTorchJob", "ExitCode", 137, attempt=9, ended=NOW - 301)

    assert deleted(scene.plan()) == ["job-worker-1"]


def test_pods_with_different_delays_are_replaced_each_in_its_time() -> None:
    scene = failing("PyTorchJob", "ExitCode", 137).pod("Worker", 0, "Failed", exit_code=137, attempt=5)

    plan = scene.plan()

    assert (deleted(plan), plan.wake_after) == (["job-worker-1"], 32)
