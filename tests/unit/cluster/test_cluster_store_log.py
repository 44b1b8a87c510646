from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from trainmaster.cluster.storage.store import Store, StoreError
from trainmaster.cluster.storage.store_log import APPLICATION_ID, SCHEMA_VERSION, Log, Record
from trainmaster.testing import clock

PODS = "/pods"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "store.db"


def opened(path: Path) -> None:
    async def main() -> None:
        store = await Store.open(path)
        await store.close()

    clock.run(main())


def filled(path: Path, count: int = 200) -> None:
    async def main() -> None:
        store = await Store.open(path)
        for number in range(count):
            await store.put(PODS, f"ns/{number}", {"metadata": {}, "filler": "x" * 5000}, expect=None)
        await store.close()

    clock.run(main())


def test_a_reopened_store_has_its_objects_revision_and_history(path: Path) -> None:
    async def main() -> None:
        store = await Store.open(path, history=4)
        for number in range(8):
            await store.put(PODS, f"ns/{number}", {"metadata": {}, "number": number}, expect=None)
        last = await store.remove(PODS, "ns/3")
        before = [(entry.key, entry.revision, entry.raw) for entry in store.list(PODS)]
        await store.close()

        reopened = await Store.open(path, history=4)

        assert [(entry.key, entry.revision, entry.raw) for entry in reopened.list(PODS)] == before
        assert (reopened.revision, reopened.compacted) == (last.revision, last.revision - 4)
        changes = await reopened.watch(PODS, reopened.compacted).batch()
        assert [(c.type, c.entry.key) for c in changes] == [
            ("ADDED", "ns/5"),
            ("ADDED", "ns/6"),
            ("ADDED", "ns/7"),
            ("DELETED", "ns/3"),
        ]
        assert changes[-1].previous is not None
        assert changes[-1].entry.value["metadata"]["resourceVersion"] == str(last.revision)
        assert (await reopened.put(PODS, "ns/new", {"metadata": {}}, expect=None)).revision == last.revision + 1
        await reopened.close()

    clock.run(main())


