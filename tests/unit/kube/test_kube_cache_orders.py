"""Any interleaving of watch, lists and our own answers: the cache tells of no way back, and ends at the truth."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from trainmaster.kube.cache import Cache
from trainmaster.objects.meta import Meta
from trainmaster.objects.pod import Pod


@dataclass
class World:
    """A server with a few pods, a watch that lags, and answers to our writes that are late."""

    cache: Cache[Pod] = field(default_factory=Cache)
    version: int = 1
    stored: dict[str, Pod] = field(default_factory=dict)
    history: list[tuple[int, str, Pod]] = field(default_factory=list)
    snapshots: list[tuple[int, list[Pod]]] = field(default_factory=list)
    answers: list[tuple[str, Pod]] = field(default_factory=list)
    dead: set[str] = field(default_factory=set)
    told: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cache.replace([], "1")
        self.cache.subscribe(self.check)

    def check(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            assert old is not None
            self.dead.add(old.metadata.uid)
            return
        name, version = new.metadata.name, int(new.metadata.resource_version)
        assert new.metadata.uid not in self.dead, "raised from the dead"
        assert version > self.told.get(name, 0), "went back in time"
        self.told[name] = version

    def write(self, name: str, ours: bool) -> None:
        self.version += 1
        old = self.stored.get(name)
        uid = old.metadata.uid if old is not None else f"{name}-{self.version}"
        new = Pod(Meta(name=name, uid=uid, resource_version=str(self.version)))
        self.stored[name] = new
        self.history.append((self.version, "ADDED" if old is None else "MODIFIED", new))
        if ours:
            self.answers.append(("wrote", new))

    def delete(self, name: str, ours: bool) -> None:
        if name not in self.stored:
            return
        self.version += 1
        old = self.stored.pop(name)
        gone = Pod(Meta(name=name, uid=old.metadata.uid, resource_version=str(self.version)))
        self.history.append((self.version, "DELETED", gone))
        if ours:
            self.answers.append(("removed", old))

    def hear(self) -> None:
        heard = int(self.cache.resource_version)
        event = next((event for event in self.history if event[0] > heard), None)
        if event is not None:
            self.cache.apply_event(event[1], event[2])

    def begin_list(self) -> None:
        self.snapshots.append((self.version, list(self.stored.values())))

    def end_list(self) -> None:
        """A list taken some time ago arrives; the reflector does nothing else between its beginning and its end."""
        if self.snapshots:
            version, pods = self.snapshots.pop()
            self.snapshots.clear()
            if version >= int(self.cache.resource_version):
                self.cache.replace(pods, str(version))

    def answer(self, which: int) -> None:
        if self.answers:
            kind, pod = self.answers.pop(which % len(self.answers))
            if kind == "wrote":
                self.cache.wrote(pod)
            else:
                self.cache.removed(pod.metadata.key, pod.metadata.uid)


NAMES = st.sampled_from(["a", "b"])
STEPS = st.one_of(
    st.tuples(st.just("write"), NAMES, st.booleans()),
    st.tuples(st.just("delete"), NAMES, st.booleans()),
    st.tuples(st.just("answer"), st.integers(0, 7)),
    st.tuples(st.just("hear")),
    st.tuples(st.just("begin_list")),
    st.tuples(st.just("end_list")),
)


@settings(max_examples=400, deadline=None)
@example([("write", "b", True), ("delete", "b", False), ("write", "b", True), ("delete", "b", True)])
@given(st.lists(STEPS, max_size=40))
def test_no_order_of_news_leads_back_or_astray(steps: list[tuple[object, ...]]) -> None:
    world = World()

    for name, *arguments in steps:
        getattr(world, str(name))(*arguments)
    while world.answers:
        world.answer(0)
    for _ in world.history:
        world.hear()

    assert {pod.metadata.name: pod for pod in world.cache.values()} == {
        name: Pod(pod.metadata) for name, pod in world.stored.items()
    }
