"""How MPIJobs end that do not simply succeed or fail: evicted, out of tries or time, deserted, taken over half-way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trainmaster.api.status import Condition
from trainmaster.engine import labels
from trainmaster.engine.plan import plan
from trainmaster.engine.pods import pod_of
from trainmaster.engine.restarts import failures_of
from trainmaster.objects import timestamp
from trainmaster.objects.meta import Meta, OwnerReference
from trainmaster.objects.pod import Pod, PodStatus
from trainmaster.objects.resource import JOBS
from trainmaster.testing.scene import NOW, UID, Scene, a_job, created, deleted, states, told

VERSIONS = ("v1", "v1alpha2", "v2beta1")
each_version = pytest.mark.parametrize("version", VERSIONS)


def mpi(version: str = "v1", workers: int = 2, restart: str | None = None, **spec: Any) -> Scene:
    return a_job("MPIJob", version=version, **spec).role("Launcher").role("Worker", workers, restart)


def running(version: str = "v1", restart: str | None = None, *, compat: bool = False, **policy: Any) -> Scene:
    scene = mpi(version, 2, restart).policy(**policy).having(compat_2021=compat)
    scene = scene.all("Running", "Worker", ready=True).settled()
    if version == "v2beta1":
        return scene.delegate("Launcher", active=1).delegated_pod("Launcher").settled()
    return scene.pod("Launcher", 0, "Running").settled()


def lost(scene: Scene, role: str, *indices: int, **how: Any) -> Scene:
    for index in indices:
        scene = scene.pod(role, index, "Failed", reason="Evicted", **how)
    return scene


def end(scene: Scene) -> Condition:
    found = scene.plan().status.condition("Failed")
    assert found is not None
    return found


def tallies(scene: Scene) -> dict[str, tuple[int, int, int]]:
    held = scene.plan().status.replica_statuses
    return {role: (tally.active, tally.succeeded, tally.failed) for role, tally in held.items()}


# The end of a job is the end of its processes.


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(lost(running("v1"), "Launcher", 0), id="v1, launcher evicted"),
        pytest.param(lost(running("v1"), "Worker", 0), id="v1, worker evicted"),
        pytest.param(lost(running("v2beta1"), "Worker", 0), id="v2beta1, worker evicted"),
        pytest.param(
            running("v1alpha2", backoffLimit=0).pod("Launcher", 0, "Failed", exit_code=1), id="v1alpha2, out of tries"
        ),
    ],
)
def test_a_job_that_failed_leaves_nothing_running_unless_told_to(scene: Scene) -> None:
    ended = scene.settled()

    ours = [pod for pod in ended.pods.values() if pod.metadata.is_controlled_by(UID)]
    assert ended.job.status.is_true("Failed")
    assert {pod.status.phase for pod in ours} == {"Failed"}
    assert ("Job", "job-launcher") not in ended.others


@each_version
def test_none_is_respected_in_full(version: str) -> None:
    scene = running(version, cleanPodPolicy="None")
    success = {"conditions": [{"type": "Complete", "status": "True"}]}
    ended = scene.delegate("Launcher", **success) if version == "v2beta1" else scene.pod("Launcher", 0, "Succeeded")

    assert ended.plan().status.is_true("Succeeded")
    assert deleted(ended.plan()) == []


def test_a_failed_job_counts_nothing_as_active_that_was_ended_with_it() -> None:
    ended = lost(running("v2beta1"), "Worker", 1).settled()

    assert tallies(ended) == {"Launcher": (0, 0, 0), "Worker": (0, 0, 0)}


@pytest.mark.parametrize(
    ("role", "counted"),
    [
        ("Launcher", {"Launcher": (0, 0, 1), "Worker": (0, 0, 0)}),
        ("Worker", {"Launcher": (0, 0, 0), "Worker": (0, 0, 1)}),
    ],
)
def test_of_a_failed_job_of_v1_whoever_failed_is_counted_and_nobody_else(
    role: str, counted: dict[str, tuple[int, int, int]]
) -> None:
    ended = running("v1").pod(role, 0, "Failed", exit_code=1).settled()

    assert tallies(ended) == counted


# Eviction.


@pytest.mark.parametrize("restart", ["Never", "OnFailure", "Always", "ExitCode"])
def test_with_compat_an_evicted_worker_of_v1_ends_the_job_whatever_its_restart_policy(restart: str) -> None:
    scene = lost(running(restart=restart, compat=True), "Worker", 1)

    assert (end(scene).reason, end(scene).message) == ("MPIJobEvicted", "1/2 workers are evicted")


@pytest.mark.parametrize("compat", [False, True], ids=["now", "compat"])
@pytest.mark.parametrize(("role", "name"), [("Worker", "job-worker-0"), ("Launcher", "job-launcher")])
def test_whoever_is_evicted_of_v1alpha2_is_replaced(role: str, name: str, compat: bool) -> None:
    made = lost(running("v1alpha2", compat=compat), role, 0).plan()

    assert (deleted(made), made.status.is_finished) == ([name], False)


@pytest.mark.parametrize(
    ("compat", "message"),
    [
        (False, "MPIJob job is failed because 1 Launcher replica(s) failed."),
        (True, "MPIJob default/job has failed"),
    ],
    ids=["now", "compat"],
)
def test_an_evicted_launcher_of_v1_says_so_in_the_reason(compat: bool, message: str) -> None:
    scene = lost(running(compat=compat), "Launcher", 0)

    assert (end(scene).reason, end(scene).message) == ("MPIJobEvicted", message)


@pytest.mark.parametrize("restart", ["OnFailure", "ExitCode"])
def test_an_evicted_launcher_of_v1_that_may_restart_is_replaced(restart: str) -> None:
    scene = running().role("Launcher", 1, restart)

    made = lost(scene, "Launcher", 0).plan()

    assert (deleted(made), made.status.is_finished) == (["job-launcher"], False)


# Tries.


def test_a_launcher_of_v1alpha2_is_tried_again_in_a_new_pod_which_shows() -> None:
    failed = running("v1alpha2").pod("Launcher", 0, "Failed", exit_code=1)

    again = failed.settled().pod("Launcher", 0, "Running", attempt=1)

    assert states(failed.plan().status) == ["Created", "Restarting"]
    assert tallies(failed) == {"Launcher": (0, 0, 1), "Worker": (2, 0, 0)}
    assert tallies(again) == {"Launcher": (1, 0, 1), "Worker": (2, 0, 0)}
    assert states(again.plan().status) == ["Created", "Running"]


def test_the_kubelet_does_not_restart_a_launcher_of_v1alpha2_by_itself() -> None:
    scene = running("v1alpha2")

    policies = [pod_of(scene.reading.framework, member)["spec"]["restartPolicy"] for member in scene.job.members()]

    assert policies == ["Never", "Always", "Always"]


def test_a_launcher_of_v1alpha2_that_is_out_of_tries_stays_with_its_log() -> None:
    scene = running("v1alpha2", backoffLimit=1).pod("Launcher", 0, "Failed", exit_code=1).settled()

    ended = scene.pod("Launcher", 0, "Failed", exit_code=1, attempt=1).settled()

    assert ended.job.status.is_true("Failed")
    assert list(ended.pods) == ["job-launcher"]
    assert tallies(ended) == {"Launcher": (0, 0, 2), "Worker": (0, 0, 0)}


ALL_PODS = ["job-launcher", "job-worker-0", "job-worker-1"]


@pytest.mark.parametrize(("policy", "left"), [("None", ALL_PODS), ("Running", []), ("All", []), (None, [])], ids=str)
def test_a_deadline_ends_what_runs_of_v1_unless_the_manifest_says_none(policy: str | None, left: list[str]) -> None:
    scene = running(activeDeadlineSeconds=10, cleanPodPolicy=policy)

    assert sorted(scene.at(60).settled().pods) == left


@pytest.mark.parametrize("version", ["v1", "v1alpha2"])
@pytest.mark.parametrize(("policy", "left"), [("None", ALL_PODS), ("Running", ["job-launcher"]), ("All", [])])
def test_a_launcher_that_is_out_of_tries_stays_as_the_manifest_says(version: str, policy: str, left: list[str]) -> None:
    restart = "ExitCode" if version == "v1" else None
    scene = running(version, restart, backoffLimit=0, cleanPodPolicy=policy)

    ended = scene.pod("Launcher", 0, "Failed", exit_code=137).settled()

    assert ended.job.status.is_true("Failed")
    assert sorted(ended.pods) == left


@pytest.mark.parametrize(
    ("policy", "compat", "left"),
    [
        (None, False, []),
        ("None", False, ALL_PODS),
        ("Running", False, []),
        ("All", False, []),
        (None, True, ALL_PODS),
        ("None", True, ALL_PODS),
    ],
)
def test_a_deadline_ends_what_runs_of_v1alpha2_unless_the_manifest_says_none(
    policy: str | None, compat: bool, left: list[str]
) -> None:
    scene = running("v1alpha2", compat=compat, activeDeadlineSeconds=10, cleanPodPolicy=policy)

    assert sorted(scene.at(60).settled().pods) == left


@pytest.mark.parametrize(
    ("version", "restart", "message"),
    [
        ("v1", "ExitCode", "MPIJob job is restarting because 1 Launcher replica(s) failed."),
        ("v1alpha2", "OnFailure", "MPIJob default/job is restarting."),
    ],
)
def test_a_restart_is_told_in_the_words_of_its_version(version: str, restart: str, message: str) -> None:
    scene = running(version).role("Launcher", 1, restart).pod("Launcher", 0, "Failed", exit_code=137)

    assert ("MPIJobRestarting", message) in told(scene.plan())


@pytest.mark.parametrize(("attempt", "delay"), [(0, 0.0), (1, 2.0), (5, 32.0), (20, 300.0)])
def test_a_pod_that_its_node_turned_away_is_replaced_ever_slower_too(attempt: int, delay: float) -> None:
    scene = lost(running("v1alpha2"), "Worker", 1, attempt=attempt, born=timestamp.render(NOW))

    [failure] = failures_of(scene.observed())

    assert failure.delay(scene.now) == delay
    assert failure.delay(scene.now + 400) == 0


# Waiting.


@pytest.mark.parametrize(("after", "left"), [(4, 1.0), (5, 0.0), (9999, 0.0)])
def test_a_deadline_counts_while_a_launcher_of_v2beta1_waits_for_its_workers(after: float, left: float) -> None:
    scene = mpi("v2beta1", launcherCreationPolicy="WaitForWorkersReady").policy(activeDeadlineSeconds=5)
    waiting = scene.all("Pending", "Worker").settled()

    made = waiting.at(after).plan()

    assert made.status.is_true("Failed") is (left == 0)
    assert made.wake_after == (left or None)
    assert deleted(made) == ([] if left else ["job-worker-0", "job-worker-1"])


@pytest.mark.parametrize("compat", [False, True])
def test_workers_of_v2beta1_whose_manifest_says_none_outlive_the_deadline(compat: bool) -> None:
    scene = mpi("v2beta1", launcherCreationPolicy="WaitForWorkersReady").having(compat_2021=compat)
    scene = scene.policy(activeDeadlineSeconds=5, cleanPodPolicy="None").all("Pending", "Worker").settled()

    made = scene.at(5).plan()

    assert (made.status.is_true("Failed"), deleted(made)) == (True, [])


@pytest.mark.parametrize("compat", [False, True])
def test_workers_of_v2beta1_of_which_nothing_is_said_end_with_the_deadline(compat: bool) -> None:
    scene = mpi("v2beta1", launcherCreationPolicy="WaitForWorkersReady").having(compat_2021=compat)
    scene = scene.policy(activeDeadlineSeconds=5).all("Pending", "Worker").settled()

    assert deleted(scene.at(5).plan()) == ["job-worker-0", "job-worker-1"]


def test_once_there_is_a_job_the_deadline_is_its_own_to_keep() -> None:
    scene = running("v2beta1", activeDeadlineSeconds=5)

    made = scene.at(9999).plan()

    assert (made.status.is_finished, made.wake_after) == (False, None)


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
def test_workers_that_end_before_the_launcher_could_start_fail_the_job_and_it_says_what_to_do(version: str) -> None:
    waits = {"launcherCreationPolicy": "WaitForWorkersReady"} if version == "v2beta1" else {}
    scene = mpi(version, 2, **waits).pod("Worker", 0, "Succeeded", exit_code=0).pod("Worker", 1)

    ended = end(scene)

    assert ended.reason == "MPIJobFailed"
    assert ended.message == (
        "1/2 workers have ended before the launcher; a worker is to wait until it is stopped: "
        "leave out its command, or give it one that does not end"
    )


STRANDED = "MPIJob default/job has failed: 1 Worker replica(s) failed before the launcher could start"


def waiting(version: str, restart: str | None = None, *, compat: bool = False) -> Scene:
    """A job whose launcher waits for its workers."""
    waits = {"launcherCreationPolicy": "WaitForWorkersReady"} if version == "v2beta1" else {}
    return mpi(version, 2, restart, **waits).having(compat_2021=compat).pod("Worker", 0).pod("Worker", 1)


@pytest.mark.parametrize(
    ("scene", "message"),
    [
        pytest.param(waiting("v2beta1"), STRANDED, id="v2beta1"),
        pytest.param(waiting("v2beta1", "OnFailure", compat=True), STRANDED, id="v2beta1, compat, OnFailure"),
        pytest.param(waiting("v1", compat=True), STRANDED, id="v1, compat"),
        pytest.param(waiting("v1", "ExitCode", compat=True), STRANDED, id="v1, compat, ExitCode"),
        pytest.param(waiting("v1"), "MPIJob job is failed because 1 Worker replica(s) failed.", id="v1"),
    ],
)
def test_a_worker_that_fails_for_good_while_the_launcher_waits_for_it_fails_the_job(scene: Scene, message: str) -> None:
    scene = scene.pod("Worker", 0, "Failed", exit_code=7)

    assert (end(scene).reason, end(scene).message) == ("MPIJobFailed", message)


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(waiting("v2beta1", "OnFailure"), id="v2beta1, OnFailure"),
        pytest.param(waiting("v1", "OnFailure"), id="v1, OnFailure"),
        pytest.param(waiting("v1alpha2", compat=True), id="v1alpha2, compat"),
    ],
)
def test_a_worker_that_is_replaced_is_waited_for(scene: Scene) -> None:
    made = scene.pod("Worker", 0, "Failed", exit_code=7).plan()

    assert (made.status.is_finished, deleted(made)) == (False, ["job-worker-0"])


@pytest.mark.parametrize(
    "scene",
    [pytest.param(waiting("v2beta1"), id="v2beta1"), pytest.param(waiting("v1", compat=True), id="v1, compat")],
)
def test_a_worker_that_somebody_deletes_while_the_launcher_waits_is_made_again(scene: Scene) -> None:
    leaving = scene.pod("Worker", 0, "Running", terminating=True)

    assert not leaving.plan().status.is_finished
    assert "job-worker-0" in created(leaving.after().gone("Worker", 0).plan())


def test_a_job_whose_workers_failed_at_once_says_that_it_never_ran_before_it_says_how_it_ended() -> None:
    scene = waiting("v2beta1").pod("Worker", 0, "Failed", exit_code=7)

    conditions = [(condition.type, condition.status) for condition in scene.plan().status.conditions]

    assert conditions == [("Created", "True"), ("Running", "False"), ("Failed", "True")]


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
def test_workers_that_end_after_the_launcher_began_are_left_to_mpirun(version: str) -> None:
    scene = running(version).pod("Worker", 0, "Succeeded", exit_code=0)

    assert not scene.plan().status.is_finished


# Launchers of other times.


def leftover(owner: str, phase: str = "Running") -> Pod:
    """A pod that the Job of an earlier launcher has made."""
    owners = (OwnerReference(kind="Job", name="job-launcher", uid=owner, controller=True),)
    annotations = {labels.JOB_UID: UID}
    meta = Meta("job-launcher-old", "default", "old", owner_references=owners, annotations=annotations)
    return Pod(meta, PodStatus(phase=phase))


@pytest.mark.parametrize(("phase", "launchers"), [("Running", []), ("Succeeded", ["job-launcher"])])
def test_a_launcher_comes_when_that_of_an_earlier_job_is_gone(phase: str, launchers: list[str]) -> None:
    observed = mpi("v2beta1").all("Running", "Worker").observed()
    left = replace(observed, delegated_pods=(leftover("gone", phase),))

    assert created(plan(left, NOW), JOBS) == launchers


def test_a_launcher_job_that_another_operator_left_suspended_is_made_anew() -> None:
    scene = mpi("v2beta1").all("Running", "Worker")
    meta = Meta("job-launcher", "default", "uid-x", owner_references=(OwnerReference(uid=UID, controller=True),))
    scene = scene.other("Job", meta, {"suspend": True})

    first, then = scene.plan(), scene.after().plan()

    assert (deleted(first, JOBS), created(first, JOBS)) == (["job-launcher"], [])
    assert created(then, JOBS) == ["job-launcher"]
