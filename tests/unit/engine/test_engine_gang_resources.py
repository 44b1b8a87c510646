"""What a group of pods needs before any of them may start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trainmaster.engine import gang
from trainmaster.objects.meta import Json
from trainmaster.testing.scene import Scene, a_job, body


def asking(requests: Json | None = None, limits: Json | None = None, **more: Any) -> dict[str, Any]:
    """A template whose training container asks for this."""
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value is not None}
    return {"containers": [{"name": "tensorflow", "image": "i", "resources": resources}], **more}


def needs(scene: Scene, scheduler: str = "volcano") -> Json | None:
    scene = scene.having(gang_scheduler=scheduler)
    resource = gang.resource_of(scene.settings)
    assert resource is not None
    found: Json | None = body(scene.plan(), "job", resource)["spec"].get("minResources")
    return found


def test_a_group_needs_what_its_pods_request() -> None:
    scene = a_job("TFJob").role("PS", 2, **asking({"cpu": "500m"})).role("Worker", 3, **asking({"cpu": 2, "gpu": 1}))

    assert needs(scene) == {"cpu": "7", "gpu": "3"}


def test_scheduler_plugins_is_told_the_same() -> None:
    scene = a_job("TFJob").role("Worker", 3, **asking({"memory": "2Gi"}))

    assert needs(scene, "my-scheduler") == {"memory": "6Gi"}


def test_a_container_without_requests_needs_its_limits() -> None:
    assert needs(a_job("TFJob").role("Worker", 2, **asking(limits={"cpu": "1"}))) == {"cpu": "2"}


def test_what_is_limited_but_not_requested_is_needed_to_the_limit() -> None:
    scene = a_job("TFJob").role("Worker", 2, **asking({"cpu": "1"}, limits={"cpu": "2", "nvidia.com/gpu": 4}))

    assert needs(scene) == {"cpu": "2", "nvidia.com/gpu": "8"}


def test_every_regular_container_counts() -> None:
    containers = [
        {"name": "tensorflow", "image": "i", "resources": {"requests": {"cpu": "1"}}},
        {"name": "sidecar", "image": "i", "resources": {"limits": {"cpu": "100m"}}},
    ]

    assert needs(a_job("TFJob").role("Worker", containers=containers)) == {"cpu": "1100m"}


def test_init_containers_do_not_count() -> None:
    fetch = {"name": "fetch", "image": "i", "resources": {"requests": {"cpu": "9"}}}
    scene = a_job("TFJob").role("Worker", **asking({"cpu": "1"}, initContainers=[fetch]))

    assert needs(scene) == {"cpu": "1"}


def test_pods_that_ask_for_nothing_need_nothing() -> None:
    assert needs(a_job("TFJob").role("Worker")) is None


def test_what_the_user_says_a_group_needs_is_taken_as_it_is() -> None:
    scene = a_job("TFJob").role("Worker", **asking({"cpu": "1"}))

    assert needs(scene.policy(schedulingPolicy={"minResources": {"cpu": 8, "gpu": "4"}})) == {"cpu": "8", "gpu": "4"}


def priorities(members: int, **values: int) -> Scene:
    """A server asks for memory, three workers for cpu; both name a class of their own."""
    scene = a_job("TFJob").role("PS", 1, **asking({"memory": "1Gi"}, priorityClassName="servers"))
    scene = scene.role("Worker", 3, **asking({"cpu": "1"}, priorityClassName="workers"))
    return replace(scene.policy(schedulingPolicy={"minAvailable": members}), priorities=values)


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        pytest.param(priorities(2, servers=0, workers=10), {"cpu": "2"}, id="higher first"),
        pytest.param(priorities(2, servers=10, workers=0), {"cpu": "1", "memory": "1Gi"}, id="in order"),
        pytest.param(priorities(2, servers=5, workers=5), {"cpu": "1", "memory": "1Gi"}, id="equal, by role order"),
        pytest.param(priorities(2), {"cpu": "1", "memory": "1Gi"}, id="unknown classes count as 0"),
        pytest.param(priorities(2, servers=-1), {"cpu": "2"}, id="below 0 comes last"),
        pytest.param(priorities(4, servers=0, workers=10), {"cpu": "3", "memory": "1Gi"}, id="all are needed"),
        pytest.param(priorities(9), {"cpu": "3", "memory": "1Gi"}, id="more than there are"),
        pytest.param(priorities(0), None, id="none is needed"),
    ],
)
def test_a_smaller_group_needs_what_its_most_important_pods_request(scene: Scene, expected: Json | None) -> None:
    assert needs(scene) == expected


def test_a_mended_group_drops_resources_that_are_no_longer_needed() -> None:
    scene = a_job("TFJob").role("Worker", **asking({"cpu": "1", "gpu": "1"})).having(gang_scheduler="volcano").settled()

    changed = scene.role("Worker", **asking({"cpu": "1"})).settled()

    assert changed.others["PodGroup", "job"].at("spec", "minResources") == {"cpu": "1"}