def test_only_the_owner_may_read_the_file_for_it_holds_secrets(path: Path) -> None:
    opened(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_old_revisions_leave_the_file_and_the_rest_survives(path: Path) -> None:
    async def main() -> None:
        store = await Store.open(path, history=50)
        entry = await store.put(PODS, "ns/busy", {"metadata": {}, "filler": "x" * 5000}, expect=None)
        await store.put(PODS, "ns/quiet", {"metadata": {}}, expect=None)
        for number in range(600):
            entry = await store.put(
                PODS, "ns/busy", {"metadata": {}, "filler": f"{number:05000}"}, expect=entry.revision
            )
        await store.close()

        reopened = await Store.open(path, history=50)
        assert {e.key for e in reopened.list(PODS)} == {"ns/busy", "ns/quiet"}
        assert reopened.revision == entry.revision
        assert reopened.compacted == entry.revision - 50
        await reopened.close()

    clock.run(main())

    with sqlite3.connect(path) as connection:
        (rows,) = connection.execute("SELECT count(*) FROM log").fetchone()
    connection.close()
    assert 52 <= rows <= 60
    assert path.stat().st_size < 2_000_000


def test_a_removed_object_leaves_nothing_behind_once_history_forgets_it(path: Path) -> None:
    async def main() -> None:
        store = await Store.open(path, history=4)
        for number in range(20):
            await store.put(PODS, f"ns/{number}", {"metadata": {}}, expect=None)
            await store.remove(PODS, f"ns/{number}")
        await store.close()

        reopened = await Store.open(path, history=4)
        assert reopened.list(PODS) == []
        assert (reopened.revision, reopened.compacted) == (41, 37)
        await reopened.close()

    clock.run(main())

    with sqlite3.connect(path) as connection:
        (rows,) = connection.execute("SELECT count(*) FROM log").fetchone()
    connection.close()
    assert rows <= 6


def test_a_second_process_is_told_that_the_file_is_in_use(path: Path) -> None:
    script = f"""
import asyncio
from pathlib import Path
from trainmaster.cluster.storage.store import Store, StoreError
try:
    asyncio.run(Store.open(Path({str(path)!r})))
except StoreError as error:
    print(error)
"""

    async def main() -> str:
        store = await Store.open(path)
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        output, _ = await other.communicate()
        await store.put(PODS, "ns/a", {"metadata": {}}, expect=None)
        await store.close()
        return output.decode()

    assert f"{path} is in use by another process: stop that cluster" in asyncio.run(main())


def test_of_several_processes_that_open_it_at_once_one_has_it(path: Path) -> None:
    script = f"""
import signal, sys
from pathlib import Path
from trainmaster.cluster.storage.store_log import Log, StoreError
print("ready", flush=True)
sys.stdin.read()
try:
    log = Log.open(Path({str(path)!r}))
except StoreError as error:
    print(error, flush=True)
else:
    print("mine", flush=True)
    signal.pause()
"""
    gate, opener = os.pipe()
    command = [sys.executable, "-c", script]
    with ExitStack() as stack:
        several = [subprocess.Popen(command, stdin=gate, stdout=subprocess.PIPE, text=True) for _ in range(6)]
        for process in several:
            stack.enter_context(process)
            stack.callback(process.kill)
        assert [process.stdout.readline() for process in several if process.stdout] == ["ready\n"] * 6

        os.close(opener)
        told = [process.stdout.readline() for process in several if process.stdout]
    os.close(gate)

    assert [line for line in told if "is in use by another process" not in line] == ["mine\n"]


def truncate_to(size: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with path.open("r+b") as file:
            file.truncate(size)

    return change


def overwrite_at(offset: int, data: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(data)

    return change


def flip_a_bit_inside_a_value(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.rindex(b"xxxxxxxx")] ^= 1
    path.write_bytes(data)


def drop_a_table(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE meta")
    connection.close()


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(truncate_to(50), id="cut inside the header"),
        pytest.param(truncate_to(4096), id="cut after the first page"),
        pytest.param(truncate_to(300_000), id="cut in the middle"),
        pytest.param(overwrite_at(4096, b"\xff" * 4096), id="a page of garbage"),
        pytest.param(overwrite_at(200_000, bytes(200_000)), id="many pages of zeros"),
        pytest.param(flip_a_bit_inside_a_value, id="one bit in a value"),
        pytest.param(drop_a_table, id="a missing table"),
    ],
)
def test_a_damaged_file_is_named_with_the_way_out(path: Path, damage: Callable[[Path], None]) -> None:
    filled(path)
    damage(path)

    with pytest.raises(StoreError) as error:
        opened(path)

    assert str(error.value).startswith(f"{path} is damaged (")
    assert "move it and store.db-wal away" in str(error.value)


def test_a_file_whose_making_was_cut_short_is_made_anew(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # by which SQLite writes a header without our id
    connection.close()
    assert path.stat().st_size > 0

    opened(path)

    assert path.read_bytes()[68:72] == APPLICATION_ID.to_bytes(4, "big")


@pytest.mark.parametrize("made", ["CREATE TABLE t (x)", "CREATE VIEW v AS SELECT 1"], ids=["table", "one page"])
def test_another_programs_database_is_refused_and_left_alone(path: Path, made: str) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute(made)
    connection.close()
    content = path.read_bytes()

    with pytest.raises(StoreError, match="store.db is not a Trainmaster store .another program's SQLite database"):
        opened(path)

    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"kind: Pod\n", b"\x7fELF" + bytes(500), b"\x00"], ids=["yaml", "elf", "zero"])
def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)

    with pytest.raises(StoreError, match="not a Trainmaster store .it is no SQLite database"):
        opened(path)

    assert path.read_bytes() == content


def test_a_directory_is_refused(path: Path) -> None:
    path.mkdir(parents=True)

    with pytest.raises(StoreError, match="it is a directory"):
        opened(path)


def test_a_path_through_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match="cannot be opened .* check the path"):
        opened(tmp_path / "file" / "store.db")


