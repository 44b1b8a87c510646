"""Slots: which pods are made, which are removed, and which are left alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest

from trainmaster.api.framework import Count
from trainmaster.api.job import Job
from trainmaster.engine.actions import Patch
from trainmaster.frameworks.jax import JAX
from trainmaster.objects.pod import Pod
from trainmaster.objects.resource import SERVICES
from trainmaster.testing.scene import TYPICAL, Scene, a_job, a_typical_job, created, deleted, states


def workers(replicas: int, *pods: int, phase: str = "Running") -> Scene:
    scene = a_job("TFJob").role("Worker", replicas)
    for index in pods:
        scene = scene.pod("Worker", index, phase)
    return scene


@pytest.mark.parametrize(
    ("held", "replicas", "made", "removed"),
    [
        pytest.param((0, 1, 2), 3, [], [], id="as many as wanted"),
        pytest.param((0, 1, 2), 4, ["job-worker-3"], [], id="one more"),
        pytest.param((0, 1, 2), 2, [], ["job-worker-2"], id="one less"),
        pytest.param((0, 1, 4), 3, ["job-worker-2"], ["job-worker-4"], id="a hole and one beyond"),
        pytest.param((0,), 3, ["job-worker-1", "job-worker-2"], [], id="scale up"),
        pytest.param((), 2, ["job-worker-0", "job-worker-1"], [], id="none yet"),
        pytest.param((0, 1), 0, [], ["job-worker-0", "job-worker-1"], id="none wanted"),
    ],
)
def test_pods_are_made_for_empty_slots_and_removed_beyond_the_last(
    held: tuple[int, ...], replicas: int, made: list[str], removed: list[str]
) -> None:
    scene = a_job("TFJob").role("Chief").pod("Chief", 0).role("Worker", replicas)
    for index in held:
        scene = scene.pod("Worker", index)

    plan = scene.plan()

    assert (created(plan), deleted(plan)) == (made, removed)


def test_dynamic_workers_scale_down_by_the_highest_index() -> None:
    scene = workers(2, 0, 1, 2).spec(enableDynamicWorker=True)

    plan = scene.plan()

    assert (created(plan), deleted(plan)) == ([], ["job-worker-2"])


def test_dynamic_workers_scale_up_at_the_end() -> None:
    scene = workers(3, 0).spec(enableDynamicWorker=True)

    plan = scene.plan()

    assert (created(plan), deleted(plan)) == (["job-worker-1", "job-worker-2"], [])


@pytest.mark.parametrize("kind", TYPICAL)
def test_every_kind_can_be_scaled_up_while_it_runs(kind: str) -> None:
    scene = a_typical_job(kind).all("Running").settled()

    plan = scene.scaled("Worker", 3).plan()

    assert (created(plan), created(plan, SERVICES)) == (["job-worker-2"], ["job-worker-2"])


@pytest.mark.parametrize("kind", TYPICAL)
def test_every_kind_can_be_scaled_down_while_it_runs(kind: str) -> None:
    scene = a_typical_job(kind).all("Running").settled()

    plan = scene.scaled("Worker", 1).plan()

    assert (deleted(plan), deleted(plan, SERVICES)) == (["job-worker-1"], ["job-worker-1"])


@pytest.mark.parametrize("restart", ["Always", "OnFailure", "Never", "ExitCode"])
@pytest.mark.parametrize("kind", TYPICAL)
def test_a_pod_scaled_away_is_no_failure_while_it_ends(kind: str, restart: str) -> None:
    scene = a_typical_job(kind, restart).all("Running").settled().scaled("Worker", 1)

    leaving = scene.pod("Worker", 1, "Running", terminating=True).settled()

    assert states(leaving.job.status) == ["Created", "Running"]


@pytest.mark.parametrize("kind", TYPICAL)
def test_a_pod_scaled_away_is_no_failure_when_it_ends_badly(kind: str) -> None:
    scene = a_typical_job(kind, "ExitCode").all("Running").settled().scaled("Worker", 1)

    ended = scene.pod("Worker", 1, "Failed", exit_code=1, terminating=True).settled()

    assert states(ended.job.status) == ["Created", "Running"]


def test_a_pod_scaled_away_leaves_the_tally_at_once() -> None:
    scene = workers(2, 0, 1).settled().scaled("Worker", 1)

    tally = scene.plan().status.replica_statuses["Worker"]

    assert (tally.active, tally.failed) == (1, 0)


def test_a_pod_beyond_the_last_that_is_already_going_is_not_deleted_again() -> None:
    scene = workers(1, 0).pod("Worker", 1, terminating=True)

    assert deleted(scene.plan()) == []


def test_pods_of_a_role_that_an_edit_took_out_are_removed_with_their_services() -> None:
    scene = a_job("TFJob").role("PS").role("Worker", 2).all("Running").settled()
    left = {"Worker": scene.manifest["spec"]["tfReplicaSpecs"]["Worker"]}

    plan = scene.spec(tfReplicaSpecs=left).plan()

    assert (deleted(plan), deleted(plan, SERVICES)) == (["job-ps-0"], ["job-ps-0"])


def test_a_role_that_an_edit_took_out_leaves_the_tally() -> None:
    scene = a_job("TFJob").role("PS").role("Worker", 2).all("Running").settled()
    left = {"Worker": scene.manifest["spec"]["tfReplicaSpecs"]["Worker"]}

    status = scene.spec(tfReplicaSpecs=left).plan().status

    assert list(status.replica_statuses) == ["Worker"]


def test_a_role_with_no_replicas_gets_no_pods_and_no_services() -> None:
    scene = a_job("TFJob").role("Chief").role("PS", 0)

    plan = scene.plan()

    assert (created(plan), created(plan, SERVICES)) == (["job-chief-0"], ["job-chief-0"])


def test_a_role_with_no_replicas_does_not_flap() -> None:
    scene = a_job("TFJob").role("Chief").role("PS", 0).all("Running").settled()

    plans = [scene.plan(), scene.after().plan()]

    assert [plan.actions for plan in plans] == [(), ()]


def test_a_pod_without_a_readable_index_is_ignored() -> None:
    scene = workers(1, 0)
    held = scene.pods["job-worker-0"]
    odd = Pod(msgspec.structs.replace(held.metadata, name="job-worker-x", uid="odd"), held.status)

    plan = replace(scene, pods={**scene.pods, odd.name: odd}).plan()

    assert (created(plan), deleted(plan)) == ([], [])


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded", "Unknown"])
def test_a_pod_occupies_its_slot_in_phase(phase: str) -> None:
    scene = a_job("JAXJob").role("Worker", 2).pod("Worker", 0).pod("Worker", 1, phase)

    plan = scene.plan()

    assert (created(plan), deleted(plan)) == ([], [])


@pytest.mark.parametrize("phase", ["Pending", "Running", "Failed", "Unknown"])
def test_a_terminating_pod_occupies_its_slot_in_phase(phase: str) -> None:
    scene = a_job("PyTorchJob").role("Worker", 2).pod("Worker", 0).pod("Worker", 1, phase, terminating=True)

    plan = scene.plan()

    assert (created(plan), deleted(plan)) == ([], [])


def test_a_slot_is_filled_again_once_its_pod_is_gone() -> None:
    scene = workers(2, 0, 1).settled().gone("Worker", 1)

    assert created(scene.plan()) == ["job-worker-1"]


def test_a_succeeded_replica_is_not_started_again_when_its_pod_is_removed() -> None:
    scene = a_job("JAXJob").role("Worker", 2).pod("Worker", 0, "Succeeded", exit_code=0).pod("Worker", 1)

    removed = scene.settled().gone("Worker", 0)

    assert created(removed.plan()) == []


def test_a_job_succeeds_although_the_pods_of_its_first_replicas_were_removed() -> None:
    scene = a_job("JAXJob").role("Worker", 2).pod("Worker", 0, "Succeeded", exit_code=0).pod("Worker", 1)

    removed = scene.settled().gone("Worker", 0).pod("Worker", 1, "Succeeded", exit_code=0)

    assert removed.plan().status.is_true("Succeeded")


def test_a_succeeded_replica_that_was_scaled_away_starts_anew_when_it_is_wanted_again() -> None:
    scene = a_job("JAXJob").role("Worker", 3).all("Running").pod("Worker", 2, "Succeeded", exit_code=0)

    scaled = scene.settled().scaled("Worker", 2).settled().scaled("Worker", 3)

    assert created(scaled.plan()) == ["job-worker-2"]


def test_existing_pods_are_never_changed() -> None:
    scene = workers(2, 0, 1).settled()

    plan = scene.role("Worker", 3, serviceAccountName="new").plan()

    assert [a for a in plan.actions if isinstance(a, Patch)] == []


def test_a_pod_of_another_owner_in_a_slot_neither_counts_nor_goes() -> None:
    scene = workers(2, 0).pod("Worker", 1, "Failed", owner="other")

    plan = scene.plan()

    assert (plan.status.replica_statuses["Worker"].failed, deleted(plan)) == (0, [])


class _Waiting(JAX):
    """Nothing starts before something runs."""

    def may_start(self, role: str, job: Job, counts: Mapping[str, Count]) -> bool:
        return bool(counts[role].active)


def test_pods_wait_until_the_framework_lets_them_start() -> None:
    scene = replace(a_job("JAXJob").role("Worker", 2), framework=_Waiting())

    plan = scene.plan()

    assert (created(plan), created(plan, SERVICES)) == ([], ["job-worker-0", "job-worker-1"])


def test_pods_start_when_the_framework_lets_them() -> None:
    scene = replace(a_job("JAXJob").role("Worker", 2), framework=_Waiting()).pod("Worker", 0)

    assert created(scene.plan()) == ["job-worker-1"]


def four_and_two() -> Scene:
    return a_job("TFJob").role("PS", 2).role("Worker", 4)


def partly(workers: tuple[str, ...], servers: tuple[str, ...]) -> Scene:
    """Pods and Services for the first replicas only, in these phases."""
    scene = four_and_two()
    for index, phase in enumerate(workers):
        scene = scene.pod("Worker", index, phase)
    for index, phase in enumerate(servers):
        scene = scene.pod("PS", index, phase)
    served = four_and_two().served().services
    return replace(scene, services={name: served[name] for name in scene.pods})


@pytest.mark.parametrize(
    ("scene", "new", "workers", "servers", "conditions"),
    [
        pytest.param(a_job("TFJob").role("Worker"), 1, (0, 0), None, ["Created"], id="local, new"),
        pytest.param(four_and_two(), 6, (0, 0), (0, 0), ["Created"], id="new"),
        pytest.param(four_and_two().all("Pending"), 0, (0, 0), (0, 0), ["Created"], id="all pending"),
        pytest.param(four_and_two().all("Running"), 0, (4, 0), (2, 0), ["Created", "Running"], id="all running"),
        pytest.param(partly(("Pending",) * 2, ("Pending",)), 3, (0, 0), (0, 0), ["Created"], id="half are pending"),
        pytest.param(
            partly(("Pending", "Pending", "Running"), ("Pending",)),
            2,
            (1, 0),
            (0, 0),
            ["Created", "Running"],
            id="one of them runs",
        ),
        pytest.param(
            partly(("Pending", "Pending", "Succeeded"), ("Pending",)),
            2,
            (0, 1),
            (0, 0),
            ["Created"],
            id="one of them succeeded",
        ),
        pytest.param(four_and_two().all("Succeeded"), 0, (0, 4), (0, 2), ["Created", "Succeeded"], id="all succeeded"),
    ],
)
def test_the_normal_path(
    scene: Scene, new: int, workers: tuple[int, int], servers: tuple[int, int] | None, conditions: list[str]
) -> None:
    plan = scene.plan()

    tallies = {role: (tally.active, tally.succeeded) for role, tally in plan.status.replica_statuses.items()}
    assert (len(created(plan)), len(created(plan, SERVICES))) == (new, new)
    assert tallies == {"Worker": workers} | ({"PS": servers} if servers else {})
    assert states(plan.status) == conditions
    assert plan.status.start_time is not None
