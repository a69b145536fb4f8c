"""Writing tasks: learned in a Ray task, timed on this host, kept in the task store, served everywhere."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core.consulting import EncodeTexts
from core.contract.questions import Question, QuestionReader
from core.engines.artefact import FOLDER
from core.engines.base import Engine, Item
from core.errors import (
    EngineUnavailable,
    Overloaded,
    PrecedentError,
    StoreUnavailable,
    TaskBusy,
    TaskConflict,
    TaskNotFound,
)
from core.inference import complete
from core.routing import no_vectors
from core.tables.certificate import Certificate
from core.tables.guard import ENGINE_SAMPLES, TABLE_SAMPLES, Timing, Tried, choose, measure
from core.tables.verdict import Decides
from core.tasks.lesson import Lesson, Trained, Wanted
from core.tasks.notes import PREFIX, Note
from core.tasks.record import State, TableRef, TaskRecord
from core.tasks.record_json import Imported, decode, encode, names_objects, object_digest
from core.tasks.registration import Recertification, Registration
from core.tasks.stores.base import Entry, TaskStore
from deployments.fast_table import RemoteEncoder
from deployments.lessons import Event, teach_remotely
from deployments.paths import CHECKOUT
from deployments.settings import AppConfig
from deployments.tables_on_node import read_table
from deployments.task_sync import TaskSync

log = logging.getLogger("ray.serve.precedent")

NOTE_EVERY_S = 1.0
BEAT_S = 5.0  # a fit that is silent for longer than notes.SILENT_AFTER_S is taken for dead
WARM_WAIT_S = 60.0

Teach = Callable[[Lesson, Wanted], AsyncIterator[Event]]


@dataclass(frozen=True, slots=True)
class Means:
    """What learning takes."""

    teach: Teach
    engine: Engine
    encode: EncodeTexts
    warm: Callable[[float], Awaitable[None]]  # waits until `encode` works
    wanted: Wanted  # where models are; kind and static model are the task's own
    max_fits: int = 2


@dataclass(slots=True)
class _Fit:
    """One fit under way."""

    note: Note
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
        fit = await self._object(before.fit_object)
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
        means = replace(self._means.wanted, recertify=(table, fit))
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
        await self._sync.refresh()

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

    async def objects(self, record: TaskRecord) -> dict[str, bytes]:
        """What a record names, by digest."""
        return {digest: await self._object(digest) for digest in names_objects(record)}

    def note(self, tenant: str, task_id: str) -> Note | None:
        """How far a fit is, here or on another Router."""
        fit = self._fits.get((tenant, task_id))
        return self._sync.fits.get((tenant, task_id)) if fit is None else fit.note

    async def drain(self) -> None:
        """End the fits under way."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

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
        fit = _Fit(Note(record.id, "learning", 0.0, self._clock()))
        fit.done.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # it may be awaited by nobody
        self._fits[key] = fit
        try:
            await self._tell(record, fit, fit.note)
        except StoreUnavailable:
            del self._fits[key]
            raise
        task = asyncio.create_task(self._learn(record, lesson, wanted, expected, fit))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return fit.done

    async def _learn(
        self, record: TaskRecord, lesson: Lesson, wanted: Wanted, expected: int | None, fit: _Fit
    ) -> None:
        key = record.tenant, record.id
        beat = asyncio.create_task(self._beat(record, fit))
        try:
            result = await self._taught(lesson, wanted, fit)
            fit.note = replace(fit.note, state="timing", progress=1.0)
            if isinstance(result, Certificate):
                written = await self._write(_recertified(record, result), expected, {})
            else:
                whole, objects = await self._timed(record, lesson, result)
                written = await self._write(whole, expected, objects)
            beat.cancel()
            await self._forget_note(record)
            fit.done.set_result(written)
        except asyncio.CancelledError:
            fit.done.cancel()
            raise
        except Exception as error:
            log.warning("the fit of task %r failed: %s", record.id, error)
            beat.cancel()
            ours = error if isinstance(error, PrecedentError) else _died(error)
            failed = Note(record.id, "failed", fit.note.progress, self._clock(), str(ours))
            await self._try_to_tell(record, failed)
            fit.note = failed
            fit.done.set_exception(ours)
        finally:
            beat.cancel()
            del self._fits[key]

    async def _taught(self, lesson: Lesson, wanted: Wanted, fit: _Fit) -> Any:  # noqa: ANN401
        async for kind, value in self._means.teach(lesson, wanted):
            if kind == "progress":
                fit.note = replace(fit.note, progress=float(value))
            elif kind == "failed":
                raise value
            else:
                return value
        raise StoreUnavailable("fit", "the process that fits went down")

    async def _timed(
        self, record: TaskRecord, lesson: Lesson, trained: Sequence[Trained]
    ) -> tuple[TaskRecord, dict[str, bytes]]:
        """Time what was certified on this host, and keep the best if it is worth it."""
        texts = lesson.examples.texts
        engine = None
        tried = []
        for one in trained:
            timing = None
            if one.certificate.certified:
                if engine is None:
                    engine = await self._time_engine(record, lesson, texts)
                timing = await self._time_table(read_table(one.table), texts)
            certificate = one.certificate
            tried.append(
                Tried(
                    one.kind, certificate.certified_share, certificate.certified, certificate.reason, timing
                )
            )
        assert record.fast_table is not None  # or nothing would have been trained
        kept, report = choose(tried, engine, record.fast_table.min_saving)
        chosen = next((one for one in trained if one.kind == kept), trained[0])
        look = record.looks + 1
        objects = {object_digest(data): data for data in (chosen.table, chosen.fit)}
        ref = TableRef(look, chosen.kind, object_digest(chosen.table), chosen.student, chosen.certificate)
        return (
            replace(
                record,
                looks=look,
                per_option=chosen.per_option,
                fit_object=object_digest(chosen.fit),
                table=ref,
                report=report,
                state=State.OFF if kept is None else State.ACTIVE,
                reason=chosen.certificate.reason or report["reason"],
                updated_at=self._clock(),
            ),
            objects,
        )

    async def _time_engine(self, record: TaskRecord, lesson: Lesson, texts: Sequence[str]) -> Timing:
        async def ask(text: str) -> object:
            state = text if record.context is None else f"{record.context}\n\n{text}"
            items = [Item(state, lesson.question, record.tenant)]
            return complete(await self._means.engine.answer(items), 1)

        return await measure(ask, texts, ENGINE_SAMPLES, time.perf_counter)

    async def _time_table(self, table: Decides, texts: Sequence[str]) -> Timing:
        async def ask(text: str) -> object:
            if table.kind == "static":
                return table.decide(text)
            (vector,) = await self._means.encode([text])
            return table.decide(text, vector)

        if table.kind != "static":
            await self._means.warm(WARM_WAIT_S)
        return await measure(ask, texts, TABLE_SAMPLES, time.perf_counter)

    async def _write(
        self, record: TaskRecord, expected: int | None, objects: Mapping[str, bytes]
    ) -> TaskRecord:
        now = self._clock()
        for digest, data in objects.items():
            await self._store.put_object(digest, data, now)
        value = encode(record)
        version = await self._store.put(record.tenant, record.id, value, expected, now, names_objects(record))
        await self._sync.refresh()
        return replace(record, version=version)

    async def _object(self, digest: str) -> bytes:
        data = await self._store.get_object(digest)
        if data is None:
            raise StoreUnavailable("get_object", f"the task store has lost {digest}; register the task again")
        return data

    async def _beat(self, record: TaskRecord, fit: _Fit) -> None:
        """Let other Routers see how far the fit is."""
        told = fit.note
        while True:
            await asyncio.sleep(NOTE_EVERY_S)
            now = self._clock()
            if fit.note != told or now >= told.at + BEAT_S:
                fit.note = told = replace(fit.note, at=now)
                await self._try_to_tell(record, fit.note)

    async def _tell(self, record: TaskRecord, fit: _Fit, note: Note) -> None:
        await self._store.put(record.tenant, PREFIX + record.id, note.encode(), None, note.at)

    async def _try_to_tell(self, record: TaskRecord, note: Note) -> None:
        try:
            await self._store.put(record.tenant, PREFIX + record.id, note.encode(), None, note.at)
        except StoreUnavailable as error:
            log.warning("the progress of task %r was not noted: %s", record.id, error)

    async def _forget_note(self, record: TaskRecord) -> None:
        try:
            await self._store.put(record.tenant, PREFIX + record.id, None, None, self._clock())
        except StoreUnavailable as error:
            log.warning("the note on task %r was not removed: %s", record.id, error)


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