def test_the_file_of_a_newer_version_is_refused_with_the_advice_to_upgrade(path: Path) -> None:
    opened(path)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()

    with pytest.raises(StoreError, match="written by a newer Trainmaster .format 2, this one knows 1.: upgrade"):
        opened(path)


def test_the_header_names_our_application_even_before_the_first_checkpoint(path: Path) -> None:
    log = Log.open(path)
    log.append([Record(2, PODS, "ns/a", False, b"{}")])

    header = path.read_bytes()[:100]

    assert int.from_bytes(header[68:72], "big") == APPLICATION_ID
    log.close()


@pytest.mark.parametrize("full_sync", [False, True])
def test_the_flag_decides_whether_a_power_cut_is_survived(path: Path, full_sync: bool) -> None:
    log = Log.open(path, full_sync=full_sync)

    (level,) = log._connection.execute("PRAGMA synchronous").fetchone()

    assert level == (2 if full_sync else 1)
    log.close()


def test_a_failed_compaction_changes_nothing(path: Path) -> None:
    log = Log.open(path)
    log.append([Record(2, PODS, "ns/a", False, b"{}"), Record(3, PODS, "ns/a", False, b"{}")])
    log._connection.execute("CREATE TEMP TRIGGER stop BEFORE UPDATE ON main.meta BEGIN SELECT RAISE(ABORT, 'no'); END")

    with pytest.raises(StoreError):
        log.compact([2], 3)

    compacted, records = log.read()
    assert (compacted, [record.revision for record in records]) == (0, [2, 3])
    log.close()


WRITER = """
import asyncio, sys
from pathlib import Path
from trainmaster.cluster.storage.store import Store

async def work(store, name):
    entry = store.get("/pods", name)
    number = entry.value["number"] if entry else 0
    while True:
        number += 1
        value = {"metadata": {}, "number": number, "filler": "x" * (number * 37 % 9000)}
        entry = await store.put("/pods", name, value, expect=entry.revision if entry else None)
        print(name, number, entry.revision, "there", flush=True)
        if number % 7 == 0:
            removed = await store.remove("/pods", name)
            print(name, number, removed.revision, "gone", flush=True)
            entry = None

async def main():
    store = await Store.open(Path(sys.argv[1]), history=100)
    async with asyncio.TaskGroup() as group:
        for index in range(8):
            group.create_task(work(store, f"ns/{index}"))

asyncio.run(main())
"""


class Acknowledged(NamedTuple):
    number: int
    revision: int
    state: str


def test_kill_9_at_any_moment_loses_nothing_that_was_acknowledged(path: Path) -> None:
    chance = random.Random(20240)
    acknowledged: dict[str, Acknowledged] = {}

    for _ in range(8):
        kill_after(path, chance.randint(1, 1500), acknowledged)
        check_all_there(path, acknowledged)

    assert max(last.revision for last in acknowledged.values()) > 500


def kill_after(path: Path, lines: int, acknowledged: dict[str, Acknowledged]) -> None:
    """Lets the writer acknowledge so many changes, kills it, and notes what it had said up to then."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for count, line in enumerate(writer.stdout, start=1):
            if not line.endswith("\n"):
                break
            name, number, revision, state = line.split()
            acknowledged[name] = Acknowledged(int(number), int(revision), state)
            if count == lines:
                writer.send_signal(signal.SIGKILL)
    assert writer.returncode == -signal.SIGKILL


def check_all_there(path: Path, acknowledged: dict[str, Acknowledged]) -> None:
    async def main() -> None:
        store = await Store.open(path, history=100)
        assert store.revision >= max(last.revision for last in acknowledged.values())
        for name, last in acknowledged.items():
            entry = store.get(PODS, name)
            # At least what was acknowledged; the next change may have been written but not yet told.
            if entry is None:
                assert last.state == "gone" or last.number % 7 == 0
            else:
                assert entry.revision >= last.revision
                assert entry.value["number"] - last.number in ((0, 1) if last.state == "there" else (1,))
        await store.close()

    clock.run(main())
