"""The tasks that a Router serves, as the task store has them."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from core.errors import ArtefactMismatch, StoreUnavailable
from core.tables.verdict import Decides
from core.tasks import notes, watch
from core.tasks.notes import Note
from core.tasks.record import State, TableRef, TaskRecord
from core.tasks.record_json import decode, names_objects
from core.tasks.registry import Following, Here, Registry
from core.tasks.stores.base import KEEP_TOMBSTONES_S, Changes, Entry, TaskStore
from core.tasks.watch import Watch
from deployments.tables_on_node import TablesOnNode
from deployments.timing import HostTimings

log = logging.getLogger("ray.serve.precedent")

FORGET_EVERY_S = 3_600.0

Revoke = Callable[[str, str], Awaitable[object]]  # tenant, "task@version"


@dataclass(frozen=True, slots=True)
class Host:
    """What tables find here."""

    encoder: str | None  # digest of the encoder that FastTable replicas run; None without any
    engine: str  # fingerprint of the engine that answers

    def why_not(self, ref: TableRef) -> str | None:
        """Why a table cannot be asked here; None when it can."""
        if ref.student not in ("", self.encoder):
            return f"its table reads vectors of encoder {ref.student}, and this host has {self.encoder}"
        if ref.engine not in ("", self.engine):
            return (
                f"its table was proven to agree with engine {ref.engine}, and {self.engine} answers here; "
                "it learns anew from what that answers"
            )
        return None


class TaskSync:
    """Reads what is new in the task store, and has it served.

    While the store does not answer, tasks are served as they were last known.

    Args:
        store: where tasks are kept.
        registry: what is served here.
        tables: opens what records name.
        host: what tables find here.
        timings: times versions before they serve here.
        revoke: has decisions of a version not replayed any more.
        clock: Unix seconds.
    """

    def __init__(
        self,
        store: TaskStore,
        registry: Registry,
        tables: TablesOnNode,
        host: Host,
        timings: HostTimings,
        revoke: Revoke,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._registry = registry
        self._tables = tables
        self._host = host
        self._timings = timings
        self._revoke = revoke
        self._clock = clock
        self._known = 0
        self._records: dict[tuple[str, str], TaskRecord] = {}
        self._revoked: set[tuple[str, str, int, float]] = set()
        self._one_at_a_time = asyncio.Lock()
        self._forgot_at = 0.0
        self.fits: dict[tuple[str, str], Note] = {}
        self.watches: dict[tuple[str, str], Watch] = {}

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
            await self._tables.keep({name for one in self._records.values() for name in names_objects(one)})

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
                for record in self._timings.timed_elsewhere():
                    await self._serve_timed(record)
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
        if entry.id.startswith(watch.PREFIX):
            self._take_watch(entry)
            return
        key = entry.tenant, entry.id
        if entry.value is None:
            self._remove(*key)
            return
        record = decode(entry.value, entry.tenant, entry.id, entry.version)
        if record is None:
            log.error(
                "task %r of tenant %r was written by a version this one cannot read", entry.id, entry.tenant
            )
            return
        self._records[key] = record
        await self._serve(record)
        await self._revoke_decisions(record)

    async def _serve(self, record: TaskRecord) -> None:
        ref = record.table
        if ref is None:
            self._timings.forget(record.tenant, record.id)
            self._registry.apply(record, None)
            return
        why_not = self._host.why_not(ref)
        table = None
        if why_not is None:
            try:
                table = await self._tables.table(ref.object)
            except StoreUnavailable as error:
                self._registry.apply(record, None, Here(State.UNAVAILABLE, str(error)))
                raise  # what was not read is read again
            except (ArtefactMismatch, OSError) as error:
                why_not = str(error)
                log.error("the table of task %r cannot be opened: %s", record.id, error)
        if table is None:
            self._registry.apply(record, None, Here(State.UNAVAILABLE, str(why_not)))
        elif ref.is_timed or record.state is not State.ACTIVE:
            self._registry.apply(record, table)
        else:
            self._serve_if_worth_it(record, ref, table)

    def _serve_if_worth_it(self, record: TaskRecord, ref: TableRef, table: Decides) -> None:
        """Serve a version whose worth depends on the host; until it is timed, what was served before."""
        measured = self._timings.measured(ref)
        if measured is None:
            self._timings.want(record, table, self._serve_timed)
            self._serve_meanwhile(record, ref)
            return
        self._timings.forget(record.tenant, record.id)
        assert record.fast_table is not None  # or there would be no table
        saving, wanted = measured.worth(ref).least, record.fast_table.min_saving
        if saving >= wanted:
            self._registry.apply(record, table)
            return
        reason = f"version {ref.version} saves {saving:.1%} of the mean time of a request on this host"
        self._registry.apply(
            record, table, Here(State.OFF, f"{reason}, less than the {wanted:.1%} that was asked for")
        )

    def _serve_meanwhile(self, record: TaskRecord, ref: TableRef) -> None:
        here = Here(
            State.TIMING,
            f"version {ref.version} is timed on this host with the next texts that are asked about",
        )
        served = self._registry.get(record.tenant, record.id)
        before = None if served is None else served.record.table
        if (
            served is not None
            and served.here is None
            and served.table is not None
            and served.record.state is State.ACTIVE
            and before in record.versions
            and before != ref
            and not record.is_revoked(before.version)
        ):
            following = Following(ref.version, here)
            self._registry.apply(replace(record, table=before), served.table, None, following)
        else:
            self._registry.apply(record, None, here)

    async def _serve_timed(self, record: TaskRecord) -> None:
        async with self._one_at_a_time:
            if self._records.get((record.tenant, record.id)) is record:
                await self._serve(record)

    async def _revoke_decisions(self, record: TaskRecord) -> None:
        """Stop replaying what withdrawn versions answered. Each Router does: each may have stored some."""
        if record.fast_table is not None and record.fast_table.on_revoke == "keep":
            return
        for one in record.revoked:
            key = record.tenant, record.id, one.version, one.at
            if key not in self._revoked:
                await self._revoke(record.tenant, f"{record.id}@{one.version}")
                self._revoked.add(key)

    def _remove(self, tenant: str, task_id: str) -> None:
        self._records.pop((tenant, task_id), None)
        self._timings.forget(tenant, task_id)
        self._registry.remove(tenant, task_id)

    def _take_note(self, entry: Entry) -> None:
        note = None if entry.value is None else notes.decode(entry.value)
        key = entry.tenant, entry.id.removeprefix(notes.PREFIX)
        if note is None:
            self.fits.pop(key, None)
        else:
            self.fits[key] = note

    def _take_watch(self, entry: Entry) -> None:
        key = entry.tenant, entry.id.removeprefix(watch.PREFIX)
        if entry.value is None:
            self.watches.pop(key, None)
        else:
            self.watches[key] = watch.decode(entry.value)

    def _drop_what_is_gone(self, changes: Changes) -> None:
        there = {(entry.tenant, entry.id) for entry in changes.entries}
        for key in self._records.keys() - there:
            self._remove(*key)

    async def _forget(self) -> None:
        now = self._clock()
        if now >= self._forgot_at + FORGET_EVERY_S:
            self._forgot_at = now
            await self._store.forget(now - KEEP_TOMBSTONES_S)
