"""Rows in the SQLite file that keeps the tasks."""

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from core.tasks.stores.rows import Numbered, Series

SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS learned_row (
        number INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, task TEXT NOT NULL,
        name TEXT NOT NULL, id TEXT NOT NULL, value BLOB NOT NULL, UNIQUE (tenant, task, name, id));
    CREATE INDEX IF NOT EXISTS learned_row_number ON learned_row (tenant, task, name, number);
"""
OF: Final = "tenant = :tenant AND task = :task AND name = :name"
INSERT: Final = "INTO learned_row (tenant, task, name, id, value) VALUES (:tenant, :task, :name, :id, :value)"
BOUND: Final = f"""
    DELETE FROM learned_row WHERE {OF} AND number <= (
        SELECT number FROM learned_row WHERE {OF} ORDER BY number DESC LIMIT 1 OFFSET :max_rows)
"""


def add(db: sqlite3.Connection, series: Series, rows: Sequence[tuple[str, bytes]], max_rows: int) -> int:
    """Append rows whose ids are not there; return how many were new."""
    new = sum([db.execute(f"INSERT OR IGNORE {INSERT}", _named(series, row)).rowcount for row in rows])
    db.execute(BOUND, _of(series) | {"max_rows": max_rows})
    return new


def replace(db: sqlite3.Connection, series: Series, rows: Sequence[tuple[str, bytes]], max_rows: int) -> None:
    """Append rows, each in place of the one with its id."""
    db.executemany(f"REPLACE {INSERT}", [_named(series, row) for row in rows])
    db.execute(BOUND, _of(series) | {"max_rows": max_rows})


def read(db: sqlite3.Connection, series: Series, after: int, limit: int) -> list[Numbered]:
    """At most `limit` rows with a number above `after`."""
    select = f"SELECT number, id, value FROM learned_row WHERE {OF} AND number > :after"
    bounds = {"after": after, "limit": limit}
    return [
        Numbered(*row) for row in db.execute(f"{select} ORDER BY number LIMIT :limit", _of(series) | bounds)
    ]


def known(db: sqlite3.Connection, series: Series, ids: Sequence[str]) -> set[str]:
    """Those of some ids that have a row."""
    select = f"SELECT id FROM learned_row WHERE {OF} AND id IN (SELECT value FROM json_each(:ids))"
    return {row_id for (row_id,) in db.execute(select, _of(series) | {"ids": json.dumps([*ids])})}


def erase(db: sqlite3.Connection, series: Series, ids: Sequence[str]) -> int:
    """Remove rows; return how many there were."""
    delete = f"DELETE FROM learned_row WHERE {OF} AND id IN (SELECT value FROM json_each(:ids))"
    return db.execute(delete, _of(series) | {"ids": json.dumps([*ids])}).rowcount


def clear(db: sqlite3.Connection, series: Series) -> int:
    """Remove all rows, and return how many there were."""
    return db.execute(f"DELETE FROM learned_row WHERE {OF}", _of(series)).rowcount


def count(db: sqlite3.Connection, series: Series, after: int) -> int:
    """How many rows there are with a number above `after`."""
    select = f"SELECT count(*) FROM learned_row WHERE {OF} AND number > :after"
    return int(db.execute(select, _of(series) | {"after": after}).fetchone()[0])


def _of(series: Series) -> dict[str, object]:
    return {"tenant": series.tenant, "task": series.task, "name": series.name}


def _named(series: Series, row: tuple[str, bytes]) -> dict[str, object]:
    return _of(series) | {"id": row[0], "value": row[1]}
