"""One fit: learned in a Ray task, certified, and timed on this host to see whether it is worth having."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from config.paths import CHECKOUT
from config.settings import AppConfig
from core.engines.artefact import FOLDER
from core.engines.base import Engine
from core.errors import EngineUnavailable, FitFailed, InvalidRequest, Problem, SettingsError
from core.routing import no_vectors
from core.tables.certificate import Certificate
from core.tables.guard import Tried, choose
from core.tables.watching import Tail
from core.tasks.lesson import Lesson, Trained, Wanted, objects_of, ref_of
from core.tasks.record import FastTableSettings, State, TaskRecord
from deployments.fast_table import RemoteEncoder
from deployments.lessons import Event, teach_remotely
from deployments.tables_on_node import read_table
from deployments.timing import Stopwatch

Teach = Callable[[Lesson, Wanted], AsyncIterator[Event]]
Tell = Callable[[str, float], None]  # "learning" or "timing", share done


def _anything(_wanted: FastTableSettings) -> None:
    """Take any student for one that is here."""


@dataclass(frozen=True, slots=True)
class Means:
    """What a fit takes."""

    teach: Teach
    stopwatch: Stopwatch
    wanted: Wanted  # where models are; kind and static model are the task's own
    max_fits: int = 2
    check: Callable[[FastTableSettings], None] = _anything  # raises where no rows could be made for a task


async def fit(
    means: Means, record: TaskRecord, lesson: Lesson, wanted: Wanted, tell: Tell
) -> tuple[TaskRecord, Mapping[str, bytes]]:
    """The record with its table, and the objects that it names, by digest.

    Args:
        means: what it takes.
        record: as it will be, without what comes of the fit.
        lesson: what is to be learned.
        wanted: by which students; or the table that is to be certified anew.
        tell: told what is done, and how far it is.

    Raises:
        InvalidRequest: see `learn`.
        FitFailed: the process that learned went down.
        RetryLater: the engine that is to be timed does not answer.
    """
    trained = await _learned(means, record, lesson, wanted, tell)
    tell("timing", 1.0)
    return await _timed(means, record, lesson, trained)


async def _learned(
    means: Means, record: TaskRecord, lesson: Lesson, wanted: Wanted, tell: Tell
) -> Sequence[Trained]:
    async for kind, value in means.teach(lesson, wanted):
        if kind == "progress":
            tell("learning", float(value))
        elif kind == "failed":
            raise value
        elif isinstance(value, tuple):
            return [_certified_anew(record, wanted, *value)]
        else:
            trained: Sequence[Trained] = value
            return trained
    raise FitFailed(lesson.task_id, "its process went down")


def _certified_anew(
    record: TaskRecord, wanted: Wanted, certificate: Certificate, tail: Tail | None
) -> Trained:
    assert record.table is not None  # or there would have been nothing to certify
    assert wanted.recertify is not None
    table, fitted = wanted.recertify
    before = record.table
    return Trained(before.kind, table, before.student, certificate, before.per_option, fitted, tail)


async def _timed(
    means: Means, record: TaskRecord, lesson: Lesson, trained: Sequence[Trained]
) -> tuple[TaskRecord, Mapping[str, bytes]]:
    """Time what was certified, and keep the best if it is worth it."""
    texts = lesson.examples.texts
    engine = None
    tried = []
    for one in trained:
        timing = None
        if one.certificate.certified:
            if engine is None:
                engine = await means.stopwatch.time_engine(record, texts)
            timing = await means.stopwatch.time_table(read_table(one.table), texts)
        proof = one.certificate
        tried.append(Tried(one.kind, proof.certified_share, proof.certified, proof.reason, timing))
    assert record.fast_table is not None  # or nothing would have been trained
    kept, report = choose(tried, engine, record.fast_table.min_saving)
    chosen = next((one for one in trained if one.kind == kept), trained[0])
    look = record.looks + 1
    whole = replace(
        record.with_table(ref_of(chosen, look)),
        looks=look,
        report=report,
        state=State.OFF if kept is None else State.ACTIVE,
        reason=chosen.certificate.reason or report["reason"],
    )
    return whole, objects_of(chosen)


def refuse_unknown_student(models_dir: Path, wanted: FastTableSettings) -> None:
    """Refuse a task that no student of this host could learn.

    Raises:
        InvalidRequest: there is no static model of the name that was given.
        SettingsError: a model of ours is not there.
        ArtefactMismatch: it is damaged.
    """
    from core.tables.static_vectors import ENGLISH  # noqa: PLC0415  a Router that learns nothing needs none
    from core.tasks.tokenizer import row_tokenizer  # noqa: PLC0415

    try:
        row_tokenizer(wanted, models_dir)
    except SettingsError as error:
        if wanted.kind == "encoder" or wanted.static_model == ENGLISH:
            raise  # the operator's to mend; any other is the caller's choice
        problem = Problem(("body", "fast_table", "static_model"), error.problem, "value_error")
        raise InvalidRequest((problem,)) from None


def means_of(config: AppConfig, engine: Engine, encoder: RemoteEncoder | None) -> Means:
    """What learning takes, from the settings."""
    models_dir = CHECKOUT / config.engine.models_dir

    async def no_encoder(_wait_s: float) -> None:
        raise EngineUnavailable("no encoder is deployed; run `make models` and start again")

    return Means(
        teach=teach_remotely,
        stopwatch=Stopwatch(
            engine,
            no_vectors if encoder is None else encoder.encode,
            no_encoder if encoder is None else encoder.warm,
        ),
        wanted=Wanted("static", "english", str(models_dir), str(models_dir / FOLDER)),
        max_fits=config.tasks.max_fits,
        check=partial(refuse_unknown_student, models_dir),
    )
