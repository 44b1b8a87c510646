"""Who goes where: one pass over everything that waits, as a pure function of what was seen.

Nothing is taken from anyone: there is no preemption. Units (a pod on its own, or what a group needs at once) are
taken in the order of `scheduler_queue`; each is placed whole or not at all; those that must wait keep their claim
through the holds of `scheduler_ledger`, so that what came later fills gaps and no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from trainmaster.cluster.scheduling import scheduler_affinity as affinity
from trainmaster.cluster.scheduling import scheduler_fit as fit
from trainmaster.cluster.scheduling import scheduler_gang as gang
from trainmaster.cluster.scheduling.scheduler_fit import Room
from trainmaster.cluster.scheduling.scheduler_gang import Group, GroupKey, Outlook, Tally
from trainmaster.cluster.scheduling.scheduler_ledger import Ledger
from trainmaster.cluster.scheduling.scheduler_pod import Amounts, Pod, show, show_needs, total_of
from trainmaster.cluster.scheduling.scheduler_queue import DEFAULT, Queue, Unit, in_order
from trainmaster.cluster.scheduling.scheduler_seat import Team, Trial, least, seat
from trainmaster.objects.meta import Json

PROMISE = 60.0
"""Seconds for which an admitted group's minResources are kept while its pods do not come: its operator may be dead."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`rooms` are used up by the pass. `claims` says of each PersistentVolumeClaim whether it is bound."""

    now: float
    rooms: tuple[Room, ...]
    waiting: tuple[Pod, ...] = ()
    members: Mapping[GroupKey, tuple[Pod, ...]] = field(default_factory=dict)
    groups: Mapping[GroupKey, Group] = field(default_factory=dict)
    queues: Mapping[str, Queue] = field(default_factory=dict)
    queue_used: Mapping[str, Amounts] = field(default_factory=dict)
    claims: Mapping[str, bool] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)
    admitted: Mapping[GroupKey, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Binding:
    pod: Pod
    node: str


@dataclass(slots=True)
class Decisions:
    """`bundles` are bound one after the other, each as a whole. `wake_at`: when time alone may change the answer."""

    bundles: list[tuple[Binding, ...]] = field(default_factory=list)
    unschedulable: dict[str, str] = field(default_factory=dict)
    group_statuses: dict[GroupKey, Json] = field(default_factory=dict)
    overdue: dict[GroupKey, str] = field(default_factory=dict)
    wake_at: float | None = None

    @property
    def bindings(self) -> list[Binding]:
        return [binding for bundle in self.bundles for binding in bundle]

    def wake(self, moment: float) -> None:
        self.wake_at = moment if self.wake_at is None else min(self.wake_at, moment)


def plan(snapshot: Snapshot) -> Decisions:
    return _Pass(snapshot).run()


class _Pass:
    """The working state of one `plan`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.seen = snapshot
        self.ledger = Ledger(snapshot.rooms, snapshot.queues, snapshot.queue_used)
        self.decisions = Decisions()
        self.tallies = {key: gang.tally_of(snapshot.members.get(key, ())) for key in snapshot.groups}
        self.outlooks: dict[GroupKey, Outlook] = {}
        self.has_affinity = any(affinity.is_social(pod) for pod in snapshot.waiting) or any(
            room.guards for room in snapshot.rooms
        )
        self.refused: dict[tuple[bytes, str], str] = {}

    def run(self) -> Decisions:
        for unit in in_order(self.units(), self.ledger.share, self.seen.now):
            if unit.group is None:
                self.place_pod(unit)
            elif unit.pods:
                self.place_gang(unit, unit.group)
            else:
                self.admit(unit, unit.group)
        for key, group in self.seen.groups.items():
            self.conclude(key, group)
        return self.decisions

    def units(self) -> Iterator[Unit]:
        for pod in self.seen.waiting:
            key = gang.key_of(pod, self.seen.groups)
            if key is None:
                yield Unit(f"pod {pod.name}", pod.priority, pod.created, DEFAULT, (pod,))
            elif key not in self.seen.groups:
                self.decisions.unschedulable[pod.key] = f"group {key.name} does not exist"
        for key, group in self.seen.groups.items():
            if group.is_terminating:
                self.refuse(self.tallies[key].waiting, f"{group} is being deleted")
            else:
                yield from self.units_of(group, self.tallies[key])

    def units_of(self, group: Group, tally: Tally) -> Iterator[Unit]:
        priority = self.priority_of(group, tally)
        needed = gang.missing(group, tally)
        if needed and gang.is_complete(group, tally):
            pods = tuple(sorted(tally.waiting, key=_seniority))
            is_begun = bool(tally.bound)
            yield Unit(str(group), priority, group.created, group.queue, pods, needed, group, is_begun)
            return
        if needed:
            self.outlooks[group.key] = Outlook(why=_incomplete(group, tally))
            self.refuse(tally.waiting, _incomplete(group, tally))
            yield Unit(str(group), priority, group.created, group.queue, group=group)
            return
        for pod in tally.waiting:
            # Wanted, not needed: behind what others need, and it keeps nothing from them.
            yield Unit(f"pod {pod.name}", priority, pod.created, group.queue, (pod,), is_extra=True)

    def priority_of(self, group: Group, tally: Tally) -> int:
        if group.priority_class in self.seen.priorities:
            return self.seen.priorities[group.priority_class]
        return max((pod.priority for pod in (*tally.waiting, *tally.bound)), default=0)

    def place_pod(self, unit: Unit) -> None:
        pod = unit.pods[0]
        shape = (pod.shape, unit.queue)
        why = self.refused.get(shape) if not self.has_affinity else None
        if why is None:
            why = self.try_pod(unit, pod)
            if why is None:
                return
            self.refused[shape] = why
        self.refuse([pod], f"{why} (requested by {pod.name})")

    def try_pod(self, unit: Unit, pod: Pod) -> str | None:
        """None when placed."""
        if (claim := self.unbound_claim(pod)) is not None:
            return claim
        if (limit := self.queue_limit(unit, pod.need)) is not None:
            return limit
        room = self.ledger.choose(pod)
        if room is not None:
            self.ledger.place(pod, room, unit.queue)
            self.decisions.bundles.append((Binding(pod, room.node.name),))
            return None
        why = fit.explain(self.ledger.refusals(pod))
        if not unit.is_extra:
            self.ledger.hold_nodes((pod,), unit.name)
        return why

    def place_gang(self, unit: Unit, group: Group) -> None:
        why = self.try_gang(unit, group)
        placed = unit.needed if why is None else 0
        self.outlooks[group.key] = Outlook(is_admitted=why is None, placed=placed, why=why or "")
        if why is not None:
            self.refuse(unit.pods, why)

    def try_gang(self, unit: Unit, group: Group) -> str | None:
        """None when placed. Pods beyond those needed are looked at in the next pass, as extras."""
        pods = [pod for pod in unit.pods if self.unbound_claim(pod) is None]
        if len(pods) < unit.needed:
            waiting = next(claim for pod in unit.pods if (claim := self.unbound_claim(pod)) is not None)
            return f"{unit.name} needs {_count(unit.needed)} together; {waiting}"
        need = least(pods, unit.needed)
        if group.key.api_group == gang.PLUGINS:  # holds a group back until this is free, whatever its pods ask for
            asked = _minus(group.min_resources, total_of(self.tallies[group.key].bound))
            need = {**need, **{name: max(amount, need.get(name, 0)) for name, amount in asked.items()}}
        wanted = f"{unit.name} needs {_count(unit.needed, need)} together"
        if (limit := self.queue_limit(unit, need)) is not None:
            return f"{wanted}; {limit}"
        team = Team(tuple(pods), unit.needed, gang.short_tasks(group, self.tallies[group.key]), unit.queue)
        lacking = self.ledger.lacking(need)
        result = Trial() if lacking else seat(team, self.ledger)
        if result.seats:
            self.decisions.bundles.append(tuple(Binding(pod, room.node.name) for pod, room in result.seats))
            return None
        if not self.could_seat(team, group, need):
            return f"{wanted}; {self.ceiling(need)}"
        self.ledger.hold_nodes(pods[: unit.needed], unit.name)
        return f"{wanted}; {self.shortfall(lacking, result)}"

    def could_seat(self, team: Team, group: Group, need: Amounts) -> bool:
        """Whether the group would fit if nobody else were there."""
        if any(amount > self.ledger.total.get(name, 0) for name, amount in need.items()):
            return False
        rooms = {name: Room(room.node) for name, room in self.ledger.rooms.items()}
        for pod in self.tallies[group.key].bound:
            if pod.node in rooms:
                rooms[pod.node].add(pod)
        return bool(seat(team.alone(), Ledger(rooms.values(), {}, {})).seats)

    def ceiling(self, need: Amounts) -> str:
        total = self.ledger.total
        above = [name for name, amount in need.items() if amount > total.get(name, 0)]
        if not above:
            return "they would not fit even if nothing else ran"
        return f"the cluster has {show_needs({name: total.get(name, 0) for name in above}) or 'none'} in all"

    def shortfall(self, lacking: Amounts, result: Trial) -> str:
        """`4 cpu free, 2 more needed`, or what the first pod without a place was told."""
        parts = [
            f"{show(name, self.ledger.left(name))} {name} free, {show(name, more, up=True)} more needed"
            for name, more in lacking.items()
        ]
        return "; ".join(parts) or f"{result.fitting} of them fit, but {result.why}"

    def admit(self, unit: Unit, group: Group) -> None:
        """A group that lacks pods: lets its operator make them when there is room, and keeps the room meanwhile."""
        if group.key.api_group == gang.PLUGINS or group.phase not in ("", "Pending", "Inqueue"):
            return
        if group.phase == "Inqueue":
            expiry = self.seen.admitted.get(group.key, self.seen.now) + PROMISE
            if self.seen.now < expiry:
                taken = total_of(self.tallies[group.key].bound)
                self.ledger.promise(_minus(group.min_resources, taken), unit.queue)
                self.decisions.wake(expiry)
            return
        why = self.admission_refusal(unit, group.min_resources)
        if why is None:
            self.ledger.promise(group.min_resources, unit.queue)
            self.outlooks[group.key] = Outlook(is_admitted=True, why=self.outlooks[group.key].why)
        else:
            wanted = f"{unit.name} needs {show_needs(group.min_resources)} before its pods are made"
            self.outlooks[group.key] = Outlook(why=f"{wanted}; {why}")

    def admission_refusal(self, unit: Unit, need: Amounts) -> str | None:
        if (limit := self.queue_limit(unit, need)) is not None:
            return limit
        if any(amount > self.ledger.total.get(name, 0) for name, amount in need.items()):
            return self.ceiling(need)
        lacking = self.ledger.lacking(need)
        why = self.shortfall(lacking, Trial()) if lacking else self.ledger.kept_in_cluster(need)
        if why is not None:
            self.ledger.hold_cluster(need, unit.name)
        return why

    def queue_limit(self, unit: Unit, need: Amounts) -> str | None:
        limit = self.ledger.queue_refusal(unit.queue, need)
        if limit is not None and not unit.is_extra and self.ledger.could_queue(unit.queue, need):
            self.ledger.hold_queue(unit.queue, need, unit.name)
        return limit

    def unbound_claim(self, pod: Pod) -> str | None:
        for claim in pod.claims:
            is_bound = self.seen.claims.get(f"{pod.namespace}/{claim}")
            if not is_bound:
                return f"PersistentVolumeClaim {claim} {'does not exist' if is_bound is None else 'is not bound yet'}"
        return None

    def refuse(self, pods: Iterable[Pod], why: str) -> None:
        for pod in pods:
            self.decisions.unschedulable[pod.key] = why

    def conclude(self, key: GroupKey, group: Group) -> None:
        """The group's status, and whether it has waited for longer than it allows."""
        if group.is_terminating:
            return
        tally, outlook = self.tallies[key], self.outlooks.get(key, Outlook())
        status = gang.status_of(group, tally, outlook, self.seen.now)
        if status != group.status:
            self.decisions.group_statuses[key] = status
        deadline = gang.deadline_of(group, tally)
        if deadline is None or outlook.placed:
            return
        if deadline <= self.seen.now:
            self.decisions.overdue[key] = f"not scheduled within {group.timeout:g} s: {outlook.why}"
        else:
            self.decisions.wake(deadline)


def _incomplete(group: Group, tally: Tally) -> str:
    there = tally.held + len(tally.waiting)
    if there < group.min_member:
        return f"{group} needs {_count(group.min_member)} together; {there} exist"
    lacks = ", ".join(f"{count} of task {task}" for task, count in sorted(group.min_tasks.items()))
    return f"{group} needs {lacks} together; not all of them exist"


def _seniority(pod: Pod) -> tuple[int, str, str]:
    return (-pod.priority, pod.created, pod.name)


def _count(count: int, need: Amounts | None = None) -> str:
    """`3 pods (6 cpu, 3Gi)`."""
    shown = show_needs(need or {})
    return f"{count} pod{'s' if count != 1 else ''}{f' ({shown})' if shown else ''}"


def _minus(amounts: Amounts, taken: Amounts) -> dict[str, int]:
    return {name: max(amount - taken.get(name, 0), 0) for name, amount in amounts.items()}
