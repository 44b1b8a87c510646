"""MPIJob under a gang scheduler: a launcher that waits for its workers must not be waited for by them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trainmaster.engine import gang
from trainmaster.engine.actions import Patch
from trainmaster.engine.delegates import job_of
from trainmaster.engine.pods import pod_of
from trainmaster.objects.meta import Json
from trainmaster.objects.resource import JOBS
from trainmaster.testing.scene import Scene, a_job, body, created, deleted

SCHEDULERS = ["volcano", "my-scheduler", "kube-batch"]
QUEUE = {"scheduling.volcano.sh/queue-name": "project-x"}


def asking(cpu: int, memory: int, limits: Json | None = None, **more: Any) -> dict[str, Any]:
    requests = {"cpu": cpu, "memory": f"{memory}Gi"}
    resources = {"requests": requests, **({"limits": limits} if limits else {})}
    return {"containers": [{"name": "main", "image": "i", "resources": resources}], **more}


def mpi(version: str = "v2beta1", workers: int | None = 2, scheduler: str = "volcano", **spec: Any) -> Scene:
    scene = a_job("MPIJob", version=version, **spec).role("Launcher", **asking(1, 2)).having(gang_scheduler=scheduler)
    return scene if workers is None else scene.role("Worker", workers, **asking(10, 20))


def group(scene: Scene) -> Json:
    resource = gang.resource_of(scene.settings)
    assert resource is not None
    spec: Json = body(scene.plan(), "job", resource)["spec"]
    return spec


WAITING: dict[str, Any] = {"launcherCreationPolicy": "WaitForWorkersReady"}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize(
    ("scene", "members"),
    [
        pytest.param(mpi("v2beta1", 99), 100, id="launcher and workers"),
        pytest.param(mpi("v2beta1", None), 1, id="a launcher alone"),
        pytest.param(mpi("v2beta1", 99, **WAITING), 99, id="not a launcher that waits"),
        pytest.param(mpi("v2beta1", None, **WAITING), 1, id="a launcher alone has nobody to wait for"),
        pytest.param(mpi("v1", 4), 4, id="v1, whose launcher always waits"),
        pytest.param(mpi("v1", 0), 1, id="v1 without workers"),
        pytest.param(mpi("v1alpha2", 4), 4, id="v1alpha2"),
    ],
)
def test_a_group_counts_the_pods_that_start_together(scene: Scene, members: int, scheduler: str) -> None:
    assert group(scene.having(gang_scheduler=scheduler))["minMember"] == members


@pytest.mark.parametrize(
    ("scene", "asked", "members"),
    [
        pytest.param(mpi(), 2, 2, id="fewer than all"),
        pytest.param(mpi(), 3, 3, id="all"),
        pytest.param(mpi(**WAITING), 3, 2, id="all, though one starts later"),
        pytest.param(mpi(**WAITING), 1, 1, id="one, though one starts later"),
        pytest.param(mpi("v1"), 3, 2, id="v1"),
    ],
)
def test_the_number_that_the_user_asks_for_never_includes_a_launcher_that_waits(
    scene: Scene, asked: int, members: int
) -> None:
    assert group(scene.policy(schedulingPolicy={"minAvailable": asked}))["minMember"] == members


@pytest.mark.parametrize(
    ("scene", "needs"),
    [
        pytest.param(mpi(), {"cpu": "21", "memory": "42Gi"}, id="all"),
        pytest.param(mpi(**WAITING), {"cpu": "21", "memory": "42Gi"}, id="room is kept for a launcher that waits"),
        pytest.param(mpi("v1"), {"cpu": "21", "memory": "42Gi"}, id="v1"),
        pytest.param(mpi(workers=None), {"cpu": "1", "memory": "2Gi"}, id="a launcher alone"),
        pytest.param(
            mpi().policy(schedulingPolicy={"minAvailable": 2}), {"cpu": "11", "memory": "22Gi"}, id="launcher first"
        ),
        pytest.param(
            mpi().policy(schedulingPolicy={"minResources": {"cpu": 7}}), {"cpu": "7"}, id="what the user says"
        ),
        pytest.param(mpi().policy(schedulingPolicy={"minAvailable": 0}), None, id="none is needed"),
        pytest.param(
            mpi().role("Worker", 2, **asking(10, 20, limits={"cpu": 99, "nvidia.com/gpu": 2})),
            {"cpu": "21", "memory": "42Gi", "nvidia.com/gpu": "4"},
            id="limits fill the gaps",
        ),
    ],
)
def test_a_group_needs_what_its_pods_request(scene: Scene, needs: Json | None) -> None:
    assert group(scene).get("minResources") == needs


def test_pods_of_higher_priority_are_needed_first() -> None:
    scene = mpi().role("Launcher", **asking(1, 2, priorityClassName="low"))
    scene = scene.role("Worker", 2, **asking(10, 20, priorityClassName="high"))
    scene = replace(scene.policy(schedulingPolicy={"minAvailable": 2}), priorities={"low": 10, "high": 1000})

    assert group(scene)["minResources"] == {"cpu": "20", "memory": "40Gi"}


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
@pytest.mark.parametrize(
    ("policy", "annotations", "queue"),
    [
        ({"queue": "project-y"}, QUEUE, "project-y"),
        ({}, QUEUE, "project-x"),
        ({}, {}, "default"),
    ],
    ids=["policy", "annotation", "neither"],
)
def test_the_queue_is_the_policys_or_the_annotations(version: str, policy: Json, annotations: Json, queue: str) -> None:
    scene = mpi(version).policy(schedulingPolicy=policy).meta(annotations=annotations)

    assert group(scene)["queue"] == queue


@pytest.mark.parametrize(
    ("policy", "launcher", "worker", "priority"),
    [
        ("p", "l", "w", "p"),
        (None, "l", "w", "l"),
        (None, None, "w", "w"),
        (None, None, None, None),
    ],
)
def test_the_priority_is_the_policys_the_launchers_or_the_workers(
    policy: str | None, launcher: str | None, worker: str | None, priority: str | None
) -> None:
    scene = mpi().role("Launcher", priorityClassName=launcher).role("Worker", 2, priorityClassName=worker)

    scene = scene.policy(schedulingPolicy={"priorityClass": policy})

    assert group(scene).get("priorityClassName") == priority


def test_scheduler_plugins_is_told_how_long_to_wait() -> None:
    scene = mpi(scheduler="my-scheduler").policy(schedulingPolicy={"scheduleTimeoutSeconds": 100})

    assert group(scene) == {
        "minMember": 3,
        "scheduleTimeoutSeconds": 100,
        "minResources": {"cpu": "21", "memory": "42Gi"},
    }


def pods(scene: Scene) -> list[Json]:
    framework = scene.reading.framework
    return [
        job_of(framework, member)["spec"]["template"]
        if framework.role(member.role).delegated
        else pod_of(framework, member)
        for member in scene.job.members()
    ]


@pytest.mark.parametrize("version", ["v1", "v1alpha2", "v2beta1"])
def test_launcher_and_workers_bear_the_mark_of_the_group(version: str) -> None:
    for pod, task in zip(pods(mpi(version, 1)), ("launcher", "worker"), strict=True):
        annotations = pod["metadata"]["annotations"]
        assert annotations["scheduling.k8s.io/group-name"] == "job"
        assert annotations["volcano.sh/task-spec"] == task
        assert pod["spec"]["schedulerName"] == "volcano"
    for pod in pods(mpi(version, 1, "my-scheduler")):
        assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "job"
        assert pod["spec"]["schedulerName"] == "my-scheduler"


def test_nothing_starts_before_volcano_admits_the_group() -> None:
    held, admitted = mpi().group("Pending"), mpi().group("Inqueue")

    assert (created(held.plan()), created(held.plan(), JOBS)) == ([], [])
    assert (len(created(admitted.plan())), created(admitted.plan(), JOBS)) == (2, ["job-launcher"])


def test_a_live_group_follows_the_spec_but_keeps_its_queue() -> None:
    scene = mpi().settled()

    changed = scene.policy(schedulingPolicy={"minAvailable": 2, "queue": "other"})

    (patch,) = [a for a in changed.plan().actions if isinstance(a, Patch) and a.resource == gang.VOLCANO]
    assert (patch.body["spec"]["minMember"], patch.body["spec"]["queue"]) == (2, "default")


def test_only_what_must_fit_is_asked_for_and_the_higher_class_first() -> None:
    scene = a_job("MPIJob", version="v2beta1").role("Launcher", **asking(2, 4, priorityClassName="high"))
    scene = scene.role("Worker", 100, **asking(20, 64, priorityClassName="low")).having(gang_scheduler="my-scheduler")

    asked = replace(scene.policy(schedulingPolicy={"minAvailable": 2}), priorities={"high": 9, "low": 1})

    assert group(asked)["minResources"] == {"cpu": "22", "memory": "68Gi"}


@pytest.mark.parametrize(("policy", "timeout"), [({}, None), ({"scheduleTimeoutSeconds": 7}, 7)])
def test_a_group_waits_as_long_as_its_policy_says_and_follows_it(policy: Json, timeout: int | None) -> None:
    scene = mpi(scheduler="my-scheduler")
    made = group(scene.policy(schedulingPolicy=policy))

    (patch,) = [
        action
        for action in scene.settled().policy(schedulingPolicy={"scheduleTimeoutSeconds": 30}).plan().actions
        if isinstance(action, Patch) and action.resource == gang.SCHEDULER_PLUGINS
    ]

    assert made.get("scheduleTimeoutSeconds") == timeout
    assert patch.body["spec"]["scheduleTimeoutSeconds"] == 30


@pytest.mark.parametrize("version", ["v1", "v1alpha2", "v2beta1"])
def test_a_scheduler_that_the_template_names_is_kept_and_warned_of(version: str) -> None:
    scene = mpi(version).role("Worker", 2, schedulerName="mine")

    workers = [pod["spec"]["schedulerName"] for pod in pods(scene) if "worker" in str(pod["metadata"])]

    assert set(workers) == {"mine"}
    assert "SetPodTemplateSchedulerName" in [event.reason for event in scene.plan().events]


@pytest.mark.parametrize("policy", ["None", "All"])
def test_the_group_goes_with_the_end_of_the_job_whatever_is_cleaned_up(policy: str) -> None:
    scene = mpi().policy(cleanPodPolicy=policy).settled().group("Running").all("Running", "Worker")

    made = scene.delegate("Launcher", conditions=[{"type": "Complete", "status": "True"}]).plan()

    assert deleted(made, gang.VOLCANO) == ["job"]
