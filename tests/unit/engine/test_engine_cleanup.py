"""cleanPodPolicy: what goes with the end of a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainmaster.engine.cleanup import LEISURE
from trainmaster.objects.resource import SERVICES
from trainmaster.testing.scene import TYPICAL, Scene, a_job, a_typical_job, created, deleted, states


def one_done_of_two(**policy: object) -> Scene:
    """Worker 0 has succeeded and decides; worker 1 still runs."""
    scene = a_job("TFJob").role("Worker", 2).policy(**policy).served()
    return scene.pod("Worker", 0, "Succeeded", exit_code=0).pod("Worker", 1)


def one_failed_of_two(**policy: object) -> Scene:
    return one_done_of_two(**policy).pod("Worker", 0, "Failed", exit_code=1)


def left(scene: Scene) -> tuple[list[str], list[str]]:
    """Pods and Services that stay."""
    return sorted(scene.pods), sorted(scene.services)


BOTH = ["job-worker-0", "job-worker-1"]


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        pytest.param(one_done_of_two(cleanPodPolicy="Running"), ["job-worker-0"], id="Running, succeeded"),
        pytest.param(one_done_of_two(cleanPodPolicy="All"), [], id="All, succeeded"),
        pytest.param(one_done_of_two(cleanPodPolicy="None"), BOTH, id="None, succeeded"),
        pytest.param(one_done_of_two(), BOTH, id="unset, succeeded just now"),
        pytest.param(one_done_of_two().after().at(LEISURE), ["job-worker-0"], id="unset, succeeded a while ago"),
        pytest.param(one_failed_of_two(), ["job-worker-0"], id="unset, failed"),
        pytest.param(one_done_of_two().pod("Worker", 1, "Pending"), ["job-worker-0"], id="unset, one waits"),
        pytest.param(one_done_of_two(cleanPodPolicy=""), [], id="empty, succeeded"),
        pytest.param(one_failed_of_two(cleanPodPolicy="Running"), ["job-worker-0"], id="Running, failed"),
        pytest.param(one_failed_of_two(cleanPodPolicy="All"), [], id="All, failed"),
        pytest.param(one_failed_of_two(cleanPodPolicy="None"), BOTH, id="None, failed"),
        pytest.param(one_done_of_two(cleanPodPolicy="Running", suspend=True), [], id="Running, suspended"),
        pytest.param(one_done_of_two(cleanPodPolicy="None", suspend=True), [], id="None, suspended"),
    ],
)
def test_what_stays_in_the_end(scene: Scene, expected: list[str]) -> None:
    assert left(scene.settled()) == (expected, expected)


@pytest.mark.parametrize(
    ("phase", "policy", "pods"),
    [
        pytest.param("Running", "All", 0, id="running, All"),
        pytest.param("Running", "Running", 0, id="running, Running"),
        pytest.param("Succeeded", "Running", 6, id="succeeded, Running"),
        pytest.param("Succeeded", "None", 6, id="succeeded, None"),
        pytest.param("Pending", "Running", 0, id="pending, Running"),
        pytest.param("Failed", "Running", 6, id="failed, Running"),
        pytest.param("Unknown", "Running", 6, id="unknown, Running"),
        pytest.param("Unknown", "All", 0, id="unknown, All"),
    ],
)
def test_pods_left_of_a_job_that_has_already_succeeded(phase: str, policy: str, pods: int) -> None:
    scene = a_job("TFJob").role("PS", 2).role("Worker", 4)
    succeeded = scene.all("Succeeded", exit_code=0).after().all(phase).policy(cleanPodPolicy=policy)

    assert len(succeeded.settled().pods) == pods


@pytest.mark.parametrize(
    ("kind", "policy"),
    [
        pytest.param("TFJob", "Running", id="tensorflow"),
        pytest.param("PyTorchJob", "None", id="pytorch"),
        pytest.param("XGBoostJob", "None", id="xgboost"),
        pytest.param("MXJob", "All", id="mxnet"),
    ],
)
def test_the_default_policy_in_2021(kind: str, policy: str) -> None:
    scene = a_typical_job(kind).having(compat_2021=True)

    assert scene.job.policy.clean_pod_policy == policy


@pytest.mark.parametrize("kind", TYPICAL)
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_the_default_policy_keeps_what_has_ended(kind: str, phase: str) -> None:
    scene = a_typical_job(kind, "Never").all(phase, exit_code=0 if phase == "Succeeded" else 1)

    assert deleted(scene.plan()) == []


@pytest.mark.parametrize("kind", TYPICAL)
@pytest.mark.parametrize(("phase", "code"), [("Succeeded", 0), ("Failed", 1)])
def test_how_they_end_who_are_ended_with_their_job_does_not_change_its_status(kind: str, phase: str, code: int) -> None:
    decisive = next(iter(TYPICAL[kind]))
    ended = a_typical_job(kind, "Never").all("Running").settled().all(phase, decisive, exit_code=code).after()

    late = ended.all("Failed", exit_code=143, terminating=True)

    assert ended.job.status.is_finished
    assert late.plan().status == ended.job.status


def test_in_2021_an_mxjob_that_ended_was_cleaned_up_by_default() -> None:
    scene = a_typical_job("MXJob").having(compat_2021=True).all("Succeeded", exit_code=0)

    assert left(scene.after()) == ([], [])


def test_pods_go_in_the_pass_that_decides_the_end() -> None:
    plan = one_done_of_two(cleanPodPolicy="Running").plan()

    assert (states(plan.status)[-1], deleted(plan)) == ("Succeeded", ["job-worker-1"])


def test_ranks_that_end_by_themselves_soon_after_the_job_keep_their_pods() -> None:
    decided = one_done_of_two().after()

    late = decided.pod("Worker", 1, "Succeeded", exit_code=0).at(2 * LEISURE)

    assert left(late.settled()) == (BOTH, BOTH)


def test_the_operator_comes_back_when_their_time_is_over() -> None:
    decided = one_done_of_two().after()

    assert (one_done_of_two().plan().wake_after, decided.at(4).plan().wake_after) == (LEISURE, LEISURE - 4)
    assert decided.at(LEISURE).plan().wake_after is None


def test_a_deletion_due_sooner_is_not_put_off_by_it() -> None:
    assert one_done_of_two(ttlSecondsAfterFinished=3).plan().wake_after == 3
    assert one_done_of_two(ttlSecondsAfterFinished=0).plan().wake_after == 0


@pytest.mark.parametrize(
    ("kind", "decisive", "serving"),
    [
        pytest.param("TFJob", "Worker", "PS", id="tensorflow"),
        pytest.param("MXJob", "Scheduler", "Server", id="mxnet"),
        pytest.param("MSJob", "Worker", "Scheduler", id="mindspore"),
        pytest.param("MPIJob", "Launcher", "Worker", id="mpi"),
    ],
)
def test_those_who_serve_for_ever_are_ended_at_once(kind: str, decisive: str, serving: str) -> None:
    scene = a_job(kind).role(decisive, 1).role(serving, 1).all("Running")

    plan = scene.pod(decisive, 0, "Succeeded", exit_code=0).plan()

    assert states(plan.status)[-1] == "Succeeded"
    assert deleted(plan) == [f"job-{serving.lower()}-0"]


def test_in_2021_running_pods_of_a_tfjob_were_ended_at_once() -> None:
    assert deleted(one_done_of_two().having(compat_2021=True).plan()) == ["job-worker-1"]


def test_services_go_with_the_pods_of_their_names_only() -> None:
    plan = one_done_of_two(cleanPodPolicy="Running").plan()

    assert deleted(plan, SERVICES) == ["job-worker-1"]


def test_a_service_whose_pod_is_gone_goes_too_so_that_a_failed_deletion_is_made_up_for() -> None:
    scene = one_done_of_two(cleanPodPolicy="All").after()
    orphaned = replace(scene, services=one_done_of_two().services)

    assert deleted(orphaned.plan(), SERVICES) == BOTH


def test_under_none_a_service_stays_even_without_its_pod() -> None:
    scene = one_done_of_two(cleanPodPolicy="None").after()

    assert deleted(scene.gone("Worker", 0).plan(), SERVICES) == []


def test_a_pod_that_is_already_going_is_not_deleted_again() -> None:
    scene = one_done_of_two(cleanPodPolicy="All").pod("Worker", 1, terminating=True)

    assert deleted(scene.plan()) == ["job-worker-0"]


def test_the_service_of_a_pod_that_is_already_going_goes_too() -> None:
    scene = one_done_of_two(cleanPodPolicy="All").pod("Worker", 1, terminating=True)

    assert deleted(scene.plan(), SERVICES) == BOTH


def test_pods_of_others_stay() -> None:
    scene = one_done_of_two(cleanPodPolicy="All").pod("Worker", 1, owner="other")

    assert deleted(scene.plan()) == ["job-worker-0"]


def test_what_a_failed_request_left_behind_is_removed_later() -> None:
    scene = one_done_of_two(cleanPodPolicy="All")
    died = scene.standing(scene.plan().status)

    assert deleted(died.plan()) == BOTH


def test_a_policy_changed_after_the_end_is_followed() -> None:
    scene = one_done_of_two(cleanPodPolicy="None").settled()

    assert deleted(scene.policy(cleanPodPolicy="All").plan()) == BOTH


def test_pods_beyond_the_wanted_number_go_by_the_same_policy() -> None:
    scene = one_done_of_two(cleanPodPolicy="Running").pod("Worker", 7)

    assert deleted(scene.plan()) == ["job-worker-1", "job-worker-7"]


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
@pytest.mark.parametrize("kind", TYPICAL)
def test_a_finished_job_never_creates_anything(kind: str, policy: str) -> None:
    scene = a_typical_job(kind).policy(cleanPodPolicy=policy).all("Succeeded", exit_code=0).settled()
    emptied = replace(scene, pods={}, services={})

    plan = emptied.scaled("Worker", 5).plan()

    assert (created(plan), created(plan, SERVICES)) == ([], [])


@pytest.mark.parametrize("kind", TYPICAL)
def test_a_finished_job_is_quiet(kind: str) -> None:
    scene = a_typical_job(kind).policy(cleanPodPolicy="All").all("Succeeded", exit_code=0).settled()

    plan = scene.at(1000).plan()

    assert (plan.status, plan.actions, plan.events, plan.marks) == (scene.job.status, (), (), ())
