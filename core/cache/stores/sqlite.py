"""Values in one SQLite file, shared by the processes of a machine.

Reads and writes have a thread and a connection each: with a write-ahead log a reader never waits for a
writer, so a locked file costs the writes and not the hits. `synchronous=NORMAL` loses the last few writes
when the machine loses power, never when a process is killed, and the file opens either way.
"""

import os
import random
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from core.cache.stores.base import FenceTable, check_max_entries, new_founding
from core.cache.stores.worker import Worker
from core.errors import StoreUnavailable

T = TypeVar("T")

APPLICATION_ID: Final = 0x50524543
SCHEMA_VERSION: Final = 1
KEYS_PER_STATEMENT: Final = 512
PRUNE_STEP: Final = 1_000
TRIM_STEP: Final = 16

SCHEMA: Final = f"""
    BEGIN IMMEDIATE;
    CREATE TABLE IF NOT EXISTS entry (
        seq INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, expires_at REAL, value BLOB NOT NULL);
    CREATE INDEX IF NOT EXISTS entry_expiry ON entry (expires_at) WHERE expires_at IS NOT NULL;
    CREATE TABLE IF NOT EXISTS fence (scope BLOB PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS total (
        id INTEGER PRIMARY KEY CHECK (id = 0), entries INTEGER, epoch INTEGER, founding BLOB);
    INSERT OR IGNORE INTO total VALUES (0, 0, 0, x'');
    CREATE TRIGGER IF NOT EXISTS entry_came AFTER INSERT ON entry
        BEGIN UPDATE total SET entries = entries + 1; END;
    CREATE TRIGGER IF NOT EXISTS entry_went AFTER DELETE ON entry
        BEGIN UPDATE total SET entries = entries - 1; END;
    PRAGMA application_id = {APPLICATION_ID};
    PRAGMA user_version = {SCHEMA_VERSION};
    COMMIT;
"""

# The condition makes the first decision win, and lets one that has expired lose.
ADD: Final = """
    INSERT INTO entry (key, value, expires_at) VALUES (:key, :value, :expires_at)
    ON CONFLICT (key) DO UPDATE
        SET seq = (SELECT max(seq) + 1 FROM entry), value = excluded.value, expires_at = excluded.expires_at
        WHERE entry.expires_at <= :now
"""
REPLACE: Final = """
    UPDATE entry
    SET seq = (SELECT max(seq) + 1 FROM entry), value = :value, expires_at = :expires_at
    WHERE key = :key AND value = :old AND (expires_at IS NULL OR expires_at > :now)
"""


class SqliteStore:
    """A `Store` in one file.

    Args:
        path: the file; it is made, readable by its owner only, where there is none.
        max_entries: above it the least recently stored or replaced value leaves.
        patience_s: how long a write waits for another process's write; keep it below the store's deadline.
    """

    def __init__(self, path: Path, max_entries: int = 1_000_000, patience_s: float = 0.04) -> None:
        check_max_entries(max_entries)
        self._max_entries = max_entries
        self._reader = _Connection(path, patience_s, "precedent-sqlite-read")
        self._writer = _Connection(path, patience_s, "precedent-sqlite-write")

    async def get_many(self, keys: Sequence[bytes], now: float) -> dict[bytes, bytes]:
        """Return the values that are there, by key."""
        return await self._reader.use("get", lambda db: _select(db, keys, now))

    async def add(self, key: bytes, value: bytes, expires_at: float | None, now: float) -> bytes:
        """Store `value` unless a live one is there, and return the one that survives."""
        row = {"key": key, "value": value, "expires_at": expires_at, "now": now}
        return await self._writer.change("add", lambda db: self._add(db, row))

    async def replace(self, key: bytes, old: bytes, new: bytes, expires_at: float | None, now: float) -> bool:
        """Put `new` where exactly `old` stands."""
        row = {"key": key, "old": old, "value": new, "expires_at": expires_at, "now": now}
        return await self._writer.change("replace", lambda db: db.execute(REPLACE, row).rowcount == 1)

    async def discard(self, key: bytes, old: bytes) -> bool:
        """Remove the value if it is exactly `old`."""
        delete = "DELETE FROM entry WHERE key = ? AND value = ?"
        return await self._writer.change("discard", lambda db: db.execute(delete, (key, old)).rowcount == 1)

    async def prune(self, now: float) -> int:
        """Remove up to `PRUNE_STEP` expired values; return how many went."""
        delete = "DELETE FROM entry WHERE seq IN (SELECT seq FROM entry WHERE expires_at <= ? LIMIT ?)"
        return await self._writer.change("prune", lambda db: db.execute(delete, (now, PRUNE_STEP)).rowcount)

    async def count(self, now: float) -> int:
        """How many live values there are."""
        select = "SELECT entries - (SELECT count(*) FROM entry WHERE expires_at <= ?) FROM total"
        return int(await self._reader.use("count", lambda db: db.execute(select, (now,)).fetchone()[0]))

    async def read_fences(self, known: FenceTable) -> FenceTable | None:
        """The purges so far, or None when nothing is new."""
        return await self._reader.use("read_fences", lambda db: _fences(db, known))

    async def add_fence(self, scope: bytes, at_least: int, dropped: Collection[bytes]) -> int:
        """Begin the next epoch and fence `scope` with it."""
        return await self._writer.change("add_fence", lambda db: _add_fence(db, scope, at_least, dropped))

    async def close(self) -> None:
        """Finish what was begun and close the file."""
        await self._reader.close()
        await self._writer.close()

    def _add(self, db: sqlite3.Connection, row: Mapping[str, bytes | float | None]) -> bytes:
        if db.execute(ADD, row).rowcount == 1:
            excess = db.execute("SELECT entries FROM total").fetchone()[0] - self._max_entries
            if excess > 0:
                oldest = "DELETE FROM entry WHERE seq IN (SELECT seq FROM entry ORDER BY seq LIMIT ?)"
                db.execute(oldest, (min(excess, TRIM_STEP),))
        survivor: bytes = db.execute("SELECT value FROM entry WHERE key = :key", row).fetchone()[0]
        return survivor


