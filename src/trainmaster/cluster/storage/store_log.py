"""The store's memory across restarts: one SQLite table with a row per revision.

Everything here blocks and belongs to one thread, which `store` provides. A batch of rows is one multi-row INSERT in
autocommit mode, so a transaction costs a single call into SQLite: every call gives up the interpreter lock, and taking
it back from a busy event loop may cost milliseconds. Rows carry a checksum, because SQLite notices a broken page but
not a flipped bit inside a value. The file is held exclusively, by a lock of the kernel's on a file beside it: SQLite
takes its own step by step, and of several who start at once each would wait for the others, until all give up.
Whatever cannot be used becomes a `StoreError` that names the file and what to do about it.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from trainmaster.cluster.storage import private

BATCH = 500
"""Most rows of one INSERT: SQLite allows 32,766 parameters, and a row has six."""

APPLICATION_ID = int.from_bytes(b"TMst", "big")
"""In the file's header, so that no other program's database is mistaken for ours."""

SCHEMA_VERSION = 1

_MAGIC = b"SQLite format 3\x00"
_HEADER_BYTES = 100
_LOCK_PATIENCE = 1.0
"""Seconds a process that is just closing the file may still hold it."""

_CREATE = """
BEGIN IMMEDIATE;
CREATE TABLE log (
    revision INTEGER PRIMARY KEY, prefix TEXT NOT NULL, key TEXT NOT NULL,
    deleted INTEGER NOT NULL, value BLOB NOT NULL, checksum INTEGER NOT NULL
);
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('compacted', 0);
PRAGMA application_id = {application_id};
PRAGMA user_version = {version};
COMMIT;
"""


class StoreError(Exception):
    """The store cannot be opened or written; the message says which file and what to do."""


class Record(NamedTuple):
    """One revision: the object's JSON as it was, or for a deletion as it was last."""

    revision: int
    prefix: str
    key: str
    deleted: bool
    value: bytes

    @property
    def checksum(self) -> int:
        head = f"{self.revision} {self.prefix} {self.key} {int(self.deleted)}"
        return zlib.crc32(self.value, zlib.crc32(head.encode()))


