from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.cluster.storage import store, store_log
from trainmaster.cluster.storage.store import ALL, Change, Exists, Expired, Missing, Stale, Store, StoreError, Watch
from trainmaster.testing import clock

PODS = "/pods"


def a_pod(name: str = "a", **fields: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": name}, **fields}


async def seen(watch: Watch, count: int) -> list[tuple[str, str, int]]:
    async with asyncio.timeout(5):
        return [told(await anext(watch)) for _ in range(count)]


def told(change: Change) -> tuple[str, str, int]:
    return change.type, change.entry.key, change.entry.revision


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "store.db" if request.param == "file" else None


def with_store(place: Path | None, use: Any, **options: Any) -> Any:
    async def main() -> Any:
        store = await Store.open(place, **options)
        try:
            return await use(store)
        finally:
            await store.close()

    return clock.run(main())


def test_a_created_object_is_there_with_its_revision_inside_and_its_json_made_once(place: Path | None) -> None:
    async def use(store: Store) -> None:
        entry = await store.put(PODS, "ns/a", a_pod(spec={"x": 1}), expect=None)

        assert store.get(PODS, "ns/a") is entry
        assert entry.value == {
            "kind": "Pod",
            "metadata": {"name": "a", "resourceVersion": str(entry.revision)},
            "spec": {"x": 1},
        }
        assert msgspec.json.decode(entry.raw) == entry.value
        assert store.revision == entry.revision

    with_store(place, use)


def test_the_object_handed_in_is_not_changed(place: Path | None) -> None:
    async def use(store: Store) -> None:
        pod = a_pod()

        await store.put(PODS, "ns/a", pod, expect=None)

        assert pod == a_pod()

    with_store(place, use)


def test_an_empty_store_has_a_revision_that_does_not_mean_any(place: Path | None) -> None:
    async def use(store: Store) -> None:
        assert store.revision == 1
        assert store.compacted == 0
        assert store.list(PODS) == []
        assert store.get(PODS, "ns/a") is None

    with_store(place, use)


def test_a_create_of_a_taken_key_is_refused(place: Path | None) -> None:
    async def use(store: Store) -> None:
        await store.put(PODS, "ns/a", a_pod(), expect=None)

        with pytest.raises(Exists, match="/pods ns/a exists at revision 2"):
            await store.put(PODS, "ns/a", a_pod(), expect=None)

        assert store.revision == 2

    with_store(place, use)


def test_a_replacement_needs_the_current_revision(place: Path | None) -> None:
    async def use(store: Store) -> None:
        first = await store.put(PODS, "ns/a", a_pod(), expect=None)
        second = await store.put(PODS, "ns/a", a_pod(spec=2), expect=first.revision)

        with pytest.raises(Stale, match="expected at revision 2, it is at 3") as stale:
            await store.put(PODS, "ns/a", a_pod(spec=3), expect=first.revision)

        assert stale.value.current == second.revision
        assert store.get(PODS, "ns/a") is second

    with_store(place, use)


def test_a_replacement_of_what_is_gone_is_stale(place: Path | None) -> None:
    async def use(store: Store) -> None:
        with pytest.raises(Stale, match="it does not exist") as stale:
            await store.put(PODS, "ns/a", a_pod(), expect=2)

        assert stale.value.current is None

    with_store(place, use)


def test_a_removal_returns_the_last_state_at_the_revision_of_the_removal(place: Path | None) -> None:
    async def use(store: Store) -> None:
        await store.put(PODS, "ns/a", a_pod(spec=1), expect=None)

        removed = await store.remove(PODS, "ns/a")

        assert removed.revision == store.revision == 3
        assert removed.value["metadata"]["resourceVersion"] == "3"
        assert removed.value["spec"] == 1
        assert store.list(PODS) == []

    with_store(place, use)


def test_a_removal_may_tell_watchers_another_last_state(place: Path | None) -> None:
    async def use(store: Store) -> None:
        await store.put(PODS, "ns/a", a_pod(spec=1), expect=None)
        watch = store.watch(PODS, store.revision)

        await store.remove(PODS, "ns/a", final=a_pod(spec=2))

        change = await anext(watch)
        assert (change.type, change.entry.value["spec"], change.previous and change.previous.value["spec"]) == (
            "DELETED",
            2,
            1,
        )

    with_store(place, use)


def test_a_removal_is_refused_for_another_revision_and_for_nothing(place: Path | None) -> None:
    async def use(store: Store) -> None:
        entry = await store.put(PODS, "ns/a", a_pod(), expect=None)

        with pytest.raises(Stale):
            await store.remove(PODS, "ns/a", expect=entry.revision - 1)
        with pytest.raises(Missing, match="/pods ns/b"):
            await store.remove(PODS, "ns/b")

        assert store.get(PODS, "ns/a") is entry

    with_store(place, use)


def test_lists_are_sorted_and_a_namespace_is_not_a_prefix_of_another(place: Path | None) -> None:
    async def use(store: Store) -> None:
        for key in ("b/x", "a/z", "a-b/y", "a/c", "ab/q"):
            await store.put(PODS, key, a_pod(), expect=None)
        await store.put("/services", "a/s", a_pod(), expect=None)

        assert [entry.key for entry in store.list(PODS)] == ["a-b/y", "a/c", "a/z", "ab/q", "b/x"]
        assert [entry.key for entry in store.list(PODS, "a")] == ["a/c", "a/z"]
        assert store.list(PODS, "none") == []

    with_store(place, use)


def test_of_two_creates_at_once_one_wins(place: Path | None) -> None:
    async def use(store: Store) -> None:
        results: list[str] = []

        async def create(text: str) -> None:
            try:
                await store.put(PODS, "ns/a", a_pod(text=text), expect=None)
                results.append(text)
            except Exists:
                results.append("refused")

        async with asyncio.TaskGroup() as group:
            for text in ("one", "two", "three"):
                group.create_task(create(text))

        assert sorted(results) == ["one", "refused", "refused"]
        entry = store.get(PODS, "ns/a")
        assert entry is not None
        assert entry.value["text"] == "one"

    with_store(place, use)


def test_one_who_retries_on_stale_gets_through_beside_others(place: Path | None) -> None:
    async def use(store: Store) -> None:
        await store.put(PODS, "ns/a", a_pod(count=0), expect=None)

        async def increment() -> None:
            while True:
                entry = store.get(PODS, "ns/a")
                assert entry is not None
                try:
                    await store.put(PODS, "ns/a", a_pod(count=entry.value["count"] + 1), expect=entry.revision)
                    return
                except Stale:
                    continue

        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(increment())

        entry = store.get(PODS, "ns/a")
        assert entry is not None
        assert entry.value["count"] == 10

    with_store(place, use)


def test_writers_at_once_share_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []
    append = store_log.Log.append

    def counting(log: store_log.Log, records: Sequence[store_log.Record]) -> None:
        batches.append(len(records))
        append(log, records)

    monkeypatch.setattr(store_log.Log, "append", counting)

    async def use(store: Store) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(1200):
                group.create_task(store.put(PODS, f"ns/{number}", a_pod(), expect=None))

        assert batches == [500, 500, 200]

    with_store(tmp_path / "store.db", use)


def test_readers_and_watchers_see_a_change_only_once_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk: list[int] = []
    append = store_log.Log.append

    def noting(log: store_log.Log, records: Sequence[store_log.Record]) -> None:
        append(log, records)
        on_disk.extend(record.revision for record in records)

    monkeypatch.setattr(store_log.Log, "append", noting)

    async def use(store: Store) -> None:
        watch = store.watch(ALL, store.revision)

        async def observe() -> None:
            async for change in watch:
                assert change.entry.revision in on_disk
                assert store.get(PODS, change.entry.key) is change.entry
                if change.entry.key == "ns/99":
                    return

        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            group.create_task(observe())
            for number in range(100):
                task = group.create_task(store.put(PODS, f"ns/{number}", a_pod(), expect=None))
                if number % 10 == 0:
                    assert store.get(PODS, f"ns/{number}") is None
                    await task

    with_store(tmp_path / "store.db", use)


def test_a_writer_that_gives_up_does_not_undo_its_write(tmp_path: Path) -> None:
    async def use(store: Store) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await store.put(PODS, "ns/a", a_pod(), expect=None)

        with pytest.raises(Exists):
            await store.put(PODS, "ns/a", a_pod(), expect=None)

    with_store(tmp_path / "store.db", use)


def test_a_failed_transaction_fails_its_writers_and_shows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = store_log.Log.append

    def refuse(log: store_log.Log, records: Any) -> None:
        monkeypatch.setattr(store_log.Log, "append", append)
        raise StoreError("the disk is full")

    async def use(store: Store) -> None:
        monkeypatch.setattr(store_log.Log, "append", refuse)

        with pytest.raises(StoreError, match="disk is full"):
            await store.put(PODS, "ns/a", a_pod(), expect=None)

        assert store.get(PODS, "ns/a") is None
        entry = await store.put(PODS, "ns/a", a_pod(), expect=None)
        assert store.revision == entry.revision

    with_store(tmp_path / "store.db", use)


def test_an_object_that_is_not_json_is_refused_and_takes_no_revision(place: Path | None) -> None:
    async def use(store: Store) -> None:
        with pytest.raises(TypeError):
            await store.put(PODS, "ns/a", a_pod(spec=object()), expect=None)

        assert (await store.put(PODS, "ns/a", a_pod(), expect=None)).revision == 2

    with_store(place, use)


def test_a_watch_tells_the_past_after_its_revision_then_what_comes(place: Path | None) -> None:
    async def use(store: Store) -> None:
        first = await store.put(PODS, "ns/a", a_pod(), expect=None)
        second = await store.put(PODS, "ns/a", a_pod(), expect=first.revision)
        await store.put("/services", "ns/s", a_pod(), expect=None)
        watch = store.watch(PODS, first.revision)
        await store.remove(PODS, "ns/a", expect=second.revision)

        assert await seen(watch, 2) == [("MODIFIED", "ns/a", 3), ("DELETED", "ns/a", 5)]

        async with asyncio.TaskGroup() as group:
            next_ = group.create_task(seen(watch, 1))
            await store.put(PODS, "ns/b", a_pod(), expect=None)
        assert next_.result() == [("ADDED", "ns/b", 6)]

    with_store(place, use)


def test_a_watch_of_all_prefixes_tells_each_change_with_its_prefix(place: Path | None) -> None:
    async def use(store: Store) -> None:
        watch = store.watch(ALL, store.revision)

        await store.put(PODS, "ns/a", a_pod(), expect=None)
        await store.put("apps/deployments", "ns/d", a_pod(), expect=None)

        assert [(change.prefix, change.entry.key) for change in await watch.batch()] == [
            (PODS, "ns/a"),
            ("apps/deployments", "ns/d"),
        ]

    with_store(place, use)


def test_a_batch_is_what_there_is_by_now_up_to_its_limit(place: Path | None) -> None:
    async def use(store: Store) -> None:
        watch = store.watch(PODS, store.revision)
        for number in range(5):
            await store.put(PODS, f"ns/{number}", a_pod(), expect=None)

        assert len(await watch.batch(3)) == 3
        assert len(await watch.batch(3)) == 2

        watch.close()
        assert await watch.batch() == []

    with_store(place, use)


def test_a_watch_from_a_future_revision_tells_nothing_before_it(place: Path | None) -> None:
    async def use(store: Store) -> None:
        watch = store.watch(PODS, store.revision + 1)

        await store.put(PODS, "ns/a", a_pod(), expect=None)
        await store.put(PODS, "ns/b", a_pod(), expect=None)

        assert await seen(watch, 1) == [("ADDED", "ns/b", 3)]

    with_store(place, use)


def test_a_watch_from_before_the_history_has_expired(place: Path | None) -> None:
    async def use(store: Store) -> None:
        for number in range(10):
            await store.put(PODS, f"ns/{number}", a_pod(), expect=None)

        assert store.compacted == 7
        with pytest.raises(Expired, match="revision 6 is too old: history begins after 7"):
            store.watch(PODS, 6)
        assert await seen(store.watch(PODS, 7), 4) == [("ADDED", f"ns/{n}", n + 2) for n in (6, 7, 8, 9)]

    with_store(place, use, history=4)


def test_a_watcher_slower_than_the_history_is_ended(place: Path | None) -> None:
    async def use(store: Store) -> None:
        watch = store.watch(PODS, store.revision)
        for number in range(5):
            await store.put(PODS, f"ns/{number}", a_pod(), expect=None)

        with pytest.raises(Expired, match="too slow"):
            await anext(watch)
        with pytest.raises(StopAsyncIteration):
            await anext(watch)

    with_store(place, use, history=4)


@pytest.mark.parametrize("closing", ["watch", "store"])
def test_a_closed_watch_ends_for_the_one_who_waits(place: Path | None, closing: str) -> None:
    async def use(store: Store) -> None:
        watch = store.watch(PODS, store.revision)

        async def drain() -> list[Change]:
            return [change async for change in watch]

        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            waiting = group.create_task(drain())
            await store.put(PODS, "ns/a", a_pod(), expect=None)
            if closing == "watch":
                watch.close()
            else:
                await store.close()

        assert len(waiting.result()) <= 1

    with_store(place, use)


def test_a_cancelled_watcher_leaves_the_watch_usable(place: Path | None) -> None:
    async def use(store: Store) -> None:
        watch = store.watch(PODS, store.revision)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await anext(watch)

        await store.put(PODS, "ns/a", a_pod(), expect=None)

        assert await seen(watch, 1) == [("ADDED", "ns/a", 2)]

    with_store(place, use)


def test_a_closed_store_takes_no_writes_and_closes_twice(place: Path | None) -> None:
    async def use(store: Store) -> None:
        await store.close()

        with pytest.raises(StoreError, match="closed"):
            await store.put(PODS, "ns/a", a_pod(), expect=None)

    with_store(place, use)


def test_what_was_being_written_when_the_store_closed_is_kept(tmp_path: Path) -> None:
    async def main() -> None:
        store = await Store.open(tmp_path / "store.db")
        async with asyncio.TaskGroup() as group:
            writing = [group.create_task(store.put(PODS, f"ns/{n}", a_pod(), expect=None)) for n in range(700)]
            group.create_task(store.close())
        assert all(task.done() for task in writing)
        reopened = await Store.open(tmp_path / "store.db")
        assert len(reopened.list(PODS)) == 700
        await reopened.close()

    clock.run(main())


def test_a_close_that_is_cancelled_still_lets_go_of_the_file(tmp_path: Path) -> None:
    async def main() -> None:
        store = await Store.open(tmp_path / "store.db")
        async with asyncio.TaskGroup() as group:
            group.create_task(store.put(PODS, "ns/a", a_pod(), expect=None))
            await asyncio.sleep(0)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await store.close()

        reopened = await Store.open(tmp_path / "store.db")
        assert [entry.key for entry in reopened.list(PODS)] == ["ns/a"]
        await reopened.close()

    clock.run(main())


def test_superseded_objects_are_kept_as_json_and_decoded_when_asked_for(place: Path | None) -> None:
    async def use(store: Store) -> None:
        entry = first = await store.put(PODS, "ns/a", a_pod(count=0), expect=None)
        value = first.value
        for count in range(1, 300):
            entry = await store.put(PODS, "ns/a", a_pod(count=count), expect=entry.revision)

        assert first.value is not value
        assert first.value == value

    with_store(place, use)


KEYS = st.sampled_from(["a/x", "a/y", "b/x", "c"])
PREFIXES = st.sampled_from(["/pods", "apps/deployments"])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), PREFIXES, KEYS, st.integers()),
        st.tuples(st.just("replace"), PREFIXES, KEYS, st.integers()),
        st.tuples(st.just("stale"), PREFIXES, KEYS, st.integers()),
        st.tuples(st.just("remove"), PREFIXES, KEYS, st.integers()),
        st.tuples(st.just("reopen"), PREFIXES, KEYS, st.integers()),
    ),
    max_size=40,
)
HISTORY = 6