def _recertified(record: TaskRecord, certificate: Certificate) -> TaskRecord:
    assert record.table is not None  # or there would have been nothing to certify
    look = record.looks + 1
    report = record.report
    active = certificate.certified and bool(report.get("kept"))
    return replace(
        record,
        looks=look,
        table=replace(record.table, version=look, certificate=certificate),
        state=State.ACTIVE if active else State.OFF,
        reason=certificate.reason or str(report.get("reason", "")),
    )


def _decoded(entry: Entry | None) -> TaskRecord | None:
    if entry is None or entry.value is None:
        return None
    return decode(entry.value, entry.tenant, entry.id, entry.version)


def _question(record: TaskRecord) -> Question:
    question = QuestionReader().read(record.question_id, dict(record.question))
    assert question is not None  # it was valid when it was registered
    return question


def _died(error: Exception) -> PrecedentError:
    return StoreUnavailable("fit", f"the fit ended with {type(error).__name__}; register the task again")


def means_of(config: AppConfig, engine: Engine, encoder: RemoteEncoder | None) -> Means:
    """What learning takes, from the settings."""
    models_dir = CHECKOUT / config.engine.models_dir

    async def no_encoder(_wait_s: float) -> None:
        raise EngineUnavailable("no encoder is deployed; run `make models` and start again")

    return Means(
        teach=teach_remotely,
        engine=engine,
        encode=no_vectors if encoder is None else encoder.encode,
        warm=no_encoder if encoder is None else encoder.warm,
        wanted=Wanted("static", "english", str(models_dir), str(models_dir / FOLDER)),
        max_fits=config.tasks.max_fits,
    )
