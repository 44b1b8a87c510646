"""Kueue's contract: it starts and stops jobs by suspending them, places them by their templates, reads their status."""

import pytest
from tests.suite.cluster import condition, conditions, named
from tests.suite.kueue import (
    FLAVOUR,
    KINDS,
    MULTIKUEUE,
    OWN,
    PODSET,
    QUEUE,
    TOLERATION,
    WORKLOAD,
    admit,
    are_pods_ready,
    evict,
    finish_of,
    is_active,
    queued,
    templates,
)

from trainmaster.objects.resource import PODS, SERVICES
from trainmaster.testing.jobs import LEADER

every_kind = pytest.mark.parametrize("kind", KINDS)
OPERATORS = {"MPIJob": "mpi-operator"}
"""By which Kueue selects the pods of a job; others are called after their kind."""


def world(kind):
    return sum(KINDS[kind].values())


async def waiting(cluster, job):
    """The status of a job that nobody has admitted yet."""
    await cluster.submit(job)
    return await cluster.last(job, "Suspended")


async def started(cluster, job):
    await admit(cluster, job)
    pods = await cluster.pods(job, world(job["kind"]))
    await cluster.play(job, "Running")
    await cluster.status(job, are_pods_ready)
    return pods


def leader_of(kind):
    return "launcher" if kind == "MPIJob" else LEADER.get(kind, "")


@every_kind
async def test_a_job_that_waits_for_its_turn_has_nothing(cluster, kind):
    job = queued(kind, f"queued-{kind.lower()}").manifest

    status = await waiting(cluster, job)

    assert conditions(status) == [("Created", "True"), ("Suspended", "True")]
    assert (is_active(status), are_pods_ready(status), finish_of(status)) == (False, False, "")
    assert status.get("startTime") is None
    assert await cluster.standing(job) == {}
    assert (await cluster.standing(job, SERVICES) == {}) or kind == "MPIJob"


@every_kind
async def test_pods_carry_what_kueue_laid_over_the_templates(cluster, kind):
    name = f"placed-{kind.lower()}"
    job = queued(kind, name).manifest

    await waiting(cluster, job)
    pods = await started(cluster, job)
    stored = await cluster.job(job)

    by_role = sorted(pod["metadata"]["labels"][PODSET] for pod in pods.values())
    assert by_role == sorted(role.lower() for role, count in KINDS[kind].items() for _ in range(count))
    for pod in pods.values():
        labels, spec = pod["metadata"]["labels"], pod["spec"]
        assert spec["nodeSelector"] == {**OWN, **FLAVOUR}
        assert TOLERATION in spec["tolerations"]
        assert pod["metadata"]["annotations"][WORKLOAD] == "job-of-training"
        assert labels.items() >= OWN.items()
        assert labels["training.kubeflow.org/job-name"] == name
        assert labels["training.kubeflow.org/operator-name"] == OPERATORS.get(kind, f"{kind.lower()}-controller")
        assert labels["training.kubeflow.org/replica-type"] == labels[PODSET]
    assert stored["metadata"]["labels"][QUEUE] == "training"


@every_kind
async def test_the_ranks_of_a_role_are_told_apart_by_their_index(cluster, kind):
    """By which Kueue places them in the topology."""
    job = queued(kind, f"ranked-{kind.lower()}").manifest

    await waiting(cluster, job)
    pods = await started(cluster, job)

    workers = [pod for pod in pods.values() if pod["metadata"]["labels"][PODSET] == "worker"]
    indices = {pod["metadata"]["labels"]["training.kubeflow.org/replica-index"] for pod in workers}
    assert indices == {"0", "1"}


@every_kind
async def test_pods_are_ready_once_the_job_runs_and_not_before(cluster, kind):
    job = queued(kind, f"ready-{kind.lower()}").manifest

    await waiting(cluster, job)
    await admit(cluster, job)
    await cluster.pods(job, world(kind))
    resumed = await cluster.status(job, lambda status: ("Suspended", "False") in conditions(status))
    await cluster.play(job, "Running")
    running = await cluster.status(job, lambda status: are_pods_ready(status) and is_active(status))

    assert (is_active(resumed), are_pods_ready(resumed)) == (False, False)
    assert running["startTime"]


