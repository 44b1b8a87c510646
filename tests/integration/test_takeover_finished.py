"""Jobs that had ended under older operators stay ended under ours, however those have written it down."""

import pytest
from tests.integration.oldoperators import PASTS, STARTED, Past, a_job, conditions, replica, taken_over

from trainmaster.objects.resource import CONFIG_MAPS, EVENTS, JOBS, PODS, SERVICES
from trainmaster.testing.operation import job_of

ENDED = "2023-12-31T11:00:00Z"
PHASES = {"Succeeded": "Completed", "Failed": "Failed"}


def mpi_v1alpha2():
    """mpi-operator 0.2: conditions as everybody's."""
    spec = {"mpiReplicaSpecs": {"Launcher": replica("mpi", 1), "Worker": replica("mpi", 1)}}
    return Past(a_job("kubeflow.org/v1alpha2", "MPIJob", spec, {"conditions": conditions("MPIJob")}))


def mpi_v1alpha1():
    """mpi-operator 0.1: the state of the launcher, and no conditions."""
    spec = {"replicas": 2, "template": {"spec": {"containers": [{"name": "mpi", "image": "example/train:1"}]}}}
    return Past(a_job("kubeflow.org/v1alpha1", "MPIJob", spec, {"launcherStatus": "Active"}))


def paddle_batch_by_tasks():
    task = {"name": "trainer", **replica("paddle", 2)}
    spec = {"mode": "Collective", "tasks": [task]}
    return Past(a_job("batch.paddlepaddle.org/v1", "PaddleJob", spec, {"phase": "Running", "mode": "Collective"}))


ALL = {
    **PASTS,
    "MPIJob v1alpha2 of mpi-operator": mpi_v1alpha2,
    "MPIJob v1alpha1 of mpi-operator": mpi_v1alpha1,
    "PaddleJob of paddle-operator, by tasks": paddle_batch_by_tasks,
}


def ended(make, outcome):
    """The job after its end, its pods and Services removed."""
    past = make()
    status = past.job["status"]
    if "phase" in status:
        status["phase"] = PHASES[outcome]
    elif "launcherStatus" in status:
        status["launcherStatus"] = outcome
    else:
        kind = past.job["kind"]
        status["conditions"] = [c for c in status["conditions"] if c["type"] == "Created"]
        told = {"type": outcome, "status": "True", "reason": f"{kind}{outcome}", "message": "It has ended."}
        status["conditions"].append({**told, "lastUpdateTime": ENDED, "lastTransitionTime": ENDED})
    status |= {"startTime": STARTED, "completionTime": ENDED}
    past.objects = []
    return past


@pytest.mark.parametrize("outcome", PHASES)
@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_a_job_that_has_ended_is_not_run_again(make, outcome):
    past = ended(make, outcome)

    api = taken_over(past)

    assert [api.objects(kind) for kind in (PODS, SERVICES, CONFIG_MAPS, JOBS)] == [[], [], [], []]
    assert api.objects(EVENTS) == []


@pytest.mark.parametrize("outcome", PHASES)
@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_its_end_and_its_times_stay_as_they_were(make, outcome):
    past = ended(make, outcome)

    api = taken_over(past)

    held = job_of(api, past.job)["status"]
    assert (held["startTime"], held["completionTime"]) == (STARTED, ENDED)
    assert held.get("phase", PHASES[outcome]) == PHASES[outcome]
    assert held.get("launcherStatus", outcome) == outcome
    others = {"Succeeded": "Failed", "Failed": "Succeeded"}
    assert others[outcome] not in [condition["type"] for condition in held.get("conditions", ())]


@pytest.mark.parametrize("counts", [{"running": 1}, {}], ids=["of 0.3", "of 0.2, which are as ours"])
def test_a_phase_is_also_told_as_a_condition_for_clients_that_wait_for_one(counts):
    past = ended(PASTS["PaddleJob of paddle-operator"], "Succeeded")
    past.job["status"] |= {"ps": {"ready": "0/1", **counts}, "worker": {"ready": "0/2"}}

    api = taken_over(past)

    [condition] = job_of(api, past.job)["status"]["conditions"]
    assert (condition["type"], condition["reason"], condition["lastTransitionTime"]) == (
        "Succeeded",
        "PaddleJobSucceeded",
        ENDED,
    )