class Model:
    """What a store is, without disk, batches or limits: a dictionary and the list of all changes."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], tuple[int, int]] = {}
        self.changes: list[tuple[str, str, str, int, int]] = []
        self.revision = 1

    def apply(self, name: str, prefix: str, key: str, number: int) -> type[Exception] | None:
        current = self.objects.get((prefix, key))
        if name == "create" and current is not None:
            return Exists
        if name == "stale" or (name == "replace" and current is None):
            return Stale
        if name == "remove" and current is None:
            return Missing
        self.revision += 1
        if name == "remove":
            assert current is not None
            del self.objects[prefix, key]
            self.changes.append(("DELETED", prefix, key, self.revision, current[1]))
            return None
        type_ = "ADDED" if current is None else "MODIFIED"
        self.objects[prefix, key] = (self.revision, number)
        self.changes.append((type_, prefix, key, self.revision, number))
        return None


def carry_out(store: Store, model: Model, name: str, prefix: str, key: str, number: int) -> Coroutine[Any, Any, object]:
    if name == "remove":
        return store.remove(prefix, key)
    expect: int | None = None
    if name == "replace":
        expect = model.objects.get((prefix, key), (999, 0))[0]
    if name == "stale":
        expect = 10_000
    return store.put(prefix, key, {"metadata": {}, "number": number}, expect=expect)


def check(store: Store, model: Model) -> None:
    assert store.revision == model.revision
    for prefix in ("/pods", "apps/deployments"):
        expected = sorted((key, *rest) for (p, key), rest in model.objects.items() if p == prefix)
        assert [(e.key, e.revision, e.value["number"]) for e in store.list(prefix)] == expected
    assert store.compacted == (model.changes[-HISTORY - 1][3] if len(model.changes) > HISTORY else 0)


async def check_history(store: Store, model: Model) -> None:
    since = max(store.compacted, 1)
    expected = [change for change in model.changes if change[3] > since]
    if not expected:
        return
    changes = await store.watch(ALL, since).batch()
    told = [(c.type, c.prefix, c.entry.key, c.entry.revision, c.entry.value["number"]) for c in changes]
    assert told == expected
    before = {(c[1], c[2]): c for c in model.changes if c[3] <= since and c[0] != "DELETED"}
    first = changes[0]
    if first.type != "ADDED":
        assert first.previous is not None
        assert first.previous.revision == before[first.prefix, first.entry.key][3]


@settings(max_examples=60, deadline=None)
@given(operations=OPERATIONS)
@pytest.mark.parametrize("durable", [False, True], ids=["memory", "file"])
def test_any_sequence_of_operations_and_restarts_gives_what_a_dictionary_gives(
    tmp_path_factory: pytest.TempPathFactory, durable: bool, operations: list[tuple[str, str, str, int]]
) -> None:
    path = tmp_path_factory.mktemp("model") / "store.db" if durable else None

    async def main() -> None:
        model = Model()
        store = await Store.open(path, history=HISTORY)
        for name, prefix, key, number in operations:
            if name == "reopen":
                if durable:
                    await store.close()
                    store = await Store.open(path, history=HISTORY)
                continue
            action = carry_out(store, model, name, prefix, key, number)
            expected = model.apply(name, prefix, key, number)
            if expected is None:
                await action
            else:
                with pytest.raises(expected):
                    await action
            check(store, model)
        await check_history(store, model)
        await store.close()

    clock.run(main())


def test_large_objects_make_the_history_shorter_but_never_empty(
    place: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "HISTORY_BYTES", 20_000)

    async def use(store: Store) -> list[int]:
        entry = await store.put(PODS, "ns/small", a_pod(), expect=None)
        lengths = []
        for size in (10, 1_000, 30_000):
            for _ in range(120):
                entry = await store.put(PODS, "ns/small", a_pod(text="x" * size), expect=entry.revision)
            lengths.append(store.revision - store.compacted)
        return lengths

    assert with_store(place, use, history=100) == [100, 18, 10]


def test_rows_of_large_objects_do_not_wait_for_many_to_be_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "HISTORY_BYTES", 20_000)
    path = tmp_path / "store.db"

    async def use(store: Store) -> None:
        entry = await store.put(PODS, "ns/a", a_pod(text="x" * 10_000), expect=None)
        for _ in range(60):
            entry = await store.put(PODS, "ns/a", a_pod(text="x" * 10_000), expect=entry.revision)

    with_store(path, use, history=100)

    log = store_log.Log.open(path)
    rows = len(log.read()[1])
    log.close()
    assert rows <= 14


def test_what_is_gone_or_is_rarely_read_does_not_stay_decoded(
    place: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_DECODED", 2)

    async def use(store: Store) -> list[bool]:
        store.cold.add("/events")
        watch = store.watch(ALL, store.revision)
        await store.put("/events", "ns/e", a_pod("e"), expect=None)
        await store.put(PODS, "ns/a", a_pod("a"), expect=None)
        await store.put(PODS, "ns/b", a_pod("b"), expect=None)
        await store.remove(PODS, "ns/a")
        await store.put(PODS, "ns/c", a_pod("c"), expect=None)
        changes = await watch.batch()
        return [change.entry._value is not None for change in changes]

    #                           e      a      b     a gone  c
    assert with_store(place, use) == [False, False, True, False, True]


def test_a_store_in_memory_notes_no_rows_to_be_dropped() -> None:
    async def use(store: Store) -> int:
        entry = await store.put(PODS, "ns/a", a_pod(), expect=None)
        for _ in range(100):
            entry = await store.put(PODS, "ns/a", a_pod(), expect=entry.revision)
        return len(store._garbage)

    assert with_store(None, use, history=10) <= 1
