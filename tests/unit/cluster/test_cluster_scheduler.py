"""The scheduler at work on a real registry: what it writes, when, and what it leaves alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from functools import partial
from typing import Any

from trainmaster.cluster.registry.gang_kinds import DEFINITIONS
from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.registry import Registry
from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.cluster.scheduling import scheduler_plan
from trainmaster.cluster.scheduling.scheduler import Scheduler
from trainmaster.cluster.scheduling.scheduler_gang import PLUGINS, VOLCANO
from trainmaster.cluster.scheduling.scheduler_plan import Decisions, Snapshot
from trainmaster.cluster.scheduling.scheduler_report import PATIENCE, REPEAT
from trainmaster.cluster.storage.store import ALL, Expired, Store
from trainmaster.testing import clock
from trainmaster.testing.scheduling import NOW, Object, a_group, a_node, a_pod, a_queue

PLUGINS_GROUP = next(each for each in DEFINITIONS if each["metadata"]["name"] == f"podgroups.{PLUGINS}")
PATHS = {
    "CustomResourceDefinition": ("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
    "Pod": ("", "v1", "pods"),
    "Node": ("", "v1", "nodes"),
    "Event": ("", "v1", "events"),
    "Queue": (VOLCANO, "v1beta1", "queues"),
    "PriorityClass": ("scheduling.k8s.io", "v1", "priorityclasses"),
    "PersistentVolumeClaim": ("", "v1", "persistentvolumeclaims"),
}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


class World:
    """A registry with a scheduler on it, for `within`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.registry = Registry(store, now=self.now)

    def now(self) -> float:
        return clock.Clock(NOW).now()

    def kind(self, obj_or_kind: Object | str) -> Kind:
        if isinstance(obj_or_kind, str):
            path = PATHS[obj_or_kind]
        elif obj_or_kind["kind"] == "PodGroup":
            path = (*obj_or_kind["apiVersion"].split("/"), "podgroups")
        else:
            path = PATHS[obj_or_kind["kind"]]
        kind = self.registry.kinds.lookup(*path)
        assert kind is not None
        return kind

    async def add(self, *objects: Object) -> None:
        for obj in objects:
            kind = self.kind(obj)
            made = {
                **obj,
                "metadata": {
                    key: obj["metadata"][key] for key in ("name", "labels", "annotations") if key in obj["metadata"]
                },
            }
            namespace = "default" if kind.namespaced else ""
            created = await self.registry.create(kind, namespace, made)
            status = obj.get("status")
            if status and created.get("status") != status and kind.prefix != "/pods":
                await self.set_status(kind, created, status)

    async def forget(self, definition: Object) -> None:
        await self.registry.delete(self.kind(definition), "", definition["metadata"]["name"])

    async def set_status(self, kind: Kind, obj: Object, status: Object) -> None:
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "")
        await self.registry.update(kind, namespace, metadata["name"], {**obj, "status": status}, subresource="status")

    async def end_pod(self, name: str) -> None:
        await self.set_status(self.kind("Pod"), self.pod(name), {"phase": "Succeeded"})

    def pod(self, name: str) -> Object:
        return self.registry.get(self.kind("Pod"), "default", name).value

    def node_of(self, name: str) -> str:
        return str(self.pod(name)["spec"].get("nodeName", ""))

    def condition(self, name: str) -> Object:
        conditions = self.pod(name)["status"].get("conditions") or []
        return next((each for each in conditions if each["type"] == "PodScheduled"), {})

    def group(self, group: Object) -> Object:
        found = self.registry.get(self.kind(group), "default", group["metadata"]["name"]).value
        return found.get("status") or {}

    def events(self, reason: str) -> list[Object]:
        found = [entry.value for entry in self.registry.list(self.kind("Event")).items]
        return [event for event in found if event["reason"] == reason]

    async def until(self, is_true: Callable[[], Any]) -> None:
        async with asyncio.timeout(300):
            while not is_true():
                with closing(self.store.watch(ALL, self.store.revision)) as changes, suppress(Expired):
                    await anext(changes)


def within(use: Callable[[World], Awaitable[None]], *, history: int = 10_000, without: tuple[Object, ...] = ()) -> None:
    async def main() -> None:
        store = await Store.open(None, history=history)
        try:
            world = World(store)
            await world.registry.start()
            for definition in without:
                await world.forget(definition)
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(Scheduler(world.registry, now=world.now).run(), name="scheduler")
                await use(world)
                running.cancel()
        finally:
            await store.close()

    clock.run(main())


