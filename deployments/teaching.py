"""Writing tasks: fitted off the serving path, kept in the task store, served everywhere."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from core.contract.questions import Question, QuestionReader
from core.errors import (
    FitFailed,
    InvalidRequest,
    OperatorError,
    Overloaded,
    PrecedentError,
    Problem,
    StoreUnavailable,
    TaskBusy,
    TaskNotFound,
)
from core.tasks.lesson import Lesson, Wanted
from core.tasks.notes import Note
from core.tasks.record import Learned, State, TaskRecord
from core.tasks.record_json import Imported, names_objects
from core.tasks.registration import Recertification, Registration
from core.tasks.rows import about
from deployments.fit_notes import BEAT_S, FitNotes
from deployments.fitting import Means, fit
from deployments.records import Records, decoded

log = logging.getLogger("ray.serve.precedent")

OPERATORS = "the service is misconfigured; see its log"  # what callers are told, and no path


@dataclass(slots=True)
class _Fit:
    """One fit under way."""

    notes: FitNotes
    done: asyncio.Future[TaskRecord] = field(default_factory=asyncio.Future)


class Teaching:
    """Register, certify, import and remove tasks.

    Args:
        records: reads and writes them.
        means: what learning takes.
    """

    def __init__(self, records: Records, means: Means) -> None:
        self._records = records
        self._sync = records.sync
        self._means = means
        self._clock = records.clock
        self._fits: dict[tuple[str, str], _Fit] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def register(
        self, tenant: str, wanted: Registration, replaces: int | None, *, unseen: bool = False
    ) -> "asyncio.Future[TaskRecord]":
        """Begin to learn a task; the future ends with its record, or with why there is none.

        Args:
            tenant: whose.
            wanted: what was asked for.
            replaces: the version that the caller has seen; None for the one served here.
            unseen: replace whatever there is.

        Raises:
            TaskBusy: it is being fitted already, here or elsewhere.
            TaskConflict: another version is there.
            Overloaded: too many fits are under way here.
            StoreUnavailable: nothing was made.
        """
        entry = await self._records.store.get(tenant, wanted.id)
        before = decoded(entry)
        expected = self._records.expected(tenant, wanted.id, entry, replaces, unseen=unseen)
        record = _record_of(tenant, wanted, before, self._clock())
        if before is not None and before.learns and not _teaches_the_same_question(record, before):
            if replaces is None and not unseen:
                raise InvalidRequest((_LOSES_ROWS,))
            await self._records.clear(tenant, wanted.id)
        if wanted.fast_table is None or wanted.certify is None or wanted.fast_table.learn:
            if wanted.fast_table is not None and wanted.fast_table.learn:
                await asyncio.to_thread(self._means.check, wanted.fast_table)
            record = _unfitted(record, before)
            done: asyncio.Future[TaskRecord] = asyncio.get_running_loop().create_future()
            done.set_result(await self._records.write(record, expected, {}))
            await self._records.serve()
            return done
        lesson = Lesson(
            wanted.id,
            wanted.raw_question,
            wanted.question,
            wanted.examples,
            wanted.certify,
            wanted.certify_examples,
            record.looks,
        )
        means = replace(
            self._means.wanted, kind=wanted.fast_table.kind, static_model=wanted.fast_table.static_model
        )
        return await self._begin(record, lesson, means, expected)

    async def certify(
        self, tenant: str, task_id: str, wanted: Recertification, replaces: int | None
    ) -> "asyncio.Future[TaskRecord]":
        """Begin to certify a task's table anew; see `register`.

        Raises:
            TaskNotFound: no such task.
        """
        entry = await self._records.store.get(tenant, task_id)
        before = decoded(entry)
        if before is None or before.table is None or before.table.fit is None:
            raise TaskNotFound(task_id)
        expected = self._records.expected(tenant, task_id, entry, replaces, unseen=False)
        table = await self._records.object_named(before.table.object)
        fitted = await self._records.object_named(before.table.fit)
        lesson = Lesson(
            task_id,
            before.question,
            _question(before),
            wanted.examples,
            wanted.certify,
            None,
            before.looks,
        )
        record = replace(before, certify=wanted.certify, updated_at=self._clock())
        means = replace(self._means.wanted, recertify=(table, fitted))
        return await self._begin(record, lesson, means, expected)

    async def remove(self, tenant: str, task_id: str, replaces: int | None) -> None:
        """Remove a task.

        Raises:
            TaskNotFound: no such task.
            TaskConflict: another version is there.
        """
        entry = await self._records.store.get(tenant, task_id)
        if entry is None or entry.value is None:
            raise TaskNotFound(task_id)
        expected = entry.version if replaces is None else replaces
        await self._records.store.put(tenant, task_id, None, expected, self._clock())
        await self._records.serve()
        await self._records.clear(tenant, task_id)

    async def bring(
        self, tenant: str, tasks: Sequence[Imported], replaces: int | None, *, unseen: bool
    ) -> None:
        """Keep tasks that were exported elsewhere, as they are.

        Raises:
            TaskConflict: a task is there in another version.
        """
        for one in tasks:
            entry = await self._records.store.get(tenant, one.record.id)
            expected = self._records.expected(tenant, one.record.id, entry, replaces, unseen=unseen)
            await self._records.write(replace(one.record, updated_at=self._clock()), expected, one.objects)
        await self._records.serve()

    async def objects(self, record: TaskRecord) -> dict[str, bytes]:
        """What a record names, by digest."""
        return {digest: await self._records.object_named(digest) for digest in names_objects(record)}

    def note(self, tenant: str, task_id: str) -> Note | None:
        """How far a fit is, here or on another Router."""
        under_way = self._fits.get((tenant, task_id))
        return self._sync.fits.get((tenant, task_id)) if under_way is None else under_way.notes.note

    async def drain(self) -> None:
        """End the fits under way."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        for under_way in self._fits.values():  # whose task was cancelled before it began
            under_way.done.cancel()
        self._fits.clear()

    async def _begin(
        self, record: TaskRecord, lesson: Lesson, wanted: Wanted, expected: int | None
    ) -> "asyncio.Future[TaskRecord]":
        key = record.tenant, record.id
        note = self.note(*key)
        if key in self._fits or (note is not None and note.is_under_way(self._clock())):
            raise TaskBusy(record.id)
        if len(self._fits) >= self._means.max_fits:
            raise Overloaded(f"{len(self._fits)} tasks are being fitted", BEAT_S)
        first = Note(record.id, "learning", 0.0, self._clock())
        under_way = _Fit(FitNotes(self._records.store, record.tenant, first, self._clock))
        # It may be awaited by nobody.
        under_way.done.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._fits[key] = under_way
        try:
            await under_way.notes.begin()
        except StoreUnavailable:
            del self._fits[key]
            raise
        task = asyncio.create_task(self._learn(record, lesson, wanted, expected, under_way))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return under_way.done

    async def _learn(
        self, record: TaskRecord, lesson: Lesson, wanted: Wanted, expected: int | None, under_way: _Fit
    ) -> None:
        key, notes = (record.tenant, record.id), under_way.notes
        telling = asyncio.create_task(notes.keep_telling())
        try:
            whole, objects = await fit(self._means, record, lesson, wanted, notes.tell)
            written = await self._records.write(replace(whole, updated_at=self._clock()), expected, objects)
            telling.cancel()
            await notes.end()
            await self._records.serve()
            under_way.done.set_result(written)
        except asyncio.CancelledError:
            under_way.done.cancel()
            raise
        except Exception as error:
            log.warning("the fit of task %r failed: %s", record.id, error)
            telling.cancel()
            ours = error if isinstance(error, PrecedentError) else FitFailed(record.id, type(error).__name__)
            failed = await notes.fail(OPERATORS if isinstance(ours, OperatorError) else str(ours))
            self._sync.fits[key] = failed  # shown here even where the store does not take it
            under_way.done.set_exception(ours)
        finally:
            telling.cancel()
            del self._fits[key]


