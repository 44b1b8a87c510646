"""The books of one pass: what is free, what was placed, and what is kept for those who came first.

Whoever does not get a place, but would on an empty cluster, has a hold on the nodes it could use: those behind it may
take there only what leaves as much as it needs. So of the resources it waits for they get nothing, and of the others
the surplus: nobody behind it can delay it, and it cannot be starved. Per node a hold is the largest that anyone in
front has, not the sum: each alone is kept safe, without closing a node for the sake of pods that must take turns.

Groups without pods have no nodes yet. Those admitted have a promise of their minResources (these add up), those
waiting for admission a hold, both on the cluster as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trainmaster.cluster.scheduling import scheduler_fit as fit
from trainmaster.cluster.scheduling.scheduler_fit import Refusal, Room
from trainmaster.cluster.scheduling.scheduler_pod import Amounts, Pod, plus, show
from trainmaster.cluster.scheduling.scheduler_queue import Queue, share_of


@dataclass(slots=True)
class Hold:
    """What is kept, resource by resource, and for whom."""

    kept: dict[str, int] = field(default_factory=dict)
    whose: dict[str, str] = field(default_factory=dict)

    def raise_to(self, need: Amounts, name: str) -> None:
        for resource, amount in need.items():
            if amount > self.kept.get(resource, 0):
                self.kept[resource] = amount
                self.whose[resource] = name

    def objection(self, need: Amounts, free: Amounts, extra: Amounts) -> str | None:
        """The resource of which too little would be left."""
        for resource, amount in need.items():
            kept = self.kept.get(resource, 0) + extra.get(resource, 0)
            if kept and free.get(resource, 0) - amount < kept:
                return resource
        return None


class Ledger:
    def __init__(self, rooms: Iterable[Room], queues: Mapping[str, Queue], queue_used: Mapping[str, Amounts]) -> None:
        self.rooms = {room.node.name: room for room in sorted(rooms, key=lambda room: room.node.name)}
        usable = [room for room in self.rooms.values() if room.node.is_ready and not room.node.is_cordoned]
        self._usable = {room.node.name for room in usable}
        self.total = plus(*(room.node.allocatable for room in usable))
        self.free = {name: sum(max(room.free(name), 0) for room in usable) for name in self.total}
        self.promised: dict[str, int] = {}
        self._queues = queues
        self._queue_used: dict[str, dict[str, int]] = {name: dict(used) for name, used in queue_used.items()}
        self._node_holds: dict[str, Hold] = {}
        self._cluster_hold = Hold()
        self._queue_holds: dict[str, Hold] = {}

    def share(self, queue: str) -> float:
        return share_of(self._queue_used.get(queue, {}), self.total, self.queue(queue).weight)

    def queue(self, name: str) -> Queue:
        return self._queues.get(name) or Queue(name)

    def choose(self, pod: Pod) -> Room | None:
        """The best room that takes the pod and that nobody in front needs."""
        if self.kept_in_cluster(pod.need) is not None:
            return None
        rooms = self.rooms
        open_rooms = [
            room
            for room in rooms.values()
            if fit.refusal_of(pod, room, rooms) is None and self._kept_on_node(pod, room) is None
        ]
        return open_rooms[0] if len(open_rooms) == 1 else fit.best(pod, open_rooms, rooms)

    def place(self, pod: Pod, room: Room, queue: str) -> None:
        room.add(pod)
        self._book(pod.need, room, queue, 1)

    def unplace(self, pod: Pod, room: Room, queue: str) -> None:
        room.remove(pod)
        self._book(pod.need, room, queue, -1)

    def refusals(self, pod: Pod) -> dict[str, Refusal]:
        """Every node's answer, for the explanation."""
        in_cluster = self.kept_in_cluster(pod.need)
        answers = {}
        for name, room in self.rooms.items():
            refusal = fit.refusal_of(pod, room, self.rooms)
            if refusal is None:
                on_node = self._kept_on_node(pod, room)
                refusal = Refusal(in_cluster or on_node or "room was taken meanwhile")
            answers[name] = refusal
        return answers

    def queue_refusal(self, queue: str, need: Amounts) -> str | None:
        """What the queue says to more of its own: closed, at its limit, or kept for those in front."""
        if self.queue(queue).is_closed:
            return f"queue {queue} is closed"
        used, hold = self._queue_used.get(queue, {}), self._queue_holds.get(queue, Hold())
        for resource, limit in self.queue(queue).capability.items():
            amount = need.get(resource, 0)
            left = limit - used.get(resource, 0)
            if amount > left:
                asked, room = show(resource, amount, up=True), show(resource, max(left, 0))
                return f"queue {queue} has {room} of {show(resource, limit)} {resource} left, {asked} asked for"
            if amount and left - amount < hold.kept.get(resource, 0):
                return f"queue {queue} keeps its {show(resource, left)} {resource} for {hold.whose[resource]}"
        return None

    def could_queue(self, queue: str, need: Amounts) -> bool:
        """Whether an empty queue would take it."""
        capability = self.queue(queue).capability
        return not self.queue(queue).is_closed and all(
            need.get(resource, 0) <= limit for resource, limit in capability.items()
        )

    def left(self, resource: str) -> int:
        """What the cluster as a whole has free and has not promised."""
        return max(self.free.get(resource, 0) - self.promised.get(resource, 0), 0)

    def lacking(self, need: Amounts) -> dict[str, int]:
        """What the cluster as a whole has too little of, and by how much."""
        return {name: amount - self.left(name) for name, amount in need.items() if amount > self.left(name)}

    def promise(self, need: Amounts, queue: str) -> None:
        self.promised = plus(self.promised, need)
        self._queue_used[queue] = plus(self._queue_used.get(queue, {}), need)

    def hold_cluster(self, need: Amounts, name: str) -> None:
        self._cluster_hold.raise_to(need, name)

    def hold_queue(self, queue: str, need: Amounts, name: str) -> None:
        self._queue_holds.setdefault(queue, Hold()).raise_to(need, name)

    def hold_nodes(self, pods: Iterable[Pod], name: str) -> None:
        """Keeps, on each node, what those of the pods need that wait for room there, and for nothing else."""
        shapes: dict[bytes, tuple[Pod, int]] = {}
        for pod in pods:
            shapes[pod.shape] = (pod, shapes.get(pod.shape, (pod, 0))[1] + 1)
        for node, room in self.rooms.items():
            need: dict[str, int] = {}
            for pod, count in shapes.values():
                if fit.could_fit(pod, room.node) and fit.clash_of(pod, room, self.rooms) is None:
                    need = plus(need, {resource: amount * count for resource, amount in pod.need.items()})
            if need:
                self._node_holds.setdefault(node, Hold()).raise_to(need, name)

    def _book(self, need: Amounts, room: Room, queue: str, sign: int) -> None:
        used = self._queue_used.setdefault(queue, {})
        for resource, amount in need.items():
            used[resource] = used.get(resource, 0) + sign * amount
            if room.node.name in self._usable:
                self.free[resource] = self.free.get(resource, 0) - sign * amount

    def _kept_on_node(self, pod: Pod, room: Room) -> str | None:
        hold = self._node_holds.get(room.node.name)
        if hold is None:
            return None
        free = {resource: room.free(resource) for resource in pod.need}
        resource = hold.objection(pod.need, free, {})
        return None if resource is None else _kept(resource, free[resource], hold.whose[resource])

    def kept_in_cluster(self, need: Amounts) -> str | None:
        """Who in front waits for it, or was promised it, wherever that may be."""
        if not self.promised and not self._cluster_hold.kept:
            return None
        resource = self._cluster_hold.objection(need, self.free, self.promised)
        if resource is None:
            return None
        whose = self._cluster_hold.whose.get(resource, "groups that were admitted and have no pods yet")
        return _kept(resource, self.free.get(resource, 0), whose)


def _kept(resource: str, free: int, whose: str) -> str:
    return f"{show(resource, free)} free {resource} kept for {whose}, which came first"
