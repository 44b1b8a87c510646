"""What this machine is to stand for, by `trainmaster.yaml`: more of a node than it is, and volumes that lie elsewhere.

    node:
      resources: {nvidia.com/gpu: 4, cpu: 16}      # what the node offers, whether or not the machine has it
      labels: {accelerator: nvidia-tesla-p100}     # what nodeSelectors and affinities may ask for
      processes: 8192                              # most processes and threads of a container; -1 for no limit
    volumes:
      /data/imagenet: ./data                       # a hostPath, and everything below it
      "nas.example:/share": ./share                # an NFS share, SERVER:PATH

Resources hold for every node where there are several. Relative paths start at the file. Every problem is told at once,
with its place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from trainmaster.cluster.kubelet.images_config import absolute
from trainmaster.objects import quantity

SECTIONS = ("node", "volumes")
_DIVISIBLE = ("cpu", "memory", "ephemeral-storage")
"""Everything else is a device or a pod, of which there is no half."""

_NODE = {
    "resources": "write names and amounts, e.g. {nvidia.com/gpu: 4}",
    "labels": "write names and values, e.g. {accelerator: nvidia-tesla-p100}",
    "processes": "write how many processes and threads a container may have, e.g. 8192, or -1 for no limit",
}


class MachineError(Exception):
    """What is wrong with the file, where, and what to write instead."""


@dataclass(frozen=True, slots=True)
class MachineConfig:
    resources: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    volumes: Mapping[str, Path] = field(default_factory=dict)
    """By `/path`, or `server:/path`."""

    processes: int | None = None
    """Most processes of a container; None for a share of what the machine can have, -1 for no limit."""

    @classmethod
    def of(cls, data: object, file: Path) -> MachineConfig:
        """From the parsed content of a `trainmaster.yaml`, whatever its name."""
        problems: list[str] = []
        found = data if isinstance(data, Mapping) else {}
        node = _mapping(found.get("node"), "node", "write resources, labels or processes", problems)
        problems += [
            f"node.{key}: there is no such field; known are {', '.join(_NODE)}" for key in node if key not in _NODE
        ]
        resources, labels = (
            _mapping(node.get(key), f"node.{key}", _NODE[key], problems) for key in ("resources", "labels")
        )
        processes = node.get("processes")
        if not _is_limit(processes):
            problems.append(f"node.processes: is {processes!r}; {_NODE['processes']}")
        hint = "write what a manifest names and your directory, e.g. {/data: ./data}"
        volumes = _mapping(found.get("volumes"), "volumes", hint, problems)
        problems += [*_wrong_resources(resources), *_wrong_labels(labels), *_wrong_volumes(volumes)]
        if problems:
            raise MachineError("\n".join(f"{file}: {problem}" for problem in problems))
        return cls(
            {str(name): str(amount) for name, amount in resources.items()},
            {str(name): str(value) for name, value in labels.items()},
            {_normal(place): absolute(path, file.parent) for place, path in volumes.items()},
            processes,
        )


def stand_in(volumes: Mapping[str, Path], path: str, server: str = "") -> Path | None:
    """Where a path of a node, or of an NFS server, lies on this machine; None where nothing is said about it."""
    wanted = PurePosixPath(os.path.normpath(path))
    for above in (wanted, *wanted.parents):
        found = volumes.get(f"{server}:{above}" if server else str(above))
        if found is not None:
            return found / wanted.relative_to(above)
    return None


def _mapping(value: object, where: str, how: str, problems: list[str]) -> Mapping[Any, Any]:
    if isinstance(value, Mapping):
        return value
    if value is not None:
        problems.append(f"{where}: is {value!r}; {how}")
    return {}


def _is_limit(value: object) -> bool:
    """What the kernel counts in; a container needs a few to begin with."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value is None or (is_number and (value == -1 or 16 <= value < 2**22))  # type: ignore[operator]


def _wrong_resources(resources: Mapping[Any, Any]) -> Iterator[str]:
    for name, amount in resources.items():
        parsed = quantity.parse(amount) if quantity.is_quantity(amount) else -1
        if parsed < 0 or (parsed.denominator != 1 and name not in _DIVISIBLE):
            yield f"node.resources.{name}: is {amount!r}; write how much of it there is, e.g. 4"


def _wrong_labels(labels: Mapping[Any, Any]) -> Iterator[str]:
    for name, value in labels.items():
        if isinstance(value, bool) or not isinstance(value, str | int):
            yield f'node.labels.{name}: is {value!r}; quote the value, e.g. {name}: "true"'


def _wrong_volumes(volumes: Mapping[Any, Any]) -> Iterator[str]:
    for place, path in volumes.items():
        if not isinstance(place, str) or not place.partition(":")[0 if place.startswith("/") else 2].startswith("/"):
            yield f"volumes: is {place!r}; name the path of a hostPath, or SERVER:PATH of an NFS share"
        elif not isinstance(path, str) or not path:
            yield f"volumes.{place}: is {path!r}; give the directory that stands for it on this machine"


def _normal(place: str) -> str:
    server, _, path = ("", "", place) if place.startswith("/") else place.partition(":")
    return f"{server}:{os.path.normpath(path)}" if server else os.path.normpath(path)
