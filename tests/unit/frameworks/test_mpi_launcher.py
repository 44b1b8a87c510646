"""MPIJob v2beta1 while it runs: its launcher is a Kubernetes Job, and what becomes of that decides."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.api.status import Condition
from trainmaster.objects import timestamp
from trainmaster.objects.resource import JOBS, PODS
from trainmaster.testing.scene import NOW, Scene, a_job, created, deleted, states, told

COMPLETE = [{"type": "Complete", "status": "True"}]


def mpi(workers: int | None = 2, **spec: Any) -> Scene:
    scene = a_job("MPIJob", version="v2beta1", **spec).role("Launcher")
    return scene if workers is None else scene.role("Worker", workers)


def running(workers: int = 2, **policy: Any) -> Scene:
    scene = mpi(workers).policy(**policy).all("Running", "Worker", ready=True).delegate("Launcher", active=1)
    return scene.delegated_pod("Launcher").settled()


def given_up(reason: str = "", message: str = "", failed: int = 1) -> dict[str, Any]:
    condition = {"type": "Failed", "status": "True", "reason": reason, "message": message}
    return {"conditions": [condition], "failed": failed}


def tallies(scene: Scene) -> dict[str, tuple[int, int, int]]:
    held = scene.plan().status.replica_statuses
    return {role: (tally.active, tally.succeeded, tally.failed) for role, tally in held.items()}


def end(scene: Scene) -> Condition:
    found = scene.plan().status.condition("Failed")
    assert found is not None
    return found


# When it starts.


def test_the_launcher_starts_with_the_workers() -> None:
    made = mpi(16).plan()

    assert (len(created(made)), created(made, JOBS)) == (16, ["job-launcher"])


@pytest.mark.parametrize(
    ("scene", "launchers"),
    [
        pytest.param(lambda s: s, [], id="no worker"),
        pytest.param(lambda s: s.all("Running", "Worker"), [], id="running is not ready"),
        pytest.param(lambda s: s.pod("Worker", 0, ready=True), [], id="one is missing"),
        pytest.param(lambda s: s.all("Running", "Worker", ready=True), ["job-launcher"], id="all are ready"),
    ],
)
def test_a_launcher_that_is_to_wait_waits_until_all_workers_are_ready(scene: Any, launchers: list[str]) -> None:
    world = scene(mpi(launcherCreationPolicy="WaitForWorkersReady"))

    assert created(world.plan(), JOBS) == launchers


def test_a_launcher_without_workers_starts_at_once_even_if_it_is_to_wait() -> None:
    assert created(mpi(None, launcherCreationPolicy="WaitForWorkersReady").plan(), JOBS) == ["job-launcher"]


def test_a_first_look_counts_nothing_yet() -> None:
    made = mpi().plan()

    assert states(made.status) == ["Created"]
    assert tallies(mpi()) == {"Launcher": (0, 0, 0), "Worker": (0, 0, 0)}
    assert told(made) == [("MPIJobCreated", "MPIJob default/job is created.")]


# While it runs.


@pytest.mark.parametrize(
    ("phase", "active", "is_running"), [("Pending", 0, False), ("Running", 8, True)], ids=["pending", "running"]
)
def test_the_job_runs_when_launcher_and_workers_do(phase: str, active: int, is_running: bool) -> None:
    scene = mpi(8).all(phase, "Worker").delegate("Launcher").delegated_pod("Launcher")

    assert tallies(scene) == {"Launcher": (1, 0, 0), "Worker": (active, 0, 0)}
    assert scene.plan().status.is_true("Running") is is_running


def test_that_it_runs_is_told_once() -> None:
    scene = mpi().all("Running", "Worker").delegate("Launcher").delegated_pod("Launcher")

    assert ("MPIJobRunning", "MPIJob default/job is running.") in told(scene.plan())
    assert (scene.settled().plan().events, scene.settled().plan().actions) == ((), ())


def test_a_failed_attempt_is_counted_and_does_not_fail_the_job() -> None:
    scene = running().delegate("Launcher", failed=1).delegated_pod("Launcher", "Failed", exit_code=1)

    assert tallies(scene)["Launcher"] == (0, 0, 1)
    assert not scene.plan().status.is_finished


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_a_dead_worker_is_left_to_mpirun_to_notice(policy: str) -> None:
    scene = running().role("Worker", 2, policy).pod("Worker", 0, "Failed", exit_code=1)

    assert not scene.plan().status.is_finished
    assert deleted(scene.plan()) == (["job-worker-0"] if policy == "OnFailure" else [])


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_a_worker_that_somebody_deleted_is_made_again_when_it_is_gone_however_it_ended(policy: str, phase: str) -> None:
    leaving = running().role("Worker", 2, policy).pod("Worker", 1, phase, terminating=True).settled()

    made = leaving.gone("Worker", 1).plan()

    assert (created(leaving.plan()), deleted(leaving.plan())) == ([], [])
    assert created(made) == ["job-worker-1"]
    assert not made.status.is_finished


def test_a_launcher_that_somebody_deleted_is_made_again_when_it_is_gone() -> None:
    scene = running()
    gone = {key: held for key, held in scene.others.items() if key[0] != "Job"}

    assert created(scene.plan(), JOBS) == []
    assert created(Scene(scene.framework, scene.manifest, others=gone).plan(), JOBS) == ["job-launcher"]


# Success.


def test_the_job_succeeds_when_the_launchers_job_is_complete() -> None:
    scene = running().delegate("Launcher", conditions=COMPLETE, succeeded=1)

    made = scene.plan()

    assert states(made.status) == ["Created", "Running(False)", "Succeeded"]
    assert tallies(scene) == {"Launcher": (0, 1, 0), "Worker": (0, 0, 0)}
    assert told(made)[-1] == ("MPIJobSucceeded", "MPIJob default/job successfully completed.")
    assert made.status.completion_time == timestamp.render(NOW)


def test_a_launcher_pod_that_lingers_does_not_make_a_finished_job_run() -> None:
    scene = running().delegate("Launcher", conditions=COMPLETE).settled()

    assert states(scene.plan().status) == ["Created", "Running(False)", "Succeeded"]
    assert tallies(scene)["Launcher"] == (0, 1, 0)


@pytest.mark.parametrize(
    ("stands", "last"), [({"conditions": COMPLETE}, "Succeeded"), (given_up("DeadlineExceeded"), "Failed")]
)
def test_a_job_that_was_never_seen_running_says_so_before_its_end(stands: dict[str, Any], last: str) -> None:
    made = mpi().all("Pending", "Worker").delegate("Launcher", **stands).plan()

    never = made.status.condition("Running")
    assert states(made.status) == ["Created", "Running(False)", last]
    assert never is not None
    assert never.reason == "MPIJobRunning"
    assert never.message == "MPIJob default/job is finished but Running condition was never set."


# Failure.


@pytest.mark.parametrize(
    ("stands", "reason", "message"),
    [
        (given_up(), "MPIJobFailed", "MPIJob default/job has failed"),
        (given_up("DeadlineExceeded", "too long"), "DeadlineExceeded", "too long"),
        (given_up("BackoffLimitExceeded", "limit reached"), "BackoffLimitExceeded", "limit reached"),
    ],
    ids=["no reason", "deadline", "limit without a pod"],
)
def test_the_job_fails_for_the_reason_of_the_launchers_job(stands: dict[str, Any], reason: str, message: str) -> None:
    scene = running().delegate("Launcher", **stands)

    assert (end(scene).reason, end(scene).message) == (reason, message)
    assert told(scene.plan())[-1] == (reason, message)


def failed_twice(**last: str) -> Scene:
    scene = running().delegate("Launcher", **given_up("BackoffLimitExceeded", "limit reached", failed=2))
    scene = scene.delegated_pod("Launcher", "Failed", 2, **last)
    return scene.delegated_pod("Launcher", "Failed", 1, reason="FailedReason1", message="first message")


def test_the_last_failed_attempt_says_why_the_limit_was_reached() -> None:
    scene = failed_twice(reason="FailedReason2", message="second message")

    assert (end(scene).reason, end(scene).message) == (
        "BackoffLimitExceeded/FailedReason2",
        "limit reached: second message",
    )
    assert tallies(scene) == {"Launcher": (0, 0, 2), "Worker": (0, 0, 0)}


def test_an_attempt_that_says_nothing_adds_nothing() -> None:
    assert (end(failed_twice()).reason, end(failed_twice()).message) == ("BackoffLimitExceeded", "limit reached")


def test_a_long_message_is_cut() -> None:
    message = end(failed_twice(message="x" * 5000)).message

    assert (len(message), message[-4:]) == (1024, "x...")


# Eviction.


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_evicted_workers_end_the_job_for_good_and_everything_is_cleaned_up(policy: str) -> None:
    scene = running(cleanPodPolicy="Running").role("Worker", 2, policy)
    scene = scene.pod("Worker", 1, "Failed", reason="Evicted")

    made = scene.plan()

    assert (end(scene).reason, end(scene).message) == ("MPIJobEvicted", "1/2 workers are evicted")
    assert made.status.completion_time is not None
    assert (deleted(made), deleted(made, JOBS)) == (["job-worker-0"], ["job-launcher"])
    assert scene.settled().plan().events == ()


def test_a_worker_that_failed_otherwise_was_not_evicted() -> None:
    assert not running().pod("Worker", 1, "Failed", reason="Shutdown").plan().status.is_finished


# Clean-up.


@pytest.mark.parametrize("stands", [{"conditions": COMPLETE}, given_up()], ids=["success", "failure"])
@pytest.mark.parametrize(
    ("policy", "left"),
    [
        ("None", {"job-worker-0", "job-worker-1"}),
        ("Running", {"job-worker-1"}),
        ("All", set()),
    ],
)
def test_workers_go_by_policy_and_the_launcher_stays_for_its_log(
    policy: str, left: set[str], stands: dict[str, Any]
) -> None:
    scene = running(cleanPodPolicy=policy).pod("Worker", 1, "Failed", exit_code=1).delegate("Launcher", **stands)

    settled = scene.settled()

    assert {name for name in settled.pods if "worker" in name} == left
    assert {kind for kind, _ in settled.others} == {"ConfigMap", "Secret", "Job"}
    assert list(settled.services) == ["job"]
    assert tallies(settled)["Worker"] == (0, 0, 0)


def test_workers_that_were_never_seen_running_go_too() -> None:
    scene = mpi(8).policy(cleanPodPolicy="All").all("Pending", "Worker").delegate("Launcher", conditions=COMPLETE)

    assert len(deleted(scene.plan(), PODS)) == 8


def test_a_ttl_takes_away_the_launcher_but_not_the_job() -> None:
    scene = running(ttlSecondsAfterFinished=60).delegate("Launcher", conditions=COMPLETE).settled()

    early, late = scene.at(59).plan(), scene.at(60).plan()

    assert (deleted(early, JOBS), early.wake_after) == ([], 1)
    assert (deleted(late, JOBS), late.wake_after, late.marks) == (["job-launcher"], None, ())
    assert scene.at(60).settled().plan().actions == ()


def test_a_ttl_never_makes_a_finished_launcher_vanish_before_its_end_is_on_record() -> None:
    scene = running(ttlSecondsAfterFinished=0).delegate("Launcher", conditions=COMPLETE)

    made = scene.plan()

    assert (made.status.is_true("Succeeded"), deleted(made, JOBS)) == (True, [])
    assert created(scene.settled().plan(), JOBS) == []
