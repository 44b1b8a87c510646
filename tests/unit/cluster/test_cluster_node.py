from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from trainmaster.cluster.controllers.node import GPUS, Machine, NodeKeeper, capacity_of, machine, names, shares
from trainmaster.objects import quantity, timestamp
from trainmaster.testing import stage
from trainmaster.testing.stage import Stage

WHOLE = Machine(cpu=Fraction(2), memory=8 * 2**30, storage=100 * 2**30, gpus=(0, 1, 2))
NODES, LEASES = "v1/nodes", "coordination.k8s.io/v1/leases"


def play(scene: Any, **options: Any) -> None:
    settings = {"whole": WHOLE, "host": "Box.example.org", **options}
    stage.play(scene, lambda registry, now: [NodeKeeper(registry, now=now, **settings)])


def a_root(path: Path, *, cpu: str = "max 100000", memory: str = "max", gpus: int = 0, devices: int = 0) -> Path:
    for directory in ("proc/driver/nvidia/gpus", "sys/fs/cgroup", "dev"):
        (path / directory).mkdir(parents=True)
    (path / "proc/meminfo").write_text("MemTotal:       16384 kB\nMemFree:  1 kB\n")
    (path / "sys/fs/cgroup/cpu.max").write_text(f"{cpu}\n")
    (path / "sys/fs/cgroup/memory.max").write_text(f"{memory}\n")
    for number in range(gpus):
        (path / f"proc/driver/nvidia/gpus/0000:0{number}:00.0").mkdir()
    for number in range(devices):
        (path / f"dev/nvidia{number}").touch()
    return path


def test_this_machine_has_processors_memory_and_a_disk() -> None:
    found = machine()

    assert found.cpu > 0
    assert found.memory > 2**20
    assert found.storage > 0


@pytest.mark.parametrize(
    ("quota", "expected"), [("50000 100000", Fraction(1, 2)), ("max 100000", None), ("9900000 100000", None)]
)
def test_a_cgroup_may_lower_the_number_of_processors(tmp_path: Path, quota: str, expected: Fraction | None) -> None:
    unlimited = machine(a_root(tmp_path / "free")).cpu

    assert machine(a_root(tmp_path / "limited", cpu=quota)).cpu == (expected or unlimited)


@pytest.mark.parametrize(("limit", "expected"), [("1048576", 2**20), ("max", 2**24), (str(2**40), 2**24)])
def test_a_cgroup_may_lower_the_memory(tmp_path: Path, limit: str, expected: int) -> None:
    assert machine(a_root(tmp_path, memory=limit)).memory == expected


@pytest.mark.parametrize(("driver", "devices", "expected"), [(2, 2, (0, 1)), (2, 0, ()), (0, 0, ()), (2, 1, (0,))])
def test_gpus_count_when_driver_and_device_file_are_there(
    tmp_path: Path, driver: int, devices: int, expected: tuple[int, ...]
) -> None:
    assert machine(a_root(tmp_path, gpus=driver, devices=devices)).gpus == expected


@pytest.mark.parametrize("count", [1, 3, 7, 10])
def test_nodes_share_the_machine_and_together_have_no_more_than_it(count: int) -> None:
    parts = shares(WHOLE, count)

    assert sum(part.cpu for part in parts) == WHOLE.cpu
    assert sum(part.memory for part in parts) == WHOLE.memory
    assert sum(part.storage for part in parts) == WHOLE.storage
    assert sorted(gpu for part in parts for gpu in part.gpus) == [0, 1, 2]
    assert len(parts) == count


def test_capacity_is_written_as_kubernetes_does_and_overrides_win() -> None:
    assert capacity_of(shares(WHOLE, 10)[0], {"cpu": "4", "example.org/fpga": "1"}) == {
        "cpu": "4",
        "memory": f"{-(-8 * 2**20 // 10)}Ki",
        "ephemeral-storage": f"{100 * 2**20 // 10}Ki",
        "pods": "1000",
        "nvidia.com/gpu": "1",
        "example.org/fpga": "1",
    }


@pytest.mark.parametrize(
    ("count", "host", "expected"),
    [
        (1, "Box.example.org", ["box"]),
        (2, "box", ["box-0", "box-1"]),
        (1, "my_host!", ["my-host"]),
        (1, "...", ["local"]),
    ],
)
def test_node_names_are_made_from_the_host_name(count: int, host: str, expected: list[str]) -> None:
    assert names(count, host) == expected


def test_the_machine_is_a_ready_node_with_labels_and_a_fresh_lease() -> None:
    async def scene(stage: Stage) -> None:
        lease = await stage.until(lambda: stage.get(LEASES, "kube-node-lease/box"))

        node = stage.get(NODES, "box")
        assert node is not None
        amounts = {name: quantity.parse(text) for name, text in node["status"]["capacity"].items()}
        assert amounts == {name: quantity.parse(text) for name, text in capacity_of(WHOLE, {}).items()}
        assert node["status"]["allocatable"] == node["status"]["capacity"]
        assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"
        assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "box"
        assert node["metadata"]["labels"]["kubernetes.io/os"] == "linux"
        assert node["metadata"]["annotations"][GPUS] == "0,1,2"
        assert lease["spec"]["holderIdentity"] == "box"
        assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]

    play(scene)


