"""What the table of ranks says of those that were told to end, and of those that had failed before."""

import io

import pytest
from rich.console import Console

from trainmaster.api.status import Condition, JobStatus
from trainmaster.cli.follow import JobRef, Progress, Rank
from trainmaster.cli.screen import ranks_table
from trainmaster.objects.meta import Meta
from trainmaster.objects.pod import ContainerState, ContainerStatus, Pod, PodStatus, Terminated
from trainmaster.objects.resource import Resource

JOB = JobRef(Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"), "default", "ddp", "uid-1")
BEFORE, THEN, AFTER = (f"2023-11-14T22:14:1{second}Z" for second in range(3))


def a_rank(title, code=None, at=None, *, deleted=THEN):
    end = Terminated(code, "Error", finished_at=at) if code is not None else None
    state = ContainerState(terminated=end) if end else ContainerState(running={})
    meta = Meta(name=f"ddp-{title}", namespace="default", uid=title, deletion_timestamp=deleted)
    phase = "Failed" if end else "Running"
    return Rank(JOB, Pod(meta, PodStatus(phase, container_statuses=(ContainerStatus("pytorch", state=state),))))


def states(condition, *ranks):
    status = JobStatus(conditions=(Condition(condition, "True"),))
    text = io.StringIO()
    progress = Progress({JOB: status}, {f"default/{rank.pod.name}": rank for rank in ranks})
    Console(file=text, width=200).print(ranks_table(progress))
    return {row.split()[1]: row.split()[2] for row in text.getvalue().splitlines()[1:]}


@pytest.mark.parametrize(
    ("condition", "state"),
    [
        pytest.param("Running", "Terminating", id="the job goes on"),
        pytest.param("Succeeded", "Stopped", id="the job has succeeded"),
        pytest.param("Failed", "Stopped", id="the job has failed"),
    ],
)
def test_whoever_is_yet_to_end_when_its_job_is_over_has_been_stopped(condition, state):
    assert states(condition, a_rank("worker-0")) == {"worker-0": state}


@pytest.mark.parametrize(
    ("at", "state"),
    [pytest.param(BEFORE, "Failed", id="before"), pytest.param(AFTER, "Stopped", id="after")],
)
def test_whoever_failed_before_it_was_told_to_end_has_failed(at, state):
    assert states("Failed", a_rank("worker-0", 3, at)) == {"worker-0": state}


def test_of_those_that_ended_in_the_second_in_which_they_were_told_to_only_the_first_to_fail_has_failed():
    launcher, worker = a_rank("launcher", 3, THEN), a_rank("worker-0", 143, THEN)

    assert states("Failed", launcher, worker) == {"launcher": "Failed", "worker-0": "Stopped"}


def test_nobody_has_failed_in_the_second_in_which_a_job_that_succeeded_told_them_to_end():
    assert states("Succeeded", a_rank("worker-0", 1, THEN)) == {"worker-0": "Stopped"}
