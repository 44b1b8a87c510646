"""Which condition a job is in, by the replicas that decide it: kind by kind."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.testing.scene import Scene, a_job, a_typical_job, deleted, states


def holding(scene: Scene) -> set[str]:
    """The conditions that hold after one pass, but for Created, which always does."""
    return {condition.type for condition in scene.plan().status.conditions if condition.status == "True"} - {"Created"}


# TFJob.


def some(scene: Scene, role: str, **phases: int) -> Scene:
    """So many pods of a role in each phase, in the order given."""
    listed = [phase for phase, count in phases.items() for _ in range(count)]
    for index, phase in enumerate(listed):
        scene = scene.pod(role, index, phase)
    return scene


def tf(chief: str = "", workers: int = 0, servers: int = 0, **spec: Any) -> Scene:
    """A TFJob; its chief, if any, is in the given phase."""
    scene = a_job("TFJob", **spec)
    for role, replicas in (("PS", servers), ("Worker", workers)):
        scene = scene.role(role, replicas) if replicas else scene
    return scene.role("Chief").pod("Chief", 0, chief) if chief else scene


def four(chief: str = "", *, servers: str = "Running", **phases: int) -> Scene:
    """Four workers and two servers."""
    return some(tf(chief, 4, 2), "Worker", **phases).pod("PS", 0).pod("PS", 1, servers)


def four_that_all_count(**phases: int) -> Scene:
    return some(tf(workers=4, successPolicy="AllWorkers"), "Worker", **phases)


def killed() -> Scene:
    scene = a_job("TFJob").role("Chief", 1, "ExitCode").role("Worker", 4, "ExitCode").role("PS", 2).all("Running")
    return scene.all("Failed", "Chief", exit_code=130).all("Failed", "Worker", exit_code=130)


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        pytest.param(some(tf("Succeeded", 1), "Worker", Succeeded=1), "Succeeded", id="chief succeeded"),
        pytest.param(tf("Running"), "Running", id="chief runs"),
        pytest.param(tf("Failed"), "Failed", id="chief failed"),
        pytest.param(some(tf(workers=1), "Worker", Failed=1), "Failed", id="worker failed"),
        pytest.param(some(tf(workers=1), "Worker", Succeeded=1), "Succeeded", id="worker succeeded"),
        pytest.param(some(tf(workers=1), "Worker", Running=1), "Running", id="worker runs"),
        pytest.param(four(Succeeded=2, Running=2), "Running", id="worker 0 succeeded, its exit code unknown"),
        pytest.param(four(Running=2, Failed=2), "Failed", id="2 workers run, 2 failed"),
        pytest.param(four(Succeeded=2, Failed=2), "Failed", id="2 workers succeeded, 2 failed"),
        pytest.param(
            four(Running=4).pod("Worker", 0, "Succeeded", exit_code=0), "Succeeded", id="worker 0 is done, 3 run"
        ),
        pytest.param(
            four_that_all_count(Running=4).pod("Worker", 0, "Succeeded", exit_code=0),
            "Running",
            id="AllWorkers, worker 0 is done, 3 run",
        ),
        pytest.param(four_that_all_count(Succeeded=4), "Succeeded", id="AllWorkers, all succeeded"),
        pytest.param(
            four_that_all_count(Succeeded=1, Running=2, Failed=1), "Failed", id="AllWorkers, 1 of them failed"
        ),
        pytest.param(four("Running", Failed=4), "Failed", id="chief runs, workers failed"),
        pytest.param(four("Running", Succeeded=4), "Running", id="chief runs, workers succeeded"),
        pytest.param(four("Running", Succeeded=4, servers="Failed"), "Failed", id="chief runs, a server failed"),
        pytest.param(four("Failed", Succeeded=4), "Failed", id="chief failed, workers succeeded"),
        pytest.param(four("Succeeded", Failed=4), "Succeeded", id="chief succeeded, workers failed"),
        pytest.param(killed(), "Restarting", id="chief and workers were killed and may restart"),
    ],
)
def test_a_tfjob_is(scene: Scene, expected: str) -> None:
    assert holding(scene) == {expected}


@pytest.mark.parametrize(
    ("scene", "is_done"),
    [
        pytest.param(some(tf(workers=1), "Worker", Running=1), False, id="runs"),
        pytest.param(tf(workers=2).pod("Worker", 0, "Succeeded", exit_code=0).pod("Worker", 1), True, id="exit 0"),
        pytest.param(
            tf(workers=2).pod("Worker", 0, "Succeeded", exit_code=0).pod("Worker", 1, "Failed", exit_code=1),
            True,
            id="exit 0, the other failed",
        ),
        pytest.param(tf(workers=2).pod("Worker", 0, "Failed").pod("Worker", 1), False, id="failed, the other runs"),
        pytest.param(tf(workers=2).pod("Worker", 1, "Succeeded", exit_code=0), False, id="only the other is done"),
    ],
)
def test_worker_0_decides_when_it_is_done(scene: Scene, is_done: bool) -> None:
    assert ("Succeeded" in holding(scene)) is is_done


def test_a_tfjob_with_a_master_is_decided_by_it() -> None:
    scene = a_job("TFJob").role("Master").role("Worker", 2).all("Running").pod("Master", 0, "Succeeded")

    assert holding(scene) == {"Succeeded"}


def test_workers_that_are_done_do_not_end_a_job_with_a_chief() -> None:
    scene = tf("Running", 1).pod("Worker", 0, "Succeeded", exit_code=0)

    assert holding(scene) == {"Running"}


def test_several_chiefs_must_all_succeed() -> None:
    scene = a_job("TFJob").role("Chief", 2).pod("Chief", 0, "Succeeded").pod("Chief", 1)

    assert holding(scene) == {"Running"}


@pytest.mark.parametrize("role", ["PS", "Evaluator"])
def test_the_failure_of_a_helper_fails_the_job_while_its_chief_runs(role: str) -> None:
    scene = tf("Running").role(role).pod(role, 0, "Failed", exit_code=1)

    assert holding(scene) == {"Failed"}


@pytest.mark.parametrize("role", ["PS", "Evaluator"])
@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_helpers_alone_make_no_job_run_or_succeed(role: str, phase: str) -> None:
    scene = a_job("TFJob").role(role).all(phase)

    assert holding(scene) == set()


# Kinds with a master.


def mastered(kind: str, master: str, *workers: str, restart: str | None = None) -> Scene:
    scene = a_job(kind).role("Master", 1, restart).pod("Master", 0, master)
    scene = scene.role("Worker", len(workers), restart) if workers else scene
    for index, phase in enumerate(workers):
        scene = scene.pod("Worker", index, phase)
    return scene


with_master = pytest.mark.parametrize("kind", ["PyTorchJob", "PaddleJob", "XGBoostJob"])


@with_master
@pytest.mark.parametrize(
    ("master", "workers", "expected"),
    [
        pytest.param("Pending", ("Running",), set(), id="workers run before their master"),
        pytest.param("Running", ("Pending",), {"Running"}, id="master runs before its workers"),
        pytest.param("Running", ("Succeeded", "Succeeded"), {"Running"}, id="workers are done before their master"),
        pytest.param("Succeeded", ("Running", "Running"), {"Succeeded"}, id="master is done before its workers"),
        pytest.param("Succeeded", ("Failed",), {"Succeeded"}, id="a worker failed beside a master that is done"),
        pytest.param("Running", ("Failed", "Running"), {"Failed"}, id="a worker failed"),
        pytest.param("Failed", ("Running",), {"Failed"}, id="the master failed"),
    ],
)
def test_the_master_decides(kind: str, master: str, workers: tuple[str, ...], expected: set[str]) -> None:
    assert holding(mastered(kind, master, *workers, restart="Never")) == expected


@pytest.mark.parametrize("kind", ["PyTorchJob", "PaddleJob"])
def test_a_job_whose_master_runs_restarts_when_a_worker_failed(kind: str) -> None:
    assert holding(mastered(kind, "Running", "Failed")) == {"Restarting"}


@pytest.mark.parametrize("kind", ["PyTorchJob", "PaddleJob"])
@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        pytest.param(("Running", "Pending"), {"Running"}, id="one runs"),
        pytest.param(("Running", "Succeeded"), {"Running"}, id="one is done"),
        pytest.param(("Succeeded", "Pending"), set(), id="one is done, the other not begun"),
        pytest.param(("Succeeded", "Succeeded"), {"Succeeded"}, id="all are done"),
    ],
)
def test_without_a_master_all_workers_decide(kind: str, phases: tuple[str, str], expected: set[str]) -> None:
    scene = a_job(kind).role("Worker", 2).pod("Worker", 0, phases[0]).pod("Worker", 1, phases[1])

    assert holding(scene) == expected


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        pytest.param(("Running", "Pending"), {"Running"}, id="one runs"),
        pytest.param(("Running", "Succeeded"), {"Running"}, id="one is done"),
        pytest.param(("Succeeded", "Succeeded"), {"Succeeded"}, id="all are done"),
        pytest.param(("Running", "Failed"), {"Failed"}, id="one failed"),
    ],
)
def test_all_workers_decide_a_jaxjob(phases: tuple[str, str], expected: set[str]) -> None:
    scene = a_job("JAXJob").role("Worker", 2).pod("Worker", 0, phases[0]).pod("Worker", 1, phases[1])

    assert holding(scene) == expected


def test_any_worker_decides_an_elastic_pytorchjob() -> None:
    scene = a_job("PyTorchJob", elasticPolicy={}).role("Worker", 3).all("Running").pod("Worker", 2, "Succeeded")

    assert holding(scene) == {"Succeeded"}


def test_the_master_decides_an_elastic_pytorchjob_that_has_one() -> None:
    scene = a_job("PyTorchJob", elasticPolicy={}).role("Master").role("Worker", 2).all("Running")

    assert holding(scene.pod("Worker", 0, "Succeeded")) == {"Running"}


def test_elastic_bounds_of_a_paddlejob_do_not_change_who_decides() -> None:
    scene = a_job("PaddleJob", elasticPolicy={}).role("Worker", 3).all("Running").pod("Worker", 2, "Succeeded")

    assert holding(scene) == {"Running"}


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        pytest.param(mastered("PyTorchJob", "Succeeded"), ["Created", "Succeeded"], id="succeeded"),
        pytest.param(mastered("PyTorchJob", "Running"), ["Created", "Running"], id="runs"),
        pytest.param(mastered("PyTorchJob", "Failed"), ["Created", "Failed"], id="failed"),
        pytest.param(
            mastered("PyTorchJob", "Running", *["Failed"] * 4),
            ["Created", "Running(False)", "Failed"],
            id="runs, workers failed",
        ),
        pytest.param(
            mastered("PyTorchJob", "Running", "Failed", "Succeeded"),
            ["Created", "Running(False)", "Failed"],
            id="runs, one worker failed",
        ),
        pytest.param(
            mastered("PyTorchJob", "Failed", "Succeeded", "Succeeded"),
            ["Created", "Failed"],
            id="failed, workers succeeded",
        ),
        pytest.param(
            mastered("PyTorchJob", "Succeeded", *["Failed"] * 4),
            ["Created", "Succeeded"],
            id="succeeded, workers failed",
        ),
        pytest.param(
            mastered("PyTorchJob", "Failed", restart="ExitCode").pod("Master", 0, "Failed", exit_code=130),
            ["Created", "Restarting"],
            id="was killed and may restart",
        ),
    ],
)
def test_in_2021_a_pytorchjob_whose_master(scene: Scene, expected: list[str]) -> None:
    assert states(scene.having(compat_2021=True).plan().status) == expected


def test_an_xgboostjob_that_ended_at_once_has_run_too() -> None:
    assert states(mastered("XGBoostJob", "Succeeded").plan().status) == ["Created", "Running(False)", "Succeeded"]


def test_an_xgboostjob_that_failed_at_once_has_run_too() -> None:
    scene = mastered("XGBoostJob", "Failed", restart="Never")

    assert states(scene.plan().status) == ["Created", "Running(False)", "Failed"]


def test_an_xgboostjob_whose_pod_was_evicted_fails_and_keeps_the_pod() -> None:
    plan = mastered("XGBoostJob", "Running", "Failed", restart="OnFailure").plan()

    assert states(plan.status) == ["Created", "Running(False)", "Failed"]
    assert deleted(plan) == ["job-master-0"], "what still ran"


# MXJob.


@pytest.mark.parametrize(
    ("scheduler", "workers", "expected"),
    [
        pytest.param("Pending", "Running", set(), id="workers run first"),
        pytest.param("Running", "Pending", {"Running"}, id="scheduler runs"),
        pytest.param("Running", "Succeeded", {"Running"}, id="workers are done first"),
        pytest.param("Succeeded", "Running", {"Succeeded"}, id="scheduler is done"),
        pytest.param("Failed", "Running", {"Failed"}, id="scheduler failed"),
        pytest.param("Running", "Failed", {"Failed"}, id="workers failed"),
    ],
)
def test_the_scheduler_decides_an_mxjob(scheduler: str, workers: str, expected: set[str]) -> None:
    scene = a_typical_job("MXJob").all("Running").all(scheduler, "Scheduler").all(workers, "Worker")

    assert holding(scene) == expected


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
def test_a_lone_worker_decides_an_mxjob(phase: str) -> None:
    assert holding(a_job("MXJob").role("Worker").all(phase)) == {phase}


@pytest.mark.parametrize(
    ("tuner", "others", "expected"),
    [
        pytest.param("Running", "Pending", {"Running"}, id="runs"),
        pytest.param("Pending", "Running", set(), id="has not begun"),
        pytest.param("Succeeded", "Running", {"Succeeded"}, id="is done"),
        pytest.param("Running", "Succeeded", {"Running"}, id="outlasts the others"),
        pytest.param("Failed", "Running", {"Failed"}, id="failed"),
    ],
)
def test_the_tuner_decides_a_tuning_job(tuner: str, others: str, expected: set[str]) -> None:
    scene = a_job("MXJob", jobMode="MXTune").role("TunerTracker").role("TunerServer").role("Tuner")

    assert holding(scene.all(others).all(tuner, "Tuner")) == expected


def test_the_tuner_decides_a_tuning_job_that_has_workers_too() -> None:
    scene = a_job("MXJob", jobMode="MXTune").role("Scheduler").role("Worker").role("Tuner").all("Succeeded")

    assert holding(scene.pod("Tuner", 0)) == {"Running"}
