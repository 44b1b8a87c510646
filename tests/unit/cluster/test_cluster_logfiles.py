"""Logs written by a container's first process, read by ours."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from datetime import datetime
from pathlib import Path

import pytest

from trainmaster.cluster.kubelet import logfiles
from trainmaster.cluster.kubelet.logfiles import LogWatch, Selection, read
from trainmaster.cluster.kubelet.spawn_log import MAX_LINE, LogWriter


def a_log(root: Path, *chunks: bytes) -> Path:
    path = root / "c" / "0.log"
    writer = LogWriter(str(path))
    for chunk in chunks:
        writer.write(b"stdout", chunk)
    writer.close()
    return path


def test_records_carry_time_stream_and_completeness(tmp_path: Path) -> None:
    path = a_log(tmp_path, b"one\ntw", b"o\nrest")

    lines = path.read_bytes().splitlines()

    assert [re.sub(rb"^\S{30} ", b"", line) for line in lines] == [b"stdout F one", b"stdout F two", b"stdout P rest"]
    assert read(path, Selection()) == b"one\ntwo\nrest"


def test_a_line_longer_than_a_record_is_put_together_again(tmp_path: Path) -> None:
    text = b"x" * (3 * MAX_LINE + 5)

    path = a_log(tmp_path, text + b"\nshort\n")

    assert read(path, Selection()) == text + b"\nshort\n"


def test_an_endless_line_does_not_grow_in_memory(tmp_path: Path) -> None:
    path = a_log(tmp_path, *[b"x" * MAX_LINE] * 5)

    assert read(path, Selection()) == b"x" * (5 * MAX_LINE)


@pytest.mark.parametrize(
    ("tail", "shown"),
    [
        pytest.param(0, b"", id="none"),
        pytest.param(1, b"line 999\n", id="one"),
        pytest.param(2, b"line 998\nline 999\n", id="two"),
        pytest.param(1000, b"".join(b"line %d\n" % n for n in range(1000)), id="all"),
        pytest.param(5000, b"".join(b"line %d\n" % n for n in range(1000)), id="more-than-all"),
    ],
)
def test_the_last_lines(tmp_path: Path, tail: int, shown: bytes) -> None:
    path = a_log(tmp_path, *(b"line %d\n" % n for n in range(1000)))

    assert read(path, Selection(tail=tail)) == shown


def test_a_tail_counts_an_unfinished_line_as_one(tmp_path: Path) -> None:
    path = a_log(tmp_path, b"one\ntwo\npro", b"mpt> ")

    assert read(path, Selection(tail=2)) == b"two\nprompt> "


def test_old_files_go_and_the_rest_reads_as_one(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path / "0.log"), max_bytes=500, max_files=3)
    for number in range(100):
        writer.write(b"stdout", b"line %d\n" % number)
    writer.close()

    names = sorted(path.name for path in tmp_path.iterdir())
    seen = read(tmp_path / "0.log", Selection()).splitlines()

    assert names == ["0.log", "0.log.1", "0.log.2"]
    assert all(path.stat().st_size <= 500 for path in tmp_path.iterdir())
    assert seen == [b"line %d" % number for number in range(100 - len(seen), 100)]
    assert read(tmp_path / "0.log", Selection(tail=15)).splitlines() == seen[-15:]


def test_from_a_moment_on(tmp_path: Path) -> None:
    path = a_log(tmp_path, b"old\n", b"new\n")
    stamp = path.read_bytes().splitlines()[1][:26].decode()
    since = datetime.fromisoformat(f"{stamp}+00:00").timestamp()

    assert read(path, Selection(since=since)) == b"new\n"
    assert read(path, Selection(since=since + 60)) == b""


def test_timestamps_stand_before_each_line_once(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    writer = LogWriter(str(path))
    writer.write(b"stdout", b"loss: ")
    writer.flush()
    writer.write(b"stdout", b"0.1\nnext\n")
    writer.close()

    shown = read(path, Selection(timestamps=True)).decode()

    assert re.fullmatch(r"\S{29}Z loss: 0.1\n\S{29}Z next\n", shown)


def test_a_limit_cuts_the_text(tmp_path: Path) -> None:
    path = a_log(tmp_path, b"hello\nworld\n")

    assert read(path, Selection(limit_bytes=8)) == b"hello\nwo"


def test_the_end_of_a_log_serves_as_a_message(tmp_path: Path) -> None:
    path = a_log(tmp_path, *(b"line %d\n" % n for n in range(10)))

    assert logfiles.last_text(path, lines=2, limit=100) == "line 8\nline 9\n"
    assert logfiles.last_text(tmp_path / "absent.log", lines=2, limit=100) == ""


def test_followers_see_what_comes_through_rotations_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    over = False

    async def follow(watch: LogWatch, selection: Selection) -> bytes:
        return b"".join([part async for part in logfiles.follow(path, selection, watch, lambda: over)])

    async def main() -> tuple[bytes, bytes]:
        nonlocal over
        watch, writer = LogWatch(), LogWriter(str(path), max_bytes=300, max_files=5)
        writer.write(b"stdout", b"before\n")
        try:
            async with asyncio.TaskGroup() as group:
                whole = group.create_task(follow(watch, Selection()))
                fresh = group.create_task(follow(watch, Selection(tail=0)))
                for number in range(20):
                    await asyncio.sleep(0)  # let the others run
                    writer.write(b"stdout", b"line %d\n" % number)
                writer.close()
                over = True
                watch.wake(path)
        finally:
            watch.close()
        return whole.result(), fresh.result()

    whole, fresh = asyncio.run(main())

    expected = b"".join(b"line %d\n" % number for number in range(20))
    assert whole == b"before\n" + expected
    assert fresh == expected


def test_a_follower_that_leaves_leaves_nothing(tmp_path: Path) -> None:
    path = a_log(tmp_path, b"hello\n")

    async def main() -> tuple[bytes, bool]:
        watch = LogWatch()
        try:
            async with aclosing(logfiles.follow(path, Selection(), watch, lambda: False)) as following:
                first = await anext(following)
            return first, watch.is_idle
        finally:
            watch.close()

    assert asyncio.run(main()) == (b"hello\n", True)


def test_an_attached_client_knows_the_streams_apart(tmp_path: Path) -> None:
    path = tmp_path / "0.log"

    async def main() -> list[tuple[int, bytes]]:
        writer, watch = LogWriter(str(path)), LogWatch()
        writer.write(b"stdout", b"before\n")
        try:
            async with aclosing(logfiles.attach(path, watch, lambda: False)) as attached:
                async with asyncio.TaskGroup() as group:
                    first = group.create_task(anext(attached))
                    await asyncio.sleep(0)
                    writer.write(b"stderr", b"oops\n")
                writer.write(b"stdout", b"fine\n")
                writer.close()
                return [first.result(), await anext(attached)]
        finally:
            watch.close()

    assert asyncio.run(main()) == [(2, b"oops\n"), (1, b"fine\n")]


def test_a_line_is_seen_also_when_more_has_happened_than_the_kernel_notes(tmp_path: Path) -> None:
    noisy, quiet = tmp_path / "noisy" / "0.log", tmp_path / "quiet" / "0.log"
    noted = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())

    async def main() -> bytes:
        watch, writer = LogWatch(), LogWriter(str(quiet))
        noisy.parent.mkdir()
        watch.add(noisy)
        try:
            async with aclosing(logfiles.follow(quiet, Selection(), watch, lambda: False)) as following:
                async with asyncio.TaskGroup() as group:
                    first = group.create_task(anext(following))
                    await asyncio.sleep(0)
                    with noisy.open("wb", 0) as one, noisy.with_name("1.log").open("wb", 0) as other:
                        for _ in range(noted):
                            one.write(b"x")
                            other.write(b"x")
                    writer.write(b"stdout", b"hello\n")
                writer.close()
                return first.result()
        finally:
            watch.close()

    assert asyncio.run(main()) == b"hello\n"
