from __future__ import annotations

from typing import Any

import pytest

from trainmaster.cluster.controllers.garbage import GarbageCollector
from trainmaster.cluster.controllers.statefulsets import StatefulSetKeeper
from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.objects import timestamp
from trainmaster.testing import stage
from trainmaster.testing.stage import Stage

SETS, PODS, CLAIMS = "apps/v1/statefulsets", "v1/pods", "v1/persistentvolumeclaims"


def play(scene: Any) -> None:
    stage.play(scene, lambda registry, now: [StatefulSetKeeper(registry, now=now), GarbageCollector(registry)])


def a_template(image: str = "v1") -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": "db"}},
        "spec": {"containers": [{"name": "c", "image": image}], "terminationGracePeriodSeconds": 0},
    }


def a_set(**spec: Any) -> dict[str, Any]:
    spec = {
        "selector": {"matchLabels": {"app": "db"}},
        "serviceName": "db",
        "replicas": 3,
        "template": a_template(),
        **spec,
    }
    return {"metadata": {"name": "db", "namespace": "default"}, "spec": spec}


def status_of(stage: Stage) -> dict[str, Any]:
    return dict((stage.get(SETS, "default/db") or {}).get("status") or {})


def image_of(stage: Stage, name: str) -> str:
    pod = stage.get(PODS, f"default/{name}")
    return str(pod["spec"]["containers"][0]["image"]) if pod else ""


async def until_named(stage: Stage, name: str) -> None:
    await stage.until(lambda: name in stage.names(PODS))


async def make_ready(stage: Stage, name: str) -> None:
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": timestamp.render(stage.now())}]
    await stage.change(PODS, f"default/{name}", "status", status={"phase": "Running", "conditions": conditions})


async def all_ready(stage: Stage, count: int = 3) -> None:
    for ordinal in range(count):
        await until_named(stage, f"db-{ordinal}")
        await make_ready(stage, f"db-{ordinal}")
    await stage.until(lambda: status_of(stage).get("readyReplicas") == count)


def test_each_pod_waits_until_those_before_it_are_ready() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(SETS, a_set())
        for ordinal in range(3):
            expected = [f"db-{number}" for number in range(ordinal + 1)]
            await until_named(stage, expected[-1])
            await stage.passes(60)
            assert stage.names(PODS) == expected
            await make_ready(stage, f"db-{ordinal}")

        await stage.until(lambda: status_of(stage).get("readyReplicas") == 3)

    play(scene)


def test_in_parallel_nobody_waits() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(SETS, a_set(podManagementPolicy="Parallel"))

        await stage.until(lambda: stage.names(PODS) == ["db-0", "db-1", "db-2"])

    play(scene)


def test_a_pod_knows_its_number_and_has_a_host_name_in_its_service() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(SETS, a_set(ordinals={"start": 5}))

        pod = await stage.until(lambda: stage.get(PODS, "default/db-5"))

        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("db-5", "db")
        labels = pod["metadata"]["labels"]
        assert labels["app"] == "db"
        assert labels["statefulset.kubernetes.io/pod-name"] == "db-5"
        assert labels["apps.kubernetes.io/pod-index"] == "5"
        assert labels["controller-revision-hash"] == status_of(stage)["updateRevision"]

    play(scene)


def test_the_last_pod_goes_first() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(SETS, a_set())
        await all_ready(stage)
        await stage.change(PODS, "default/db-2", metadata={"finalizers": ["example.org/busy"]})

        await stage.change(SETS, "default/db", spec={"replicas": 1})

        await stage.until(lambda: "deletionTimestamp" in (stage.get(PODS, "default/db-2") or {})["metadata"])
        await stage.passes(60)
        assert stage.names(PODS) == ["db-0", "db-1", "db-2"]
        await stage.change(PODS, "default/db-2", metadata={"finalizers": []})
        await stage.until(lambda: stage.names(PODS) == ["db-0"])

    play(scene)


