from __future__ import annotations

from typing import Any

import pytest

from trainmaster.cluster.controllers import workloads
from trainmaster.cluster.controllers.garbage import GarbageCollector
from trainmaster.cluster.controllers.replicas import hash_of, plan_deployment
from trainmaster.objects import timestamp
from trainmaster.testing import stage
from trainmaster.testing.stage import Stage

DEPLOYMENTS, REPLICA_SETS, PODS = "apps/v1/deployments", "apps/v1/replicasets", "v1/pods"


def play(scene: Any) -> None:
    stage.play(
        scene,
        lambda registry, now: [
            workloads.deployments(registry, now=now),
            workloads.replica_sets(registry, now=now),
            GarbageCollector(registry),
        ],
    )


def a_template(image: str = "v1") -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": image}], "terminationGracePeriodSeconds": 0},
    }


def an_owner(image: str = "v1", **spec: Any) -> dict[str, Any]:
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": a_template(image), **spec}
    return {"metadata": {"name": "web", "namespace": "default"}, "spec": spec}


def status_of(stage: Stage, path: str = DEPLOYMENTS) -> dict[str, Any]:
    return dict((stage.get(path, "default/web") or {}).get("status") or {})


def images(stage: Stage) -> list[str]:
    return sorted(pod["spec"]["containers"][0]["image"] for pod in stage.all(PODS) if is_alive(pod))


def is_alive(pod: dict[str, Any]) -> bool:
    return pod["status"].get("phase") != "Failed" and "deletionTimestamp" not in pod["metadata"]


def is_ready(pod: dict[str, Any]) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", []))


async def until_images(stage: Stage, expected: list[str]) -> None:
    await stage.until(lambda: images(stage) == expected)


async def make_ready(stage: Stage, count: int = 99) -> None:
    """As a kubelet would, for the first few pods that are not ready yet."""
    unready = [pod for pod in stage.all(PODS) if is_alive(pod) and not is_ready(pod)]
    for pod in unready[:count]:
        moment = timestamp.render(stage.now())
        conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": moment}]
        name = pod["metadata"]["name"]
        await stage.change(PODS, f"default/{name}", "status", status={"phase": "Running", "conditions": conditions})


@pytest.mark.parametrize("path", [DEPLOYMENTS, REPLICA_SETS])
def test_as_many_pods_as_asked_for_are_kept(path: str) -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(path, an_owner(replicas=3))
        await stage.until(lambda: len(images(stage)) == 3)
        await make_ready(stage)
        await stage.until(lambda: status_of(stage, path).get("availableReplicas") == 3)

        await stage.delete(PODS, f"default/{stage.names(PODS)[0]}")
        await stage.until(lambda: len(images(stage)) == 3)

        await stage.change(path, "default/web", spec={"replicas": 1})
        await stage.until(lambda: len(images(stage)) == 1)
        await stage.until(lambda: status_of(stage, path).get("replicas") == 1)

        await stage.delete(path, "default/web")
        await stage.until(lambda: stage.names(PODS) == [])

    play(scene)


@pytest.mark.parametrize("path", [DEPLOYMENTS, REPLICA_SETS])
def test_a_pod_that_failed_for_good_is_replaced(path: str) -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(path, an_owner())
        (name,) = await stage.until(lambda: stage.names(PODS))

        await stage.change(PODS, f"default/{name}", "status", status={"phase": "Failed"})

        await stage.until(lambda: len(images(stage)) == 1 and name not in stage.names(PODS))

    play(scene)


def test_pods_of_a_deployment_carry_the_hash_of_their_template() -> None:
    async def scene(stage: Stage) -> None:
        deployment = await stage.create(DEPLOYMENTS, an_owner())

        (pod,) = await stage.until(lambda: stage.all(PODS))

        digest = hash_of(deployment["spec"]["template"])
        assert pod["metadata"]["name"].startswith(f"web-{digest}-")
        assert pod["metadata"]["labels"] == {"app": "web", "pod-template-hash": digest}

    play(scene)