def test_a_pod_gets_a_node_and_an_event_says_so():
    async def use(world: World) -> None:
        await world.add(a_node(), a_pod(spec={"schedulerName": "volcano"}))

        await world.until(lambda: world.events("Scheduled"))

        assert world.node_of("pod") == "node"
        assert world.condition("pod")["status"] == "True"
        (event,) = world.events("Scheduled")
        assert event["message"] == "Successfully assigned default/pod to node"
        assert event["source"]["component"] == "volcano"
        assert event["involvedObject"]["uid"] == world.pod("pod")["metadata"]["uid"]

    within(use)


def test_a_pod_of_a_scheduler_nobody_has_is_scheduled_too():
    async def use(world: World) -> None:
        await world.add(a_node(), a_pod(spec={"schedulerName": "my-own"}))

        await world.until(lambda: world.events("Scheduled"))

        assert world.events("Scheduled")[0]["source"]["component"] == "default-scheduler"

    within(use)


def test_a_pod_that_waits_is_told_why_after_a_moment_and_placed_when_there_is_room():
    async def use(world: World) -> None:
        await world.add(a_node(), a_pod(cpu="4"))

        await world.until(lambda: world.events("FailedScheduling"))
        told_at, condition = world.now(), world.condition("pod")
        await world.add(a_node("large", cpu="4"))
        await world.until(lambda: world.node_of("pod"))

        why = "0/1 nodes are available: needs 4 cpu, 2 of 2 free (requested by pod)"
        assert (condition["status"], condition["reason"], condition["message"]) == ("False", "Unschedulable", why)
        assert told_at == NOW + PATIENCE
        assert [(event["type"], event["message"]) for event in world.events("FailedScheduling")] == [("Warning", why)]
        assert world.node_of("pod") == "large"

    within(use)


def test_numbers_that_change_are_told_now_and_then_in_the_same_event():
    async def use(world: World) -> None:
        await world.add(a_node(), a_pod("large", cpu="4"))
        await world.until(lambda: world.events("FailedScheduling"))

        for index in range(4):
            await world.add(a_pod(f"small-{index}", cpu="500m"))
            await world.until(partial(world.node_of, f"small-{index}"))
        await world.until(lambda: "0 of 2 free" in world.condition("large")["message"])
        await world.until(lambda: world.events("FailedScheduling")[0]["count"] == 2)

        assert world.now() == NOW + PATIENCE + REPEAT
        assert "0 of 2 free" in world.events("FailedScheduling")[0]["message"]

    within(use)


def test_a_pod_placed_within_a_moment_was_never_told_to_wait():
    async def use(world: World) -> None:
        await world.add(a_node(), a_pod("first", cpu="2"))
        await world.until(lambda: world.node_of("first"))

        await world.add(a_pod("second", cpu="2"))
        await asyncio.sleep(PATIENCE / 2)
        await world.end_pod("first")
        await world.until(lambda: world.node_of("second"))

        assert not world.events("FailedScheduling")

    within(use)


def test_a_group_is_admitted_then_placed_as_a_whole_then_running():
    async def use(world: World) -> None:
        group = a_group(minMember=2, minResources={"cpu": "2"})
        await world.add(a_node(), group)

        await world.until(lambda: world.group(group).get("phase") == "Inqueue")
        await world.add(a_pod("train-0", group="train", cpu="1"))
        await world.until(lambda: world.events("FailedScheduling"))
        half = world.node_of("train-0")
        await world.add(a_pod("train-1", group="train", cpu="1"))
        await world.until(lambda: world.group(group).get("phase") == "Running")

        assert half == ""
        assert world.node_of("train-0") == world.node_of("train-1") == "node"
        assert world.events("FailedScheduling")[0]["message"] == "group train needs 2 pods together; 1 exist"

    within(use)


def test_a_group_whose_pods_must_not_be_made_yet_says_why():
    async def use(world: World) -> None:
        group = a_group(minMember=2, minResources={"cpu": "3"})
        await world.add(a_node(), group)

        await world.until(lambda: world.events("Unschedulable"))

        (event,) = world.events("Unschedulable")
        assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("PodGroup", "train")
        assert event["message"] == "group train needs 3 cpu before its pods are made; the cluster has 2 cpu in all"
        assert world.group(group)["phase"] == "Pending"

    within(use)


def test_a_kind_of_group_that_is_defined_later_is_followed_from_then_on():
    async def use(world: World) -> None:
        await world.add(a_node(), a_pod("one", label_group="train"))
        await world.until(lambda: world.condition("one"))
        before = world.condition("one")["message"]

        await world.add(PLUGINS_GROUP, a_group(api_group=PLUGINS, minMember=1))
        await world.until(lambda: world.node_of("one"))

        assert before == "group train does not exist"

    within(use, without=(PLUGINS_GROUP,))


