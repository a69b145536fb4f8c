"""Records of tasks as they are written: against the version that the writer has seen, and served at once."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from core.errors import StoreUnavailable, TaskConflict
from core.tasks.record import TaskRecord
from core.tasks.record_json import decode, encode, names_objects
from core.tasks.rows import SERIES
from core.tasks.stores.base import Entry, TaskStore
from core.tasks.stores.rows import Series
from core.tasks.watch import PREFIX
from deployments.task_sync import TaskSync

log = logging.getLogger("ray.serve.precedent")


class Records:
    """Reads and writes records.

    Args:
        store: where they are kept.
        sync: has them served here.
        clock: Unix seconds.
    """

    def __init__(self, store: TaskStore, sync: TaskSync, clock: Callable[[], float] = time.time) -> None:
        self.store = store
        self.sync = sync
        self.clock = clock

    def expected(
        self, tenant: str, task_id: str, entry: Entry | None, replaces: int | None, *, unseen: bool
    ) -> int | None:
        """The version that a write replaces; refused early where that is not there."""
        if unseen:
            return None
        there = 0 if entry is None else entry.version
        if replaces is None:
            served = self.sync.version(tenant, task_id)
            removed = entry is not None and entry.value is None
            replaces = there if removed and served == 0 else served
        if replaces != there:
            raise TaskConflict(task_id, there, replaces)
        return replaces

    async def write(
        self, record: TaskRecord, expected: int | None, objects: Mapping[str, bytes]
    ) -> TaskRecord:
        """Keep a record with what it names.

        Raises:
            TaskConflict: another version than `expected` is there.
            StoreUnavailable: the store did not answer.
        """
        now = self.clock()
        for digest, data in objects.items():
            await self.store.put_object(digest, data, now)
        value = encode(record)
        version = await self.store.put(record.tenant, record.id, value, expected, now, names_objects(record))
        return replace(record, version=version)

    async def change(
        self, tenant: str, task_id: str, change: Callable[[TaskRecord], TaskRecord | None]
    ) -> bool:
        """Change a record, whatever others write meanwhile; False when there is nothing to change."""
        while True:
            entry = await self.store.get(tenant, task_id)
            before = decoded(entry)
            after = None if before is None else change(before)
            if entry is None or after is None:
                return False
            try:
                await self.write(after, entry.version, {})
            except TaskConflict:
                continue
            return True

    async def clear(self, tenant: str, task_id: str) -> None:
        """Forget what a task learned from."""
        for name in SERIES:
            await self.store.clear_rows(Series(tenant, task_id, name))
        seen = PREFIX + task_id
        if await self.store.get(tenant, seen) is not None:
            await self.store.put(tenant, seen, None, None, self.clock())

    async def serve(self) -> None:
        """Serve here what was written; the next look at the store does where this one fails."""
        try:
            await self.sync.refresh()
        except StoreUnavailable as error:
            log.warning("what was written is not served here yet: %s", error)

    async def object_named(self, digest: str) -> bytes:
        """What a record names.

        Raises:
            StoreUnavailable: the store did not answer, or has lost it.
        """
        data = await self.store.get_object(digest)
        if data is None:
            raise StoreUnavailable("get_object", f"the task store has lost {digest}; register the task again")
        return data


def decoded(entry: Entry | None) -> TaskRecord | None:
    """The record of an entry; None for a tombstone, or what this version cannot read."""
    if entry is None or entry.value is None:
        return None
    return decode(entry.value, entry.tenant, entry.id, entry.version)
