from __future__ import annotations

from typing import Any

import pytest

from trainmaster.cluster.kubelet.gpus import Gpus, NotEnoughGpus

Json = dict[str, Any]


def a_node(devices: str, offered: int = 0) -> Json:
    annotations = {"trainmaster.dev/gpus": devices} if devices else {}
    return {"metadata": {"annotations": annotations}, "status": {"capacity": {"nvidia.com/gpu": str(offered)}}}


def a_pod(uid: str, gpus: int) -> Json:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {"metadata": {"uid": uid}, "spec": {"nodeName": "here", "containers": [container]}}


def seen(gpus: Gpus, pod: Json, node: Json) -> str | None:
    gpus.take(pod, node)
    return gpus.env(pod, pod["spec"]["containers"][0], node).get("CUDA_VISIBLE_DEVICES")


@pytest.mark.parametrize(
    ("devices", "offered", "given"),
    [
        pytest.param("0,1,2,3", 4, ["0,1", "2,3"], id="as many as there are"),
        pytest.param("0,1,0,1", 4, ["0,1", "0,1"], id="shared"),
        pytest.param("0,0,0,0", 4, ["0", "0"], id="one for all"),
        pytest.param("", 4, [None, None], id="none there"),
    ],
)
def test_pods_get_the_gpus_that_there_are(devices: str, offered: int, given: list[str | None]) -> None:
    gpus, node = Gpus(), a_node(devices, offered)

    assert [seen(gpus, a_pod(uid, 2), node) for uid in ("a", "b")] == given


@pytest.mark.parametrize(("devices", "offered"), [("0,0,0", 3), ("", 0)], ids=["shared", "none"])
def test_no_more_than_the_node_offers_is_handed_out(devices: str, offered: int) -> None:
    with pytest.raises(NotEnoughGpus):
        Gpus().take(a_pod("a", 4), a_node(devices, offered))


def test_what_a_pod_gives_back_another_gets() -> None:
    gpus, node, first = Gpus(), a_node("0,0", 2), a_pod("a", 2)
    gpus.take(first, node)

    gpus.give_back(first)

    assert seen(gpus, a_pod("b", 2), node) == "0"