def test_a_kind_of_group_may_go_and_come_back():
    async def use(world: World) -> None:
        group = a_group(api_group=PLUGINS, minMember=1)
        await world.add(group)
        await world.until(lambda: world.group(group).get("phase") == "Pending")
        await world.forget(PLUGINS_GROUP)
        await world.add(a_node(), a_pod("one", label_group="train"))
        await world.until(lambda: world.condition("one").get("message") == "group train does not exist")

        await world.add(PLUGINS_GROUP, group)
        await world.until(lambda: world.node_of("one"))

    within(use)


def test_a_group_that_waits_for_longer_than_it_allows_gets_an_event():
    async def use(world: World) -> None:
        await world.add(a_node(), a_group(api_group=PLUGINS, minMember=1, scheduleTimeoutSeconds=30))
        await world.add(a_pod("one", label_group="train", cpu="4"))

        await world.until(lambda: world.events("Timeout"))

        (event,) = world.events("Timeout")
        assert event["involvedObject"]["name"] == "train"
        assert event["message"] == (
            "not scheduled within 30 s: group train needs 1 pod (4 cpu) together; the cluster has 2 cpu in all"
        )
        assert NOW + 30 <= world.now() < NOW + 32

    within(use)


def test_a_queue_holds_its_groups_to_its_capability():
    async def use(world: World) -> None:
        groups = [a_group(name, minMember=1, queue="q") for name in ("a", "b")]
        await world.add(a_node(), a_queue("q", cpu="1"), *groups)
        await world.add(a_pod("a-0", group="a", cpu="1"), a_pod("b-0", group="b", cpu="1"))

        await world.until(lambda: world.condition("b-0"))
        waiting = world.condition("b-0")["message"]
        await world.end_pod("a-0")
        await world.until(lambda: world.node_of("b-0"))

        assert waiting == "group b needs 1 pod (1 cpu) together; queue q has 0 of 1 cpu left, 1 asked for"

    within(use)


def test_a_pod_that_names_its_node_is_left_alone_and_counted():
    async def use(world: World) -> None:
        await world.add(a_node(), a_pod("own", cpu="2", spec={"nodeName": "node"}), a_pod("other", cpu="1"))

        await world.until(lambda: world.condition("other"))

        assert "needs 1 cpu, 0 of 2 free" in world.condition("other")["message"]
        assert not world.events("Scheduled")

    within(use)


def test_what_is_deleted_is_no_longer_counted_on():
    async def use(world: World) -> None:
        await world.add(a_node("a"), a_node("b"), a_queue("q", cpu="1"), a_group(minMember=1, queue="q"))
        await world.add(a_pod("train-0", group="train", cpu="2"))
        await world.until(lambda: world.condition("train-0"))

        await world.registry.delete(world.kind("Node"), "", "a")
        await world.registry.delete(world.kind("Queue"), "", "q")
        await world.until(lambda: world.node_of("train-0"))

        assert world.node_of("train-0") == "b"

    within(use)


