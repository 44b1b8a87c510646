"""Which GPUs of a node a container may use: handed out by number, told by CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.objects.meta import Json

RESOURCE = "nvidia.com/gpu"
ANNOTATION = "trainmaster.dev/gpus"


class NotEnoughGpus(Exception):
    """The scheduler and the kubelet disagree; the pod cannot run here."""


class Gpus:
    def __init__(self) -> None:
        self._held: dict[str, dict[str, str]] = {}  # node -> device -> pod uid
        self._pods: dict[str, dict[str, list[str]]] = {}  # pod uid -> container -> devices

    def take(self, pod: Json, node: Json) -> None:
        """All that the pod's containers ask for, or NotEnoughGpus. Init containers share with the others."""
        uid = pod["metadata"]["uid"]
        if uid in self._pods:
            return
        devices = _devices(node)
        held = self._held.setdefault(pod["spec"].get("nodeName", ""), {})
        free = [device for device in devices if device not in held]
        main, first = _wanted(pod, "containers"), _wanted(pod, "initContainers")
        needed = max(sum(main.values()), *first.values(), 0)
        if needed > len(free):
            raise NotEnoughGpus(f"{needed} GPUs needed, {len(free)} of the node's {len(devices)} are free")
        given = free[:needed]
        held.update(dict.fromkeys(given, uid))
        self._pods[uid] = dict(_dealt(main, given)) | {name: given[:count] for name, count in first.items()}

    def give_back(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        self._pods.pop(uid, None)
        for held in self._held.values():
            for device in [device for device, owner in held.items() if owner == uid]:
                del held[device]

    def env(self, pod: Json, container: Json, node: Json) -> dict[str, str]:
        """Nothing on a machine without GPUs; there, a container that asked for none sees none."""
        if not _devices(node):
            return {}
        devices = ",".join(self._pods.get(pod["metadata"]["uid"], {}).get(container["name"], ()))
        return {"CUDA_VISIBLE_DEVICES": devices, "NVIDIA_VISIBLE_DEVICES": devices or "none"}


def _devices(node: Json) -> list[str]:
    text = (node.get("metadata", {}).get("annotations") or {}).get(ANNOTATION) or ""
    return [device for device in text.replace(" ", "").split(",") if device]


def _wanted(pod: Json, key: str) -> dict[str, int]:
    found = {}
    for container in pod["spec"].get(key) or ():
        count = int(((container.get("resources") or {}).get("limits") or {}).get(RESOURCE) or 0)
        if count:
            found[container["name"]] = count
    return found


def _dealt(wanted: dict[str, int], given: list[str]) -> Iterator[tuple[str, list[str]]]:
    at = 0
    for name, count in wanted.items():
        yield name, given[at : at + count]
        at += count
