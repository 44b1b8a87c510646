"""Gang scheduling: three schedulers, one PodGroup per job, and pods that wait for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from trainmaster.api.settings import Settings
from trainmaster.engine import gang
from trainmaster.engine.actions import Patch
from trainmaster.objects.meta import Json, Meta, Object, OwnerReference
from trainmaster.objects.resource import SERVICES, Resource
from trainmaster.testing.scene import (
    TYPICAL,
    UID,
    Scene,
    a_job,
    a_typical_job,
    body,
    created,
    deleted,
    states,
    told,
)

RESOURCES = {"volcano": gang.VOLCANO, "my-scheduler": gang.SCHEDULER_PLUGINS, "kube-batch": gang.KUBE_BATCH}
every_scheduler = pytest.mark.parametrize("scheduler", RESOURCES)
every_kind = pytest.mark.parametrize("kind", TYPICAL)


def ganged(scheduler: str, kind: str = "TFJob") -> Scene:
    return a_typical_job(kind).having(gang_scheduler=scheduler)


def group(scene: Scene) -> Json:
    resource = gang.resource_of(scene.settings)
    assert resource is not None
    return body(scene.plan(), "job", resource)


def spec(scene: Scene) -> dict[str, Any]:
    return dict(group(scene)["spec"])


def held(scene: Scene) -> Object:
    return scene.others["PodGroup", "job"]


def in_phase(scene: Scene, phase: str) -> Scene:
    """The scheduler moved the job's group on."""
    return scene.other("PodGroup", held(scene).metadata, held(scene).at("spec"), {"phase": phase})


def admitted(scheduler: str, kind: str = "TFJob") -> Scene:
    """A job whose group was admitted and whose pods run."""
    return in_phase(ganged(scheduler, kind).after(), "Running").all("Running").settled()


# Which scheduler.


@pytest.mark.parametrize(
    ("name", "resource"),
    [
        pytest.param("", None, id="off"),
        pytest.param("none", None, id="none"),
        pytest.param("None", None, id="None"),
        pytest.param("volcano", gang.VOLCANO, id="volcano"),
        pytest.param("Volcano", gang.VOLCANO, id="Volcano"),
        pytest.param("kube-batch", gang.KUBE_BATCH, id="kube-batch"),
        pytest.param("scheduler-plugins-scheduler", gang.SCHEDULER_PLUGINS, id="any other"),
    ],
)
def test_the_name_of_the_scheduler_chooses_the_kind_of_group(name: str, resource: Resource | None) -> None:
    assert gang.resource_of(Settings(gang_scheduler=name)) == resource


@every_kind
def test_without_gang_scheduling_there_is_no_group(kind: str) -> None:
    made = a_typical_job(kind).plan()

    assert {a.resource.kind for a in made.actions} == {"Pod", "Service"}


def test_without_gang_scheduling_a_group_of_the_jobs_name_holds_nothing_up() -> None:
    scene = a_job("TFJob").role("Worker").group("Pending")

    assert created(scene.plan()) == ["job-worker-0"]


# Pods.


@pytest.mark.parametrize(
    ("scheduler", "name", "annotations"),
    [
        pytest.param(
            "Volcano",
            "volcano",
            {"scheduling.k8s.io/group-name": "job", "volcano.sh/task-spec": "worker"},
            id="volcano",
        ),
        pytest.param("my-scheduler", "my-scheduler", {}, id="scheduler-plugins"),
        pytest.param("kube-batch", "kube-batch", {"scheduling.k8s.io/group-name": "job"}, id="kube-batch"),
    ],
)
def test_pods_are_tied_to_the_group(scheduler: str, name: str, annotations: dict[str, str]) -> None:
    pod = body(ganged(scheduler).group("Running").plan(), "job-worker-0")

    assert (pod["spec"]["schedulerName"], pod["metadata"].get("annotations", {})) == (name, annotations)


def test_scheduler_plugins_finds_the_group_by_a_label() -> None:
    pod = body(ganged("my-scheduler").group().plan(), "job-worker-0")

    assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "job"


