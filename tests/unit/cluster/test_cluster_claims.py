from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainmaster.cluster.controllers.claims import (
    ClaimKeeper,
    chosen,
    directory_of,
    may_provision,
    phase_of,
    provisioned,
)
from trainmaster.testing import stage
from trainmaster.testing.stage import Stage

CLAIMS, VOLUMES, PODS = "v1/persistentvolumeclaims", "v1/persistentvolumes", "v1/pods"


def play(scene: Any, root: Path) -> None:
    stage.play(scene, lambda registry, now: [ClaimKeeper(registry, root=root)])


def a_claim(name: str = "data", size: str = "1Gi", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "5"}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    return {"metadata": metadata, "spec": spec}


def a_volume(name: str, size: str = "5Gi", *, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    spec = {
        "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
        "capacity": {"storage": size},
        "hostPath": {"path": f"/data/{name}"},
        "persistentVolumeReclaimPolicy": "Retain",
        **spec,
    }
    return {"metadata": {"name": name, **({"labels": labels} if labels else {})}, "spec": spec}


def new(obj: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in obj["metadata"].items() if key not in ("uid", "resourceVersion")}
    return {**obj, "metadata": metadata}


def phase(stage: Stage, path: str, key: str) -> str:
    obj = stage.get(path, key)
    return "gone" if obj is None else str(obj.get("status", {}).get("phase"))


def fill(root: Path) -> None:
    (directory,) = root.iterdir()
    (directory / "file").write_text("x")


def name_of(volume: Any) -> str | None:
    return volume["metadata"]["name"] if volume is not None else None


def test_the_smallest_volume_that_fits_is_chosen() -> None:
    volumes = [a_volume("large", "9Gi"), a_volume("medium", "3Gi"), a_volume("small", "500Mi")]

    assert name_of(chosen(a_claim(size="1Gi"), volumes)) == "medium"


@pytest.mark.parametrize(
    ("claim", "volume"),
    [
        (a_claim(storageClassName="fast"), a_volume("v", storageClassName="slow")),
        (a_claim(storageClassName="fast"), a_volume("v")),
        (a_claim(), a_volume("v", storageClassName="fast")),
        (a_claim(accessModes=["ReadWriteOncePod"]), a_volume("v")),
        (a_claim(volumeMode="Block"), a_volume("v")),
        (a_claim(size="6Gi"), a_volume("v")),
        (a_claim(selector={"matchLabels": {"disk": "ssd"}}), a_volume("v", labels={"disk": "hdd"})),
        (a_claim(selector={"matchExpressions": [{"key": "disk", "operator": "Exists"}]}), a_volume("v")),
        (a_claim(), a_volume("v", claimRef={"namespace": "default", "name": "other"})),
        (a_claim(), a_volume("v", claimRef={"namespace": "default", "name": "data", "uid": "earlier"})),
        (a_claim(volumeName="w"), a_volume("v")),
    ],
)
def test_a_volume_that_does_not_fit_is_not_chosen(claim: dict[str, Any], volume: dict[str, Any]) -> None:
    assert chosen(claim, [volume]) is None


@pytest.mark.parametrize(
    ("operator", "values", "fits"),
    [("In", ["ssd"], True), ("NotIn", ["ssd"], False), ("Exists", [], True), ("DoesNotExist", [], False)],
)
def test_selectors_of_claims_know_all_operators(operator: str, values: list[str], fits: bool) -> None:
    requirement = {"key": "disk", "operator": operator, "values": values}
    volume = a_volume("v", labels={"disk": "ssd"})

    assert (chosen(a_claim(selector={"matchExpressions": [requirement]}), [volume]) is not None) == fits


def test_a_volume_reserved_by_name_is_preferred_even_if_larger() -> None:
    reserved = a_volume("reserved", "9Gi", claimRef={"namespace": "default", "name": "data"})

    assert name_of(chosen(a_claim(), [a_volume("small", "1Gi"), reserved])) == "reserved"


def test_a_claim_that_names_its_volume_gets_no_other() -> None:
    assert name_of(chosen(a_claim(volumeName="b"), [a_volume("a"), a_volume("b", "9Gi")])) == "b"


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({}, True),
        ({"storageClassName": "gp3"}, True),
        ({"storageClassName": ""}, False),
        ({"volumeName": "v"}, False),
        ({"selector": {"matchLabels": {"a": "b"}}}, False),
    ],
)
def test_a_directory_is_made_unless_the_claim_asks_for_a_certain_volume(spec: dict[str, Any], allowed: bool) -> None:
    assert may_provision(a_claim(**spec)) is allowed


@pytest.mark.parametrize(
    ("reference", "claim", "expected"),
    [
        (None, None, "Available"),
        ({"namespace": "default", "name": "data"}, None, "Available"),
        ({"namespace": "default", "name": "data", "uid": "uid-data"}, None, "Released"),
        ({"namespace": "default", "name": "data", "uid": "earlier"}, a_claim(), "Released"),
        ({"namespace": "default", "name": "data", "uid": "uid-data"}, a_claim(volumeName="v"), "Bound"),
    ],
)
def test_the_phase_of_a_volume_follows_its_claim(reference: Any, claim: Any, expected: str) -> None:
    assert phase_of(a_volume("v", **({"claimRef": reference} if reference else {})), claim) == expected


def test_only_directories_made_here_are_ours_to_remove(tmp_path: Path) -> None:
    volume = provisioned(a_claim(), tmp_path)

    assert directory_of(volume, tmp_path) == tmp_path / "pvc-uid-data"
    assert directory_of(volume, tmp_path / "elsewhere") is None
    assert directory_of(a_volume("v", hostPath={"path": str(tmp_path / "v")}), tmp_path) is None
    volume["spec"]["hostPath"]["path"] = "/etc"
    assert directory_of(volume, tmp_path) is None


