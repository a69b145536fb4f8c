"""Tasks in one SQLite file, shared by the processes of a machine."""

import json
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from core.cache.stores.worker import Worker
from core.errors import StoreUnavailable, TaskConflict
from core.tasks.stores import sqlite_rows
from core.tasks.stores.base import Changes, Entry
from core.tasks.stores.rows import Numbered, Series

T = TypeVar("T")

PATIENCE_S: Final = 5.0  # tasks are written rarely, and nobody's decision waits for it

SCHEMA: Final = """
    BEGIN IMMEDIATE;
    CREATE TABLE IF NOT EXISTS task (
        tenant TEXT NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL, revision INTEGER NOT NULL,
        value BLOB, updated_at REAL NOT NULL, objects TEXT NOT NULL, PRIMARY KEY (tenant, id));
    CREATE INDEX IF NOT EXISTS task_revision ON task (revision);
    CREATE TABLE IF NOT EXISTS object (digest TEXT PRIMARY KEY, data BLOB NOT NULL, added_at REAL NOT NULL);
    CREATE TABLE IF NOT EXISTS newest (id INTEGER PRIMARY KEY CHECK (id = 0), revision INTEGER NOT NULL);
    INSERT OR IGNORE INTO newest VALUES (0, 0);
    COMMIT;
"""
PUT: Final = """
    INSERT INTO task VALUES (:tenant, :id, :version, :revision, :value, :now, :objects)
    ON CONFLICT DO UPDATE SET version = excluded.version, revision = excluded.revision,
        value = excluded.value, updated_at = excluded.updated_at, objects = excluded.objects
"""
UNNAMED: Final = """
    DELETE FROM object WHERE added_at < ? AND digest NOT IN (
        SELECT named.value FROM task, json_each(task.objects) AS named)
"""
ENTRY: Final = "SELECT tenant, id, version, value, updated_at FROM task"


class SqliteTaskStore:
    """A `TaskStore` in one file, made where there is none, readable by its owner only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._worker = Worker("precedent-tasks")
        self._db: sqlite3.Connection | None = None

    async def revision(self) -> int:
        """The number of the newest write."""
        return await self._use("revision", _newest)

    async def read(self, known: int) -> Changes:
        """Every task written after revision `known`."""
        return await self._use("read", lambda db: _read(db, known))

    async def get(self, tenant: str, task_id: str) -> Entry | None:
        """One task."""
        return await self._use("get", lambda db: _get(db, tenant, task_id))

    async def put(
        self,
        tenant: str,
        task_id: str,
        value: bytes | None,
        expected: int | None,
        now: float,
        objects: Sequence[str] = (),
    ) -> int:
        """Write a record, or a tombstone, and return its version."""

        def put(db: sqlite3.Connection) -> int:
            found = _get(db, tenant, task_id)
            version = 0 if found is None else found.version
            if expected is not None and expected != version:
                raise TaskConflict(task_id, version, expected)
            db.execute("UPDATE newest SET revision = revision + 1")
            row = {"tenant": tenant, "id": task_id, "version": version + 1, "revision": _newest(db)}
            db.execute(PUT, row | {"value": value, "now": now, "objects": json.dumps([*objects])})
            return version + 1

        return await self._change("put", put)

    async def put_object(self, digest: str, data: bytes, now: float) -> None:
        """Keep an object."""
        insert = "INSERT INTO object VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET added_at = excluded.added_at"
        await self._change("put_object", lambda db: db.execute(insert, (digest, data, now)))

    async def get_object(self, digest: str) -> bytes | None:
        """An object."""
        select = "SELECT data FROM object WHERE digest = ?"
        row = await self._use("get_object", lambda db: db.execute(select, (digest,)).fetchone())
        return None if row is None else bytes(row[0])

    async def forget(self, before: float) -> int:
        """Drop tombstones and unnamed objects from before an instant."""

        def forget(db: sqlite3.Connection) -> int:
            tombstones = "DELETE FROM task WHERE value IS NULL AND updated_at < ?"
            return db.execute(tombstones, (before,)).rowcount + db.execute(UNNAMED, (before,)).rowcount

        return await self._change("forget", forget)

    async def add_rows(self, series: Series, rows: Sequence[tuple[str, bytes]], max_rows: int) -> int:
        """Append rows whose ids are not there."""
        return await self._change("add_rows", lambda db: sqlite_rows.add(db, series, rows, max_rows))

    async def replace_rows(self, series: Series, rows: Sequence[tuple[str, bytes]], max_rows: int) -> None:
        """Append rows, each in place of the one with its id."""
        await self._change("replace_rows", lambda db: sqlite_rows.replace(db, series, rows, max_rows))

    async def read_rows(self, series: Series, after: int, limit: int) -> list[Numbered]:
        """At most `limit` rows with a number above `after`."""
        return await self._use("read_rows", lambda db: sqlite_rows.read(db, series, after, limit))

    async def known_rows(self, series: Series, ids: Sequence[str]) -> set[str]:
        """Those of some ids that have a row."""
        return await self._use("known_rows", lambda db: sqlite_rows.known(db, series, ids))

    async def erase_rows(self, series: Series, ids: Sequence[str]) -> int:
        """Remove rows; return how many there were."""
        return await self._change("erase_rows", lambda db: sqlite_rows.erase(db, series, ids))

    async def clear_rows(self, series: Series) -> int:
        """Remove all rows, and return how many there were."""
        return await self._change("clear_rows", lambda db: sqlite_rows.clear(db, series))

    async def count_rows(self, series: Series, after: int = 0) -> int:
        """How many rows there are with a number above `after`."""
        return await self._use("count_rows", lambda db: sqlite_rows.count(db, series, after))

    async def close(self) -> None:
        """Finish what was begun and close the file."""
        await self._worker.run(self._close)
        self._worker.close()

    async def _use(self, operation: str, call: Callable[[sqlite3.Connection], T]) -> T:
        return await self._worker.run(lambda: self._guarded(operation, call))

    async def _change(self, operation: str, call: Callable[[sqlite3.Connection], T]) -> T:
        def whole(db: sqlite3.Connection) -> T:
            db.execute("BEGIN IMMEDIATE")
            try:
                done = call(db)
                db.execute("COMMIT")
            except BaseException:
                db.execute("ROLLBACK")
                raise
            return done

        return await self._use(operation, whole)

    def _guarded(self, operation: str, call: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._db is None:
                self._db = _open(self.path)
            return call(self._db)
        except (sqlite3.Error, OSError) as error:
            self._close()
            raise StoreUnavailable(operation, str(error)) from error

    def _close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()


def _open(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    db = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")  # a record that was acknowledged outlives a loss of power
    db.executescript(SCHEMA)
    db.executescript(sqlite_rows.SCHEMA)
    return db


def _newest(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT revision FROM newest").fetchone()[0])


def _get(db: sqlite3.Connection, tenant: str, task_id: str) -> Entry | None:
    row = db.execute(f"{ENTRY} WHERE tenant = ? AND id = ?", (tenant, task_id)).fetchone()
    return None if row is None else Entry(*row)


def _read(db: sqlite3.Connection, known: int) -> Changes:
    db.execute("BEGIN")  # one moment for both queries
    try:
        newest = _newest(db)
        everything = not 0 < known <= newest
        rows = db.execute(f"{ENTRY} WHERE revision > ? ORDER BY revision", (0 if everything else known,))
        return Changes(newest, tuple(Entry(*row) for row in rows.fetchall()), everything)
    finally:
        db.execute("COMMIT")
