"""Which GPUs of a node a container may use: handed out by number, told by CUDA_VISIBLE_DEVICES.

A node that offers more GPUs than the machine has names some repeatedly, and containers share them. One that offers some
where there are none hands out nothing: the container runs, and finds no GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.objects.meta import Json

RESOURCE = "nvidia.com/gpu"
ANNOTATION = "trainmaster.dev/gpus"


class NotEnoughGpus(Exception):
    """The scheduler and the kubelet disagree; the pod cannot run here."""


class Gpus:
    def __init__(self) -> None:
        self._held: dict[str, dict[int, str]] = {}  # node -> place in its list of devices -> pod uid
        self._pods: dict[str, dict[str, list[str]]] = {}  # pod uid -> container -> devices

    def take(self, pod: Json, node: Json) -> None:
        """All that the pod's containers ask for, or NotEnoughGpus. Init containers share with the others."""
        uid = pod["metadata"]["uid"]
        if uid in self._pods:
            return
        devices = _devices(node)
        held = self._held.setdefault(pod["spec"].get("nodeName", ""), {})
        free = [place for place in range(len(devices)) if place not in held]
        main, first = _wanted(pod, "containers"), _wanted(pod, "initContainers")
        needed = max(sum(main.values()), *first.values(), 0)
        if needed and not devices and _offered(node):
            return
        if needed > len(free):
            raise NotEnoughGpus(f"{needed} GPUs needed, {len(free)} of the node's {len(devices)} are free")
        held.update(dict.fromkeys(free[:needed], uid))
        given = [devices[place] for place in free[:needed]]
        self._pods[uid] = dict(_dealt(main, given)) | {name: given[:count] for name, count in first.items()}

    def give_back(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        self._pods.pop(uid, None)
        for held in self._held.values():
            for place in [place for place, owner in held.items() if owner == uid]:
                del held[place]

    def env(self, pod: Json, container: Json, node: Json) -> dict[str, str]:
        """Nothing on a machine without GPUs; there, a container that asked for none sees none."""
        if not _devices(node):
            return {}
        given = self._pods.get(pod["metadata"]["uid"], {}).get(container["name"], ())
        devices = ",".join(dict.fromkeys(given))
        return {"CUDA_VISIBLE_DEVICES": devices, "NVIDIA_VISIBLE_DEVICES": devices or "none"}


def _devices(node: Json) -> list[str]:
    text = (node.get("metadata", {}).get("annotations") or {}).get(ANNOTATION) or ""
    return [device for device in text.replace(" ", "").split(",") if device]


def _offered(node: Json) -> bool:
    return bool(int((node.get("status", {}).get("capacity") or {}).get(RESOURCE) or 0))


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
