"""Does a pod fit on a node, and if not, why not: numbers included, because the answer is what people read.

A `Room` is a node and what is taken of it, kept up to date pod by pod. Nothing here changes a pod's fate: `refusal_of`
answers, `best` chooses, `scheduler_plan` decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from trainmaster.cluster.scheduling import scheduler_affinity as affinity
from trainmaster.cluster.scheduling import scheduler_match as match
from trainmaster.cluster.scheduling.scheduler_pod import PODS, Node, Pod, show


class Room:
    """A node and what is taken of it. Amounts that were added are taken away again exactly."""

    __slots__ = ("counts", "guards", "node", "pods", "ported", "used")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.used: dict[str, int] = {}
        self.pods: dict[str, Pod] = {}
        self.guards: dict[str, Pod] = {}
        self.ported: dict[str, Pod] = {}
        self.counts: dict[tuple[str, bytes], int] = {}

    def copy(self) -> Room:
        room = Room(self.node)
        room.used, room.pods = dict(self.used), dict(self.pods)
        room.guards, room.ported = dict(self.guards), dict(self.ported)
        return room

    def add(self, pod: Pod) -> None:
        self.pods[pod.key] = pod
        self.counts.clear()
        for name, amount in pod.need.items():
            self.used[name] = self.used.get(name, 0) + amount
        if pod.ports:
            self.ported[pod.key] = pod
        if affinity.is_guard(pod):
            self.guards[pod.key] = pod

    def remove(self, pod: Pod) -> None:
        del self.pods[pod.key]
        self.counts.clear()
        for name, amount in pod.need.items():
            self.used[name] -= amount
        self.ported.pop(pod.key, None)
        self.guards.pop(pod.key, None)

    def free(self, name: str) -> int:
        """Below zero where pods were put by name on a node that was full."""
        return self.node.allocatable.get(name, 0) - self.used.get(name, 0)


Rooms: TypeAlias = Mapping[str, Room]


@dataclass(frozen=True, slots=True)
class Short:
    """A resource there is too little of."""

    resource: str
    need: int
    free: int
    total: int

    def told(self, best_of: int = 1) -> str:
        """As the only node says it, or as the best offer of several."""
        free, total = show(self.resource, max(self.free, 0)), show(self.resource, self.total)
        if self.resource == PODS:
            return f"no room for another pod, {total} at most"
        need, most, where = show(self.resource, self.need, up=True), "", ""
        if best_of > 1:
            most, where = "at most ", f" on {best_of} nodes"
        return f"needs {need} {self.resource}, {most}{free} of {total} free{where}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one node does not take a pod. `text` names what is in the way; `shorts` are what is missing."""

    text: str = ""
    shorts: tuple[Short, ...] = ()

    def told(self, best_of: int = 1) -> str:
        return self.text or ", ".join(short.told(best_of) for short in self.shorts)


def refusal_of(pod: Pod, room: Room, rooms: Rooms) -> Refusal | None:
    """What the node says to the pod as things are."""
    return standing_refusal(pod, room.node) or _shortage(pod, room) or clash_of(pod, room, rooms)


def standing_refusal(pod: Pod, node: Node) -> Refusal | None:
    """What the node would say even if it were empty and boundless."""
    if not node.is_ready:
        return Refusal("not ready")
    if (taint := match.untolerated(pod, node)) is not None:
        return Refusal("cordoned" if taint is match.CORDON else f"taint {match.show_taint(taint)} is not tolerated")
    for key, value in pod.selector.items():
        if node.labels.get(key) != value:
            return Refusal(f"no label {key}={value} as nodeSelector wants")
    selector = affinity.node_selector(pod)
    if selector is not None and not match.matches_node(selector, node):
        return Refusal("node affinity does not match")
    return None


def could_fit(pod: Pod, node: Node) -> bool:
    """Whether the node could take the pod if nothing else ran there."""
    allocatable = node.allocatable
    if any(amount > allocatable.get(name, 0) for name, amount in pod.need.items()):
        return False
    return standing_refusal(pod, node) is None


def best(pod: Pod, rooms: Iterable[Room], places: Rooms) -> Room | None:
    """The room the pod likes best; of equals the fullest, so that large gangs find whole nodes free."""
    return min(rooms, key=lambda room: _rank(pod, room, places), default=None)


def explain(refusals: Mapping[str, Refusal]) -> str:
    """All nodes' answers in one sentence; of the nodes that are too full, the closest speaks for all."""
    said = Counter(refusal.text for refusal in refusals.values() if refusal.text)
    parts = [text if len(refusals) == 1 else f"{count} {text}" for text, count in sorted(said.items())]
    parts += _offers([refusal for refusal in refusals.values() if not refusal.text])
    return f"0/{len(refusals)} nodes are available: {'; '.join(parts) or 'there is none'}"


def _offers(refusals: list[Refusal]) -> list[str]:
    if not refusals:
        return []
    closest = min(refusals, key=lambda refusal: (len(refusal.shorts), _lack(refusal)))
    return [closest.told(best_of=len(refusals))]


def _lack(refusal: Refusal) -> float:
    return sum(1 - max(short.free, 0) / short.need for short in refusal.shorts)


def _shortage(pod: Pod, room: Room) -> Refusal | None:
    used, allocatable = room.used, room.node.allocatable
    for name, amount in pod.need.items():
        if amount + used.get(name, 0) > allocatable.get(name, 0):
            break
    else:
        return None
    return Refusal(
        shorts=tuple(
            Short(name, amount, room.free(name), allocatable.get(name, 0))
            for name, amount in pod.need.items()
            if amount > room.free(name)
        )
    )


def clash_of(pod: Pod, room: Room, rooms: Rooms) -> Refusal | None:
    """What the pods that are there have against it, or it against them."""
    for other in room.ported.values() if pod.ports else ():
        for port in pod.ports:
            if any(_is_same_port(port, taken) for taken in other.ports):
                return Refusal(f"host port {port[2]} is taken by {other.name}")
    if affinity.is_social(pod) or any(place.guards for place in rooms.values()):
        text = affinity.conflict(pod, room, rooms.values())
        return Refusal(text) if text else None
    return None


def _is_same_port(one: tuple[str, str, int], other: tuple[str, str, int]) -> bool:
    if one[1:] != other[1:]:
        return False
    return one[0] == other[0] or "0.0.0.0" in (one[0], other[0])


def _rank(pod: Pod, room: Room, rooms: Rooms) -> tuple[int, int, float, int, str]:
    liking = affinity.preference(pod, room, rooms.values()) if pod.affinity else 0
    dislikes = match.dislikes(pod, room.node) if room.node.taints else 0
    allocatable, used = room.node.allocatable, room.used
    fullness = max((used.get(name, 0) / allocatable[name] for name in pod.need if name != PODS), default=0.0)
    return (-liking, dislikes, -fullness, len(room.pods), room.node.name)
