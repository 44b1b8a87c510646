"""The one writer, on an API server in memory: what it writes, in which order, and what it refuses to write."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from trainmaster.api import reading
from trainmaster.api.status import Condition, JobStatus
from trainmaster.engine.actions import Action, Claim, Create, Delete, Event, Patch, Stage
from trainmaster.engine.plan import Plan
from trainmaster.engine.recipe import Given
from trainmaster.kube.client import Client
from trainmaster.kube.errors import Conflict, Invalid, KubeError, NotFound
from trainmaster.kube.recorder import Reference
from trainmaster.objects.meta import Json, Meta
from trainmaster.objects.resource import CONFIG_MAPS, PODS, SERVICES, Resource
from trainmaster.operator.apply import IN_FLIGHT_OF_ONE, Applier, NameTaken, NotLeading, TemplateRefused
from trainmaster.operator.metrics import JobMetrics
from trainmaster.operator.observe import World
from trainmaster.testing import clock
from trainmaster.testing.fakeapi import FakeApi, Fault
from trainmaster.testing.operation import an_api, submit
from trainmaster.testing.scene import a_job

CREATED = Condition("Created", "True", "PyTorchJobCreated", "", "2023-11-14T22:13:20Z", "2023-11-14T22:13:20Z")
NEW = JobStatus(conditions=(CREATED,))
STATUS = "/status"
LABEL = "training.kubeflow.org/job-name"


class Bed:
    """A stored job, the caches, and an applier that may write as long as `leads` holds."""

    def __init__(self, *, graceful: bool = False) -> None:
        self.api = FakeApi(an_api().resources, graceful=graceful)
        scene = a_job("PyTorchJob", "ddp").role("Master").role("Worker", 2)
        self.framework = scene.framework
        self.resource = scene.framework.resource
        read = reading.read(self.framework, submit(self.api, scene.manifest), scene.settings)
        assert read.job is not None
        self.job = read.job
        self.world = World([self.resource], [CONFIG_MAPS])
        self.registry = CollectorRegistry()
        self.metrics = JobMetrics(self.registry)
        self.events: list[tuple[str, str]] = []
        self.writes_before_events: list[int] = []
        self.leads = True

    def event(self, regarding: Reference, type: str, reason: str, message: str, *, repeat: bool = True) -> None:
        assert regarding.uid == self.job.meta.uid
        self.events.append((reason, message))
        self.writes_before_events.append(len(self.written))

    def apply(self, *actions: Action, status: JobStatus | None = None, **more: Any) -> Exception | None:
        """Carry out a plan. Return what it raised; of a group with one member, that member."""
        made = Plan(self.job.status if status is None else status, actions, **more)

        async def main() -> None:
            client = Client(self.api, max_retries=0)
            applier = Applier(client, self.world, self, self.metrics, lambda: self.leads)
            await applier.apply(self.framework, self.job, made)

        try:
            clock.run(main())
        except ExceptionGroup as group:
            return group.exceptions[0] if len(group.exceptions) == 1 else group
        except KubeError as error:
            return error
        return None

    @property
    def written(self) -> list[str]:
        """`POST pods`, `DELETE pods/ddp-worker-0`, `PUT pytorchjobs/ddp/status`, in their order."""
        return [f"{method} {path.split('/default/')[1]}" for method, path in self.api.writes()]

    def stored(self, resource: Resource, name: str, *, owner: str = "", labels: Json | None = None) -> Meta:
        """An object of the job in the cluster and in its cache; its metadata as the cache has it."""
        meta = {"name": name, "labels": labels or {}, "ownerReferences": [self.owner(owner or self.job.meta.uid)]}
        body = self.api.put(resource, {"metadata": meta, "spec": {}})
        held = msgspec.json.decode(msgspec.json.encode(body), type=self.world.type(resource))
        self.world.cache(resource).wrote(held)
        kept: Meta = held.metadata
        return kept

    def owner(self, uid: str, name: str = "ddp", kind: str = "PyTorchJob") -> Json:
        return {"apiVersion": "kubeflow.org/v1", "kind": kind, "name": name, "uid": uid, "controller": True}

    def create(self, resource: Resource, name: str, stage: Stage, *, yields: bool = False) -> Create:
        meta = {"name": name, "labels": {LABEL: "ddp"}, "ownerReferences": [self.owner(self.job.meta.uid)]}
        return Create(resource, Given({"metadata": meta}), stage, yields=yields)

    def pod(self, name: str) -> Create:
        return self.create(PODS, name, Stage.PODS)

    def names(self, resource: Resource) -> list[str]:
        return sorted(item["metadata"]["name"] for item in self.api.objects(resource))

    def cached(self, resource: Resource) -> list[str]:
        return sorted(held.metadata.name for held in self.world.cache(resource).values())

    def count(self, name: str) -> float:
        return self.registry.get_sample_value(name) or 0.0


@pytest.fixture
def bed() -> Bed:
    return Bed()


# Status first (ADR 0002).


def test_a_status_is_written_before_anything_else(bed):
    doomed = bed.stored(PODS, "ddp-worker-9")

    assert bed.apply(Delete(PODS, doomed), bed.pod("ddp-worker-0"), status=NEW) is None

    assert bed.written == [f"PUT pytorchjobs/ddp{STATUS}", "DELETE pods/ddp-worker-9", "POST pods"]


def test_a_status_that_has_not_changed_is_not_written(bed):
    assert bed.apply(bed.pod("ddp-worker-0")) is None

    assert bed.written == ["POST pods"]


def test_a_plan_of_a_stale_picture_is_refused_before_it_has_done_anything(bed):
    doomed = bed.stored(PODS, "ddp-worker-9")
    stored = bed.api.object(bed.resource, "default", "ddp")
    bed.api.put(bed.resource, {**stored, "spec": {**stored["spec"], "suspend": True}})

    error = bed.apply(
        *(Delete(PODS, doomed), bed.pod("ddp-worker-0")),
        status=NEW,
        events=(Event("Normal", "Told", "x"),),
        marks=("created",),
    )

    assert isinstance(error, Conflict)
    assert bed.names(PODS) == ["ddp-worker-9"]
    assert bed.events == []
    assert not bed.registry.get_sample_value(
        "training_operator_jobs_created_total", {"job_namespace": "default", "framework": bed.framework.name}
    )


def test_the_status_of_a_namesake_is_not_written(bed):
    stored = bed.api.object(bed.resource, "default", "ddp")
    bed.api.put(bed.resource, {**stored, "metadata": {**stored["metadata"], "uid": "another"}})

    error = bed.apply(bed.pod("ddp-worker-0"), status=NEW)

    assert isinstance(error, Conflict)
    assert bed.names(PODS) == []


def test_the_next_pass_reads_the_status_that_this_one_wrote(bed):
    assert bed.apply(status=NEW) is None

    (held,) = bed.world.cache(bed.resource).values()
    assert held.metadata.resource_version == bed.api.resource_version
    assert held.at("status", "conditions")[0]["type"] == "Created"


def test_marks_are_counted_once_the_status_that_records_them_is_written(bed):
    assert bed.apply(status=NEW, marks=("created",)) is None

    labels = {"job_namespace": "default", "framework": bed.framework.name}
    assert bed.registry.get_sample_value("training_operator_jobs_created_total", labels) == 1


def test_nothing_is_done_for_a_job_that_is_gone(bed):
    bed.api.remove(bed.resource, "default", "ddp")

    assert bed.apply(bed.pod("ddp-worker-0"), status=NEW, events=(Event("Normal", "Told", "x"),)) is None

    assert bed.names(PODS) == []
    assert bed.events == []


def test_a_server_that_does_not_know_the_kind_yet_is_not_taken_for_a_job_that_is_gone(bed):
    bed.api.resources.discard(bed.resource)

    assert isinstance(bed.apply(status=NEW), NotFound)


def test_a_status_that_the_server_refuses_as_invalid_is_told_to_the_user(bed):
    bed.api.fail_next("PUT *", Fault(422, message="spec.x: Required value"))

    error = bed.apply(bed.pod("ddp-worker-0"), status=NEW)

    assert isinstance(error, Invalid)
    assert bed.names(PODS) == []
    ((reason, message),) = bed.events
    assert reason == "FailedUpdateStatus"
    assert "spec.x: Required value" in message


# Order, and events last (ADR 0002).


def test_deletes_go_first_then_stage_after_stage(bed):
    doomed = bed.stored(PODS, "ddp-worker-9")
    actions = [
        bed.pod("ddp-worker-0"),
        bed.create(SERVICES, "ddp-worker-0", Stage.SERVICES),
        bed.create(CONFIG_MAPS, "ddp", Stage.COMPANIONS),
        Delete(PODS, doomed),
    ]

    assert bed.apply(*actions) is None

    assert bed.written == ["DELETE pods/ddp-worker-9", "POST configmaps", "POST services", "POST pods"]


def test_a_failed_action_stops_the_stages_after_it_but_not_its_neighbours(bed):
    bed.api.fail_next(lambda method, path, body: b"ddp-worker-0" in body, 500)
    services = [bed.create(SERVICES, f"ddp-worker-{index}", Stage.SERVICES) for index in range(2)]

    error = bed.apply(*services, bed.pod("ddp-worker-0"))

    assert isinstance(error, KubeError)
    assert bed.names(SERVICES) == ["ddp-worker-1"]
    assert bed.names(PODS) == []


def test_events_are_told_after_everything_is_done(bed):
    assert bed.apply(bed.pod("ddp-worker-0"), status=NEW, events=(Event("Normal", "Told", "x"),)) is None

    assert [reason for reason, _ in bed.events] == ["Told", "SuccessfulCreatePod"]
    assert bed.writes_before_events == [2, 2]


def test_only_what_was_done_is_told_and_counted(bed):
    bed.api.fail_next(lambda method, path, body: b"ddp-worker-0" in body, Fault(403, message="exceeded quota"))

    bed.apply(bed.pod("ddp-worker-0"), bed.pod("ddp-worker-1"))

    done, failed = bed.events
    assert done == ("SuccessfulCreatePod", "Created pod: ddp-worker-1")
    assert failed[0] == "FailedCreatePod"
    assert "exceeded quota" in failed[1]
    assert bed.count("created_pods_total") == 1


# Names and UIDs instead of expectations (ADR 0003).


def test_a_delete_leaves_a_namesake_alone_that_took_the_objects_place(bed):
    doomed = bed.stored(PODS, "ddp-worker-0")
    bed.api.put(PODS, {"metadata": {"name": "ddp-worker-0", "uid": "its successor"}})

    error = bed.apply(Delete(PODS, doomed))

    assert isinstance(error, Conflict)
    assert bed.names(PODS) == ["ddp-worker-0"]
    assert bed.events == []


def test_what_was_deleted_is_out_of_the_cache_before_the_next_pass(bed):
    doomed = bed.stored(PODS, "ddp-worker-0")

    assert bed.apply(Delete(PODS, doomed)) is None

    assert bed.cached(PODS) == []


def test_what_others_have_deleted_is_deleted(bed):
    doomed = bed.stored(PODS, "ddp-worker-0")
    bed.api.remove(PODS, "default", "ddp-worker-0")

    assert bed.apply(Delete(PODS, doomed)) is None

    assert bed.cached(PODS) == []


def test_a_server_that_does_not_know_the_kind_yet_has_not_deleted_anything(bed):
    doomed = bed.stored(CONFIG_MAPS, "ddp")
    bed.api.resources.discard(CONFIG_MAPS)

    assert isinstance(bed.apply(Delete(CONFIG_MAPS, doomed)), NotFound)
    assert bed.cached(CONFIG_MAPS) == ["ddp"]


def test_what_ends_in_its_own_time_is_known_to_be_ending():
    bed = Bed(graceful=True)
    doomed = bed.stored(PODS, "ddp-worker-0")

    assert bed.apply(Delete(PODS, doomed)) is None

    (held,) = bed.world.pods.values()
    assert held.metadata.is_terminating


def test_what_was_created_is_in_the_cache_before_the_next_pass(bed):
    assert bed.apply(bed.pod("ddp-worker-0"), bed.create(SERVICES, "ddp-worker-0", Stage.SERVICES)) is None

    assert (bed.cached(PODS), bed.cached(SERVICES)) == (["ddp-worker-0"], ["ddp-worker-0"])


def test_what_was_patched_is_in_the_cache_before_the_next_pass(bed):
    target = bed.stored(CONFIG_MAPS, "ddp")

    assert bed.apply(Patch(CONFIG_MAPS, target, {"metadata": {"labels": {"a": "b"}}})) is None

    (held,) = bed.world.cache(CONFIG_MAPS).values()
    assert held.metadata.labels == {"a": "b"}


def test_a_second_create_finds_the_jobs_own_object_and_keeps_it(bed):
    meta = {"name": "ddp-worker-0", "labels": {LABEL: "ddp"}, "ownerReferences": [bed.owner(bed.job.meta.uid)]}
    bed.api.put(PODS, {"metadata": meta})

    assert bed.apply(bed.pod("ddp-worker-0")) is None

    assert bed.written == ["POST pods"]
    assert bed.cached(PODS) == ["ddp-worker-0"]


def test_what_an_older_operator_labelled_otherwise_gets_our_labels_and_is_no_news(bed):
    bed.stored(PODS, "ddp-worker-0", labels={"job-name": "ddp"})

    assert bed.apply(bed.pod("ddp-worker-0")) is None

    assert bed.api.object(PODS, "default", "ddp-worker-0")["metadata"]["labels"] == {"job-name": "ddp", LABEL: "ddp"}
    assert bed.events == []


def test_labels_are_not_put_on_an_object_that_changed_since_it_was_looked_at(bed):
    bed.stored(PODS, "ddp-worker-0")

    def change_before_the_patch(method: str, path: str, body: bytes) -> None:
        if method == "PATCH":
            bed.api.set_pod_phase("default", "ddp-worker-0", "Running")

    bed.api.on_request(change_before_the_patch)

    assert isinstance(bed.apply(bed.pod("ddp-worker-0")), Conflict)
    assert LABEL not in bed.api.object(PODS, "default", "ddp-worker-0")["metadata"]["labels"]


@pytest.mark.parametrize(
    ("owner", "reason", "words"),
    [
        pytest.param(("u", "web", "Deployment"), "FailedCreatePod", "belongs to Deployment web", id="another's"),
        pytest.param(("u", "ddp", "PyTorchJob"), "WaitingForCleanup", "waiting until it is gone", id="left over"),
    ],
)
def test_an_object_of_that_name_that_is_not_the_jobs_own_is_not_taken(bed, owner, reason, words):
    meta = {"name": "ddp-worker-0", "ownerReferences": [bed.owner(*owner)]}
    bed.api.put(PODS, {"metadata": meta})

    error = bed.apply(bed.pod("ddp-worker-0"))

    assert isinstance(error, NameTaken)
    assert bed.cached(PODS) == []
    ((told, message),) = bed.events
    assert (told, words in message) == (reason, True)


def test_what_users_made_themselves_serves_where_the_plan_says_so(bed):
    bed.api.put(CONFIG_MAPS, {"metadata": {"name": "ddp"}})

    assert bed.apply(bed.create(CONFIG_MAPS, "ddp", Stage.COMPANIONS, yields=True)) is None
    assert isinstance(bed.apply(bed.create(CONFIG_MAPS, "ddp", Stage.COMPANIONS)), NameTaken)


@pytest.mark.parametrize("owner", ["", "another"], ids=["nobody's", "another job's"])
def test_no_pod_is_made_while_a_name_that_the_job_claims_is_anothers(bed, owner):
    owners = [bed.owner(owner, "web", "Deployment")] if owner else []
    bed.api.put(CONFIG_MAPS, {"metadata": {"name": "ddp", "ownerReferences": owners}})
    actions = (bed.create(SERVICES, "ddp-worker-0", Stage.SERVICES), bed.pod("ddp-worker-0"))

    error = bed.apply(*actions, claims=(Claim(CONFIG_MAPS, "ddp"),))

    assert isinstance(error, NameTaken)
    assert (bed.names(SERVICES), bed.names(PODS)) == (["ddp-worker-0"], [])


def test_a_name_that_is_free_or_the_jobs_own_holds_nothing_up(bed):
    bed.stored(CONFIG_MAPS, "ddp")

    assert bed.apply(bed.pod("a"), claims=(Claim(CONFIG_MAPS, "ddp"), Claim(CONFIG_MAPS, "free"))) is None

    assert bed.names(PODS) == ["a"]


# One leader.


def test_who_does_not_lead_writes_nothing(bed):
    doomed = bed.stored(PODS, "ddp-worker-9")
    bed.leads = False

    first = bed.apply(status=NEW)
    second = bed.apply(Delete(PODS, doomed))
    third = bed.apply(bed.pod("ddp-worker-0"))

    assert [type(error) for error in (first, second, third)] == [NotLeading] * 3
    assert bed.written == []


def test_who_loses_the_lead_in_the_middle_of_a_pass_stops_there(bed):
    def lose(method: str, path: str, body: bytes) -> None:
        bed.leads = bed.leads and "status" not in path

    bed.api.on_request(lose)

    error = bed.apply(bed.pod("ddp-worker-0"), status=NEW)

    assert isinstance(error, NotLeading)
    assert bed.written == [f"PUT pytorchjobs/ddp{STATUS}"]


# Templates, and how much at once.


def test_a_template_that_the_server_refuses_is_not_tried_again(bed):
    bed.api.fail_next("POST */pods", Fault(422, message="spec.containers[0].image: Required value"))

    error = bed.apply(bed.pod("ddp-worker-0"))

    assert isinstance(error, TemplateRefused)
    assert error.name == "ddp-worker-0"


def test_one_job_has_so_many_writes_under_way_and_no_more(bed):
    under_way: list[int] = []
    send = bed.api.send
    now = 0

    async def counted(request):
        nonlocal now
        now += 1
        under_way.append(now)
        try:
            return await send(request)
        finally:
            now -= 1

    bed.api.send = counted

    assert bed.apply(*(bed.pod(f"ddp-worker-{index}") for index in range(100))) is None

    assert max(under_way) == IN_FLIGHT_OF_ONE
    assert len(bed.names(PODS)) == 100