class _Connection:
    """A connection that only its own thread uses; opened when needed, and again after a failure."""

    def __init__(self, path: Path, patience_s: float, thread_name: str) -> None:
        self._path = path
        self._patience_s = patience_s
        self._worker = Worker(thread_name)
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # the one that `_db` has open
        self._frozen = False

    async def use(self, operation: str, call: Callable[[sqlite3.Connection], T]) -> T:
        """Run `call` in the thread.

        Raises:
            StoreUnavailable: the file is locked, full, read-only, damaged or not ours.
        """
        return await self._worker.run(lambda: self._use(operation, call))

    async def change(self, operation: str, call: Callable[[sqlite3.Connection], T]) -> T:
        """Run `call` in the thread, as one transaction."""
        return await self.use(operation, lambda db: _in_transaction(db, call))

    async def close(self) -> None:
        await self._worker.run(self._drop)
        self._worker.close()

    def _use(self, operation: str, call: Callable[[sqlite3.Connection], T]) -> T:
        give_up_at = time.monotonic() + self._patience_s
        while True:
            try:
                return self._try(call)
            except sqlite3.Error as error:
                if not _is_busy(error) or time.monotonic() >= give_up_at:
                    raise StoreUnavailable(operation, str(error)) from error
            # SQLite's own waiting doubles its pauses and starves under many writers; short ones are fair.
            time.sleep(random.uniform(0.0002, 0.002))

    def _try(self, call: Callable[[sqlite3.Connection], T]) -> T:
        if self._db is not None and _file(self._path) != self._file:
            self._drop()  # somebody removed or replaced it: what is written to the old one is lost
        if self._db is None:
            self._db, self._frozen = _open(self._path)
            self._file = _file(self._path)
        try:
            return call(self._db)
        except sqlite3.Error as error:
            if not _is_busy(error):
                self._drop()
            raise
        finally:
            if self._frozen:  # it would never see the file become writable
                self._drop()

    def _drop(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()


def _file(path: Path) -> tuple[int, int] | None:
    """Which file stands at a path at this moment."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _open(path: Path) -> tuple[sqlite3.Connection, bool]:
    """Open the file; the second value is True where it can only be looked at."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        if not path.exists():
            raise sqlite3.OperationalError(f"{path} cannot be made: {error.strerror}") from error
    try:
        return _connect(path, "mode=rw"), False
    except sqlite3.OperationalError as error:
        # Reading a log needs a second file beside it, which a read-only folder refuses.
        log = path.with_name(path.name + "-wal")
        if _kind(error) not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN) or log.exists():
            raise
    return _connect(path, "immutable=1"), True


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{mode}"
    db = sqlite3.connect(uri, uri=True, timeout=0.0, isolation_level=None, check_same_thread=False)
    try:
        _prepare(db)
    except BaseException:
        db.close()
        raise
    return db


def _prepare(db: sqlite3.Connection) -> None:
    pragmas = "pragma_user_version, pragma_application_id, pragma_schema_version"
    version, owner, schema = db.execute(f"SELECT * FROM {pragmas}").fetchone()
    if owner != (APPLICATION_ID if schema else 0):
        raise sqlite3.DatabaseError("the file belongs to another program; name another file")
    if version > SCHEMA_VERSION:
        raise sqlite3.DatabaseError(f"the file has format {version} and this version reads {SCHEMA_VERSION}")
    if version == 0:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(SCHEMA)
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA journal_size_limit = 67108864")


def _kind(error: sqlite3.Error) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF  # the low byte is the kind, the rest its detail


def _is_busy(error: sqlite3.Error) -> bool:
    return _kind(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _in_transaction(db: sqlite3.Connection, call: Callable[[sqlite3.Connection], T]) -> T:
    db.execute("BEGIN IMMEDIATE")
    try:
        result = call(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return result


def _select(db: sqlite3.Connection, keys: Sequence[bytes], now: float) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for start in range(0, len(keys), KEYS_PER_STATEMENT):
        some = keys[start : start + KEYS_PER_STATEMENT]
        places = 1 << (len(some) - 1).bit_length()  # few different statements, so that they stay prepared
        marks = ",".join("?" * places)
        select = f"SELECT key, value FROM entry WHERE key IN ({marks}) AND ifnull(expires_at > ?, 1)"
        found.update(db.execute(select, (*some, *[None] * (places - len(some)), now)).fetchall())
    return found


def _fences(db: sqlite3.Connection, known: FenceTable) -> FenceTable | None:
    founding, epoch = db.execute("SELECT founding, epoch FROM total").fetchone()
    if known.is_as(FenceTable(founding, epoch)):
        return None
    # A purge between the two statements is in the table before its epoch is: it is read again next time.
    return FenceTable(founding, epoch, dict(db.execute("SELECT scope, epoch FROM fence").fetchall()))


def _add_fence(db: sqlite3.Connection, scope: bytes, at_least: int, dropped: Collection[bytes]) -> int:
    db.executemany("DELETE FROM fence WHERE scope = ?", [(gone,) for gone in dropped])
    db.execute("UPDATE total SET epoch = max(epoch + 1, ?)", (at_least,))
    db.execute("UPDATE total SET founding = ? WHERE founding = x''", (new_founding(),))
    epoch: int = db.execute("SELECT epoch FROM total").fetchone()[0]
    db.execute("INSERT OR REPLACE INTO fence VALUES (?, ?)", (scope, epoch))
    return epoch
