"""ttlSecondsAfterFinished: when a finished job goes."""

from __future__ import annotations

import msgspec
import pytest

from trainmaster.api.status import Condition
from trainmaster.engine.actions import Delete
from trainmaster.objects import timestamp
from trainmaster.testing.scene import NOW, TYPICAL, Scene, a_job, a_typical_job, states


def finished(ttl: int | None, phase: str = "Succeeded", **policy: object) -> Scene:
    """A job that ended now."""
    scene = a_job("TFJob").role("Worker", 1, "Never")
    if ttl is not None:
        policy["ttlSecondsAfterFinished"] = ttl
    code = 0 if phase == "Succeeded" else 1
    return scene.policy(**policy).all(phase, exit_code=code).after()


def is_removed(scene: Scene) -> bool:
    return any(isinstance(a, Delete) and a.resource == scene.job.resource for a in scene.plan().actions)


def ended_at(scene: Scene, time: float | None) -> Scene:
    stamp = None if time is None else timestamp.render(time)
    return scene.standing(msgspec.structs.replace(scene.job.status, completion_time=stamp))


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize(
    ("ttl", "later", "removed"),
    [
        pytest.param(None, 10**9, False, id="none, kept for good"),
        pytest.param(0, 0, True, id="0, at once"),
        pytest.param(3, 0, False, id="3, just ended"),
        pytest.param(3, 2.9, False, id="3, not quite"),
        pytest.param(3, 3, True, id="3, to the second"),
        pytest.param(180, 86_400, True, id="180, ended yesterday"),
    ],
)
def test_a_finished_job_is_removed_when_its_time_is_up(
    phase: str, ttl: int | None, later: float, removed: bool
) -> None:
    assert is_removed(finished(ttl, phase).at(later)) is removed


@pytest.mark.parametrize("kind", TYPICAL)
def test_the_job_itself_is_deleted_and_its_uid_with_the_request(kind: str) -> None:
    scene = a_typical_job(kind).policy(ttlSecondsAfterFinished=0).all("Succeeded", exit_code=0).after()

    (action,) = scene.plan().actions

    assert action == Delete(scene.framework.resource, scene.job.meta)


def test_a_removal_is_marked_for_metrics() -> None:
    assert finished(0).plan().marks == ("deleted",)


def test_the_job_is_looked_at_again_when_its_time_is_up() -> None:
    assert finished(100).at(30).plan().wake_after == 70


def test_the_pass_that_ends_the_job_says_when_to_look_again() -> None:
    scene = a_job("TFJob").role("Worker").policy(ttlSecondsAfterFinished=100).all("Succeeded", exit_code=0)

    assert scene.plan().wake_after == 100


def test_a_job_kept_for_good_need_not_be_looked_at_again() -> None:
    assert finished(None).plan().wake_after is None


def test_a_running_job_is_not_removed() -> None:
    scene = a_job("TFJob").role("Worker").policy(ttlSecondsAfterFinished=0).all("Running").settled()

    assert not is_removed(scene.at(1000))


def test_a_suspended_job_is_not_removed() -> None:
    scene = a_job("TFJob").role("Worker").policy(ttlSecondsAfterFinished=10, suspend=True).settled()

    assert not is_removed(scene.at(1000))


def test_a_ttl_set_after_the_end_counts_from_the_end() -> None:
    scene = finished(None).at(60).policy(ttlSecondsAfterFinished=100)

    assert scene.plan().wake_after == 40


def test_an_end_in_the_future_is_waited_for() -> None:
    scene = ended_at(finished(10), NOW + 50)

    assert scene.plan().wake_after == 60


def test_a_finished_job_without_a_time_of_its_end_gets_that_of_its_last_condition() -> None:
    scene = ended_at(finished(None), None).at(500)

    assert scene.plan().status.completion_time == timestamp.render(NOW)


def test_a_finished_job_without_any_times_ends_now() -> None:
    status = msgspec.structs.replace(
        finished(None).job.status, conditions=(Condition("Failed", "True"),), completion_time=None
    )

    found = finished(None).standing(status).at(500).plan().status

    assert found.completion_time == timestamp.render(NOW + 500)


def test_a_finished_job_without_a_time_of_its_end_is_removed_all_the_same() -> None:
    assert is_removed(ended_at(finished(10), None).at(11))


def test_an_exit_code_that_ends_a_job_stamps_its_end() -> None:
    scene = a_job("PyTorchJob").role("Worker", 1, "ExitCode").all("Failed", exit_code=1)

    status = scene.plan().status

    assert (states(status)[-1], status.completion_time) == ("Failed", timestamp.render(NOW))
