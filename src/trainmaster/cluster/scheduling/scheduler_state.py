"""What the scheduler has seen, kept up to date change by change, so that a pass costs what waits and not what runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeVar

from trainmaster.cluster.scheduling.scheduler_fit import Room
from trainmaster.cluster.scheduling.scheduler_gang import PLUGINS, Group, GroupKey, group_of, key_of
from trainmaster.cluster.scheduling.scheduler_plan import Snapshot
from trainmaster.cluster.scheduling.scheduler_pod import Amounts, Node, Pod, node_of, plus, pod_of, total_of
from trainmaster.cluster.scheduling.scheduler_queue import DEFAULT, Queue, queue_of
from trainmaster.objects.meta import Json

K = TypeVar("K")
V = TypeVar("V")


class _Membership(NamedTuple):
    """What a pod says of its group; of which maker that is shows only when the group is there."""

    is_label: bool
    namespace: str
    name: str


class State:
    """Every method that takes an object answers whether it changed anything that a pass looks at."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self._revisions: dict[str, int] = {}
        self._waiting: dict[str, Pod] = {}
        self._members: dict[_Membership, dict[str, Pod]] = {}
        self._rooms: dict[str, Room] = {}
        self._on_node: dict[str, dict[str, Pod]] = {}
        self.groups: dict[GroupKey, Group] = {}
        self._queues: dict[str, Queue] = {}
        self._claims: dict[str, bool] = {}
        self._priorities: dict[str, int] = {}
        self._admitted: dict[GroupKey, float] = {}

    def see_pod(self, obj: Json) -> bool:
        pod, revision = pod_of(obj), _revision(obj)
        if revision <= self._revisions.get(pod.key, 0):
            return False  # the echo of our own write
        self._revisions[pod.key] = revision
        held = self.pods.get(pod.key)
        if held == pod:
            return False
        if held is not None:
            self._forget(held)
        self._keep(pod)
        return held is None or _matters(held, pod)

    def lose_pod(self, key: str) -> bool:
        self._revisions.pop(key, None)
        held = self.pods.pop(key, None)
        if held is not None:
            self._forget(held)
        return held is not None

    def see_node(self, obj: Json) -> bool:
        node = node_of(obj)
        held = self._rooms.get(node.name)
        if held is not None and held.node == node:
            return False  # a heartbeat
        self._rooms[node.name] = _furnished(node, self._on_node.get(node.name, {}).values())
        return True

    def lose_node(self, name: str) -> bool:
        return self._rooms.pop(name, None) is not None

    def see_group(self, obj: Json, api_group: str, now: float) -> bool:
        group = group_of(obj, api_group)
        if group.phase == "Inqueue":
            self._admitted.setdefault(group.key, now)
        else:
            self._admitted.pop(group.key, None)
        return _put(self.groups, group.key, group)

    def lose_group(self, key: GroupKey) -> bool:
        self._admitted.pop(key, None)
        return self.groups.pop(key, None) is not None

    def see_queue(self, obj: Json) -> bool:
        queue = queue_of(obj)
        return _put(self._queues, queue.name, queue)

    def lose_queue(self, name: str) -> bool:
        return self._queues.pop(name, None) is not None

    def see_claim(self, obj: Json) -> bool:
        metadata, status = obj["metadata"], obj.get("status") or {}
        return _put(self._claims, f"{metadata['namespace']}/{metadata['name']}", status.get("phase") == "Bound")

    def lose_claim(self, key: str) -> bool:
        return self._claims.pop(key, None) is not None

    def see_priority(self, obj: Json) -> bool:
        value = obj.get("value")
        return _put(self._priorities, str(obj["metadata"]["name"]), value if isinstance(value, int) else 0)

    def lose_priority(self, name: str) -> bool:
        return self._priorities.pop(name, None) is not None

    def snapshot(self, now: float) -> Snapshot:
        members = {key: self._members_of(key) for key in self.groups}
        return Snapshot(
            now=now,
            rooms=tuple(room.copy() for room in self._rooms.values()),
            waiting=tuple(self._waiting.values()),
            members=members,
            groups=dict(self.groups),
            queues=dict(self._queues),
            queue_used=self._queue_used(members),
            claims=self._claims,
            priorities=self._priorities,
            admitted=self._admitted,
        )

    def _members_of(self, key: GroupKey) -> tuple[Pod, ...]:
        found = self._members.get(_Membership(key.api_group == PLUGINS, key.namespace, key.name), {})
        return tuple(pod for pod in found.values() if key_of(pod, self.groups) == key)

    def _queue_used(self, members: Mapping[GroupKey, Iterable[Pod]]) -> dict[str, Amounts]:
        """Pods without a group are in the default queue, so what is not some group's is its."""
        used: dict[str, Amounts] = {DEFAULT: plus(*(room.used for room in self._rooms.values()))}
        for key, pods in members.items():
            queue = self.groups[key].queue
            taken = total_of(pod for pod in pods if pod.holds_room and pod.node in self._rooms)
            if queue != DEFAULT and taken:
                used[queue] = plus(used.get(queue, {}), taken)
                used[DEFAULT] = {name: amount - taken.get(name, 0) for name, amount in used[DEFAULT].items()}
        return used

    def _keep(self, pod: Pod) -> None:
        self.pods[pod.key] = pod
        if pod.is_waiting:
            self._waiting[pod.key] = pod
        for membership in _memberships(pod):
            self._members.setdefault(membership, {})[pod.key] = pod
        if pod.holds_room:
            self._on_node.setdefault(pod.node, {})[pod.key] = pod
            if pod.node in self._rooms:
                self._rooms[pod.node].add(pod)

    def _forget(self, pod: Pod) -> None:
        self._waiting.pop(pod.key, None)
        for membership in _memberships(pod):
            del self._members[membership][pod.key]
            if not self._members[membership]:
                del self._members[membership]
        if pod.holds_room:
            del self._on_node[pod.node][pod.key]
            if pod.node in self._rooms:
                self._rooms[pod.node].remove(pod)


def _matters(before: Pod, pod: Pod) -> bool:
    """That a pod on its own has started changes nothing for the others."""
    if pod.is_finished or before.is_finished or _memberships(pod):
        return True
    return replace(before, phase=pod.phase) != pod


def _memberships(pod: Pod) -> list[_Membership]:
    names = ((False, pod.group_annotation), (True, pod.group_label))
    return [_Membership(is_label, pod.namespace, name) for is_label, name in names if name]


def _furnished(node: Node, pods: Iterable[Pod]) -> Room:
    room = Room(node)
    for pod in pods:
        room.add(pod)
    return room


def _put(known: dict[K, V], key: K, value: V) -> bool:
    if known.get(key) == value:
        return False
    known[key] = value
    return True


def _revision(obj: Json) -> int:
    return int(obj["metadata"].get("resourceVersion") or 0)
