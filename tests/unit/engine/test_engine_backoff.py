"""backoffLimit: restarts in place and replacements, counted together."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from trainmaster.objects.pod import ContainerStatus, PodStatus
from trainmaster.objects.resource import SERVICES
from trainmaster.testing.scene import NOW, TYPICAL, Scene, a_job, a_typical_job, created, deleted, states, told

MESSAGE = "Job job has failed because it has reached the specified backoff limit"


def restarted(restart: str, limit: int, *restarts: int, phase: str = "Running") -> Scene:
    """Workers whose containers the kubelet restarted so many times."""
    scene = a_job("TFJob").role("Worker", len(restarts), restart).policy(backoffLimit=limit).served()
    for index, count in enumerate(restarts):
        scene = scene.pod("Worker", index, phase, restarts=count)
    return scene


def is_failed(scene: Scene) -> bool:
    return scene.plan().status.is_true("Failed")


@pytest.mark.parametrize(
    ("limit", "restarts", "is_past"),
    [
        pytest.param(0, (0, 0), False, id="0, none"),
        pytest.param(0, (1, 0), True, id="0, one"),
        pytest.param(1, (1,), True, id="1, one"),
        pytest.param(3, (3,), True, id="3, three of one pod"),
        pytest.param(3, (1, 1, 1), True, id="3, three of three pods"),
        pytest.param(3, (2, 0), False, id="3, two"),
        pytest.param(3, (5,), True, id="3, five"),
    ],
)
def test_restarts_in_place_reach_the_limit(limit: int, restarts: tuple[int, ...], is_past: bool) -> None:
    assert is_failed(restarted("OnFailure", limit, *restarts)) is is_past


@pytest.mark.parametrize(
    ("restart", "is_past"),
    [
        pytest.param("Always", True, id="Always"),
        pytest.param("OnFailure", True, id="OnFailure"),
        pytest.param("ExitCode", True, id="ExitCode"),
        pytest.param("Never", False, id="Never"),
    ],
)
def test_restarts_in_place_count_under(restart: str, is_past: bool) -> None:
    assert is_failed(restarted(restart, 3, 3)) is is_past


@pytest.mark.parametrize("phase", ["Pending", "Unknown"])
def test_restarts_in_place_count_for_running_pods_only(phase: str) -> None:
    assert not is_failed(restarted("OnFailure", 3, 9, phase=phase))


def test_restarts_of_init_containers_count() -> None:
    scene = restarted("OnFailure", 3, 1)
    status = PodStatus(
        phase="Running",
        container_statuses=(ContainerStatus(name="tensorflow", restart_count=1),),
        init_container_statuses=(ContainerStatus(name="fetch", restart_count=2),),
    )
    pod = msgspec.structs.replace(scene.pods["job-worker-0"], status=status)

    assert is_failed(replace(scene, pods={pod.name: pod}))


def test_restarts_of_pods_scaled_away_do_not_count() -> None:
    scene = restarted("OnFailure", 3, 0, 9).scaled("Worker", 1)

    assert not is_failed(scene)


def test_without_a_limit_any_number_of_restarts_is_fine() -> None:
    scene = a_job("TFJob").role("Worker", 1, "OnFailure").pod("Worker", 0, restarts=10_000)

    assert not is_failed(scene)


def test_the_end_by_the_limit_is_explained() -> None:
    plan = restarted("OnFailure", 3, 3).plan()

    failed = plan.status.conditions[-1]
    assert (failed.type, failed.reason, failed.message) == ("Failed", "TFJobFailed", MESSAGE)
    assert ("TFJobFailed", MESSAGE) in told(plan)


def test_the_end_by_the_limit_removes_everything() -> None:
    scene = a_job("TFJob").role("PS", 2, "OnFailure").role("Worker", 4, "OnFailure").policy(backoffLimit=4)
    scene = scene.all("Running").all("Running", "Worker", restarts=1)

    ended = scene.after()

    assert (states(ended.job.status), ended.pods, ended.services) == (["Created", "Failed"], {}, {})


by_policy = pytest.mark.parametrize(
    ("policy", "gone"),
    [
        pytest.param("None", [], id="None"),
        pytest.param("Running", ["job-worker-0"], id="Running"),
        pytest.param("All", ["job-worker-0", "job-worker-1"], id="All"),
    ],
)


@by_policy
def test_the_end_by_the_limit_follows_the_clean_policy_that_the_manifest_names(policy: str, gone: list[str]) -> None:
    scene = restarted("OnFailure", 3, 3, 0).pod("Worker", 1, "Succeeded").policy(cleanPodPolicy=policy)

    plan = scene.plan()

    assert deleted(plan) == deleted(plan, SERVICES) == gone


def test_where_the_manifest_leaves_it_open_everything_goes_with_the_limit() -> None:
    scene = restarted("OnFailure", 3, 3, 0).pod("Worker", 1, "Succeeded")

    assert deleted(scene.plan()) == ["job-worker-0", "job-worker-1"]


@pytest.mark.parametrize("kind", TYPICAL)
@pytest.mark.parametrize("compat", [False, True])
def test_who_has_failed_once_too_often_stays_if_the_manifest_says_none(kind: str, compat: bool) -> None:
    role = next(iter(TYPICAL[kind]))
    scene = a_typical_job(kind, "ExitCode").policy(backoffLimit=0, cleanPodPolicy="None").having(compat_2021=compat)
    scene = scene.all("Running").settled()

    ended = scene.pod(role, 0, "Failed", exit_code=137).settled()

    assert ended.job.status.conditions[-1].message == MESSAGE
    assert ended.pods.keys() == scene.pods.keys()


@by_policy
def test_in_2021_the_end_by_the_limit_followed_the_clean_policy(policy: str, gone: list[str]) -> None:
    scene = restarted("OnFailure", 3, 3, 0).pod("Worker", 1, "Failed", exit_code=1).policy(cleanPodPolicy=policy)

    plan = scene.having(compat_2021=True).plan()

    assert deleted(plan) == gone


def test_the_end_by_the_limit_is_stamped() -> None:
    status = restarted("OnFailure", 3, 3).plan().status

    assert status.completion_time == "2023-11-14T22:13:20Z"


# Replacements by the operator.


def replaced(limit: int, *attempts: int) -> Scene:
    """Workers that were replaced so many times, and have just failed again."""
    scene = a_job("JAXJob").role("Worker", len(attempts), "ExitCode").policy(backoffLimit=limit).served()
    for index, attempt in enumerate(attempts):
        scene = scene.pod("Worker", index, "Failed", exit_code=137, attempt=attempt, ended=NOW - 900)
    counted = {f"worker-{index}": attempt for index, attempt in enumerate(attempts) if attempt}
    return scene.standing(msgspec.structs.replace(scene.job.status, attempts=counted))


@pytest.mark.parametrize(
    ("limit", "attempts", "is_past"),
    [
        pytest.param(0, (0,), True, id="0, first failure"),
        pytest.param(1, (0,), False, id="1, first failure"),
        pytest.param(1, (1,), True, id="1, second failure"),
        pytest.param(2, (1,), False, id="2, second failure"),
        pytest.param(2, (1, 1), True, id="2, failures of two replicas add up"),
        pytest.param(1, (0, 0), True, id="1, two failures at once"),
        pytest.param(2, (0, 0), False, id="2, two failures at once"),
    ],
)
def test_replacements_are_bounded_by_the_limit(limit: int, attempts: tuple[int, ...], is_past: bool) -> None:
    assert is_failed(replaced(limit, *attempts)) is is_past


def test_the_limit_is_the_number_of_replacements_a_job_gets() -> None:
    scene = a_job("JAXJob").role("Worker", 1, "ExitCode").policy(backoffLimit=3).settled()
    uids = {scene.pods["job-worker-0"].metadata.uid}

    for attempt in range(9):
        if scene.job.status.is_finished:
            break
        scene = scene.pod("Worker", 0, "Failed", exit_code=137, attempt=attempt, ended=NOW - 900).settled()
        uids |= {pod.metadata.uid for pod in scene.pods.values()}

    assert len(uids) == 1 + 3


def test_a_failure_is_judged_against_the_limit_before_its_delay_is_over() -> None:
    scene = replaced(1, 1).pod("Worker", 0, "Failed", exit_code=137, attempt=1)

    assert is_failed(scene)


def test_a_replacement_that_is_on_record_is_not_held_against_the_job_twice() -> None:
    scene = replaced(1, 0)
    died = scene.standing(scene.plan().status)

    assert not is_failed(died)


def test_replacements_and_restarts_in_place_count_together_for_a_new_failure() -> None:
    scene = replaced(3, 2, 0).pod("Worker", 1, "Running", restarts=1)

    assert is_failed(scene)


def test_replacements_and_restarts_in_place_count_together_for_a_restart_in_place() -> None:
    scene = replaced(3, 2, 0).pod("Worker", 0, "Running", attempt=2).pod("Worker", 1, "Running", restarts=2)

    assert is_failed(scene)


def test_replacements_within_the_limit_do_not_end_a_job_that_runs() -> None:
    scene = replaced(3, 3).pod("Worker", 0, "Running", attempt=3)

    assert not is_failed(scene)


def test_a_limit_lowered_below_what_was_spent_waits_for_the_next_failure() -> None:
    scene = replaced(3, 3).pod("Worker", 0, "Running", attempt=3).policy(backoffLimit=1)

    assert not is_failed(scene)


@pytest.mark.parametrize("kind", TYPICAL)
def test_a_pod_deleted_by_others_is_not_held_against_the_job(kind: str) -> None:
    scene = a_typical_job(kind, "ExitCode").policy(backoffLimit=0).all("Running")

    assert not is_failed(scene.pod("Worker", 1, "Running", terminating=True))


def test_after_the_end_by_the_limit_nothing_is_replaced() -> None:
    scene = replaced(0, 0).after()

    assert created(scene.plan()) == []
