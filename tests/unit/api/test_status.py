"""Conditions in the order users see them, and a status that survives its way to the server and back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from trainmaster.api import status
from trainmaster.api.status import Condition, ConditionType, JobStatus, ReplicaStatus, status_of, with_condition

THEN, NOW = 1_700_000_000.0, 1_700_000_060.0
AT_THEN, AT_NOW = "2023-11-14T22:13:20Z", "2023-11-14T22:14:20Z"


def a_status(*conditions: tuple[ConditionType, bool]) -> JobStatus:
    """The status after these conditions were set one after the other."""
    made = JobStatus()
    for condition, value in conditions:
        made = with_condition(made, condition, value, f"Job{condition}", f"is {condition}", THEN)
    return made


def shown(made: JobStatus) -> list[tuple[str, str]]:
    return [(condition.type, condition.status) for condition in made.conditions]


def on_the_wire(made: JobStatus) -> Any:
    return msgspec.json.decode(msgspec.json.encode(status.render(made)))


@pytest.mark.parametrize(
    ("before", "added", "after"),
    [
        pytest.param([], ("Created", True), [("Created", "True")], id="created comes first"),
        pytest.param(
            [("Created", True)], ("Running", True), [("Created", "True"), ("Running", "True")], id="running is appended"
        ),
        pytest.param(
            [("Created", True), ("Running", True)],
            ("Restarting", True),
            [("Created", "True"), ("Restarting", "True")],
            id="restarting replaces running",
        ),
        pytest.param(
            [("Created", True), ("Restarting", True)],
            ("Running", True),
            [("Created", "True"), ("Running", "True")],
            id="running replaces restarting",
        ),
        pytest.param(
            [("Created", True), ("Running", True)],
            ("Failed", True),
            [("Created", "True"), ("Running", "False"), ("Failed", "True")],
            id="failed ends running",
        ),
        pytest.param(
            [("Created", True), ("Running", True)],
            ("Succeeded", True),
            [("Created", "True"), ("Running", "False"), ("Succeeded", "True")],
            id="succeeded ends running",
        ),
        pytest.param(
            [("Created", True)],
            ("Succeeded", True),
            [("Created", "True"), ("Succeeded", "True")],
            id="a fast job was never seen running",
        ),
        pytest.param(
            [("Created", True), ("Restarting", True)],
            ("Failed", True),
            [("Created", "True"), ("Restarting", "True"), ("Failed", "True")],
            id="failed leaves restarting",
        ),
        pytest.param(
            [("Created", True), ("Running", True), ("Running", False)],
            ("Suspended", True),
            [("Created", "True"), ("Running", "False"), ("Suspended", "True")],
            id="suspended from running",
        ),
        pytest.param(
            [("Created", True), ("Running", True), ("Running", False), ("Suspended", True), ("Suspended", False)],
            ("Running", True),
            [("Created", "True"), ("Suspended", "False"), ("Running", "True")],
            id="running again after a resume",
        ),
        pytest.param(
            [("Created", True), ("Failed", True)],
            ("Running", True),
            [("Created", "True"), ("Failed", "True")],
            id="nothing changes a failed job",
        ),
        pytest.param(
            [("Created", True), ("Failed", True)],
            ("Suspended", True),
            [("Created", "True"), ("Failed", "True")],
            id="not even a suspension",
        ),
        pytest.param(
            [("Created", True), ("Succeeded", True)],
            ("Failed", True),
            [("Created", "True"), ("Succeeded", "True"), ("Failed", "True")],
            id="succeeded does not block failed",
        ),
    ],
)
def test_a_condition_takes_its_place(
    before: list[tuple[ConditionType, bool]], added: tuple[ConditionType, bool], after: list[tuple[str, str]]
) -> None:
    condition, value = added

    made = with_condition(a_status(*before), condition, value, f"Job{condition}", "", NOW)

    assert shown(made) == after


def test_a_new_condition_bears_the_time_twice() -> None:
    made = with_condition(JobStatus(), "Created", True, "TFJobCreated", "TFJob job is created.", THEN)

    assert made.conditions == (Condition("Created", "True", "TFJobCreated", "TFJob job is created.", AT_THEN, AT_THEN),)


def test_the_same_condition_for_the_same_reason_is_not_touched() -> None:
    held = a_status(("Created", True), ("Running", True))

    made = with_condition(held, "Running", True, "JobRunning", "another message", NOW)

    assert made is held


def test_another_reason_moves_the_update_time_but_not_the_transition() -> None:
    held = a_status(("Created", True), ("Running", True))

    made = with_condition(held, "Running", True, "Moved", "new", NOW)

    assert made.conditions[-1] == Condition("Running", "True", "Moved", "new", AT_NOW, AT_THEN)


def test_another_value_moves_both_times() -> None:
    held = a_status(("Created", True), ("Running", True))

    made = with_condition(held, "Running", False, "JobSuspended", "", NOW)

    assert made.conditions[-1] == Condition("Running", "False", "JobSuspended", "", AT_NOW, AT_NOW)


def test_the_end_turns_running_off_and_leaves_its_words_and_times() -> None:
    held = a_status(("Running", True))

    made = with_condition(held, "Succeeded", True, "JobSucceeded", "", NOW)

    assert made.conditions[0] == Condition("Running", "False", "JobRunning", "is Running", AT_THEN, AT_THEN)


def test_a_replaced_condition_goes_to_the_end() -> None:
    held = a_status(("Suspended", True), ("Created", True))

    made = with_condition(held, "Suspended", False, "JobResumed", "", NOW)

    assert shown(made) == [("Created", "True"), ("Suspended", "False")]


@pytest.mark.parametrize("condition", ["Created", "Running", "Restarting", "Succeeded", "Suspended", "Failed"])
def test_a_condition_holds_when_its_status_is_true(condition: ConditionType) -> None:
    assert a_status((condition, True)).is_true(condition)
    assert not a_status((condition, False)).is_true(condition)
    assert not JobStatus().is_true(condition)


@pytest.mark.parametrize(
    ("condition", "value", "finished"),
    [
        ("Succeeded", True, True),
        ("Failed", True, True),
        ("Succeeded", False, False),
        ("Failed", False, False),
        ("Running", True, False),
        ("Suspended", True, False),
    ],
)
def test_a_job_is_finished_once_it_succeeded_or_failed(condition: ConditionType, value: bool, finished: bool) -> None:
    assert a_status((condition, value)).is_finished is finished


def test_a_status_is_written_in_the_words_of_kubeflow() -> None:
    made = msgspec.structs.replace(
        a_status(("Created", True)),
        replica_statuses={"Master": ReplicaStatus(active=1), "Worker": ReplicaStatus(failed=2, selector="a=b")},
        start_time=AT_THEN,
    )

    assert on_the_wire(made) == {
        "conditions": [
            {
                "type": "Created",
                "status": "True",
                "reason": "JobCreated",
                "message": "is Created",
                "lastUpdateTime": AT_THEN,
                "lastTransitionTime": AT_THEN,
            }
        ],
        "replicaStatuses": {"Master": {"active": 1}, "Worker": {"failed": 2, "selector": "a=b"}},
        "startTime": AT_THEN,
    }


def test_an_empty_status_still_has_what_old_crds_require() -> None:
    assert on_the_wire(JobStatus()) == {"conditions": [], "replicaStatuses": {}}


def test_a_written_status_reads_back_the_same() -> None:
    made = JobStatus(
        conditions=a_status(("Created", True), ("Restarting", True)).conditions,
        replica_statuses={"Worker": ReplicaStatus(1, 2, 3, "a=b")},
        start_time=AT_THEN,
        completion_time=AT_NOW,
        last_reconcile_time=AT_THEN,
        attempts={"worker-0": 2},
        completed={"Worker": (0, 3)},
    )

    assert status_of(on_the_wire(made)) == made


def test_times_that_nobody_wrote_are_left_out_not_null() -> None:
    held = status_of({"conditions": [{"type": "Created", "status": "True"}]})

    assert on_the_wire(held) == {"conditions": [{"type": "Created", "status": "True"}], "replicaStatuses": {}}


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(None, id="absent"),
        pytest.param("x", id="text"),
        pytest.param({}, id="empty"),
        pytest.param({"conditions": None, "replicaStatuses": None, "startTime": None}, id="nulls"),
        pytest.param({"conditions": [{"status": "True"}]}, id="a condition without type"),
        pytest.param({"replicaStatuses": {"Worker": {"active": "1"}}}, id="a count that is text"),
    ],
)
def test_an_unreadable_status_counts_as_none(raw: Any) -> None:
    assert status_of(raw) == JobStatus()


def test_what_can_be_read_of_a_status_counts_though_a_part_of_it_cannot() -> None:
    ended = {"type": "Succeeded", "status": "True"}

    held = status_of({"conditions": [ended], "replicaStatuses": {"Worker": None}, "startTime": 7, "phase": "Completed"})

    assert held.is_finished
    assert (held.replica_statuses, held.start_time, held.report) == ({}, None, {"phase": "Completed"})


def test_fields_of_other_operators_are_ignored() -> None:
    raw = {"replicaStatuses": {"Worker": {"active": 1, "labelSelector": {"matchLabels": {"a": "b"}}}}, "phase": "Ready"}

    assert status_of(raw).replica_statuses == {"Worker": ReplicaStatus(active=1)}


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"reason": "", "message": ""}, id="empty words"),
        pytest.param({"reason": None, "message": None}, id="null words"),
        pytest.param({"reason": 7, "message": ["x"]}, id="words that are none"),
        pytest.param({"lastUpdateTime": None, "lastTransitionTime": None, "lastProbeTime": None}, id="null times"),
        pytest.param({"lastUpdateTime": "", "lastTransitionTime": "yesterday"}, id="times that are none"),
    ],
)
def test_an_odd_condition_of_another_operator_counts_and_is_written_without_what_servers_refuse(odd: Any) -> None:
    held = status_of({"conditions": [{"type": "Succeeded", "status": "True", **odd}]})

    assert held.is_finished
    assert on_the_wire(held)["conditions"] == [{"type": "Succeeded", "status": "True"}]


def test_one_condition_that_cannot_be_read_does_not_hide_the_others() -> None:
    held = status_of(
        {"conditions": [{"status": "True"}, None, {"type": "Failed", "status": "True", "message": "lost"}]}
    )

    assert held.conditions == (Condition("Failed", "True", message="lost"),)


@pytest.mark.parametrize("field", ["startTime", "completionTime", "lastReconcileTime"])
def test_a_time_that_is_none_is_not_written_back(field: str) -> None:
    held = status_of({"conditions": [{"type": "Created", "status": "True"}], field: ""})

    assert held.is_true("Created")
    assert field not in on_the_wire(held)