@pytest.mark.parametrize("scheduler", ["volcano", "kube-batch"])
def test_other_schedulers_need_no_label(scheduler: str) -> None:
    pod = body(ganged(scheduler).group("Running").plan(), "job-worker-0")

    assert "scheduling.x-k8s.io/pod-group" not in pod["metadata"]["labels"]


def test_a_task_is_named_after_its_role() -> None:
    made = ganged("volcano").group("Running").plan()

    found = {name: body(made, name)["metadata"]["annotations"]["volcano.sh/task-spec"] for name in created(made)}

    assert found == {"job-chief-0": "chief", "job-ps-0": "ps", "job-worker-0": "worker", "job-worker-1": "worker"}


def test_annotations_of_the_template_are_kept_beside_those_of_the_group() -> None:
    scene = a_job("JAXJob").role("Worker", metadata={"annotations": {"mine": "1"}}).having(gang_scheduler="kube-batch")

    pod = body(scene.group().plan(), "job-worker-0")

    assert pod["metadata"]["annotations"] == {"mine": "1", "scheduling.k8s.io/group-name": "job"}


def test_a_scheduler_in_the_template_is_not_overwritten() -> None:
    scene = a_job("JAXJob").role("Worker", schedulerName="mine").having(gang_scheduler="volcano").group("Running")

    assert body(scene.plan(), "job-worker-0")["spec"]["schedulerName"] == "mine"


