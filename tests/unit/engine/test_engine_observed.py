"""What counts as the job's own, which slot a pod fills, and how roles are counted."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from trainmaster.engine.observed import Observed, Slot
from trainmaster.objects.meta import Meta, OwnerReference
from trainmaster.objects.pod import Pod, PodCondition, PodStatus
from trainmaster.testing.scene import UID, Scene, a_job


def workers(replicas: int) -> Scene:
    return a_job("TFJob").role("Worker", replicas)


def a_pod(name: str, *owners: OwnerReference, **labels: str) -> Pod:
    return Pod(Meta(name=name, namespace="default", uid=f"uid-{name}", labels=labels, owner_references=owners))


def having(scene: Scene, *pods: Pod) -> Observed:
    return replace(scene, pods={pod.name: pod for pod in pods}).observed()


OURS = OwnerReference(uid=UID, controller=True)


@pytest.mark.parametrize(
    ("pod", "is_owned"),
    [
        pytest.param(a_pod("job-worker-0", OURS), True, id="controlled by the job"),
        pytest.param(a_pod("job-worker-0", OURS, **{"tf-job-name": "job"}), True, id="labelled by an old operator"),
        pytest.param(a_pod("job-worker-0", OURS, **{"job-name": "other"}), True, id="labels of another job"),
        pytest.param(a_pod("job-worker-0"), False, id="orphan of the right name"),
        pytest.param(a_pod("job-worker-0", OwnerReference(uid="x", controller=True)), False, id="another job's"),
        pytest.param(
            a_pod("job-worker-0", OwnerReference(kind="TFJob", name="job", uid="before", controller=True)),
            False,
            id="of a job of the same name that was deleted",
        ),
        pytest.param(a_pod("job-worker-0", OwnerReference(uid=UID)), False, id="owned but not controlled"),
        pytest.param(
            a_pod("job-worker-0", OwnerReference(uid="set"), OURS), True, id="a second owner that does not control"
        ),
    ],
)
def test_a_pod_belongs_to_the_job_by_its_controllers_uid_alone(pod: Pod, is_owned: bool) -> None:
    observed = having(workers(1), pod)

    assert bool(observed.owned_pods) is is_owned


def test_a_job_without_a_uid_owns_nothing() -> None:
    scene = workers(1).meta(uid="")

    observed = having(scene, a_pod("job-worker-0", OwnerReference(uid="", controller=True)))

    assert observed.owned_pods == ()


def test_services_belong_to_the_job_by_uid_too() -> None:
    served = workers(1).served()
    foreign = msgspec.structs.replace(
        served.services["job-worker-0"],
        metadata=Meta(name="job-worker-0", owner_references=(OwnerReference(uid="x", controller=True),)),
    )

    observed = replace(served, services={"job-worker-0": foreign}).observed()

    assert observed.owned_services == ()


@pytest.mark.parametrize(
    ("name", "slot"),
    [
        pytest.param("job-worker-0", ("Worker", 0), id="first"),
        pytest.param("job-worker-12", ("Worker", 12), id="two digits"),
        pytest.param("job-ps-1", ("PS", 1), id="canonical spelling"),
        pytest.param("job-evaluator-0", ("Evaluator", 0), id="role that the job does not have"),
        pytest.param("job-server-0", None, id="role of another kind"),
        pytest.param("job-worker", None, id="no index"),
        pytest.param("job-worker-", None, id="empty index"),
        pytest.param("job-worker-x", None, id="index is no number"),
        pytest.param("job-worker-01", None, id="leading zero"),
        pytest.param("job-worker--1", None, id="negative"),
        pytest.param("job-worker-²", None, id="superscript"),
        pytest.param("job-worker-٣", None, id="foreign digits"),
        pytest.param("job-Worker-0", None, id="upper case"),
        pytest.param("other-worker-0", None, id="another job"),
        pytest.param("worker-0", None, id="no job"),
        pytest.param("job", None, id="the job itself"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_the_slot_follows_from_the_name(name: str, slot: Slot | None) -> None:
    observed = workers(1).observed()

    assert observed.slot_of(name) == slot


def test_a_job_name_that_looks_like_a_replica_does_not_confuse_slots() -> None:
    observed = a_job("TFJob", "job-worker-0").role("Worker").observed()

    assert observed.slot_of("job-worker-0-worker-1") == ("Worker", 1)


def test_replicas_are_counted_by_phase_and_a_running_one_that_is_being_deleted_as_failed() -> None:
    scene = workers(7).pod("Worker", 0, "Failed").pod("Worker", 1, "Failed").pod("Worker", 2, "Running")
    scene = scene.policy(cleanPodPolicy="None").pod("Worker", 3, "Running", terminating=True)
    scene = scene.pod("Worker", 4, "Succeeded").pod("Worker", 5, "Succeeded").pod("Worker", 6, "Succeeded")

    tally = scene.plan().status.replica_statuses["Worker"]

    assert (tally.failed, tally.succeeded, tally.active) == (3, 3, 1)


@pytest.mark.parametrize("phase", ["Pending", "Unknown"])
@pytest.mark.parametrize("terminating", [pytest.param(False, id="staying"), pytest.param(True, id="terminating")])
def test_a_pod_that_neither_runs_nor_ended_counts_as_nothing(phase: str, terminating: bool) -> None:
    count = workers(1).pod("Worker", 0, phase, terminating=terminating).observed().counts["Worker"]

    assert not (count.active | count.succeeded | count.failed | count.completed | count.ready)


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_an_ended_pod_counts_by_its_phase_even_while_terminating(phase: str) -> None:
    count = workers(1).pod("Worker", 0, phase, terminating=True).observed().counts["Worker"]

    assert getattr(count, phase.lower()) == {0}


def test_a_pod_that_saved_its_state_when_it_was_deleted_has_not_done_its_work() -> None:
    """It ended with 0 in its grace period; the job must not be told to have succeeded."""
    scene = a_job("TFJob").role("Worker", 1, "OnFailure")
    scene = scene.pod("Worker", 0, "Succeeded", exit_code=0, terminating=True)

    made = scene.plan()

    assert made.status.replica_statuses["Worker"].succeeded == 0
    assert not made.status.is_finished


@pytest.mark.parametrize("phase", ["Running", "Failed", "Succeeded"])
def test_pods_beyond_the_wanted_number_do_not_count(phase: str) -> None:
    count = workers(1).pod("Worker", 1, phase).observed().counts["Worker"]

    assert not (count.active | count.succeeded | count.failed)


def test_roles_are_counted_apart() -> None:
    scene = a_job("TFJob").role("PS", 2).role("Worker", 2)

    counts = scene.pod("PS", 1).pod("Worker", 0, "Failed").observed().counts

    assert {role: (sorted(count.active), sorted(count.failed)) for role, count in counts.items()} == {
        "PS": ([1], []),
        "Worker": ([], [0]),
    }


@pytest.mark.parametrize(
    ("exit_code", "is_completed"),
    [pytest.param(0, True, id="exit 0"), pytest.param(None, False, id="no container status")],
)
def test_completed_needs_a_known_exit_of_0(exit_code: int | None, is_completed: bool) -> None:
    count = workers(1).pod("Worker", 0, "Succeeded", exit_code=exit_code).observed().counts["Worker"]

    assert (0 in count.succeeded, 0 in count.completed) == (True, is_completed)


def test_ready_are_the_active_pods_whose_ready_condition_is_true() -> None:
    ready = PodStatus(phase="Running", conditions=(PodCondition("Ready", "True"),))
    scene = workers(3).pod("Worker", 0).pod("Worker", 1).pod("Worker", 2, terminating=True)
    pods = {name: msgspec.structs.replace(scene.pods[name], status=ready) for name in ("job-worker-1", "job-worker-2")}

    count = replace(scene, pods={**scene.pods, **pods}).observed().counts["Worker"]

    assert count.ready == {1}


def test_a_replica_on_record_as_done_counts_as_succeeded_without_its_pod() -> None:
    scene = a_job("JAXJob").role("Worker", 2).pod("Worker", 0, "Succeeded", exit_code=0).pod("Worker", 1)

    count = scene.after().gone("Worker", 0).observed().counts["Worker"]

    assert 0 in count.succeeded & count.completed


def test_a_record_beyond_the_wanted_number_counts_for_nothing() -> None:
    scene = a_job("JAXJob").role("Worker", 3).pod("Worker", 2, "Succeeded").pod("Worker", 0).after().gone("Worker", 2)

    count = scene.scaled("Worker", 2).observed().counts["Worker"]

    assert count.succeeded == set()
