"""Tables as files of this node, mapped read-only: its processes share one copy of each."""

import asyncio
import os
from collections.abc import Collection
from pathlib import Path

from core.errors import ArtefactMismatch
from core.tables.verdict import Decides
from core.tasks.record import object_digest
from core.tasks.stores.base import TaskStore


class TablesOnNode:
    """Tables by digest: fetched from the task store once per node, opened once per process.

    Args:
        folder: where the files are; made when there is something to keep.
        store: where tables come from.
    """

    def __init__(self, folder: Path, store: TaskStore) -> None:
        self._folder = folder
        self._store = store
        self._open: dict[str, Decides] = {}

    async def table(self, digest: str) -> Decides:
        """The table with this digest.

        Raises:
            StoreUnavailable: it is not on this node, and the store did not answer.
            ArtefactMismatch: the store has no such table, or other bytes under its name.
        """
        found = self._open.get(digest)
        if found is None:
            path = self._folder / digest
            if not await asyncio.to_thread(_is_whole, path, digest):
                await self._fetch(path, digest)
            found = self._open[digest] = await asyncio.to_thread(open_table, path)
        return found

    async def keep(self, digests: Collection[str]) -> None:
        """Forget all tables but these in this process; files go when nobody has used them for long."""
        for digest in self._open.keys() - set(digests):
            del self._open[digest]

    async def _fetch(self, path: Path, digest: str) -> None:
        data = await self._store.get_object(digest)
        found = "absent" if data is None else object_digest(data)
        if data is None or found != digest:
            raise ArtefactMismatch("a table in the task store", digest, found, "register the task again")
        await asyncio.to_thread(_write, path, data)


def open_table(path: Path) -> Decides:
    """The table in a file, memory-mapped."""
    from core.tables.table import Table  # noqa: PLC0415  a Router without tables does not pay for a tokenizer

    return Table.open(path)


def read_table(data: bytes) -> Decides:
    """The table that these bytes are."""
    from core.tables.table import Table  # noqa: PLC0415

    return Table.of(data)


def _is_whole(path: Path, digest: str) -> bool:
    try:
        return object_digest(path.read_bytes()) == digest
    except FileNotFoundError:
        return False


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)  # a process that has mapped the old one keeps it
