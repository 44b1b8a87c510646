"""Conditions, their texts and order, tallies and times: what users read of a job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from trainmaster.api import reading
from trainmaster.api.status import Condition, JobStatus, render
from trainmaster.engine.plan import plan
from trainmaster.testing.scene import NOW, TYPICAL, Scene, a_job, a_typical_job, deleted, states

every_kind = pytest.mark.parametrize("kind", TYPICAL)


def holding(scene: Scene) -> set[str]:
    """The conditions that hold after one pass, but for Created, which always does."""
    return {condition.type for condition in scene.plan().status.conditions if condition.status == "True"} - {"Created"}


def last(scene: Scene) -> Condition:
    return scene.plan().status.conditions[-1]


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

    assert (states(plan.status), deleted(plan)) == (["Created", "Running(False)", "Failed"], [])


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


# Texts.

QUALIFIED = ("TFJob", "JAXJob")
MASTERLESS = {
    "PyTorchJob": a_job("PyTorchJob").role("Worker", 2),
    "PaddleJob": a_job("PaddleJob").role("Worker", 2),
}


def typical_or_masterless() -> list[object]:
    """Every kind, the kind and name as its messages give them, and PyTorch and Paddle without a master too."""
    names = {kind: f"{kind} default/job" if kind in QUALIFIED else f"{kind} job" for kind in TYPICAL}
    typical = [pytest.param(a_typical_job(kind), names[kind], id=kind) for kind in TYPICAL]
    return [*typical, *(pytest.param(s, f"{k} default/job", id=f"{k} without a master") for k, s in MASTERLESS.items())]


@every_kind
def test_message_of_created(kind: str) -> None:
    created = a_typical_job(kind).plan().status.conditions[0]

    assert (created.type, created.reason, created.message) == (
        "Created",
        f"{kind}Created",
        f"{kind} job is created.",
    )


@pytest.mark.parametrize(("scene", "name"), typical_or_masterless())
def test_message_of_running(scene: Scene, name: str) -> None:
    running = last(scene.all("Running"))

    assert (running.type, running.reason, running.message) == (
        "Running",
        f"{scene.job.kind}Running",
        f"{name} is running.",
    )


@pytest.mark.parametrize(("scene", "name"), typical_or_masterless())
def test_message_of_succeeded(scene: Scene, name: str) -> None:
    succeeded = last(scene.all("Succeeded", exit_code=0))

    verb = "successfully completed." if "/" in name else "is successfully completed."
    assert (succeeded.type, succeeded.reason, succeeded.message) == (
        "Succeeded",
        f"{scene.job.kind}Succeeded",
        f"{name} {verb}",
    )


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        pytest.param("TFJob", "TFJob default/job has failed because 2 Worker replica(s) failed.", id="TFJob"),
        pytest.param("PyTorchJob", "PyTorchJob job is failed because 2 Worker replica(s) failed.", id="PyTorchJob"),
        pytest.param("XGBoostJob", "XGBoostJob job is failed because 2 Worker replica(s) failed.", id="XGBoostJob"),
        pytest.param("MXJob", "mxjob job is failed because 2 Worker replica(s) failed.", id="MXJob"),
        pytest.param("PaddleJob", "PaddleJob job is failed because 2 Worker replica(s) failed.", id="PaddleJob"),
        pytest.param("JAXJob", "JAXJob job is failed because 2 Worker replica(s) failed.", id="JAXJob"),
    ],
)
def test_message_of_failed(kind: str, message: str) -> None:
    failed = last(a_typical_job(kind, "Never").all("Running").all("Failed", "Worker", exit_code=1))

    assert (failed.type, failed.reason, failed.message) == ("Failed", f"{kind}Failed", message)


def test_the_message_of_failed_spells_the_role_as_the_api_does() -> None:
    failed = last(a_typical_job("TFJob").all("Running").all("Failed", "PS", exit_code=1))

    assert failed.message == "TFJob default/job has failed because 1 PS replica(s) failed."


@every_kind
def test_message_of_failed_by_a_permanent_exit_code(kind: str) -> None:
    failed = last(a_typical_job(kind, "ExitCode").all("Running").pod("Worker", 0, "Failed", exit_code=1))

    assert (failed.type, failed.reason) == ("Failed", f"{kind}Failed")
    assert failed.message == 'job "job" is failing because "Worker" replica(s) failed.'


@every_kind
def test_message_of_restarting_when_a_pod_is_replaced(kind: str) -> None:
    restarting = last(a_typical_job(kind, "ExitCode").all("Running").pod("Worker", 0, "Failed", exit_code=137))

    assert (restarting.type, restarting.reason) == ("Restarting", f"{kind}Restarting")
    assert restarting.message == "job job is restarting because Worker replica(s) failed."


@every_kind
def test_message_of_restarting_when_a_pod_is_waited_for(kind: str) -> None:
    restarting = last(a_typical_job(kind, "ExitCode").all("Running").pod("Worker", 0, terminating=True))

    assert (restarting.type, restarting.reason) == ("Restarting", f"{kind}Restarting")
    assert restarting.message == (
        f"{'mxjob' if kind == 'MXJob' else kind} job is restarting because 1 Worker replica(s) failed."
    )


def test_a_job_served_under_another_kind_goes_by_that_kind() -> None:
    scene = a_job("MXJob").role("Worker")
    alias = scene.framework.served[1]
    job = reading.read(scene.framework, scene.manifest, resource=alias).job
    assert job is not None

    created = plan(replace(scene.observed(), job=job), NOW).status.conditions[0]

    assert (created.reason, created.message) == ("MXNetJobCreated", "MXNetJob job is created.")


# The order of conditions, and when they change.


@every_kind
def test_a_running_job_that_succeeds(kind: str) -> None:
    scene = a_typical_job(kind).all("Running").settled().all("Succeeded", exit_code=0).settled()

    assert states(scene.job.status) == ["Created", "Running(False)", "Succeeded"]


@every_kind
def test_a_running_job_that_fails(kind: str) -> None:
    scene = a_typical_job(kind, "Never").all("Running").settled().all("Failed", exit_code=1).settled()

    assert states(scene.job.status) == ["Created", "Running(False)", "Failed"]


@every_kind
def test_restarting_takes_the_place_of_running(kind: str) -> None:
    scene = a_typical_job(kind, "ExitCode").all("Running").settled().pod("Worker", 0, "Failed", exit_code=137)

    assert states(scene.plan().status) == ["Created", "Restarting"]


@every_kind
def test_running_takes_the_place_of_restarting(kind: str) -> None:
    scene = a_typical_job(kind, "ExitCode").all("Running").pod("Worker", 0, "Failed", exit_code=137).settled()

    assert states(scene.all("Running").plan().status) == ["Created", "Running"]


def test_a_restarting_job_that_succeeds_stays_on_record_as_restarting() -> None:
    scene = a_job("JAXJob").role("Worker", 1, "ExitCode").all("Failed", exit_code=137).after()

    assert states(scene.all("Succeeded", exit_code=0).plan().status) == ["Created", "Restarting", "Succeeded"]


def test_the_running_condition_of_a_finished_job_keeps_its_text_and_times() -> None:
    scene = a_job("JAXJob").role("Worker").all("Running").settled()
    ran = scene.job.status.condition("Running")
    assert ran is not None

    ended = scene.at(60).all("Succeeded").plan().status.condition("Running")

    assert ended == msgspec.structs.replace(ran, status="False")


def test_a_condition_that_holds_already_is_not_touched() -> None:
    scene = a_job("JAXJob").role("Worker", 2).pod("Worker", 0).settled()

    status = scene.at(60).pod("Worker", 1).plan().status

    assert status.conditions == scene.job.status.conditions


def test_a_condition_that_changes_its_reason_keeps_the_time_of_its_transition() -> None:
    scene = a_job("JAXJob").role("Worker").all("Running")
    old = Condition("Running", "True", "JobRunning", "", "2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z")

    running = scene.standing(JobStatus((old,))).plan().status.condition("Running")

    assert running is not None
    assert (running.reason, running.last_transition_time, running.last_update_time) == (
        "JAXJobRunning",
        "2020-01-01T00:00:00Z",
        "2023-11-14T22:13:20Z",
    )


def test_a_condition_that_changes_moves_to_the_end() -> None:
    scene = a_job("JAXJob").role("Worker").all("Running").settled()

    back = scene.policy(suspend=True).settled().policy(suspend=False).settled().all("Running")

    assert states(back.plan().status) == ["Created", "Suspended(False)", "Running"]


def test_a_condition_that_comes_to_hold_again_has_a_new_time_of_transition() -> None:
    scene = a_job("JAXJob").role("Worker").all("Running").settled()

    back = scene.policy(suspend=True).settled().policy(suspend=False).settled().at(60).all("Running").plan()

    running = back.status.condition("Running")
    assert running is not None
    assert running.last_transition_time == "2023-11-14T22:14:20Z"


@every_kind
@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
def test_nothing_changes_the_conditions_of_a_failed_job(kind: str, phase: str) -> None:
    failed = a_typical_job(kind, "Never").all("Failed", exit_code=1).settled()

    later = failed.at(60).all(phase, exit_code=0).policy(activeDeadlineSeconds=1, backoffLimit=0).plan()

    assert later.status == failed.job.status


@every_kind
@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_nothing_changes_the_conditions_of_a_job_that_succeeded(kind: str, phase: str) -> None:
    done = a_typical_job(kind, "Never").all("Succeeded", exit_code=0).settled()

    later = done.at(60).all(phase, exit_code=1).policy(activeDeadlineSeconds=1).plan()

    assert later.status == done.job.status


# Tallies.


@pytest.mark.parametrize("kind", ["PyTorchJob", "PaddleJob", "JAXJob"])
def test_kinds_that_scale_say_how_to_select_their_pods(kind: str) -> None:
    status = a_typical_job(kind).plan().status

    assert status.replica_statuses["Worker"].selector == (
        "training.kubeflow.org/job-name=job,"
        f"training.kubeflow.org/operator-name={kind.lower()}-controller,"
        "training.kubeflow.org/replica-type=worker"
    )


@pytest.mark.parametrize("kind", ["TFJob", "XGBoostJob", "MXJob"])
def test_other_kinds_do_not(kind: str) -> None:
    assert a_typical_job(kind).plan().status.replica_statuses["Worker"].selector == ""


def test_every_role_of_the_job_is_in_the_tally() -> None:
    status = a_typical_job("MXJob").plan().status

    assert list(status.replica_statuses) == ["Scheduler", "Server", "Worker"]


def test_zeros_are_left_out_on_the_wire() -> None:
    status = a_typical_job("TFJob").pod("Worker", 0).plan().status

    assert render(status)["replicaStatuses"] == {"Chief": {}, "PS": {}, "Worker": {"active": 1}}


@every_kind
def test_what_still_ran_when_the_job_succeeded_counts_as_succeeded(kind: str) -> None:
    deciding = next(iter(TYPICAL[kind]))
    scene = a_typical_job(kind).all("Running").all("Succeeded", deciding, exit_code=0)

    tallies = scene.plan().status.replica_statuses

    assert {role: (tally.active, tally.succeeded) for role, tally in tallies.items()} == {
        role: (0, replicas) for role, replicas in TYPICAL[kind].items()
    }


def test_what_still_ran_when_the_job_failed_is_counted_as_it_was() -> None:
    scene = a_job("TFJob").role("Worker", 3).all("Running").pod("Worker", 0, "Failed", exit_code=1)

    tally = scene.plan().status.replica_statuses["Worker"]

    assert (tally.active, tally.succeeded, tally.failed) == (2, 0, 1)


def test_new_pods_are_not_counted_in_the_pass_that_makes_them() -> None:
    tally = a_job("TFJob").role("Worker", 3).plan().status.replica_statuses["Worker"]

    assert (tally.active, tally.succeeded, tally.failed) == (0, 0, 0)


# Times.


@every_kind
def test_a_job_starts_with_the_pass_that_makes_its_pods(kind: str) -> None:
    assert a_typical_job(kind).plan().status.start_time == "2023-11-14T22:13:20Z"


def test_a_job_starts_once() -> None:
    scene = a_job("JAXJob").role("Worker").settled()

    assert scene.at(60).all("Running").plan().status.start_time == "2023-11-14T22:13:20Z"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@every_kind
def test_the_end_of_a_job_is_stamped(kind: str, phase: str) -> None:
    code = 0 if phase == "Succeeded" else 1
    scene = a_typical_job(kind, "Never").settled().at(60).all(phase, exit_code=code)

    assert scene.plan().status.completion_time == "2023-11-14T22:14:20Z"


@every_kind
def test_the_end_of_a_job_by_an_exit_code_is_stamped(kind: str) -> None:
    scene = a_typical_job(kind, "ExitCode").settled().at(60).all("Failed", exit_code=1)

    assert scene.plan().status.completion_time == "2023-11-14T22:14:20Z"


def test_the_end_of_a_job_is_stamped_once() -> None:
    scene = a_job("JAXJob").role("Worker").all("Succeeded")

    status = scene.standing(JobStatus(completion_time="2020-01-01T00:00:00Z")).plan().status

    assert status.completion_time == "2020-01-01T00:00:00Z"


@every_kind
def test_a_running_job_has_no_end(kind: str) -> None:
    assert a_typical_job(kind).all("Running").settled().job.status.completion_time is None


def test_the_time_of_the_last_look_is_not_recorded_for_a_job_that_is_not_held() -> None:
    assert a_job("JAXJob").role("Worker").plan().status.last_reconcile_time is None
