"""The order of decisions, jobs that cannot be read, events and marks; and whole lives of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from trainmaster.api import reading
from trainmaster.api.problem import MOST, Problem, invalid, required
from trainmaster.api.status import JobStatus
from trainmaster.engine.actions import Create
from trainmaster.engine.plan import Plan, plan_rejected
from trainmaster.objects.resource import HORIZONTAL_POD_AUTOSCALERS, SERVICES
from trainmaster.testing.scene import (
    NOW,
    TYPICAL,
    UID,
    Scene,
    a_job,
    a_typical_job,
    body,
    created,
    deleted,
    states,
    told,
)

every_kind = pytest.mark.parametrize("kind", TYPICAL)


# The order of decisions.


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded", "Failed"])
@every_kind
def test_a_job_that_is_being_deleted_is_left_alone(kind: str, phase: str) -> None:
    scene = a_typical_job(kind).all(phase).meta(deletionTimestamp="2024-01-01T00:00:00Z")

    assert scene.plan() == Plan(scene.job.status)


def test_success_goes_before_a_failure() -> None:
    scene = a_typical_job("PyTorchJob", "Never").all("Failed", exit_code=1).pod("Master", 0, "Succeeded")

    assert states(scene.plan().status) == ["Created", "Succeeded"]


def test_success_goes_before_the_backoff_limit() -> None:
    scene = a_typical_job("PyTorchJob").policy(backoffLimit=1).all("Running", restarts=5).pod("Master", 0, "Succeeded")

    assert states(scene.plan().status)[-1] == "Succeeded"


def test_success_replaces_no_failed_pod() -> None:
    scene = a_typical_job("PyTorchJob", "ExitCode").all("Failed", exit_code=137).pod("Master", 0, "Succeeded")

    plan = scene.plan()

    assert (deleted(plan), plan.status.attempts) == ([], {})


def test_a_limit_goes_before_a_failure() -> None:
    scene = a_job("PyTorchJob").role("Master").role("Worker", 2, "Never").policy(backoffLimit=1).all("Running")

    status = scene.pod("Master", 0, restarts=1).pod("Worker", 0, "Failed", exit_code=1).plan().status

    assert status.conditions[-1].message.endswith("has reached the specified backoff limit")


def test_the_deadline_goes_before_the_backoff_limit() -> None:
    scene = a_typical_job("PyTorchJob").policy(backoffLimit=1, activeDeadlineSeconds=0).all("Running", restarts=1)

    assert scene.plan().status.conditions[-1].message.endswith("was active longer than specified deadline")


def test_suspension_goes_before_a_limit() -> None:
    scene = a_typical_job("PyTorchJob").policy(suspend=True, activeDeadlineSeconds=0).all("Running")

    assert states(scene.plan().status) == ["Created", "Suspended"]


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_a_failing_pass_makes_nothing(policy: str) -> None:
    scene = a_job("TFJob").role("Worker", 3).policy(cleanPodPolicy=policy).pod("Worker", 0, "Failed", exit_code=1)

    plan = scene.plan()

    assert [a for a in plan.actions if isinstance(a, Create)] == []


def test_nothing_need_be_looked_at_again_without_a_reason() -> None:
    assert a_typical_job("TFJob").all("Running").plan().wake_after is None


# Jobs that cannot be read.

PROBLEMS = (invalid("metadata.name", "0-x", "should match"), required("spec.tfReplicaSpecs", "is missing"))


def rejected(scene: Scene, problems: Sequence[Problem] = PROBLEMS, *, has_pods: bool = False) -> Plan:
    job = reading.bare(scene.framework, scene.framework.resource, scene.manifest, scene.settings)
    return plan_rejected(scene.framework, job, problems, scene.now, has_pods=has_pods)


@every_kind
def test_a_new_job_that_cannot_be_read_has_failed(kind: str) -> None:
    status = rejected(a_job(kind)).status

    assert [(c.type, c.status, c.reason) for c in status.conditions] == [
        ("Created", "True", f"{kind}Created"),
        ("Failed", "True", f"{kind}FailedValidation"),
    ]


def test_a_rejected_job_is_told_all_its_problems_with_their_paths() -> None:
    status = rejected(a_job("TFJob")).status

    assert status.conditions[-1].message == (
        'TFJob failed validation because metadata.name: Invalid value: "0-x": should match; '
        "spec.tfReplicaSpecs: Required value: is missing"
    )


def test_of_many_problems_the_first_are_told_and_the_others_counted() -> None:
    many = [required(f"spec.field{number}", "is missing") for number in range(20_000)]

    [event] = rejected(a_job("PyTorchJob"), many).events

    assert event.message.count("is missing") == MOST
    assert event.message.endswith("spec.field49: Required value: is missing; and 19950 more")


def test_a_long_path_does_not_make_a_long_message() -> None:
    problem = required("spec." + "q" * 1_000_000, "is missing")

    [event] = rejected(a_job("PyTorchJob"), [problem]).events

    assert len(event.message) < 17_000


def test_a_rejected_job_makes_nothing() -> None:
    assert rejected(a_job("TFJob")).actions == ()


def test_a_rejected_job_has_ended() -> None:
    assert rejected(a_job("TFJob")).status.completion_time == "2023-11-14T22:13:20Z"


def test_a_rejection_is_a_warning_told_once() -> None:
    plan = rejected(a_job("TFJob"))

    assert [(event.type, event.reason, event.repeat) for event in plan.events] == [
        ("Warning", "TFJobFailedValidation", False)
    ]


def test_a_rejected_new_job_counts_as_created_and_failed() -> None:
    assert rejected(a_job("TFJob")).marks == ("created", "failed")


@pytest.mark.parametrize("suspend", [False, True], ids=["no pod yet", "suspended"])
def test_an_edit_that_breaks_a_job_which_was_in_order_is_told_and_leaves_it_as_it_is(suspend: bool) -> None:
    scene = a_job("TFJob").role("Worker").policy(suspend=suspend).settled()

    made = rejected(scene)

    assert (made.status, made.actions, made.marks) == (scene.job.status, (), ())
    assert [reason for reason, _ in told(made)] == ["TFJobFailedValidation"]


def test_a_rejected_job_is_rejected_once() -> None:
    scene = a_job("TFJob")

    again = rejected(scene.standing(rejected(scene).status).at(60))

    assert (again.actions, again.events, again.marks) == ((), (), ())
    assert again.status == rejected(scene).status


@every_kind
def test_an_edit_that_breaks_a_running_job_leaves_its_pods_alone(kind: str) -> None:
    scene = a_typical_job(kind).all("Running").settled()

    plan = rejected(scene, has_pods=True)

    assert (plan.actions, plan.status) == ((), scene.job.status)


def test_an_edit_that_breaks_a_running_job_is_told() -> None:
    scene = a_typical_job("TFJob").all("Running").settled()

    assert [reason for reason, _ in told(rejected(scene, has_pods=True))] == ["TFJobFailedValidation"]


@pytest.mark.parametrize("has_pods", [pytest.param(True, id="with pods"), pytest.param(False, id="without")])
def test_an_edit_that_breaks_a_finished_job_changes_nothing(has_pods: bool) -> None:
    scene = a_typical_job("TFJob").all("Succeeded", exit_code=0).settled()

    assert rejected(scene, has_pods=has_pods) == Plan(scene.job.status)


def test_a_rejected_job_that_is_being_deleted_is_left_alone() -> None:
    scene = a_job("TFJob").meta(deletionTimestamp="2024-01-01T00:00:00Z")

    assert rejected(scene) == Plan(JobStatus())


# Events and marks.


@every_kind
def test_success_is_told_as_its_condition_says(kind: str) -> None:
    plan = a_typical_job(kind).all("Succeeded", exit_code=0).plan()

    (event,) = plan.events
    assert (event.type, event.reason) == ("Normal", f"{kind}Succeeded")
    assert event.message == plan.status.conditions[-1].message


@every_kind
def test_failure_is_told_as_its_condition_says_and_as_a_warning(kind: str) -> None:
    plan = a_typical_job(kind, "Never").all("Failed").plan()

    (event,) = plan.events
    assert (event.type, event.reason) == ("Warning", f"{kind}Failed")
    assert event.message == plan.status.conditions[-1].message


@every_kind
def test_creation_and_running_go_without_saying(kind: str) -> None:
    assert a_typical_job(kind).all("Running").plan().events == ()


def test_advice_is_given_when_the_job_is_first_seen() -> None:
    scene = a_job("TFJob", cleanPolicy="All").role("Worker")

    assert [reason for reason, _ in told(scene.plan())] == ["UnknownField"]


def test_advice_is_given_once() -> None:
    scene = a_job("TFJob", cleanPolicy="All").role("Worker").after()

    assert told(scene.plan()) == []


def test_advice_is_given_to_a_job_born_suspended() -> None:
    scene = a_job("TFJob", cleanPolicy="All").role("Worker").policy(suspend=True)

    assert "UnknownField" in dict(told(scene.plan()))


@pytest.mark.parametrize(
    ("scene", "marks"),
    [
        pytest.param(a_job("JAXJob").role("Worker"), ("created",), id="new"),
        pytest.param(a_job("JAXJob").role("Worker").settled(), (), id="seen before"),
        pytest.param(a_job("JAXJob").role("Worker").all("Running"), ("created",), id="runs when first seen"),
        pytest.param(a_job("JAXJob").role("Worker").settled().all("Running"), (), id="runs"),
        pytest.param(a_job("JAXJob").role("Worker").settled().all("Succeeded"), ("successful",), id="succeeded"),
        pytest.param(a_job("JAXJob").role("Worker").settled().all("Failed"), ("failed",), id="failed"),
        pytest.param(
            a_job("JAXJob").role("Worker", 2, "ExitCode").settled().all("Failed", exit_code=137),
            ("restarted", "restarted"),
            id="two restarts",
        ),
        pytest.param(a_job("JAXJob").role("Worker").settled().policy(suspend=True), (), id="suspended"),
        pytest.param(
            a_job("JAXJob").role("Worker").policy(activeDeadlineSeconds=5).settled().at(5), ("failed",), id="deadline"
        ),
        pytest.param(a_job("JAXJob").role("Worker").all("Succeeded").settled(), (), id="finished before"),
    ],
)
def test_what_is_counted_in_metrics(scene: Scene, marks: tuple[str, ...]) -> None:
    assert scene.plan().marks == marks


# Whole lives.


@every_kind
def test_from_first_sight_to_success(kind: str) -> None:
    scene = a_typical_job(kind)
    seen = []

    for phase in ("Pending", "Running", "Succeeded"):
        scene = scene.settled().all(phase, exit_code=0 if phase == "Succeeded" else None)
        seen.append(states(scene.plan().status))

    assert seen == [["Created"], ["Created", "Running"], ["Created", "Running(False)", "Succeeded"]]


@every_kind
def test_a_job_that_runs_is_quiet(kind: str) -> None:
    scene = a_typical_job(kind).all("Running").settled()

    assert scene.at(3600).plan() == Plan(scene.job.status)


@every_kind
def test_one_pass_makes_everything(kind: str) -> None:
    first, second = a_typical_job(kind).plan(), a_typical_job(kind).after().plan()

    assert len(created(first)) == len(created(first, SERVICES)) == sum(TYPICAL[kind].values())
    assert second.actions == ()


def env(made: Plan, name: str) -> dict[str, Any]:
    (container,) = body(made, name)["spec"]["containers"]
    return {variable["name"]: variable.get("value") for variable in container["env"]}


def a_container(name: str, port: str) -> dict[str, Any]:
    return {"name": name, "image": "i", "ports": [{"name": port, "containerPort": 8080}]}


def test_a_pytorchjob_from_end_to_end() -> None:
    containers = [a_container("pytorch", "pytorchjob-port")]
    scene = a_job("PyTorchJob").role("Master", containers=containers).role("Worker", 2, containers=containers)

    made = scene.plan()
    ended = scene.settled().all("Running").settled().pod("Master", 0, "Succeeded", exit_code=0).settled()

    service = body(made, "job-master-0", SERVICES)
    found = {key: env(made, "job-master-0")[key] for key in ("MASTER_ADDR", "MASTER_PORT", "PET_NPROC_PER_NODE")}
    assert found == {
        "MASTER_ADDR": service["metadata"]["name"],
        "MASTER_PORT": str(service["spec"]["ports"][0]["port"]),
        "PET_NPROC_PER_NODE": "auto",
    }
    assert service["spec"]["ports"][0]["port"] == 8080
    assert ended.job.status.is_true("Succeeded")
    assert ended.job.status.replica_statuses["Master"].succeeded == 1


def test_an_elastic_pytorchjob_from_end_to_end() -> None:
    policy = {"minReplicas": 1, "maxReplicas": 3, "maxRestarts": 3, "metrics": [{"type": "Resource"}]}
    scene = a_job("PyTorchJob", elasticPolicy=policy).role("Worker")

    made = scene.plan()
    ended = scene.settled().all("Running").settled().pod("Worker", 0, "Succeeded", exit_code=0).settled()

    wanted = ("PET_RDZV_BACKEND", "PET_NNODES", "PET_RDZV_ENDPOINT", "PET_MAX_RESTARTS")
    assert [env(made, "job-worker-0")[key] for key in wanted] == ["c10d", "1:3", "job-worker-0:23456", "3"]
    assert created(made, HORIZONTAL_POD_AUTOSCALERS) == ["job"]
    assert (ended.job.status.is_true("Succeeded"), ended.others) == (True, {})


def test_a_paddlejob_from_end_to_end() -> None:
    containers = [a_container("paddle", "master")]
    scene = a_job("PaddleJob").role("Master", containers=containers).role("Worker", 2, containers=containers)

    made = scene.plan()
    ended = scene.settled().all("Running").settled().pod("Master", 0, "Succeeded", exit_code=0).settled()

    assert env(made, "job-master-0")["PADDLE_MASTER"] == "$(POD_IP_DUMMY):8080"
    assert env(made, "job-worker-1")["PADDLE_MASTER"] == "job-master-0:8080"
    assert ended.job.status.is_true("Succeeded")


def test_a_job_that_is_killed_comes_back_and_succeeds() -> None:
    scene = a_job("JAXJob").role("Worker", 2, "ExitCode").all("Running").settled()

    killed = scene.pod("Worker", 1, "Failed", exit_code=137).settled()
    ended = killed.all("Running").settled().all("Succeeded", exit_code=0).settled()

    assert (states(ended.job.status), ended.job.status.attempts) == (
        ["Created", "Running(False)", "Succeeded"],
        {"worker-1": 1},
    )


def test_a_decoy_of_the_same_name_is_not_touched() -> None:
    scene = a_job("TFJob").role("Worker", 2).all("Running")
    decoys = a_job("TFJob").role("Worker", 2).pod("Worker", 7, owner="decoy").pods

    plan = replace(scene, pods={**scene.pods, **decoys}).policy(suspend=True).plan()

    assert "job-worker-7" not in deleted(plan)


@every_kind
def test_everything_made_belongs_to_the_job(kind: str) -> None:
    plan = a_typical_job(kind).having(gang_scheduler="my-scheduler").plan()

    owners = [a.body["metadata"]["ownerReferences"] for a in plan.actions if isinstance(a, Create)]

    assert {(len(owner), owner[0]["uid"], owner[0]["controller"]) for owner in owners} == {(1, UID, True)}


def test_time_is_an_argument() -> None:
    scene = a_job("JAXJob").role("Worker")

    assert (scene.now, scene.plan().status.start_time) == (NOW, "2023-11-14T22:13:20Z")