_LOSES_ROWS = Problem(
    ("body", "questions"),
    "the task has rows about another question, context or kind of student, and they would go; say so with "
    "?replace=1, or register this one under another id",
    "value_error",
)


def _teaches_the_same_question(record: TaskRecord, before: TaskRecord) -> bool:
    """Whether rows that one task learned from are rows of the other."""
    return about(before, "") == about(record, "") and _student(before) == _student(record)


def _student(record: TaskRecord) -> tuple[str, str] | None:
    wanted = record.fast_table
    return None if wanted is None else (wanted.kind, wanted.static_model)


def _unfitted(record: TaskRecord, before: TaskRecord | None) -> TaskRecord:
    """A record that nothing is fitted for now: it learns from traffic, or not at all."""
    if record.fast_table is None or record.certify is None:
        reason = "no table was asked for" if record.fast_table is None else "it is not to be certified"
        return replace(record, state=State.OFF, reason=reason, versions=(), revoked=())
    learned = Learned()
    if before is not None and before.learns and _teaches_the_same_question(record, before):
        learned = before.learned or learned
        if record.certify == before.certify:
            return replace(
                record, table=before.table, state=before.state, reason=before.reason, learned=learned
            )
    return replace(record, state=State.LEARNING, reason="it has no table yet", learned=learned)


def _record_of(tenant: str, wanted: Registration, before: TaskRecord | None, now: float) -> TaskRecord:
    record = TaskRecord(
        tenant=tenant,
        id=wanted.id,
        question_id=wanted.question_id,
        question=wanted.raw_question,
        context=wanted.context,
        certify=wanted.certify,
        fast_table=wanted.fast_table,
        n_examples=len(wanted.examples.texts),
        looks=0 if before is None else before.looks,
        created_at=now if before is None else before.created_at,
        updated_at=now,
    )
    if before is None or not _teaches_the_same_question(record, before):
        return record
    # Versions that make the same promise about the same question can be rolled back to.
    versions = before.versions if before.certify == record.certify else ()
    return replace(record, versions=versions, revoked=before.revoked)


def _question(record: TaskRecord) -> Question:
    question = QuestionReader().read(record.question_id, dict(record.question))
    assert question is not None  # it was valid when it was registered
    return question