class Log:
    """An open file. Made by `Log.open` in the thread that will use it."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: BinaryIO) -> None:
        self._path = path
        self._connection = connection
        self._lock = lock

    @classmethod
    def open(cls, path: Path, *, full_sync: bool = False) -> Log:
        _prepare(path)
        lock = _locked(path)
        try:
            return cls(path, _connected(path, full_sync), lock)
        except BaseException:
            lock.close()
            raise

    def read(self) -> tuple[int, list[Record]]:
        """The revision up to which history was dropped, and all rows in order of their revisions."""
        with _explained(self._path):
            problem = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if problem != "ok":
                raise StoreError(damaged(self._path, " ".join(problem.split())))  # SQLite gives it several lines
            (compacted,) = self._connection.execute("SELECT value FROM meta WHERE name = 'compacted'").fetchone()
            return compacted, list(self._rows())

    def append(self, records: Sequence[Record]) -> None:
        """All of them or none, and safe from a killed process when this returns."""
        parameters: list[object] = []
        for record in records:
            parameters += (*record, record.checksum)
        rows = ",".join(["(?,?,?,?,?,?)"] * len(records))
        with _explained(self._path):
            self._connection.execute(f"INSERT INTO log VALUES {rows}", parameters)

    def compact(self, garbage: Sequence[int], compacted: int) -> None:
        """Drops rows nobody can ask for any more, and gives the room back when it is much of the file."""
        run = self._connection.execute
        with _explained(self._path):
            run("BEGIN IMMEDIATE")
            try:
                run("DELETE FROM log WHERE revision IN (SELECT value FROM json_each(?))", (json.dumps(garbage),))
                run("UPDATE meta SET value = ? WHERE name = 'compacted'", (compacted,))
            except BaseException:
                run("ROLLBACK")
                raise
            run("COMMIT")
            free, pages = (run(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_count"))
            if free * 2 > pages:
                run("PRAGMA incremental_vacuum").fetchall()
                run("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        try:
            with _explained(self._path):
                self._connection.close()
        finally:
            self._lock.close()

    def _rows(self) -> Iterator[Record]:
        query = "SELECT revision, prefix, key, deleted, value, checksum FROM log ORDER BY revision"
        for revision, prefix, key, deleted, value, checksum in self._connection.execute(query):
            record = Record(revision, prefix, key, bool(deleted), value)
            if not isinstance(value, bytes) or record.checksum != checksum:
                raise StoreError(damaged(self._path, f"the checksum of revision {revision} does not match"))
            yield record


def damaged(path: Path, detail: str) -> str:
    return (
        f"{path} is damaged ({detail}): restore it from a copy, "
        f"or move it and {path.name}-wal away to start with an empty cluster"
    )


def _foreign(path: Path, detail: str) -> str:
    return f"{path} is not a Trainmaster store ({detail}): choose another place, or move the file away"


def _in_use(path: Path) -> str:
    return f"{path} is in use by another process: stop that cluster (trainmaster down), or choose another place"


def _prepare(path: Path) -> None:
    """Makes an empty private file, or looks at the header of the one that is there without touching it."""
    with _reachable(path):
        if path.is_dir():
            raise StoreError(_foreign(path, "it is a directory"))
        path.parent.mkdir(parents=True, exist_ok=True)
        # Secrets are stored here, so nobody else may read it; SQLite gives its -wal file the same mode.
        descriptor = private.open_private(path, os.O_RDONLY | os.O_CREAT)
        with os.fdopen(descriptor, "rb") as file:
            header = file.read(_HEADER_BYTES)
    if not header:
        return
    if not header.startswith(_MAGIC[: len(header)]):
        raise StoreError(_foreign(path, "it is no SQLite database"))
    if len(header) < _HEADER_BYTES:
        raise StoreError(damaged(path, f"it ends after {len(header)} bytes"))
    application_id, pages = (int.from_bytes(header[start : start + 4], "big") for start in (68, 28))
    # One page without an id has no tables yet: ours as long as it is being made, and for good if that was cut short.
    if application_id != APPLICATION_ID and (application_id, pages) != (0, 1):
        raise StoreError(_foreign(path, "another program's SQLite database"))


def _locked(path: Path) -> BinaryIO:
    """What holds the lock until it is closed, or this process ends. The file stays: who removed it might remove the one
    that another has just locked."""
    beside = path.with_name(f"{path.name}-lock")
    with _reachable(beside), ExitStack() as stack:
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        file = stack.enter_context(os.fdopen(private.open_private(beside, append), "ab"))
        deadline = time.monotonic() + _LOCK_PATIENCE
        while not _take(file):
            if time.monotonic() > deadline:
                raise StoreError(_in_use(path))
            time.sleep(0.01)  # the kernel's wait has no end, and this thread is the store's own
        stack.pop_all()
        return file


def _take(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _reachable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path} cannot be opened ({error.strerror}): check the path and its permissions") from error


def _connected(path: Path, full_sync: bool) -> sqlite3.Connection:
    with _explained(path):
        connection = sqlite3.connect(path, timeout=_LOCK_PATIENCE, isolation_level=None)
    try:
        with _explained(path):
            _claim(path, connection, full_sync)
    except BaseException:
        connection.close()
        raise
    return connection


def _claim(path: Path, connection: sqlite3.Connection, full_sync: bool) -> None:
    """Takes the file for this process alone, and makes the tables if it is new."""
    run = connection.execute
    run("PRAGMA locking_mode = EXCLUSIVE")
    version = run("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written by a newer Trainmaster (format {version}, this one knows {SCHEMA_VERSION}): "
            f"upgrade Trainmaster, or choose another place"
        )
    if version == 0:
        if run("SELECT 1 FROM sqlite_master").fetchone():
            raise StoreError(_foreign(path, "another program's SQLite database"))
        run("PRAGMA auto_vacuum = INCREMENTAL")  # written at once: within the transaction it would have no effect
        # In the default journal mode: the header must be in the file itself, not only in its -wal, to be recognised.
        connection.executescript(_CREATE.format(application_id=APPLICATION_ID, version=SCHEMA_VERSION))
    run("PRAGMA journal_mode = WAL").fetchone()
    run(f"PRAGMA synchronous = {'FULL' if full_sync else 'NORMAL'}")
    run("BEGIN IMMEDIATE")  # the exclusive lock is taken by the first write and kept from then on
    run("COMMIT")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(_explanation(path, error)) from error


def _explanation(path: Path, error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return _in_use(path)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return damaged(path, str(error))
    if code == sqlite3.SQLITE_FULL:
        return f"{path} cannot be written, the disk is full: free some space"
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return f"{path} cannot be opened for writing ({error}): check the permissions of the file and its directory"
    if code == sqlite3.SQLITE_ERROR:
        return damaged(path, str(error))  # our statements are fixed: one that fails meets tables that are not ours
    return f"{path} cannot be used ({error})"