def test_the_heartbeat_touches_the_lease_and_not_the_node() -> None:
    async def scene(stage: Stage) -> None:
        await stage.until(lambda: stage.get(LEASES, "kube-node-lease/box"))
        node = stage.get(NODES, "box")

        await stage.passes(35)

        lease = stage.get(LEASES, "kube-node-lease/box")
        assert lease is not None
        assert stage.now() - (timestamp.parse(lease["spec"]["renewTime"]) or 0) <= 10
        assert stage.get(NODES, "box") == node

    play(scene)


def test_several_nodes_are_registered_with_their_parts() -> None:
    async def scene(stage: Stage) -> None:
        await stage.until(lambda: len(stage.names(LEASES, "kube-node-lease")) == 4)

        assert stage.names(NODES) == ["box-0", "box-1", "box-2", "box-3"]
        assert [node["status"]["capacity"]["cpu"] for node in stage.all(NODES)] == ["500m"] * 4
        assert [node["status"]["capacity"].get("nvidia.com/gpu") for node in stage.all(NODES)] == ["1", "1", "1", None]

    play(scene, count=4)


def test_a_restart_drops_nodes_that_are_no_more_and_keeps_what_users_added() -> None:
    async def scene(stage: Stage) -> None:
        await NodeKeeper(stage.registry, now=stage.now, whole=WHOLE, host="box", count=2).register()
        await stage.change(NODES, "box-0", spec={"unschedulable": True}, metadata={"labels": {"mine": "yes"}})
        await stage.create(NODES, {"metadata": {"name": "foreign"}})

        await NodeKeeper(stage.registry, now=stage.now, whole=WHOLE, host="box", count=1).register()
        await NodeKeeper(stage.registry, now=stage.now, whole=WHOLE, host="box-0", count=1).register()

        assert stage.names(NODES) == ["box-0", "foreign"]

        await stage.change(NODES, "box-0", spec={"unschedulable": True}, metadata={"labels": {"mine": "yes"}})
        await NodeKeeper(stage.registry, now=stage.now, whole=Machine(Fraction(1), 1024, 1024), host="box-0").register()

        node = stage.get(NODES, "box-0")
        assert node is not None
        assert node["spec"]["unschedulable"] is True
        assert node["metadata"]["labels"]["mine"] == "yes"
        assert node["metadata"]["labels"]["kubernetes.io/os"] == "linux"
        assert GPUS not in node["metadata"].get("annotations", {})
        assert node["status"]["capacity"]["cpu"] == "1"

    stage.play(scene, lambda registry, now: [])


@pytest.mark.parametrize(
    ("offered", "told"), [("7", "0,1,2,0,1,2,0"), ("2", "0,1"), ("0", None)], ids=["more", "fewer", "none"]
)
def test_a_node_may_offer_more_or_fewer_gpus_than_there_are(offered: str, told: str | None) -> None:
    async def scene(stage: Stage) -> None:
        node = await stage.until(lambda: stage.get(NODES, "box"))

        assert node["status"]["capacity"]["nvidia.com/gpu"] == offered
        assert node["metadata"].get("annotations", {}).get(GPUS) == told

    play(scene, override={"nvidia.com/gpu": offered})


def test_a_node_may_offer_gpus_where_there_are_none() -> None:
    async def scene(stage: Stage) -> None:
        node = await stage.until(lambda: stage.get(NODES, "box"))

        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
        assert GPUS not in node["metadata"].get("annotations", {})

    play(scene, whole=Machine(Fraction(1), 1024, 1024), override={"nvidia.com/gpu": "4"})


def test_declared_labels_come_and_go_with_the_configuration() -> None:
    async def scene(stage: Stage) -> None:
        async def registered(**labels: str) -> dict[str, str]:
            await NodeKeeper(stage.registry, now=stage.now, whole=WHOLE, host="box", labels=labels).register()
            node = stage.get(NODES, "box")
            assert node is not None
            return {name: text for name, text in node["metadata"]["labels"].items() if "/" not in name}

        assert await registered(accelerator="p100", zone="a") == {"accelerator": "p100", "zone": "a"}
        await stage.change(NODES, "box", metadata={"labels": {"mine": "yes"}})

        assert await registered(zone="b") == {"zone": "b", "mine": "yes"}

    stage.play(scene, lambda registry, now: [])


def test_a_deleted_node_comes_back() -> None:
    async def scene(stage: Stage) -> None:
        await stage.until(lambda: stage.get(LEASES, "kube-node-lease/box"))

        await stage.delete(NODES, "box")

        await stage.until(lambda: stage.get(NODES, "box"))

    play(scene)
