"""Conditions, their texts and order, tallies and times: what users read of a job."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from trainmaster.api import reading
from trainmaster.api.status import Condition, JobStatus, render
from trainmaster.engine.plan import plan
from trainmaster.testing.scene import NOW, TYPICAL, Scene, a_job, a_typical_job, states

every_kind = pytest.mark.parametrize("kind", TYPICAL)


def last(scene: Scene) -> Condition:
    return scene.plan().status.conditions[-1]


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


@pytest.mark.parametrize(("policy", "active"), [("None", 2), ("Running", 0), (None, 0)])
def test_what_still_ran_when_the_job_failed_is_active_only_if_it_stays(policy: str | None, active: int) -> None:
    scene = a_job("TFJob").role("Worker", 3).all("Running").policy(cleanPodPolicy=policy)

    tally = scene.pod("Worker", 0, "Failed", exit_code=1).plan().status.replica_statuses["Worker"]

    assert (tally.active, tally.succeeded, tally.failed) == (active, 0, 1)


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
