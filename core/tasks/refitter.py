"""One look at the rows of a task: a candidate is fitted, certified, and published or not."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from core.errors import InvalidRequest, TaskConflict
from core.tables.table import Table
from core.tasks import rows
from core.tasks.learning import RowStudent
from core.tasks.lesson import Trained, objects_of, ref_of
from core.tasks.record import FastTableSettings, Learned, State, TableRef, TaskRecord
from core.tasks.record_json import decode, encode, names_objects, summary
from core.tasks.refitting import NotEnough, Parts, Rows, Taken, candidates, coverage, divide, usable
from core.tasks.rows import LABELS, about, decode_labels, series_of
from core.tasks.stores.base import TaskStore
from core.tasks.training import Progress

READ_AT_ONCE = 100_000

StudentOf = Callable[[FastTableSettings], RowStudent]


@dataclass(frozen=True, slots=True)
class Look:
    """What came of a look."""

    task: str
    published: int | None  # the version
    said: str  # what happened, and why
    missing: int = 0  # rows that must come before the next look


class Refitter:
    """Looks at tasks that learn from traffic.

    Args:
        store: of the tasks and their rows.
        student_of: what learns a task.
        engine: fingerprint of the engine that answers.
        clock: Unix seconds.
    """

    def __init__(
        self, store: TaskStore, student_of: StudentOf, engine: str, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._student_of = student_of
        self._engine = engine
        self._clock = clock

    async def fresh(self, record: TaskRecord) -> int:
        """How many rows that may certify have come since the last look.

        Raises:
            StoreUnavailable: nobody knows.
        """
        used = 0 if record.learned is None else record.learned.used
        return await self._store.count_rows(series_of(record, "uniform"), used)

    async def look(self, record: TaskRecord, progress: Progress) -> Look:
        """Fit and certify a candidate, and publish it if it may serve.

        Args:
            record: a task that learns.
            progress: told the share done.

        Raises:
            StoreUnavailable: rows could not be read, or what came of them not be kept.
            SettingsError: the student is not on this host.
            ArtefactMismatch: it is damaged.
        """
        assert record.fast_table is not None  # it learns
        student = self._student_of(record.fast_table)
        found = usable(
            await self._rows(record),
            about(record, self._engine),
            student.tokenizer,
            vectors=record.fast_table.kind == "encoder",
        )
        parts = divide(record, found)
        if isinstance(parts, NotEnough):
            return Look(record.id, None, str(parts), parts.needed - parts.had)
        why_not, made = None, None
        try:
            (made,) = candidates(
                record, parts, found.labels, {student.student.kind: student.student}, progress
            )
            why_not = await self._why_not(record, made, parts)
        except InvalidRequest as error:
            why_not = error.problems[0].msg
        return await self._written(record, parts, made, why_not)

    async def _why_not(self, record: TaskRecord, made: Trained, parts: Parts) -> str | None:
        """Why a candidate may not serve; None when it may."""
        certificate = made.certificate
        asked = 0 if record.certify is None else record.certify.min_examples or 0
        if certificate.distinct < asked:
            return f"{certificate.distinct} distinct rows certify, and min_examples asks for {asked}"
        if not certificate.certified:
            return certificate.reason
        serving = record.table
        if serving is None or record.state is not State.ACTIVE or not self._is_comparable(serving):
            return None
        data = await self._store.get_object(serving.object)
        if data is None:
            return None
        before = coverage(Table.of(data), serving.certificate.threshold, parts.certify)
        after = coverage(Table.of(made.table), certificate.threshold, parts.certify)
        if after >= before:
            return None
        return (
            f"it would answer {after:.1%} of the newest rows, and version {serving.version} does {before:.1%}"
        )

    def _is_comparable(self, serving: TableRef) -> bool:
        return serving.engine in ("", self._engine)

    async def _written(
        self, record: TaskRecord, parts: Parts, made: Trained | None, why_not: str | None
    ) -> Look:
        now, look = self._clock(), record.looks + 1
        after = replace(record, looks=look, learned=Learned(parts.used, now, why_not), updated_at=now)
        objects: dict[str, bytes] = {}
        said = f"nothing was published: {why_not}"
        if made is not None and why_not is None:
            ref, objects = ref_of(made, look, self._engine, is_timed=False), objects_of(made)
            said = f"version {look}: {summary(ref.certificate)}"
            reason = f"version {look} was certified on {ref.certificate.distinct} rows of traffic"
            after = replace(after.with_table(ref), state=State.ACTIVE, reason=reason)
        try:
            for digest, data in objects.items():
                await self._store.put_object(digest, data, now)
            await self._store.put(
                record.tenant, record.id, encode(after), record.version, now, names_objects(after)
            )
        except TaskConflict:
            return Look(record.id, None, "the task was changed meanwhile; nothing was published or noted")
        return Look(record.id, look if objects else None, said)

    async def _rows(self, record: TaskRecord) -> Rows:
        labels = await self._store.read_rows(series_of(record, LABELS), 0, READ_AT_ONCE)
        return Rows(
            await self._taken(record, "uniform"),
            await self._taken(record, "chosen"),
            decode_labels(labels),
        )

    async def _taken(self, record: TaskRecord, name: str) -> list[Taken]:
        found = []
        for one in await self._store.read_rows(series_of(record, name), 0, READ_AT_ONCE):
            row = rows.decode(one.value)
            if row is not None:
                found.append(Taken(one.id, one.number, row))
        return found


async def learners(store: TaskStore) -> list[TaskRecord]:
    """All tasks that learn from traffic, of all tenants.

    Raises:
        StoreUnavailable: the store did not answer.
    """
    changes = await store.read(0)
    records = [
        decode(entry.value, entry.tenant, entry.id, entry.version)
        for entry in changes.entries
        if entry.value is not None and not entry.id.startswith("@")
    ]
    return [record for record in records if record is not None and record.learns]