@pytest.mark.parametrize("storage_class", ["gp3", None], ids=["a cloud's class", "no class"])
def test_a_claim_gets_a_directory_when_there_is_no_volume(tmp_path: Path, storage_class: str | None) -> None:
    async def scene(stage: Stage) -> None:
        spec = {"storageClassName": storage_class} if storage_class else {}
        created = await stage.create(CLAIMS, new(a_claim(**spec)))

        await stage.until(lambda: phase(stage, CLAIMS, "default/data") == "Bound")

        name = f"pvc-{created['metadata']['uid']}"
        claim, volume = stage.get(CLAIMS, "default/data"), stage.get(VOLUMES, name)
        assert claim is not None
        assert volume is not None
        assert claim["spec"]["volumeName"] == name
        assert claim["status"]["capacity"] == {"storage": "1Gi"}
        assert claim["status"]["accessModes"] == ["ReadWriteOnce"]
        assert (tmp_path / name).is_dir()
        await stage.until(lambda: phase(stage, VOLUMES, name) == "Bound")

    play(scene, tmp_path)


def test_a_fitting_volume_is_bound_instead_of_making_one(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(VOLUMES, a_volume("mine"))
        await stage.until(lambda: phase(stage, VOLUMES, "mine") == "Available")

        await stage.create(CLAIMS, new(a_claim()))

        await stage.until(lambda: phase(stage, CLAIMS, "default/data") == "Bound")
        await stage.until(lambda: phase(stage, VOLUMES, "mine") == "Bound")
        assert stage.names(VOLUMES) == ["mine"]
        assert (stage.get(CLAIMS, "default/data") or {})["status"]["capacity"] == {"storage": "5Gi"}

    play(scene, tmp_path)


def test_two_claims_never_share_a_volume(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(VOLUMES, a_volume("mine"))
        for name in ("one", "two", "three"):
            await stage.create(CLAIMS, new(a_claim(name)))

        await stage.until(lambda: all(phase(stage, CLAIMS, f"default/{n}") == "Bound" for n in ("one", "two", "three")))

        assert len({claim["spec"]["volumeName"] for claim in stage.all(CLAIMS)}) == 3

    play(scene, tmp_path)


def test_a_claim_of_the_empty_class_waits_for_its_volume(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(CLAIMS, new(a_claim(storageClassName="")))
        await stage.passes(60)
        assert phase(stage, CLAIMS, "default/data") == "Pending"

        await stage.create(VOLUMES, a_volume("late"))

        await stage.until(lambda: phase(stage, CLAIMS, "default/data") == "Bound")

    play(scene, tmp_path)


def test_a_deleted_claim_takes_its_directory_with_it(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(CLAIMS, new(a_claim()))
        await stage.until(lambda: phase(stage, CLAIMS, "default/data") == "Bound")
        fill(tmp_path)

        await stage.delete(CLAIMS, "default/data")

        await stage.until(lambda: not stage.names(VOLUMES))
        assert stage.names(CLAIMS) == []

    play(scene, tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_a_retained_volume_is_released_and_free_again_once_its_claim_is_struck_off(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(VOLUMES, a_volume("mine"))
        await stage.create(CLAIMS, new(a_claim(volumeName="mine")))
        await stage.until(lambda: phase(stage, VOLUMES, "mine") == "Bound")

        await stage.delete(CLAIMS, "default/data")
        await stage.until(lambda: phase(stage, VOLUMES, "mine") == "Released")
        await stage.create(CLAIMS, new(a_claim("next", storageClassName="")))
        await stage.passes(60)
        assert phase(stage, CLAIMS, "default/next") == "Pending"

        await stage.change(VOLUMES, "mine", spec={"claimRef": None})

        await stage.until(lambda: phase(stage, CLAIMS, "default/next") == "Bound")

    play(scene, tmp_path)


def test_a_foreign_volume_to_be_deleted_fails_and_its_data_stays(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(VOLUMES, a_volume("mine", persistentVolumeReclaimPolicy="Delete"))
        await stage.create(CLAIMS, new(a_claim()))
        await stage.until(lambda: phase(stage, VOLUMES, "mine") == "Bound")

        await stage.delete(CLAIMS, "default/data")

        await stage.until(lambda: phase(stage, VOLUMES, "mine") == "Failed")
        assert "by hand" in (stage.get(VOLUMES, "mine") or {})["status"]["message"]

    play(scene, tmp_path)


def test_a_claim_in_use_stays_until_its_pod_has_ended(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(CLAIMS, new(a_claim()))
        await stage.until(lambda: phase(stage, CLAIMS, "default/data") == "Bound")
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        await stage.create(
            PODS,
            {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": volumes}},
        )

        await stage.delete(CLAIMS, "default/data")
        await stage.passes(60)
        assert stage.names(CLAIMS) == ["data"]

        await stage.change(PODS, "default/p", "status", status={"phase": "Succeeded"})

        await stage.until(lambda: not stage.names(CLAIMS))

    play(scene, tmp_path)


def test_a_bound_volume_outlives_its_deletion_until_the_claim_goes(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(VOLUMES, a_volume("mine"))
        await stage.create(CLAIMS, new(a_claim()))
        await stage.until(lambda: phase(stage, VOLUMES, "mine") == "Bound")

        await stage.delete(VOLUMES, "mine")
        await stage.passes(60)
        assert stage.names(VOLUMES) == ["mine"]

        await stage.delete(CLAIMS, "default/data")

        await stage.until(lambda: not stage.names(VOLUMES))

    play(scene, tmp_path)