def test_a_new_template_is_rolled_out_without_too_few_or_too_many_pods() -> None:
    async def scene(stage: Stage) -> None:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        await stage.create(DEPLOYMENTS, an_owner(replicas=3, strategy=strategy))
        await stage.until(lambda: len(images(stage)) == 3)
        await make_ready(stage)
        await stage.until(lambda: status_of(stage).get("availableReplicas") == 3)

        await stage.change(DEPLOYMENTS, "default/web", spec={"template": a_template("v2")})

        for step in range(1, 4):
            await until_images(stage, ["v1"] * (4 - step) + ["v2"] * step)
            await stage.passes(5)
            assert len(images(stage)) == 4
            assert sum(is_ready(pod) for pod in stage.all(PODS)) == 3
            await make_ready(stage)
        await stage.until(lambda: images(stage) == ["v2"] * 3)
        await stage.until(lambda: status_of(stage).get("updatedReplicas") == status_of(stage).get("replicas") == 3)
        conditions = {each["type"]: each["reason"] for each in status_of(stage)["conditions"]}
        assert conditions == {"Available": "MinimumReplicasAvailable", "Progressing": "NewReplicaSetAvailable"}

    play(scene)


def test_with_recreate_old_pods_are_gone_before_new_ones_come() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(DEPLOYMENTS, an_owner(replicas=2, strategy={"type": "Recreate"}))
        await stage.until(lambda: images(stage) == ["v1", "v1"])
        names = stage.names(PODS)
        await stage.registry.bind("default", names[0], {"target": {"name": "box"}})
        await stage.change(PODS, f"default/{names[0]}", metadata={"finalizers": ["example.org/busy"]})

        await stage.change(DEPLOYMENTS, "default/web", spec={"template": a_template("v2")})

        await stage.until(lambda: stage.names(PODS) == [names[0]])
        await stage.passes(60)
        assert stage.names(PODS) == [names[0]]
        await stage.change(PODS, f"default/{names[0]}", metadata={"finalizers": []})
        await stage.until(lambda: images(stage) == ["v2", "v2"])

    play(scene)


def test_a_broken_rollout_leaves_the_old_pods_serving_and_can_be_repaired() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(DEPLOYMENTS, an_owner(replicas=2))
        await stage.until(lambda: len(images(stage)) == 2)
        await make_ready(stage)
        await stage.until(lambda: status_of(stage).get("availableReplicas") == 2)

        await stage.change(DEPLOYMENTS, "default/web", spec={"template": a_template("broken")})
        await stage.until(lambda: "broken" in images(stage))
        await stage.passes(600)
        assert images(stage) == ["broken", "v1", "v1"]

        await stage.change(DEPLOYMENTS, "default/web", spec={"template": a_template("v3")})
        await stage.until(lambda: "v3" in images(stage))
        await make_ready(stage)
        await stage.until(lambda: images(stage).count("v3") == 2)
        await make_ready(stage)
        await stage.until(lambda: images(stage) == ["v3", "v3"])

    play(scene)


def test_a_paused_deployment_does_not_roll_out() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(DEPLOYMENTS, an_owner(paused=True))
        await stage.until(lambda: images(stage) == ["v1"])

        await stage.change(DEPLOYMENTS, "default/web", spec={"template": a_template("v2")})
        await stage.passes(60)
        assert images(stage) == ["v1"]

        await stage.change(DEPLOYMENTS, "default/web", spec={"paused": False})
        await stage.until(lambda: "v2" in images(stage))

    play(scene)


def test_a_pod_is_available_only_after_being_ready_for_a_while() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(DEPLOYMENTS, an_owner(minReadySeconds=30))
        await stage.until(lambda: len(images(stage)) == 1)
        await make_ready(stage)
        ready = stage.now()

        await stage.until(lambda: status_of(stage).get("availableReplicas") == 1)

        assert 29 <= stage.now() - ready <= 31

    play(scene)


def test_a_status_without_news_is_not_written_again() -> None:
    deployment = {**an_owner(replicas=0), "status": {}}
    first = plan_deployment(deployment, [], now=100.0)

    again = plan_deployment({**deployment, "status": first.status}, [], now=200.0)

    assert again.status == first.status
