"""What a trainmaster.yaml says of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from trainmaster.cluster.kubelet.machine_config import MachineConfig, MachineError

BASE = Path("/home/me")


def read(text: str) -> MachineConfig:
    return MachineConfig.of(yaml.safe_load(text), BASE / "trainmaster.yaml")


def test_resources_labels_and_volumes_are_read() -> None:
    config = read(
        """
        node:
          resources: {nvidia.com/gpu: 4, cpu: 1.5, memory: 32Gi}
          labels: {accelerator: p100, generation: 3}
          processes: 8192
        volumes: {/data/: ./data, "nas:/share/": /mnt/share}
        """
    )

    assert config == MachineConfig(
        {"nvidia.com/gpu": "4", "cpu": "1.5", "memory": "32Gi"},
        {"accelerator": "p100", "generation": "3"},
        {"/data": BASE / "data", "nas:/share": Path("/mnt/share")},
        8192,
    )


@pytest.mark.parametrize("text", ["", "images: []", "node:", "node: {resources: }", "volumes: {}"])
def test_nothing_need_be_said(text: str) -> None:
    assert read(text) == MachineConfig()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("node: 4", "node: is 4; write resources, labels or processes"),
        ("node: {cpu: 4}", "node.cpu: there is no such field; known are resources, labels, processes"),
        ("node: {resources: [gpu]}", "node.resources: is ['gpu']; write names and amounts"),
        ("node: {resources: {cpu: many}}", "node.resources.cpu: is 'many'; write how much of it there is"),
        ("node: {resources: {cpu: -1}}", "node.resources.cpu: is -1; write how much"),
        ("node: {resources: {cpu: true}}", "node.resources.cpu: is True; write how much"),
        ("node: {resources: {nvidia.com/gpu: 0.5}}", "node.resources.nvidia.com/gpu: is 0.5; write how much"),
        ("node: {labels: {fast: true}}", 'node.labels.fast: is True; quote the value, e.g. fast: "true"'),
        ("node: {processes: many}", "node.processes: is 'many'; write how many processes and threads a container may"),
        ("node: {processes: 0}", "node.processes: is 0; write how many"),
        ("node: {processes: true}", "node.processes: is True; write how many"),
        ("volumes: [/data]", "volumes: is ['/data']; write what a manifest names and your directory"),
        ("volumes: {data: ./data}", "volumes: is 'data'; name the path of a hostPath, or SERVER:PATH"),
        ("volumes: {'nas:share': ./data}", "volumes: is 'nas:share'; name the path of a hostPath, or SERVER:PATH"),
        ("volumes: {/data: 7}", "volumes./data: is 7; give the directory that stands for it"),
    ],
)
def test_a_mistake_is_told_with_place_value_and_remedy(text: str, told: str) -> None:
    with pytest.raises(MachineError) as caught:
        read(text)

    assert str(caught.value).startswith(f"/home/me/trainmaster.yaml: {told}")


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(MachineError) as caught:
        read("{node: {resources: {cpu: x}, labels: {a: []}}, volumes: {b: c}}")

    assert len(str(caught.value).splitlines()) == 3