def test_a_pod_with_another_scheduler_is_tied_to_the_group_all_the_same() -> None:
    scene = a_job("JAXJob").role("Worker", schedulerName="mine").having(gang_scheduler="volcano").group("Running")

    assert body(scene.plan(), "job-worker-0")["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "job"


@pytest.mark.parametrize(
    ("servers", "workers", "roles"),
    [
        pytest.param(None, None, [], id="none set"),
        pytest.param("mine", "mine", ["PS", "Worker"], id="both set"),
        pytest.param(None, "mine", ["Worker"], id="one set"),
        pytest.param("volcano", "volcano", [], id="set to the right one"),
    ],
)
def test_the_user_is_told_of_roles_with_another_scheduler(
    servers: str | None, workers: str | None, roles: list[str]
) -> None:
    scene = a_job("TFJob").having(gang_scheduler="volcano")
    for role, scheduler in (("PS", servers), ("Worker", workers)):
        scene = scene.role(role, schedulerName=scheduler) if scheduler else scene.role(role)

    events = [event for event in scene.plan().events if event.reason == "SetPodTemplateSchedulerName"]

    assert [role for role in ("PS", "Worker") for event in events if f" {role} " in event.message] == roles
    assert {event.type for event in events} <= {"Warning"}


@pytest.mark.parametrize(("least", "is_told"), [(3, True), (2, False), (1, False)])
def test_the_user_is_told_of_a_group_that_can_never_be_whole(least: int, is_told: bool) -> None:
    scene = a_job("JAXJob").role("Worker", 2).having(gang_scheduler="volcano")

    plan = scene.policy(schedulingPolicy={"minAvailable": least}).plan()

    assert [event.message for event in plan.events if event.reason == "GroupNeverFits"] == is_told * [
        "schedulingPolicy.minAvailable is 3, but the job has 2 pods: it never starts; "
        "lower it, or leave it out to start all together"
    ]


def test_without_gang_scheduling_any_scheduler_will_do() -> None:
    scene = a_job("TFJob").role("Worker", schedulerName="mine")

    assert told(scene.plan()) == []


# The group.


@every_scheduler
def test_a_group_bears_the_jobs_name_and_belongs_to_it(scheduler: str) -> None:
    made = group(ganged(scheduler).meta(namespace="team-a"))

    owner = made["metadata"]["ownerReferences"]
    assert (made["apiVersion"], made["kind"]) == (RESOURCES[scheduler].api_version, "PodGroup")
    assert (made["metadata"]["name"], made["metadata"]["namespace"]) == ("job", "team-a")
    assert [(o["kind"], o["uid"], o["controller"]) for o in owner] == [("TFJob", UID, True)]


def test_a_group_has_the_annotations_of_the_job() -> None:
    scene = ganged("volcano").meta(
        annotations={"queue.example.com/hint": "a", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    )

    annotations = group(scene)["metadata"]["annotations"]

    assert set(annotations) == {"queue.example.com/hint", "trainmaster.dev/applied"}


@every_kind
@every_scheduler
def test_by_default_all_replicas_must_fit(scheduler: str, kind: str) -> None:
    assert spec(ganged(scheduler, kind))["minMember"] == sum(TYPICAL[kind].values())


@pytest.mark.parametrize("scheduler", ["volcano", "my-scheduler"])
@pytest.mark.parametrize("members", [1, 2, 10])
def test_the_user_may_say_how_many_must_fit(scheduler: str, members: int) -> None:
    scene = ganged(scheduler).policy(schedulingPolicy={"minAvailable": members})

    assert spec(scene)["minMember"] == members


@pytest.mark.parametrize("scene", [
    pytest.param(a_typical_job("TFJob").policy(schedulingPolicy={"minAvailable": 0}), id="none asked for"),
    pytest.param(a_job("JAXJob").role("Worker", 0), id="no replicas"),
])  # fmt: skip
def test_a_group_of_scheduler_plugins_has_one_member_at_least(scene: Scene) -> None:
    """Its schema refuses 0, which Volcano takes."""
    found = [spec(scene.having(gang_scheduler=scheduler))["minMember"] for scheduler in ("volcano", "my-scheduler")]

    assert found == [0, 1]


def test_a_group_of_kube_batch_says_nothing_but_how_many() -> None:
    policy = {"minAvailable": 2, "queue": "q", "priorityClass": "high", "minResources": {"cpu": "1"}}

    assert spec(ganged("kube-batch").policy(schedulingPolicy=policy)) == {"minMember": 4}


@pytest.mark.parametrize(
    ("policy", "queue"),
    [
        pytest.param({}, "default", id="none"),
        pytest.param({"queue": "training"}, "training", id="chosen"),
        pytest.param({"queue": ""}, "default", id="empty"),
    ],
)
def test_the_queue_of_volcano(policy: Json, queue: str) -> None:
    assert spec(ganged("volcano").policy(schedulingPolicy=policy))["queue"] == queue


def test_a_queue_once_chosen_stays() -> None:
    scene = ganged("volcano").policy(schedulingPolicy={"queue": "first"}).settled()

    changed = scene.policy(schedulingPolicy={"queue": "second"}).settled()

    assert held(changed).at("spec", "queue") == "first"


def test_a_queue_that_an_administrator_chose_stays_when_the_group_is_mended() -> None:
    scene = in_phase(ganged("volcano").settled(), "Running")
    moved = scene.other("PodGroup", held(scene).metadata, {**held(scene).at("spec"), "queue": "theirs"})

    mended = moved.scaled("Worker", 5).settled()

    assert held(mended).at("spec", "queue") == "theirs"
    assert held(mended).at("spec", "minMember") == 7


def test_a_priority_class_is_for_volcano() -> None:
    policy = {"priorityClass": "high"}

    found = [spec(ganged(s).policy(schedulingPolicy=policy)).get("priorityClassName") for s in RESOURCES]

    assert found == ["high", None, None]


def test_a_schedule_timeout_is_for_scheduler_plugins() -> None:
    policy = {"scheduleTimeoutSeconds": 30}

    found = [spec(ganged(s).policy(schedulingPolicy=policy)).get("scheduleTimeoutSeconds") for s in RESOURCES]

    assert found == [None, 30, None]


# Waiting.


def test_volcano_gets_the_group_first_and_nothing_else() -> None:
    plan = ganged("volcano").plan()

    assert [(a.resource, a.name) for a in plan.actions] == [(gang.VOLCANO, "job")]


@pytest.mark.parametrize("phase", ["", "Pending"])
@every_kind
def test_volcano_holds_pods_and_services_back_while_the_group_is(kind: str, phase: str) -> None:
    scene = in_phase(ganged("volcano", kind).after(), phase) if phase else ganged("volcano", kind).after()

    plan = scene.plan()

    assert (created(plan), created(plan, SERVICES)) == ([], [])


@pytest.mark.parametrize("phase", ["Inqueue", "Running", "Unknown"])
@every_kind
def test_volcano_lets_pods_and_services_be_made_when_the_group_is(kind: str, phase: str) -> None:
    plan = in_phase(ganged("volcano", kind).after(), phase).plan()

    assert len(created(plan)) == len(created(plan, SERVICES)) == sum(TYPICAL[kind].values())


def test_a_held_job_has_been_seen_but_has_not_started() -> None:
    status = ganged("volcano").plan().status

    assert (states(status), status.start_time, status.last_reconcile_time) == (
        ["Created"],
        None,
        "2023-11-14T22:13:20Z",
    )


def test_a_held_job_is_quiet() -> None:
    scene = in_phase(ganged("volcano").after(), "Pending")

    plan = scene.at(60).plan()

    assert (plan.status, plan.actions, plan.events) == (scene.job.status, (), ())


def test_a_job_starts_when_it_is_admitted() -> None:
    scene = in_phase(ganged("volcano").after(), "Inqueue").at(60)

    assert scene.plan().status.start_time == "2023-11-14T22:14:20Z"


@pytest.mark.parametrize("scheduler", ["my-scheduler", "kube-batch"])
def test_other_schedulers_get_the_group_first_too(scheduler: str) -> None:
    """Pods of a group that could not be made would be placed one by one."""
    plan = ganged(scheduler).plan()

    assert [(a.resource, a.name) for a in plan.actions] == [(RESOURCES[scheduler], "job")]


@pytest.mark.parametrize("scheduler", ["my-scheduler", "kube-batch"])
def test_other_schedulers_get_the_pods_as_soon_as_the_group_is_there(scheduler: str) -> None:
    plan = ganged(scheduler).after().plan()

    assert len(created(plan)) == len(created(plan, SERVICES)) == 4


@every_scheduler
def test_a_group_that_is_going_away_is_as_good_as_none(scheduler: str) -> None:
    scene = admitted(scheduler).gone("Worker", 1)
    going = msgspec.structs.replace(held(scene).metadata, deletion_timestamp="2024-01-01T00:00:00Z")

    plan = scene.other("PodGroup", going, held(scene).at("spec"), {"phase": "Running"}).plan()

    assert plan.actions == ()


@pytest.mark.parametrize("scheduler", ["my-scheduler", "kube-batch"])
def test_other_schedulers_do_not_hold_pods_back(scheduler: str) -> None:
    assert len(created(ganged(scheduler).group("Pending").plan())) == 4


def test_running_pods_are_counted_even_if_the_group_falls_back_to_pending() -> None:
    scene = in_phase(admitted("volcano"), "Pending")

    plan = scene.plan()

    assert (states(plan.status), plan.actions) == (["Created", "Running"], ())


def test_a_job_whose_group_falls_back_to_pending_can_still_fail() -> None:
    scene = in_phase(admitted("volcano"), "Pending").pod("Worker", 1, "Failed", exit_code=1)

    assert states(scene.plan().status)[-1] == "Failed"


def test_a_group_that_falls_back_to_pending_holds_new_pods_back() -> None:
    scene = in_phase(admitted("volcano"), "Pending").gone("Worker", 1)

    assert created(scene.plan()) == []


def test_a_group_that_somebody_removed_is_made_again() -> None:
    scene = replace(admitted("volcano"), others={})

    plan = scene.plan()

    assert (created(plan, gang.VOLCANO), deleted(plan)) == (["job"], [])


# Mending.


@every_scheduler
def test_a_group_in_order_is_left_alone(scheduler: str) -> None:
    assert admitted(scheduler).plan().actions == ()


@every_scheduler
def test_a_group_grows_with_the_job(scheduler: str) -> None:
    scene = admitted(scheduler).scaled("Worker", 5).settled()

    assert held(scene).at("spec", "minMember") == 7


def test_a_mended_group_keeps_its_status() -> None:
    scene = admitted("volcano").scaled("Worker", 5).settled()

    assert held(scene).at("status", "phase") == "Running"


def test_what_others_write_into_a_group_is_no_drift() -> None:
    scene = admitted("volcano")
    filled = scene.other("PodGroup", held(scene).metadata, {**held(scene).at("spec"), "minTaskMember": {}})

    assert [a for a in filled.plan().actions if isinstance(a, Patch)] == []


def test_a_mended_group_drops_what_is_no_longer_wanted() -> None:
    policy = {"minAvailable": 1, "priorityClass": "high"}
    scene = ganged("volcano").policy(schedulingPolicy=policy).settled()

    changed = scene.policy(schedulingPolicy={"minAvailable": 1}).settled()

    assert set(held(changed).at("spec")) == {"minMember", "queue"}


def test_a_patch_names_the_version_it_was_made_for() -> None:
    scene = ganged("volcano").after()
    stored = msgspec.structs.replace(held(scene).metadata, resource_version="42")
    scene = scene.other("PodGroup", stored, held(scene).at("spec")).scaled("Worker", 5)

    (patch,) = [a for a in scene.plan().actions if isinstance(a, Patch)]

    assert patch.body["metadata"]["resourceVersion"] == "42"


# A group that the user made.


@pytest.mark.parametrize("owner", [pytest.param("", id="nobody's"), pytest.param("other", id="another's")])
@every_scheduler
def test_a_group_that_is_not_ours_is_never_changed(scheduler: str, owner: str) -> None:
    scene = ganged(scheduler).group("Running", owner=owner, minMember=1).all("Running").settled()

    assert held(scene).at("spec") == {"minMember": 1}


@pytest.mark.parametrize("owner", [pytest.param("", id="nobody's"), pytest.param("other", id="another's")])
@every_scheduler
def test_a_group_that_is_not_ours_is_never_deleted(scheduler: str, owner: str) -> None:
    scene = ganged(scheduler).group("Running", owner=owner).all("Succeeded", exit_code=0).settled()

    assert (scene.job.status.is_true("Succeeded"), ("PodGroup", "job") in scene.others) == (True, True)


def test_a_group_that_is_not_ours_is_waited_for() -> None:
    plan = ganged("volcano").group("Pending", owner="").plan()

    assert plan.actions == ()


def test_a_group_that_is_not_ours_lets_pods_go() -> None:
    plan = ganged("volcano").group("Inqueue", owner="").plan()

    assert len(created(plan)) == 4


# The end.


@every_kind
@every_scheduler
def test_the_group_goes_when_the_job_has_succeeded(scheduler: str, kind: str) -> None:
    plan = admitted(scheduler, kind).all("Succeeded", exit_code=0).plan()

    assert deleted(plan, RESOURCES[scheduler]) == ["job"]


@every_scheduler
def test_the_group_goes_when_the_job_has_failed(scheduler: str) -> None:
    plan = admitted(scheduler).pod("Worker", 0, "Failed", exit_code=1).plan()

    assert deleted(plan, RESOURCES[scheduler]) == ["job"]


@every_scheduler
def test_the_group_goes_when_the_job_is_suspended(scheduler: str) -> None:
    plan = admitted(scheduler).policy(suspend=True).plan()

    assert deleted(plan, RESOURCES[scheduler]) == ["job"]


@every_scheduler
def test_the_group_goes_at_the_deadline(scheduler: str) -> None:
    plan = admitted(scheduler).policy(activeDeadlineSeconds=10).at(10).plan()

    assert deleted(plan, RESOURCES[scheduler]) == ["job"]


@every_scheduler
def test_the_group_goes_at_the_backoff_limit(scheduler: str) -> None:
    scene = admitted(scheduler, "PyTorchJob").policy(backoffLimit=1).pod("Worker", 0, restarts=1)

    assert deleted(scene.plan(), RESOURCES[scheduler]) == ["job"]


def test_a_group_that_is_already_going_is_not_deleted_again() -> None:
    scene = admitted("volcano").all("Succeeded", exit_code=0)
    going = Meta(
        name="job",
        uid="group-uid",
        deletion_timestamp="2024-01-01T00:00:00Z",
        owner_references=(OwnerReference(uid=UID, controller=True),),
    )

    assert deleted(scene.other("PodGroup", going, {}).plan(), gang.VOLCANO) == []


def test_a_resumed_job_waits_for_a_new_group() -> None:
    scene = admitted("volcano").policy(suspend=True).settled().policy(suspend=False)

    plan = scene.plan()

    assert (created(plan, gang.VOLCANO), created(plan)) == (["job"], [])
