"""The tasks that a Router serves, as the task store has them."""

import asyncio
import logging
import time
from collections.abc import Callable

from core.errors import ArtefactMismatch, StoreUnavailable
from core.tasks import notes
from core.tasks.notes import Note
from core.tasks.record import TaskRecord
from core.tasks.record_json import decode
from core.tasks.registry import Registry
from core.tasks.stores.base import KEEP_TOMBSTONES_S, Changes, Entry, TaskStore
from deployments.tables_on_node import TablesOnNode

log = logging.getLogger("ray.serve.precedent")

FORGET_EVERY_S = 3_600.0


class TaskSync:
    """Reads what is new in the task store, and has it served.

    While the store does not answer, tasks are served as they were last known.

    Args:
        store: where tasks are kept.
        registry: what is served here.
        tables: opens what records name.
        encoder: digest of the encoder that FastTable replicas run; None without any.
        clock: Unix seconds.
    """

    def __init__(
        self,
        store: TaskStore,
        registry: Registry,
        tables: TablesOnNode,
        encoder: str | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._registry = registry
        self._tables = tables
        self._encoder = encoder
        self._clock = clock
        self._known = 0
        self._records: dict[tuple[str, str], TaskRecord] = {}
        self._one_at_a_time = asyncio.Lock()
        self._forgot_at = 0.0
        self.fits: dict[tuple[str, str], Note] = {}

    async def refresh(self) -> None:
        """Serve what is new.

        Raises:
            StoreUnavailable: the store did not answer; what was known is served on.
        """
        async with self._one_at_a_time:
            changes = await self._store.read(self._known)
            if changes.is_everything:
                self._drop_what_is_gone(changes)
            for entry in changes.entries:
                await self._take(entry)
            self._known = changes.revision
            named = [record.table.object for record in self._records.values() if record.table is not None]
            await self._tables.keep(named)

    def version(self, tenant: str, task_id: str) -> int:
        """The version of a task that is served here; 0 for none."""
        record = self._records.get((tenant, task_id))
        return 0 if record is None else record.version

    async def keep_up(self, every_s: float) -> None:
        """Refresh until cancelled, whatever happens."""
        failing = False
        while True:
            try:
                if await self._store.revision() != self._known or self._known == 0:
                    await self.refresh()
                failing = False
                await self._forget()
            except StoreUnavailable as error:
                if not failing:
                    log.warning("tasks are served as they were last known: %s", error)
                failing = True
            except Exception:  # nobody waits for this loop: it would end unseen
                log.exception("tasks could not be read")
            await asyncio.sleep(every_s)

    async def _take(self, entry: Entry) -> None:
        if entry.id.startswith(notes.PREFIX):
            self._take_note(entry)
            return
        key = entry.tenant, entry.id
        if entry.value is None:
            self._records.pop(key, None)
            self._registry.remove(*key)
            return
        record = decode(entry.value, entry.tenant, entry.id, entry.version)
        if record is None:
            log.error(
                "task %r of tenant %r was written by a version this one cannot read", entry.id, entry.tenant
            )
            return
        self._records[key] = record
        await self._serve(record)

    async def _serve(self, record: TaskRecord) -> None:
        table, unavailable = None, None
        if record.table is not None and record.table.student not in ("", self._encoder):
            needed = record.table.student
            unavailable = f"its table reads vectors of encoder {needed}, and this host has {self._encoder}"
        elif record.table is not None:
            try:
                table = await self._tables.table(record.table.object)
            except StoreUnavailable as error:
                self._registry.apply(record, None, str(error))
                raise  # what was not read is read again
            except (ArtefactMismatch, OSError) as error:
                unavailable = str(error)
                log.error("the table of task %r cannot be opened: %s", record.id, error)
        self._registry.apply(record, table, unavailable)

    def _take_note(self, entry: Entry) -> None:
        note = None if entry.value is None else notes.decode(entry.value)
        key = entry.tenant, entry.id.removeprefix(notes.PREFIX)
        if note is None:
            self.fits.pop(key, None)
        else:
            self.fits[key] = note

    def _drop_what_is_gone(self, changes: Changes) -> None:
        there = {(entry.tenant, entry.id) for entry in changes.entries}
        for key in self._records.keys() - there:
            del self._records[key]
            self._registry.remove(*key)

    async def _forget(self) -> None:
        now = self._clock()
        if now >= self._forgot_at + FORGET_EVERY_S:
            self._forgot_at = now
            await self._store.forget(now - KEEP_TOMBSTONES_S)
