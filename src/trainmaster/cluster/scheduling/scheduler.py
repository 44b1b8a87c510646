"""Gives pods their nodes: groups all at once, by priority, queue and age, with a reason for whoever must wait.

One scheduler plays all of them: a pod of any `schedulerName` is placed, and one that says so in the way of Volcano,
kube-batch or scheduler-plugins is placed with its group. Changes flow in through watches (`scheduler_state` keeps the
books), a pass is a pure function of the books (`scheduler_plan`), and its decisions flow out through `scheduler_write`.
A pass runs when something changed that matters to it, or when time alone may change its answer; never by polling.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.registry import Registry
from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.cluster.scheduling.scheduler_event import Events
from trainmaster.cluster.scheduling.scheduler_gang import KUBE_BATCH, PLUGINS, VOLCANO, GroupKey
from trainmaster.cluster.scheduling.scheduler_plan import Decisions, plan
from trainmaster.cluster.scheduling.scheduler_report import Reports
from trainmaster.cluster.scheduling.scheduler_state import State
from trainmaster.cluster.scheduling.scheduler_write import Writer
from trainmaster.objects.meta import Json

_log = logging.getLogger(__name__)

NAMES = ("default-scheduler", "volcano", "kube-batch", "scheduler-plugins-scheduler")
VERSIONS = {VOLCANO: "v1beta1", KUBE_BATCH: "v1alpha1", PLUGINS: "v1alpha1"}

_RETRY = 1.0
_GROUP_REPEAT = 2.0
_TOLD_AT_ONCE = 128


@dataclass(frozen=True, slots=True)
class _Source:
    """A kind to follow. Both functions answer whether it matters; keys are `namespace/name` or `name`."""

    group: str
    version: str
    plural: str
    see: Callable[[Json], bool]
    lose: Callable[[str], bool]


class Scheduler:
    """`scheduler_names` are those it writes events as; pods of any other name get the first."""

    def __init__(
        self, registry: Registry, *, now: Callable[[], float], scheduler_names: Collection[str] = NAMES
    ) -> None:
        self._registry, self._now = registry, now
        self._state = State()
        self._pod_reports: Reports[str, str] = Reports()
        self._group_reports: Reports[GroupKey, Json] = Reports(patience=0.0, repeat=_GROUP_REPEAT)
        self._overdue: set[str] = set()
        self._changed = asyncio.Event()
        self._kinds_changed: list[asyncio.Event] = []
        self._events = Events(registry, self._kind("", "v1", "events"), now)
        pods = self._kind("", "v1", "pods")
        self._writer = Writer(registry, self._events, pods, now=now, names=tuple(scheduler_names))

    async def run(self) -> None:
        """Until cancelled."""
        self._registry.kinds.on_change(self._tell_kinds)
        sources = self._sources()
        listed = [asyncio.Event() for _ in sources]
        async with asyncio.TaskGroup() as tasks:
            for source, event in zip(sources, listed, strict=True):
                tasks.create_task(self._follow(source, event), name=f"scheduler-follow-{source.group}/{source.plural}")
            tasks.create_task(self._events.run(), name="scheduler-events")
            for event in listed:
                await event.wait()
            tasks.create_task(self._work(), name="scheduler-work")

    async def _work(self) -> None:
        wake_at: float | None = self._now()
        while True:
            await self._wait(wake_at)
            self._changed.clear()
            try:
                wake_at = await self._carry_out(plan(self._state.snapshot(self._now())))
            except Exception:
                _log.exception("a pass failed, trying again")
                wake_at = self._now() + _RETRY

    async def _wait(self, wake_at: float | None) -> None:
        delay = None if wake_at is None else max(wake_at - self._now(), 0.0)
        try:
            async with asyncio.timeout(delay):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _carry_out(self, decisions: Decisions) -> float | None:
        """Returns when to look again if nothing happens."""
        is_done = await self._writer.bind(decisions.bundles, self._on_bound)
        now = self._now()
        await self._report_groups(decisions, now)
        is_all_told = await self._report_pods(decisions, now)
        moments = [decisions.wake_at, self._pod_reports.next_at, self._group_reports.next_at]
        moments += [] if is_done else [now + _RETRY]
        moments += [] if is_all_told else [now]
        return min((moment for moment in moments if moment is not None), default=None)

    async def _report_pods(self, decisions: Decisions, now: float) -> bool:
        """So many at a time: whoever can be placed does not wait until a thousand others are told that they cannot."""
        due = self._pod_reports.due(decisions.unschedulable, now)
        reasons = dict(islice(due.items(), _TOLD_AT_ONCE))
        for key, why in reasons.items():
            self._pod_reports.said(key, why, now)
        pods = self._state.pods
        await self._writer.explain([(pods[key], why) for key, why in reasons.items() if key in pods])
        return len(reasons) == len(due)

    async def _report_groups(self, decisions: Decisions, now: float) -> None:
        """A new phase at once, since operators wait for it; counts and numbers now and then."""
        due = self._group_reports.due(decisions.group_statuses, now, self._state.groups)
        writes = []
        for key, status in decisions.group_statuses.items():
            group, kind = self._state.groups.get(key), self._group_kind(key)
            if group is None or kind is None or (key not in due and status["phase"] == group.phase):
                continue
            self._group_reports.said(key, status, now)
            writes.append((kind, group, status))
        await self._writer.update_groups(writes)
        for key, message in decisions.overdue.items():
            group, kind = self._state.groups.get(key), self._group_kind(key)
            if group is not None and kind is not None and group.uid not in self._overdue:
                self._overdue &= {one.uid for one in self._state.groups.values()}
                self._overdue.add(group.uid)
                self._writer.warn(kind, group, "Timeout", message)

    def _on_bound(self, pod: Json) -> None:
        if self._state.see_pod(pod):
            self._changed.set()

    async def _follow(self, source: _Source, listed: asyncio.Event) -> None:
        known: set[str] = set()
        while True:
            kind = self._registry.kinds.lookup(source.group, source.version, source.plural)
            if kind is None:
                listed.set()
                await self._kinds_change()
                continue
            after = self._take_list(source, kind, known)
            listed.set()
            try:
                await self._take_changes(source, kind, after, known)
                return  # the store has closed
            except ApiError as error:
                if error.status != 410:
                    raise
                _log.warning("changes were missed, listing again", extra={"fields": {"kind": source.plural}})

    def _take_list(self, source: _Source, kind: Kind, known: set[str]) -> int:
        listing = self._registry.list(kind)
        present = {entry.key for entry in listing.items}
        lost = [source.lose(key) for key in known - present]
        seen = [source.see(entry.value) for entry in listing.items]
        known.clear()
        known |= present
        if any(lost) or any(seen):
            self._changed.set()
        return listing.revision

    async def _take_changes(self, source: _Source, kind: Kind, after: int, known: set[str]) -> None:
        with closing(self._registry.watch(kind, after=after)) as stream:
            while changes := await stream.batch():
                for change in changes:
                    self._take(source, change.type, change.value, known)

    def _take(self, source: _Source, type_: str, obj: Json, known: set[str]) -> None:
        key = _key(obj)
        if type_ == "DELETED":
            known.discard(key)
            matters = source.lose(key)
        else:
            known.add(key)
            matters = source.see(obj)
        if matters:
            self._changed.set()

    async def _kinds_change(self) -> None:
        event = asyncio.Event()
        self._kinds_changed.append(event)
        await event.wait()

    def _tell_kinds(self) -> None:
        waiting, self._kinds_changed = self._kinds_changed, []
        for event in waiting:
            event.set()

    def _kind(self, group: str, version: str, plural: str) -> Kind:
        kind = self._registry.kinds.lookup(group, version, plural)
        if kind is None:
            raise LookupError(f"{group}/{version} {plural} is not served")
        return kind

    def _group_kind(self, key: GroupKey) -> Kind | None:
        return self._registry.kinds.lookup(key.api_group, VERSIONS[key.api_group], "podgroups")

    def _sources(self) -> list[_Source]:
        state = self._state
        return [
            _Source("", "v1", "nodes", state.see_node, state.lose_node),
            _Source("", "v1", "persistentvolumeclaims", state.see_claim, state.lose_claim),
            _Source("scheduling.k8s.io", "v1", "priorityclasses", state.see_priority, state.lose_priority),
            _Source(VOLCANO, "v1beta1", "queues", state.see_queue, state.lose_queue),
            *(self._group_source(group, version) for group, version in VERSIONS.items()),
            _Source("", "v1", "pods", state.see_pod, state.lose_pod),
        ]

    def _group_source(self, group: str, version: str) -> _Source:
        return _Source(
            group,
            version,
            "podgroups",
            lambda obj: self._state.see_group(obj, group, self._now()),
            lambda key: self._state.lose_group(GroupKey(group, *key.split("/", 1))),
        )


def _key(obj: Json) -> str:
    metadata = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])
