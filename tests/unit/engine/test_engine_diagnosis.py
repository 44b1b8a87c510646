"""Events that tell why a job does not get on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainmaster.engine.actions import Event
from trainmaster.objects.meta import Meta, OwnerReference
from trainmaster.objects.pod import (
    ContainerState,
    ContainerStatus,
    Pod,
    PodCondition,
    PodStatus,
    Terminated,
    Waiting,
)
from trainmaster.testing.scene import UID, Scene, a_job, a_typical_job, told


def waiting(reason: str, message: str, name: str = "jax") -> ContainerStatus:
    return ContainerStatus(name=name, state=ContainerState(waiting=Waiting(reason, message)))


def ended(exit_code: int, reason: str = "Error", message: str = "", name: str = "jax") -> ContainerStatus:
    terminated = Terminated(exit_code=exit_code, reason=reason, message=message)
    return ContainerStatus(name=name, state=ContainerState(terminated=terminated))


def with_pod(status: PodStatus, *, owner: str = UID, deletion_timestamp: str | None = None) -> Scene:
    """A job of one worker whose pod stands like this; the job itself has been seen before."""
    meta = Meta(
        name="job-worker-0",
        namespace="default",
        uid="p",
        deletion_timestamp=deletion_timestamp,
        owner_references=(OwnerReference(uid=owner, controller=True),),
    )
    scene = a_job("JAXJob").role("Worker", 1, "OnFailure").settled()
    return replace(scene, pods={"job-worker-0": Pod(meta, status)})


def troubles(status: PodStatus) -> list[tuple[str, str]]:
    return told(with_pod(status).plan())


def test_a_container_that_waits_says_why() -> None:
    found = troubles(PodStatus(container_statuses=(waiting("ImagePullBackOff", 'Back-off pulling image "nope"'),)))

    assert found == [
        (
            "ImagePullBackOff",
            'Error pod job-worker-0 container jax waiting message: Back-off pulling image "nope"',
        )
    ]


def test_a_container_that_merely_waits_is_no_trouble() -> None:
    assert troubles(PodStatus(container_statuses=(waiting("ContainerCreating", ""),))) == []


def test_a_container_that_ended_badly_in_a_pod_that_goes_on_is_told() -> None:
    statuses = (ended(137, "OOMKilled", "too much", name="sidecar"), ContainerStatus(name="jax"))
    scene = with_pod(PodStatus(phase="Running", container_statuses=statuses)).settled()

    assert told(scene.plan()) == [
        ("OOMKilled", "Error pod job-worker-0 container sidecar exitCode: 137 terminated message: too much")
    ]


def test_a_container_that_left_no_message_is_told_of_without_one() -> None:
    scene = with_pod(PodStatus(phase="Running", container_statuses=(ended(3, "Error", ""),))).settled()

    assert told(scene.plan()) == [("Error", "Error pod job-worker-0 container jax exitCode: 3")]


def test_a_container_that_ended_well_is_no_trouble() -> None:
    scene = with_pod(PodStatus(phase="Running", container_statuses=(ended(0, "Completed"),))).settled()

    assert told(scene.plan()) == []


def test_every_container_in_trouble_is_told() -> None:
    statuses = (waiting("CrashLoopBackOff", "a", name="one"), waiting("CrashLoopBackOff", "b", name="two"))

    assert len(troubles(PodStatus(container_statuses=statuses))) == 2


def test_init_containers_are_asked_when_the_others_have_not_begun() -> None:
    found = troubles(PodStatus(init_container_statuses=(ended(1, "Error", "no network", name="fetch"),)))

    assert found == [("Error", "Error pod job-worker-0 container fetch exitCode: 1 terminated message: no network")]


def test_init_containers_are_not_asked_when_the_others_have_begun() -> None:
    status = PodStatus(
        init_container_statuses=(ended(1, name="fetch"),), container_statuses=(waiting("PodInitializing", ""),)
    )

    assert troubles(status) == []


def test_a_pod_without_containers_is_asked_for_its_latest_condition() -> None:
    conditions = (
        PodCondition("Ready", "False", "NotReady", "old", "2024-01-01T00:00:00Z"),
        PodCondition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available", "2024-01-02T00:00:00Z"),
    )

    assert troubles(PodStatus(conditions=conditions)) == [
        ("Unschedulable", "Error pod job-worker-0 condition message: 0/3 nodes are available")
    ]


def test_a_latest_condition_that_is_true_is_no_trouble() -> None:
    conditions = (
        PodCondition("PodScheduled", "True", "", "", "2024-01-02T00:00:00Z"),
        PodCondition("Ready", "False", "NotReady", "old", "2024-01-01T00:00:00Z"),
    )

    assert troubles(PodStatus(conditions=conditions)) == []


def test_a_pod_about_which_nothing_is_known_is_no_trouble() -> None:
    assert troubles(PodStatus()) == []


def test_a_trouble_without_a_reason_gets_one() -> None:
    found = troubles(PodStatus(container_statuses=(waiting("", "who knows"),)))

    assert [reason for reason, _ in found] == ["PodNotRunning"]


def test_troubles_are_warnings_told_once_however_often_they_are_seen() -> None:
    (event,) = with_pod(PodStatus(container_statuses=(waiting("ImagePullBackOff", "no"),))).plan().events

    assert (event.type, event.repeat) == ("Warning", False)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_ended_are_in_no_trouble(phase: str) -> None:
    scene = with_pod(PodStatus(phase=phase, container_statuses=(waiting("CrashLoopBackOff", "x"),)))

    assert "CrashLoopBackOff" not in dict(told(scene.plan()))


def test_pods_that_are_going_are_in_no_trouble() -> None:
    status = PodStatus(container_statuses=(waiting("CrashLoopBackOff", "x"),))

    assert told(with_pod(status, deletion_timestamp="2024-01-01T00:00:00Z").plan()) == []


def test_pods_of_others_are_not_our_trouble() -> None:
    status = PodStatus(container_statuses=(waiting("CrashLoopBackOff", "x"),))

    assert told(with_pod(status, owner="other").plan()) == []


@pytest.mark.parametrize("policy", [{"suspend": True}, {"activeDeadlineSeconds": 0}])
def test_a_job_that_does_not_go_on_is_in_no_trouble(policy: dict[str, object]) -> None:
    scene = with_pod(PodStatus(container_statuses=(waiting("CrashLoopBackOff", "x"),))).policy(**policy)

    assert "CrashLoopBackOff" not in dict(told(scene.plan()))


# How containers ended.


def exits(scene: Scene) -> list[Event]:
    return [event for event in scene.plan().events if event.reason == "ExitedWithCode"]


def test_an_exit_that_failed_is_told_with_its_code() -> None:
    scene = a_typical_job("TFJob", "ExitCode").all("Running").pod("Worker", 1, "Failed", exit_code=137)

    assert exits(scene) == [
        Event("Normal", "ExitedWithCode", "Pod: default.job-worker-1 exited with code 137", repeat=False)
    ]


def test_an_exit_of_0_goes_without_saying() -> None:
    assert exits(a_typical_job("TFJob").all("Succeeded", exit_code=0)) == []


def test_a_pod_that_was_lost_without_an_exit_code_is_not_told() -> None:
    assert exits(a_typical_job("TFJob", "ExitCode").all("Running").pod("Worker", 1, "Failed")) == []


def test_an_exit_is_not_told_again_while_nothing_else_ends() -> None:
    scene = a_typical_job("TFJob", "ExitCode").all("Running").pod("Worker", 1, "Failed", exit_code=137, attempt=9)

    assert exits(scene.after()) == []


def test_an_exit_is_told_when_it_ends_the_job() -> None:
    scene = a_typical_job("TFJob", "Never").all("Running").settled().pod("PS", 0, "Failed", exit_code=3)

    assert [event.message for event in exits(scene)] == ["Pod: default.job-ps-0 exited with code 3"]


def test_exits_are_told_in_role_and_index_order() -> None:
    scene = a_typical_job("PyTorchJob", "ExitCode").pod("Worker", 1, "Failed", exit_code=137)

    found = exits(scene.pod("Worker", 0, "Failed", exit_code=137).pod("Master", 0, "Failed", exit_code=137))

    assert [event.message.split()[1] for event in found] == [
        "default.job-master-0",
        "default.job-worker-0",
        "default.job-worker-1",
    ]
