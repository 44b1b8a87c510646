"""Roles that a Kubernetes Job runs for us, by the one example there is: the launcher of MPIJob v2beta1."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from trainmaster.engine import labels
from trainmaster.engine.actions import Stage
from trainmaster.engine.blueprint import blueprint
from trainmaster.objects.meta import Json, Meta, OwnerReference
from trainmaster.objects.pod import PodStatus
from trainmaster.objects.resource import JOBS, PODS
from trainmaster.testing.scene import UID, Scene, a_job, body, created, deleted

COMPLETE = {"type": "Complete", "status": "True"}
FAILED = {"type": "Failed", "status": "True", "reason": "R", "message": "M"}


def delegating(**policy: Any) -> Scene:
    return a_job("MPIJob", version="v2beta1").role("Launcher").role("Worker", 2).policy(**policy)


def running(**policy: Any) -> Scene:
    scene = delegating(**policy).all("Running", "Worker", ready=True).delegate("Launcher", active=1)
    return scene.delegated_pod("Launcher").settled()


def leaving(scene: Scene) -> Scene:
    held = scene.others["Job", "job-launcher"]
    meta = msgspec.structs.replace(held.metadata, deletion_timestamp="2024-01-01T00:00:00Z")
    return scene.other("Job", meta, {}, held.at("status"))


def made_job(scene: Scene) -> Json:
    return body(scene.plan(), "job-launcher", JOBS)


# Making it.


def test_a_delegated_role_gets_a_job_and_no_pod_of_ours() -> None:
    made = delegating().plan()

    assert created(made, JOBS) == ["job-launcher"]
    assert "job-launcher" not in created(made)


def test_the_job_belongs_to_ours_and_bears_its_marks() -> None:
    metadata = made_job(delegating())["metadata"]

    (owner,) = metadata["ownerReferences"]
    assert (owner["uid"], owner["controller"], owner["apiVersion"]) == (UID, True, "kubeflow.org/v2beta1")
    assert (metadata["name"], metadata["namespace"], metadata["labels"]["app"]) == ("job-launcher", "default", "job")
    assert metadata["labels"][labels.JOB_NAME] == "job"


def test_its_pods_bear_the_labels_by_which_we_watch_and_the_uid_of_our_job() -> None:
    template = made_job(delegating())["spec"]["template"]

    assert template["metadata"]["labels"][labels.JOB_NAME] == "job"
    assert template["metadata"]["annotations"][labels.JOB_UID] == UID
    assert not {"name", "namespace", "ownerReferences"} & set(template["metadata"])


def test_the_labels_that_a_job_gives_its_pods_itself_are_left_to_it() -> None:
    scene = (
        delegating().role("Launcher", metadata={"labels": {"job-name": "mine", "team": "a"}}).having(compat_2021=True)
    )

    template = made_job(scene)["spec"]["template"]

    assert "job-name" not in template["metadata"]["labels"]
    assert template["metadata"]["labels"]["team"] == "a"


def test_its_pods_restart_as_the_replica_says() -> None:
    assert made_job(delegating())["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert made_job(delegating().role("Launcher", 1, "Never"))["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_it_is_made_after_what_its_pods_mount() -> None:
    stages = {a.resource.kind: getattr(a, "stage", None) for a in delegating().plan().actions}

    assert stages["Job"] == Stage.PODS
    assert stages["Secret"] == stages["ConfigMap"] == Stage.COMPANIONS


def test_on_paper_it_stands_among_the_objects_of_the_job() -> None:
    kinds = [(action.resource.kind, action.name) for action in blueprint(delegating().observed())]

    assert ("Job", "job-launcher") in kinds
    assert ("Pod", "job-launcher") not in kinds


def test_a_job_that_stands_is_never_changed() -> None:
    scene = running().role("Launcher", nodeSelector={"a": "b"}).policy(backoffLimit=9)

    assert [a for a in scene.plan().actions if a.resource == JOBS] == []


def test_a_job_that_is_leaving_is_waited_for() -> None:
    made = leaving(running()).plan()

    assert (created(made, JOBS), deleted(made, JOBS)) == ([], [])
    assert made.status.replica_statuses["Launcher"].active == 0


@pytest.mark.parametrize("owner", ["", "stranger"])
def test_a_job_of_the_name_that_is_anothers_is_not_ours(owner: str) -> None:
    owners = (OwnerReference(uid=owner, controller=True),) if owner else ()
    meta = Meta(name="job-launcher", namespace="default", uid="x", owner_references=owners)
    scene = delegating().all("Running", "Worker", ready=True).other("Job", meta, {}, {"conditions": [COMPLETE]})

    made = scene.plan()

    assert not made.status.is_finished
    assert created(made, JOBS) == ["job-launcher"], "the server says that the name is taken"
    assert [a for a in scene.policy(suspend=True).plan().actions if a.resource == JOBS] == []


# What it says.


@pytest.mark.parametrize(
    ("pods", "active"),
    [
        pytest.param(lambda s: s, 0, id="none"),
        pytest.param(lambda s: s.delegated_pod("Launcher", "Pending"), 0, id="pending"),
        pytest.param(lambda s: s.delegated_pod("Launcher"), 1, id="running"),
        pytest.param(lambda s: s.delegated_pod("Launcher", terminating=True), 0, id="leaving"),
        pytest.param(lambda s: s.delegated_pod("Launcher").delegated_pod("Launcher", attempt=1), 1, id="two"),
        pytest.param(
            lambda s: s.delegated_pod("Launcher", "Failed").delegated_pod("Launcher", attempt=1), 1, id="retry"
        ),
        pytest.param(lambda s: s.pod("Launcher", 0, owner="stranger", name="job-launcher-x"), 0, id="another's"),
    ],
)
def test_the_role_is_active_while_a_pod_of_its_job_runs(pods: Any, active: int) -> None:
    scene = pods(delegating().all("Running", "Worker", ready=True).delegate("Launcher"))

    assert scene.plan().status.replica_statuses["Launcher"].active == active


@pytest.mark.parametrize(
    ("stands", "tally", "end"),
    [
        pytest.param({}, (1, 0, 0), "", id="at work"),
        pytest.param({"failed": 2}, (1, 0, 2), "", id="at work after two failures"),
        pytest.param({"conditions": [COMPLETE], "failed": 1}, (0, 1, 1), "Succeeded", id="complete"),
        pytest.param({"conditions": [FAILED], "failed": 3}, (0, 0, 3), "Failed", id="given up"),
        pytest.param({"conditions": [{**COMPLETE, "status": "False"}]}, (1, 0, 0), "", id="a condition that is false"),
        pytest.param({"conditions": None}, (1, 0, 0), "", id="no conditions"),
        pytest.param({"conditions": [{"type": "Suspended", "status": "True"}]}, (1, 0, 0), "", id="another condition"),
    ],
)
def test_its_conditions_decide(stands: Json, tally: tuple[int, int, int], end: str) -> None:
    scene = running().delegate("Launcher", **stands)

    status = scene.plan().status

    held = status.replica_statuses["Launcher"]
    assert (held.active, held.succeeded, held.failed) == tally
    assert [condition for condition in ("Succeeded", "Failed") if status.is_true(condition)] == ([end] if end else [])


def test_what_keeps_its_pods_from_running_is_told() -> None:
    scene = delegating().delegate("Launcher").delegated_pod("Launcher", "Pending")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    pod = scene.pods["job-launcher-0"]
    blocked = msgspec.convert({"conditions": [condition]}, PodStatus)

    made = replace(scene, pods={pod.name: msgspec.structs.replace(pod, status=blocked)}).plan()

    assert "Unschedulable" in [event.reason for event in made.events]


# Taking it away.


def test_a_suspended_job_takes_it_away_whether_it_has_ended_or_not() -> None:
    assert deleted(running().policy(suspend=True).plan(), JOBS) == ["job-launcher"]


@pytest.mark.parametrize(("policy", "gone"), [("None", []), ("Running", ["job-launcher"]), ("All", ["job-launcher"])])
def test_one_that_is_still_at_work_when_the_job_ends_goes_by_policy(policy: str, gone: list[str]) -> None:
    scene = running(cleanPodPolicy=policy).pod("Worker", 0, "Failed", reason="Evicted")

    assert deleted(scene.plan(), JOBS) == gone


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_one_that_has_ended_stays_for_its_log(policy: str) -> None:
    scene = running(cleanPodPolicy=policy).delegate("Launcher", conditions=[COMPLETE])

    assert "Job" in {kind for kind, _ in scene.settled().others}


def test_pods_of_the_job_are_its_own_to_remove() -> None:
    made = running(cleanPodPolicy="All").delegate("Launcher", conditions=[COMPLETE]).plan()

    assert "job-launcher-0" not in deleted(made, PODS)
