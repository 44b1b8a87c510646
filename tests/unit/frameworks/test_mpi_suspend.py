"""MPIJob suspended and resumed: what stays ready, what goes, and what the next run takes from the spec."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.objects import timestamp
from trainmaster.objects.resource import JOBS
from trainmaster.testing.scene import NOW, Scene, a_job, body, created, deleted, states, told

VERSIONS = ["v1", "v1alpha2", "v2beta1"]
IMPLEMENTATIONS = ["OpenMPI", "Intel", "MPICH"]
each_version = pytest.mark.parametrize("version", VERSIONS)


def mpi(version: str = "v2beta1", **spec: Any) -> Scene:
    return a_job("MPIJob", version=version, **spec).role("Launcher").role("Worker", 2)


def running(version: str = "v2beta1", **spec: Any) -> Scene:
    scene = mpi(version, **spec).all("Running", "Worker", ready=True)
    if version == "v2beta1":
        return scene.delegate("Launcher").delegated_pod("Launcher").settled()
    return scene.pod("Launcher", 0, ready=True).settled()


def kinds(scene: Scene) -> set[str]:
    return {kind for kind, _ in scene.others} | ({"Service"} if scene.services else set())


# Born suspended.


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_job_of_v2beta1_born_suspended_has_all_but_pods_and_launcher(implementation: str) -> None:
    scene = mpi(mpiImplementation=implementation).policy(suspend=True).settled()

    assert (scene.pods, kinds(scene)) == ({}, {"ConfigMap", "Secret", "Service"})
    assert states(scene.job.status) == ["Created", "Suspended"]
    assert scene.job.status.start_time is None


@pytest.mark.parametrize("version", ["v1", "v1alpha2"])
def test_a_job_of_v1_born_suspended_has_nothing(version: str) -> None:
    scene = mpi(version).policy(suspend=True).settled()

    assert (scene.pods, scene.others, scene.services) == ({}, {}, {})
    assert states(scene.job.status) == ["Created", "Suspended"]


def test_the_words_of_v2beta1_are_those_of_mpi_operator() -> None:
    made = mpi().policy(suspend=True).plan()

    assert told(made) == [
        ("MPIJobCreated", "MPIJob default/job is created."),
        ("MPIJobSuspended", "MPIJob suspended"),
    ]


@each_version
def test_a_suspended_job_is_shown_as_suspended(version: str) -> None:
    """What stands last is what `kubectl get` shows; mpi-operator left a false Running there."""
    assert states(running(version).policy(suspend=True).plan().status)[-1] == "Suspended"


@each_version
def test_a_suspended_job_is_silent(version: str) -> None:
    scene = running(version).policy(suspend=True).settled()

    assert (scene.plan().actions, scene.plan().events) == ((), ())


# Suspended while it ran.


def test_suspending_takes_away_workers_and_launcher() -> None:
    made = running().policy(suspend=True).plan()

    assert (deleted(made), deleted(made, JOBS)) == (["job-worker-0", "job-worker-1"], ["job-launcher"])
    assert states(made.status) == ["Created", "Running(False)", "Suspended"]
    stopped = made.status.condition("Running")
    assert stopped is not None
    assert (stopped.reason, stopped.message) == ("MPIJobSuspended", "MPIJob default/job is suspended.")


@pytest.mark.parametrize("version", ["v1", "v1alpha2"])
def test_suspending_takes_away_a_launcher_that_is_a_pod(version: str) -> None:
    made = running(version).policy(suspend=True).plan()

    assert set(deleted(made)) == {"job-launcher", "job-worker-0", "job-worker-1"}


def test_the_words_of_v1_are_those_of_training_operator() -> None:
    suspended = running("v1").policy(suspend=True).settled().job.status
    resumed = running("v1").policy(suspend=True).settled().policy(suspend=False).plan().status

    said = [[(each.type, each.reason, each.message) for each in status.conditions] for status in (suspended, resumed)]
    stopped = "MPIJob job is suspended."
    assert said[0][1:] == [("Running", "MPIJobSuspended", stopped), ("Suspended", "MPIJobSuspended", stopped)]
    assert said[1][-1] == ("Suspended", "MPIJobResumed", "MPIJob job is resumed.")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Pending"])
@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_suspending_does_not_ask_the_clean_policy(policy: str, phase: str) -> None:
    scene = running().pod("Worker", 1, phase).policy(cleanPodPolicy=policy, suspend=True)

    assert deleted(scene.plan()) == ["job-worker-0", "job-worker-1"]


@each_version
def test_suspending_keeps_files_keys_and_rights(version: str) -> None:
    before = kinds(running(version)) - {"Job"}

    assert kinds(running(version).policy(suspend=True).settled()) == before


@each_version
def test_nothing_is_active_while_the_job_is_suspended(version: str) -> None:
    status = running(version).policy(suspend=True).settled().job.status

    assert {role: tally.active for role, tally in status.replica_statuses.items()} == {"Launcher": 0, "Worker": 0}


# Resumed.


def test_resuming_starts_the_job_anew() -> None:
    scene = running().policy(suspend=True).settled().at(60).policy(suspend=False)

    made = scene.plan()

    assert (created(made), created(made, JOBS)) == (["job-worker-0", "job-worker-1"], ["job-launcher"])
    assert states(made.status) == ["Created", "Running(False)", "Suspended(False)"]
    assert made.status.start_time == timestamp.render(NOW + 60)
    assert ("MPIJobResumed", "MPIJob resumed") in told(made)


@each_version
def test_the_time_of_a_resumed_job_counts_from_its_resumption(version: str) -> None:
    suspended = running(version).policy(suspend=True).settled().at(60)

    assert suspended.policy(suspend=False).plan().status.start_time == timestamp.render(NOW + 60)


@each_version
def test_a_resumed_job_runs_again(version: str) -> None:
    scene = running(version).policy(suspend=True).settled().policy(suspend=False).settled()
    scene = scene.all("Running", "Worker", ready=True)
    again = scene.delegate("Launcher").delegated_pod("Launcher") if version == "v2beta1" else scene.pod("Launcher", 0)

    assert states(again.plan().status) == ["Created", "Suspended(False)", "Running"]


def test_a_launcher_that_is_to_wait_waits_after_a_resume_too() -> None:
    scene = mpi(launcherCreationPolicy="WaitForWorkersReady").policy(suspend=True).settled().policy(suspend=False)

    assert created(scene.plan(), JOBS) == []
    assert created(scene.after().all("Running", "Worker", ready=True).plan(), JOBS) == ["job-launcher"]


def test_whatever_a_queue_wrote_into_the_template_reaches_the_next_launcher() -> None:
    scene = running().policy(suspend=True).settled()
    written: dict[str, Any] = {
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "schedulingGates": [{"name": "queue"}],
        "priorityClassName": "high",
    }
    metadata = {"labels": {"queue": "a"}, "annotations": {"admission": "b"}}

    scene = scene.role("Launcher", metadata=metadata, **written).policy(suspend=False)

    template = body(scene.plan(), "job-launcher", JOBS)["spec"]["template"]
    assert template["spec"].items() >= written.items()
    assert template["metadata"]["labels"]["queue"] == "a"
    assert template["metadata"]["annotations"]["admission"] == "b"


def test_a_resumed_job_waits_until_its_old_launcher_is_gone() -> None:
    scene = running().policy(suspend=True)
    halfway = scene.standing(scene.plan().status).policy(suspend=False)

    made = halfway.plan()

    assert (created(made), created(made, JOBS)) == ([], [])
    assert made.status.is_true("Suspended")


def test_a_job_that_ended_stays_ended_when_it_is_suspended() -> None:
    scene = running().delegate("Launcher", conditions=[{"type": "Complete", "status": "True"}]).settled()

    assert states(scene.policy(suspend=True).settled().job.status) == ["Created", "Running(False)", "Succeeded"]