@every_kind
async def test_a_job_that_is_evicted_gives_everything_back_and_may_come_again(cluster, kind):
    job = queued(kind, f"evicted-{kind.lower()}").manifest

    await waiting(cluster, job)
    before = await started(cluster, job)
    begun = await cluster.status(job)
    await evict(cluster, job)
    paused = await cluster.status(
        job, lambda status: conditions(status)[-1] == ("Suspended", "True") and not is_active(status)
    )
    await cluster.pods(job, 0)
    restored = await cluster.job(job)
    after = await started(cluster, job)
    resumed = await cluster.status(job)

    assert conditions(paused) == [("Created", "True"), ("Running", "False"), ("Suspended", "True")]
    assert condition(paused, "Running")["reason"] == condition(paused, "Suspended")["reason"] == f"{kind}Suspended"
    assert (paused["startTime"], finish_of(paused)) == (begun["startTime"], "")
    assert templates(restored) == templates(job)
    assert not {_uid(pod) for pod in before.values()} & {_uid(pod) for pod in after.values()}
    assert resumed["startTime"] >= condition(paused, "Suspended")["lastTransitionTime"]
    assert condition(resumed, "Suspended")["reason"] == f"{kind}Resumed"


def _uid(found):
    return found["metadata"]["uid"]


async def test_a_job_that_comes_again_waits_for_its_old_pods(cluster):
    """They would be taken for failures of the new run, and their names are not free."""
    job = queued("PyTorchJob", "lingering").manifest
    held = "lingering-worker-0"

    await waiting(cluster, job)
    await started(cluster, job)
    await cluster.client.patch(PODS, held, {"metadata": {"finalizers": ["example.com/held"]}}, cluster.namespace)
    await evict(cluster, job)
    await cluster.last(job, "Suspended")
    await cluster.pods(job, [held])
    await admit(cluster, job)
    other = queued("PyTorchJob", "lingering-witness").manifest
    await waiting(cluster, other)
    await started(cluster, other)
    meanwhile = sorted(await cluster.standing(job))
    await cluster.client.patch(PODS, held, {"metadata": {"finalizers": None}}, cluster.namespace)
    await cluster.pods(job, 3, lambda pod: not pod["metadata"].get("deletionTimestamp"))
    await cluster.play(job, "Running")
    resumed = await cluster.last(job, "Running")

    assert meanwhile == [held]
    assert conditions(resumed) == [("Created", "True"), ("Suspended", "False"), ("Running", "True")]


@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
@every_kind
async def test_how_a_job_has_finished_is_told_with_its_reason(cluster, kind, end):
    job = queued(kind, f"{end.lower()}-{kind.lower()}", backoffLimit=0).manifest

    await waiting(cluster, job)
    await started(cluster, job)
    await cluster.play(job, end, 0 if end == "Succeeded" else 1, only=leader_of(kind))
    finished = await cluster.status(job, finish_of)
    event = await cluster.event(job, condition(finished, end)["reason"])

    assert (finish_of(finished), is_active(finished)) == (end, False)
    assert condition(finished, end)["message"] == event["message"]
    assert finished["completionTime"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "MPIJob"])
async def test_what_a_replica_that_is_done_has_used_can_be_given_to_others(cluster, kind):
    job = queued(kind, f"reclaim-{kind.lower()}").manifest

    await waiting(cluster, job)
    await started(cluster, job)
    await cluster.set_phase(f"{named(job)}-worker-1", "Succeeded", 0)
    status = await cluster.status(job, lambda status: status["replicaStatuses"]["Worker"].get("succeeded"))

    worker = status["replicaStatuses"]["Worker"]
    assert (worker["succeeded"], worker.get("active", 0)) == (1, 1)
    assert are_pods_ready(status)


@every_kind
async def test_a_job_of_multikueue_is_not_touched_at_all(cluster, kind):
    job = queued(kind, f"remote-{kind.lower()}", managedBy=MULTIKUEUE).manifest
    witness = queued(kind, f"local-{kind.lower()}").manifest
    reported = {"conditions": [{"type": "Running", "status": "True", "reason": "Elsewhere"}], "replicaStatuses": {}}

    await cluster.submit(job)
    await cluster.policy(job, suspend=False)
    written = await cluster.change(job, {"status": reported}, "status")
    await waiting(cluster, witness)
    await started(cluster, witness)
    stored = await cluster.job(job)

    assert stored["metadata"]["resourceVersion"] == written["metadata"]["resourceVersion"]
    assert stored["status"] == reported
    assert await cluster.standing(job) == {}
    assert await cluster.standing(job, SERVICES) == {}
    assert await cluster.events(job) == []


@pytest.mark.parametrize(
    ("kind", "manager"),
    [
        *((kind, "kubeflow.org/training-operator") for kind in KINDS),
        ("MPIJob", "kubeflow.org/mpi-operator"),
    ],
)
async def test_a_job_that_is_managed_by_us_runs(cluster, kind, manager):
    job = queued(kind, f"ours-{kind.lower()}-{manager.partition('/')[2]}", managedBy=manager).manifest

    await waiting(cluster, job)

    await started(cluster, job)


def test_nothing_was_forbidden_to_the_operator(operators):
    """Runs last."""
    assert operators[0].refused == []
