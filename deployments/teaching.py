"""Writing tasks: fitted off the serving path, kept in the task store, served everywhere."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from core.contract.questions import Question, QuestionReader
from core.errors import (
    FitFailed,
    OperatorError,
    Overloaded,
    PrecedentError,
    StoreUnavailable,
    TaskBusy,
    TaskConflict,
    TaskNotFound,
)
from core.tasks.lesson import Lesson, Wanted
from core.tasks.notes import Note
from core.tasks.record import State, TaskRecord
from core.tasks.record_json import Imported, decode, encode, names_objects
from core.tasks.registration import Recertification, Registration
from core.tasks.stores.base import Entry, TaskStore
from deployments.fit_notes import BEAT_S, FitNotes
from deployments.fitting import Means, fit
from deployments.task_sync import TaskSync

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
        store: where they are kept.
        sync: has them served here.
        means: what learning takes.
        clock: Unix seconds.
    """

    def __init__(
        self, store: TaskStore, sync: TaskSync, means: Means, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._sync = sync
        self._means = means
        self._clock = clock
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
        entry = await self._store.get(tenant, wanted.id)
        before = _decoded(entry)
        expected = self._expected(tenant, wanted.id, entry, replaces, unseen=unseen)
        record = _record_of(tenant, wanted, before, self._clock())
        if wanted.fast_table is None or wanted.certify is None:
            reason = "no table was asked for" if wanted.fast_table is None else "it is not to be certified"
            record = replace(record, state=State.OFF, reason=reason)
            done: asyncio.Future[TaskRecord] = asyncio.get_running_loop().create_future()
            done.set_result(await self._write(record, expected, {}))
            await self._serve()
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
        entry = await self._store.get(tenant, task_id)
        before = _decoded(entry)
        if before is None or before.table is None or before.fit_object is None:
            raise TaskNotFound(task_id)
        expected = self._expected(tenant, task_id, entry, replaces, unseen=False)
        table = await self._object(before.table.object)
        fitted = await self._object(before.fit_object)
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
        entry = await self._store.get(tenant, task_id)
        if entry is None or entry.value is None:
            raise TaskNotFound(task_id)
        expected = entry.version if replaces is None else replaces
        await self._store.put(tenant, task_id, None, expected, self._clock())
        await self._serve()

    async def bring(
        self, tenant: str, tasks: Sequence[Imported], replaces: int | None, *, unseen: bool
    ) -> None:
        """Keep tasks that were exported elsewhere, as they are.

        Raises:
            TaskConflict: a task is there in another version.
        """
        for one in tasks:
            entry = await self._store.get(tenant, one.record.id)
            expected = self._expected(tenant, one.record.id, entry, replaces, unseen=unseen)
            await self._write(replace(one.record, updated_at=self._clock()), expected, one.objects)
        await self._serve()

    async def objects(self, record: TaskRecord) -> dict[str, bytes]:
        """What a record names, by digest."""
        return {digest: await self._object(digest) for digest in names_objects(record)}

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

    def _expected(
        self, tenant: str, task_id: str, entry: Entry | None, replaces: int | None, *, unseen: bool
    ) -> int | None:
        """The version that a write replaces; refused early where that is not there."""
        if unseen:
            return None
        there = 0 if entry is None else entry.version
        if replaces is None:
            served = self._sync.version(tenant, task_id)
            removed = entry is not None and entry.value is None
            replaces = there if removed and served == 0 else served
        if replaces != there:
            raise TaskConflict(task_id, there, replaces)
        return replaces

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
        under_way = _Fit(FitNotes(self._store, record.tenant, first, self._clock))
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
            written = await self._write(replace(whole, updated_at=self._clock()), expected, objects)
            telling.cancel()
            await notes.end()
            await self._serve()
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

    async def _write(
        self, record: TaskRecord, expected: int | None, objects: Mapping[str, bytes]
    ) -> TaskRecord:
        now = self._clock()
        for digest, data in objects.items():
            await self._store.put_object(digest, data, now)
        value = encode(record)
        version = await self._store.put(record.tenant, record.id, value, expected, now, names_objects(record))
        return replace(record, version=version)

    async def _serve(self) -> None:
        """Serve here what was written; the next look at the store does where this one fails."""
        try:
            await self._sync.refresh()
        except StoreUnavailable as error:
            log.warning("what was written is not served here yet: %s", error)

    async def _object(self, digest: str) -> bytes:
        data = await self._store.get_object(digest)
        if data is None:
            raise StoreUnavailable("get_object", f"the task store has lost {digest}; register the task again")
        return data


def _record_of(tenant: str, wanted: Registration, before: TaskRecord | None, now: float) -> TaskRecord:
    return TaskRecord(
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


def _decoded(entry: Entry | None) -> TaskRecord | None:
    if entry is None or entry.value is None:
        return None
    return decode(entry.value, entry.tenant, entry.id, entry.version)


def _question(record: TaskRecord) -> Question:
    question = QuestionReader().read(record.question_id, dict(record.question))
    assert question is not None  # it was valid when it was registered
    return question