def test_a_pod_waits_for_its_claim_and_takes_the_priority_of_its_class():
    async def use(world: World) -> None:
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": CLAIM}
        await world.add(a_node(), a_pod("low", cpu="2", spec={"nodeName": "node"}), claim)
        await world.add({"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7})
        await world.add(a_pod("first", cpu="2", spec={"volumes": [volume], "priorityClassName": "high"}))
        await world.add(a_pod("second", cpu="2"))
        await world.until(lambda: world.condition("first"))
        waiting = world.condition("first")["message"]

        kind = world.kind("PersistentVolumeClaim")
        found = world.registry.get(kind, "default", "data").value
        await world.set_status(kind, found, {**found["status"], "phase": "Bound"})
        await world.end_pod("low")
        await world.until(lambda: world.node_of("first") or world.node_of("second"))

        assert waiting == "PersistentVolumeClaim data is not bound yet (requested by first)"
        assert world.node_of("first") == "node"
        await world.registry.delete(kind, "default", "data")

    within(use)


def test_a_pod_deleted_while_it_waits_is_forgotten():
    async def use(world: World) -> None:
        await world.add(a_node(), a_pod("large", cpu="4"), a_node("other"))
        await world.until(lambda: world.condition("large"))

        await world.registry.delete(world.kind("Pod"), "default", "large", {"gracePeriodSeconds": 0})
        await world.add(a_pod("small", cpu="1"))
        await world.until(lambda: world.node_of("small"))

        assert len(world.events("FailedScheduling")) == 1

    within(use)


def test_when_history_was_lost_everything_is_listed_again():
    async def use(world: World) -> None:
        await world.add(a_node(pods="200"))

        await world.add(*(a_pod(f"p{index}") for index in range(100)))
        await world.until(lambda: all(world.node_of(f"p{index}") for index in range(100)))

    within(use, history=20)


def test_a_thousand_pods_that_cannot_run_are_all_told_and_keep_nobody_else_from_running():
    async def use(world: World) -> None:
        await world.add(a_node(), *(a_pod(f"large-{index}", cpu="4") for index in range(1000)))
        await world.until(lambda: world.condition("large-0"))

        await world.add(a_pod("small", cpu="1"))
        await world.until(lambda: world.node_of("small"))
        told_before = sum(bool(world.condition(f"large-{index}")) for index in range(1000))
        await world.until(lambda: all(world.condition(f"large-{index}") for index in range(1000)))

        assert told_before < 1000

    within(use)


def test_a_pass_that_fails_is_logged_and_tried_again(monkeypatch, caplog):
    failures = [RuntimeError("once")]

    def plan(snapshot: Snapshot) -> Decisions:
        if failures:
            raise failures.pop()
        return scheduler_plan.plan(snapshot)

    monkeypatch.setattr("trainmaster.cluster.scheduling.scheduler.plan", plan)

    async def use(world: World) -> None:
        await world.add(a_node(), a_pod())
        await world.until(lambda: world.node_of("pod"))

    within(use)

    assert [record.message for record in caplog.records] == ["a pass failed, trying again"]


def test_a_binding_that_was_refused_is_tried_again(monkeypatch):
    refusals = [ApiError(500, "InternalError", "not now")]
    real = Registry.bind

    async def bind(registry: Registry, *args: Any, **more: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return await real(registry, *args, **more)

    monkeypatch.setattr(Registry, "bind", bind)

    async def use(world: World) -> None:
        await world.add(a_node(), a_pod())
        await world.until(lambda: world.node_of("pod"))

    within(use)

    assert not refusals


def test_a_status_that_somebody_else_changed_meanwhile_is_read_again(monkeypatch):
    conflicts = [ApiError(409, "Conflict", "changed")]
    real = Registry.update

    async def update(registry: Registry, *args: Any, **more: Any) -> Any:
        if conflicts and more.get("subresource") == "status" and args[0].plural == "pods":
            raise conflicts.pop()
        return await real(registry, *args, **more)

    monkeypatch.setattr(Registry, "update", update)

    async def use(world: World) -> None:
        await world.add(a_node(), a_pod(cpu="4"))
        await world.until(lambda: world.condition("pod"))

    within(use)

    assert not conflicts


def test_a_namespace_that_goes_takes_its_events_along(monkeypatch):
    refusals: list[str] = []
    real = Registry.create

    async def create(registry: Registry, kind: Kind, *args: Any, **more: Any) -> Any:
        if kind.plural == "events" and not refusals:
            refusals.append("event")
            raise ApiError(403, "Forbidden", "namespace is being terminated")
        return await real(registry, kind, *args, **more)

    monkeypatch.setattr(Registry, "create", create)

    async def use(world: World) -> None:
        await world.add(a_node(), a_pod("first"), a_pod("second"))
        await world.until(lambda: world.events("Scheduled"))

        assert len(world.events("Scheduled")) == 1

    within(use)


def test_an_event_that_expired_is_written_anew():
    async def use(world: World) -> None:
        await world.add(a_node(), a_pod("large", cpu="4"))
        await world.until(lambda: world.events("FailedScheduling"))
        (event,) = world.events("FailedScheduling")

        await world.registry.delete(world.kind("Event"), "default", event["metadata"]["name"])
        await world.add(a_pod("small", cpu="1"))
        await world.until(lambda: world.events("FailedScheduling"))

        assert "1 of 2 free" in world.events("FailedScheduling")[0]["message"]

    within(use)


def test_a_cluster_at_rest_is_left_at_rest():
    async def use(world: World) -> None:
        await world.add(a_node(), a_group(minMember=3), a_pod("one", group="train"), a_pod("large", cpu="9"))
        await world.until(lambda: world.condition("one") and world.condition("large"))
        await asyncio.sleep(60)
        revision = world.store.revision

        await asyncio.sleep(3600)

        assert world.store.revision == revision

    within(use)


def test_a_thousand_pods_on_ten_nodes_all_get_a_place():
    async def use(world: World) -> None:
        await world.add(*(a_node(f"n{index}", cpu="64", memory="256Gi") for index in range(10)))

        await world.add(*(a_pod(f"p{index}", cpu="500m") for index in range(1000)))
        await world.until(lambda: len(world.events("Scheduled")) == 1000)

        nodes = [world.node_of(f"p{index}") for index in range(1000)]
        assert max(nodes.count(f"n{index}") for index in range(10)) <= 110
        assert all(nodes)

    within(use)
