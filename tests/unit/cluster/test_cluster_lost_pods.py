"""Pods whose node is gone."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from trainmaster.cluster.controllers.lost_pods import PATIENCE, Fate, LostPodKeeper, Verdict, failed_status, fate_of
from trainmaster.cluster.controllers.node import Machine, NodeKeeper
from trainmaster.objects import timestamp
from trainmaster.testing import stage
from trainmaster.testing.stage import Stage

PODS, NODES, EVENTS = "v1/pods", "v1/nodes", "v1/events"
NOW = 1_700_000_000.0
KEPT, FAILED, REMOVED = Fate(Verdict.KEEP), Fate(Verdict.FAIL), Fate(Verdict.REMOVE)


def a_pod(node: str = "gone", phase: str = "Running", *, age: float = 3600.0, **metadata: Any) -> dict[str, Any]:
    made = timestamp.render(NOW - age)
    return {
        "metadata": {"name": "p", "creationTimestamp": made, **metadata},
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("pod", "fate"),
    [
        (a_pod("here"), KEPT),
        (a_pod(""), KEPT),
        (a_pod("here", deletionTimestamp="now"), KEPT),
        (a_pod(phase="Pending"), FAILED),
        (a_pod(phase="Running"), FAILED),
        (a_pod(phase="Succeeded"), KEPT),
        (a_pod(phase="Failed"), KEPT),
        (a_pod(deletionTimestamp="now"), REMOVED),
        (a_pod(phase="Failed", deletionTimestamp="now"), REMOVED),
        (a_pod(age=PATIENCE - 1), Fate(Verdict.KEEP, 1.0)),
        (a_pod(age=PATIENCE), FAILED),
        (a_pod(age=-3600.0), Fate(Verdict.KEEP, PATIENCE)),
    ],
    ids=[
        *("its-node-is-there", "not-bound", "deleted-on-its-node", "pending", "running", "succeeded", "failed"),
        *("deleted", "failed-and-deleted", "just-bound", "long-enough", "clock-set-back"),
    ],
)
def test_a_pod_is_lost_when_its_node_is_gone_and_it_has_not_ended(pod: dict[str, Any], fate: Fate) -> None:
    assert fate_of(pod, {"here"}, NOW, started=0.0) == fate


def test_an_old_pod_that_was_bound_just_now_is_given_a_moment() -> None:
    pod = a_pod()
    pod["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": timestamp.render(NOW - 1)}
    ]

    assert fate_of(pod, (), NOW, started=0.0) == Fate(Verdict.KEEP, PATIENCE - 1)


@pytest.mark.parametrize(
    ("started", "fate"),
    [(NOW - 1, FAILED), (NOW - 1.5, Fate(Verdict.KEEP, PATIENCE - 2)), (NOW - 3, Fate(Verdict.KEEP, PATIENCE - 2))],
    ids=["before", "in-the-same-second", "after"],
)
def test_a_pod_that_was_bound_before_the_cluster_started_waits_for_no_node(started: float, fate: Fate) -> None:
    assert fate_of(a_pod(age=2.0), (), NOW, started) == fate


def test_a_lost_pod_claims_no_exit_code_that_nobody_has_seen() -> None:
    pod = a_pod()
    ended = {"name": "done", "state": {"terminated": {"exitCode": 0}}}
    scheduled = {"type": "PodScheduled", "status": "True"}
    pod["status"] |= {
        "podIP": "10.244.0.2",
        "conditions": [scheduled, {"type": "Ready", "status": "True"}],
        "containerStatuses": [ended, {"name": "main", "ready": True, "state": {"running": {}}}],
    }

    status = failed_status(pod, NOW)

    assert (status["phase"], status["reason"]) == ("Failed", "NodeLost")
    assert "'gone' is not a node of this cluster" in status["message"]
    assert status["containerStatuses"] == [ended]
    assert scheduled in status["conditions"]
    assert {each["type"]: each["status"] for each in status["conditions"]} == {
        "PodScheduled": "True",
        "Ready": "False",
        "ContainersReady": "False",
        "DisruptionTarget": "True",
    }


def play(scene: Any, own: tuple[str, ...] = ()) -> None:
    stage.play(scene, lambda registry, now: [LostPodKeeper(registry, own=own, now=now)])


def bound(node: str, name: str = "p") -> dict[str, Any]:
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def phase_of(stage: Stage, name: str = "p") -> str:
    return str((stage.get(PODS, f"default/{name}") or {}).get("status", {}).get("phase"))


def test_a_pod_bound_to_a_node_that_never_was_fails_and_its_event_says_why() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(PODS, bound("nosuch"))

        await stage.until(lambda: phase_of(stage) == "Failed")

        [event] = await stage.until(lambda: stage.all(EVENTS, "default"))
        assert (event["reason"], event["type"]) == ("NodeLost", "Warning")
        assert "spec.nodeName: 'nosuch'" in event["message"]

    play(scene)


def test_a_deleted_pod_of_a_node_that_never_was_goes_at_once() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(PODS, bound("nosuch"))
        began = stage.now()

        await stage.delete(PODS, "default/p")

        await stage.until(lambda: stage.names(PODS) == [])
        assert stage.now() - began < PATIENCE

    play(scene)


def test_a_pod_that_comes_before_its_node_is_not_failed() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(PODS, bound("late"))
        await stage.passes(PATIENCE / 2)
        await stage.create(NODES, {"metadata": {"name": "late"}})

        await stage.passes(PATIENCE * 10)

        assert phase_of(stage) == "Pending"

    play(scene)


def test_the_pods_of_a_node_that_goes_fail_and_those_of_others_do_not() -> None:
    async def scene(stage: Stage) -> None:
        for node in ("a", "b"):
            await stage.create(NODES, {"metadata": {"name": node}})
            await stage.create(PODS, bound(node, f"on-{node}"))
        await stage.passes(PATIENCE * 10)

        await stage.delete(NODES, "a")

        await stage.until(lambda: phase_of(stage, "on-a") == "Failed")
        await stage.passes(PATIENCE * 10)
        assert phase_of(stage, "on-b") == "Pending"

    play(scene)


def test_a_node_of_this_machine_may_be_registered_anew_without_harm_to_its_pods() -> None:
    async def scene(stage: Stage) -> None:
        first = await stage.until(lambda: stage.get(NODES, "box"))
        await stage.create(PODS, bound("box"))
        await stage.passes(PATIENCE * 10)

        await stage.delete(NODES, "box")
        await stage.until(lambda: (stage.get(NODES, "box") or first)["metadata"]["uid"] != first["metadata"]["uid"])
        await stage.passes(PATIENCE * 10)

        assert phase_of(stage) == "Pending"

    whole = Machine(cpu=Fraction(2), memory=2**30, storage=2**30)
    stage.play(
        scene,
        lambda registry, now: [
            LostPodKeeper(registry, own=["box"], now=now),
            NodeKeeper(registry, now=now, whole=whole, host="box"),
        ],
    )


def test_finalizers_of_a_deleted_pod_are_waited_for() -> None:
    async def scene(stage: Stage) -> None:
        pod = bound("nosuch")
        pod["metadata"]["finalizers"] = ["example.org/wait"]
        await stage.create(PODS, pod)
        await stage.delete(PODS, "default/p")
        await stage.passes(PATIENCE * 10)
        assert stage.names(PODS) == ["p"]

        await stage.change(PODS, "default/p", metadata={"finalizers": []})

        await stage.until(lambda: stage.names(PODS) == [])

    play(scene)


class Slow:
    """A registry where, before a write arrives, the pod is replaced by a namesake."""

    def __init__(self, registry: Any) -> None:
        self._registry = registry
        self.is_replaced = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    async def _replace(self, kind: Any) -> None:
        self.is_replaced = True
        await self._registry.delete(kind, "default", "p", {"gracePeriodSeconds": 0})
        await self._registry.create(kind, "default", bound("here"))

    async def update(self, kind: Any, namespace: str, name: str, obj: Any, *, subresource: str = "") -> Any:
        if kind.plural == "pods" and not self.is_replaced:
            await self._replace(kind)
        return await self._registry.update(kind, namespace, name, obj, subresource=subresource)

    async def delete(self, kind: Any, namespace: str, name: str, options: Any) -> Any:
        if not self.is_replaced:
            await self._replace(kind)
        return await self._registry.delete(kind, namespace, name, options)


@pytest.mark.parametrize("is_deleted", [False, True], ids=["failing", "removing"])
def test_a_namesake_that_came_meanwhile_is_left_alone(is_deleted: bool) -> None:
    slow: list[Slow] = []

    async def scene(stage: Stage) -> None:
        await stage.create(NODES, {"metadata": {"name": "here"}})
        await stage.create(PODS, bound("nosuch"))
        if is_deleted:
            await stage.delete(PODS, "default/p")

        await stage.until(lambda: slow[0].is_replaced and stage.get(PODS, "default/p"))
        await stage.passes(PATIENCE * 10)

        pod = stage.get(PODS, "default/p")
        assert pod is not None
        assert (pod["spec"]["nodeName"], pod["status"]["phase"]) == ("here", "Pending")
        assert "deletionTimestamp" not in pod["metadata"]

    def cast(registry: Any, now: Any) -> list[LostPodKeeper]:
        slow.append(Slow(registry))
        return [LostPodKeeper(slow[0], own=(), now=now)]

    stage.play(scene, cast)
