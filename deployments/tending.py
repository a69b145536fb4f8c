"""What is done with tables while they serve: withdrawn, rolled back, labelled; and their rows erased."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from core.errors import InvalidRequest, Problem, StoreUnavailable, TaskNotFound
from core.tasks.record import Revocation, State, TaskRecord
from core.tasks.rows import LABELS, SERIES, encode_label
from core.tasks.stores.rows import Series
from core.tasks.watch import Watch
from deployments.records import Records, decoded

log = logging.getLogger("ray.serve.precedent")
audit = logging.getLogger("ray.serve.precedent.audit")


class Tending:
    """Looks after the tables that serve.

    Args:
        records: reads and writes them.
        flush: brings the store the rows that wait in this process.
        max_rows: of each series of a task.
    """

    def __init__(self, records: Records, flush: Callable[[], Awaitable[None]], max_rows: int) -> None:
        self._records = records
        self._store = records.store
        self._clock = records.clock
        self._flush = flush
        self._max_rows = max_rows

    async def roll_back(
        self, tenant: str, task_id: str, version: int, replaces: int | None, by: str
    ) -> TaskRecord:
        """Serve another of the versions that are kept.

        Raises:
            TaskNotFound: no such task.
            TaskConflict: another version of the record is there.
            InvalidRequest: no such version, or one that may not serve.
            StoreUnavailable: nothing was changed.
        """
        entry = await self._store.get(tenant, task_id)
        before = decoded(entry)
        if before is None:
            raise TaskNotFound(task_id)
        expected = self._records.expected(tenant, task_id, entry, replaces, unseen=False)
        record = rolled_back(before, version, self._clock(), by)
        written = await self._records.write(record, expected, {})
        await self._records.serve()
        return written

    async def label(self, tenant: str, task_id: str, labels: Mapping[str, int]) -> list[str]:
        """Keep what somebody says is right; a later label of a row takes the place of an earlier one.

        Returns:
            The ids for which there is no row, so that nothing was kept of them.

        Raises:
            StoreUnavailable: some may have been kept.
        """
        await self._flush()
        known: set[str] = set()
        for name in SERIES:
            if name != LABELS:
                known |= await self._store.known_rows(Series(tenant, task_id, name), [*labels])
        rows = [(row, encode_label(option)) for row, option in labels.items() if row in known]
        # There are two series of rows to label.
        await self._store.replace_rows(Series(tenant, task_id, LABELS), rows, 2 * self._max_rows)
        return [row for row in labels if row not in known]

    async def erase(self, tenant: str, task_id: str, rows: Sequence[str]) -> int:
        """Forget rows and their labels; return how many rows there were.

        A row of the last second may still be on its way from another Router, and come afterwards.

        Raises:
            StoreUnavailable: some may be left.
        """
        await self._flush()
        gone = {name: await self._store.erase_rows(Series(tenant, task_id, name), rows) for name in SERIES}
        return sum(count for name, count in gone.items() if name != LABELS)

    async def count(self, record: TaskRecord) -> dict[str, int]:
        """How many rows a task has: those that may certify since the last look, all others, and labels.

        Raises:
            StoreUnavailable: nobody knows.
        """
        used = 0 if record.learned is None else record.learned.used
        uniform, chosen, labels = (Series(record.tenant, record.id, name) for name in SERIES)
        fresh = await self._store.count_rows(uniform, used)
        others = await self._store.count_rows(uniform) - fresh + await self._store.count_rows(chosen)
        return {"fresh": fresh, "others": others, "labels": await self._store.count_rows(labels)}

    def watch(self, tenant: str, task_id: str) -> Watch:
        """What all Routers have seen of a task's versions."""
        return self._records.sync.watches.get((tenant, task_id), Watch())


async def suspend(records: Records, tenant: str, task_id: str, version: int, why: str) -> None:
    """Withdraw a version of a task's table for good: only a new certificate brings it back.

    Where the store does not answer, nothing is done: whoever saw the reason sees it again.
    """

    def change(before: TaskRecord) -> TaskRecord | None:
        if before.is_revoked(version):
            return None
        now = records.clock()
        record = before.with_revoked(Revocation(version, now, why, is_final=True))
        if before.table is None or before.table.version != version:
            return record
        reason = f"version {version} was withdrawn: {why}"
        return replace(record, state=State.SUSPENDED, reason=reason, updated_at=now)

    try:
        if await records.change(tenant, task_id, change):
            audit.warning(
                "suspend at %.3f: version %d of task %s: %s", records.clock(), version, ascii(task_id), why
            )
            await records.serve()
    except StoreUnavailable as error:
        log.warning("version %d of task %r is to be withdrawn: %s", version, task_id, error)


def rolled_back(before: TaskRecord, version: int, now: float, by: str) -> TaskRecord:
    """A record that serves another of its versions.

    Raises:
        InvalidRequest: no such version, or one that may not serve.
    """
    ref = next((one for one in before.versions if one.version == version), None)
    revocation = next((one for one in before.revoked if one.version == version), None)
    kept = ", ".join(str(one.version) for one in before.versions) or "none"
    left = None if before.table is None else before.table.version
    if ref is None:
        problem = f"{version} is not among the versions that are kept: {kept}"
    elif revocation is not None and revocation.is_final:
        problem = f"{version} was suspended, and only a new certificate helps: {revocation.reason}"
    elif not ref.certificate.certified:
        problem = f"{version} has no certificate: {ref.certificate.reason}"
    elif left == version and before.state is State.ACTIVE:
        problem = f"{version} is served already"
    else:
        others = tuple(one for one in before.revoked if one.version != version)
        record = replace(before, table=ref, revoked=others, state=State.ACTIVE, updated_at=now)
        from_left = "" if left is None else f" from version {left}"
        record = replace(record, reason=f"{by} rolled back{from_left} to version {version}")
        if left is None or left == version or before.is_revoked(left):
            return record
        return record.with_revoked(Revocation(left, now, f"rolled back to version {version}", is_final=False))
    raise InvalidRequest((Problem(("body", "version"), problem, "value_error"),))