def test_a_lost_or_failed_pod_comes_back_under_its_name() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(SETS, a_set())
        await all_ready(stage)
        uid = (stage.get(PODS, "default/db-1") or {})["metadata"]["uid"]

        await stage.delete(PODS, "default/db-1")
        pod = await stage.until(lambda: stage.get(PODS, "default/db-1"))
        assert pod["metadata"]["uid"] != uid
        await make_ready(stage, "db-1")
        await stage.change(PODS, "default/db-0", "status", status={"phase": "Failed", "conditions": []})

        await stage.until(lambda: (stage.get(PODS, "default/db-0") or {}).get("status", {}).get("phase") == "Pending")

    play(scene)


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_a_new_template_reaches_pods_from_the_last_to_the_partition(policy: str) -> None:
    async def scene(stage: Stage) -> None:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
        await stage.create(SETS, a_set(updateStrategy=strategy, podManagementPolicy=policy))
        await all_ready(stage)

        await stage.change(SETS, "default/db", spec={"template": a_template("v2")})

        await stage.until(lambda: image_of(stage, "db-2") == "v2")
        await stage.passes(60)
        assert image_of(stage, "db-1") == "v1"
        await make_ready(stage, "db-2")
        await stage.until(lambda: image_of(stage, "db-1") == "v2")
        await make_ready(stage, "db-1")
        await stage.passes(60)
        assert image_of(stage, "db-0") == "v1"
        assert (status_of(stage)["updatedReplicas"], status_of(stage)["currentReplicas"]) == (2, 1)

        await stage.change(SETS, "default/db", spec={"updateStrategy": {"type": "RollingUpdate"}})
        await stage.until(lambda: image_of(stage, "db-0") == "v2")
        await make_ready(stage, "db-0")
        await stage.until(lambda: status_of(stage)["currentRevision"] == status_of(stage)["updateRevision"])

    play(scene)


def test_on_delete_leaves_the_moment_to_the_user() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(SETS, a_set(updateStrategy={"type": "OnDelete"}))
        await all_ready(stage)

        await stage.change(SETS, "default/db", spec={"template": a_template("v2")})
        await stage.passes(60)
        assert image_of(stage, "db-2") == "v1"
        await stage.delete(PODS, "default/db-2")

        await stage.until(lambda: image_of(stage, "db-2") == "v2")

    play(scene)


def test_a_pod_stuck_on_a_broken_template_is_repaired_by_the_next_one() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(SETS, a_set(replicas=1))
        await stage.until(lambda: stage.names(PODS))

        await stage.change(SETS, "default/db", spec={"template": a_template("v2")})

        await stage.until(lambda: image_of(stage, "db-0") == "v2")

    play(scene)


DATA = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def mounting(*volumes: str) -> dict[str, Any]:
    template = a_template()
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in volumes]
    template["spec"]["containers"][0]["volumeMounts"] = mounts
    return template


def test_containers_mount_claims_by_the_names_of_their_templates() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(SETS, a_set(replicas=1, volumeClaimTemplates=[DATA], template=mounting("data")))

        pod = await stage.until(lambda: stage.get(PODS, "default/db-0"))

        assert "data" in [mount["name"] for mount in pod["spec"]["containers"][0]["volumeMounts"]]
        assert "data" in [volume["name"] for volume in pod["spec"]["volumes"]]

    play(scene)


def test_a_mount_of_neither_volume_nor_claim_is_refused() -> None:
    async def scene(stage: Stage) -> None:
        wrong = a_set(volumeClaimTemplates=[DATA], template=mounting("data", "other"))

        with pytest.raises(ApiError) as refused:
            await stage.create(SETS, wrong)

        assert 'volumeMounts[1].name: Not found: "other"' in refused.value.message
        assert "volumeMounts[0]" not in refused.value.message

    play(scene)


def test_every_pod_has_claims_of_its_own_that_outlive_it() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(SETS, a_set(replicas=1, volumeClaimTemplates=[DATA]))

        pod = await stage.until(lambda: stage.get(PODS, "default/db-0"))
        assert stage.names(CLAIMS) == ["data-db-0"]
        volume = next(each for each in pod["spec"]["volumes"] if each["name"] == "data")
        assert volume["persistentVolumeClaim"]["claimName"] == "data-db-0"

        await stage.delete(SETS, "default/db")
        await stage.until(lambda: stage.names(PODS) == [])
        assert stage.names(CLAIMS) == ["data-db-0"]

    play(scene)
