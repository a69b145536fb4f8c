"""From rows of traffic to a candidate for a task's next version.

A candidate is certified on rows that were drawn uniformly and that no certification or fit of the task has
used before. Each look spends its own part of delta (core.tables.spending), so the promise holds over all the
versions that a task ever serves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from core.contract.questions import QuestionReader
from core.tables.spending import fewest_all_right, share
from core.tables.split import distinct, split
from core.tables.students import Answers, Seen, Student
from core.tables.table import Table
from core.tables.verdict import Verdict
from core.tasks.lesson import Trained
from core.tasks.record import CertifySettings, TaskRecord
from core.tasks.rows import Row
from core.tasks.training import Course, Held, Progress, take

MAX_FIT: Final = 20_000  # rows to fit on, the newest; more takes minutes and gains little


@dataclass(frozen=True, slots=True)
class Taken:
    """A row as it was read."""

    id: str
    number: int  # in its series
    row: Row


@dataclass(frozen=True, slots=True)
class Rows:
    """What there is to learn from."""

    uniform: Sequence[Taken]  # may certify; in the order of their numbers
    chosen: Sequence[Taken]  # may not
    labels: Mapping[str, int]  # row id -> what somebody says is right


@dataclass(frozen=True, slots=True)
class Parts:
    """Rows to fit on and rows to certify on."""

    fit: Sequence[Taken]
    certify: Sequence[Taken]
    used: int  # number of the newest row that this look uses


@dataclass(frozen=True, slots=True)
class NotEnough:
    """Fewer rows are fresh than the task asks for."""

    had: int
    needed: int

    def __str__(self) -> str:
        return (
            f"{self.had} rows that may certify have come since the last look and {self.needed} are needed: "
            f"{self.needed - self.had} more"
        )


def usable(rows: Rows, about: str, tokenizer: str, *, vectors: bool) -> Rows:
    """The rows that a student can learn this task from.

    Args:
        rows: all there are.
        about: of the task as it is now, see core.tasks.rows.
        tokenizer: digest of the student's.
        vectors: whether the student needs sentence vectors.
    """

    def is_usable(one: Taken) -> bool:
        row = one.row
        return row.about == about and row.tokenizer == tokenizer and (not vectors or row.vector is not None)

    return Rows([*filter(is_usable, rows.uniform)], [*filter(is_usable, rows.chosen)], rows.labels)


def divide(record: TaskRecord, rows: Rows) -> Parts | NotEnough:
    """Divide rows for the next look.

    Fresh are the rows drawn uniformly since the last look, and since the last suspension: they stand for what
    is asked now. A part of them certifies, without inputs that are known from elsewhere.
    """
    assert record.fast_table is not None  # or there would be nothing to learn
    assert record.certify is not None
    used = 0 if record.learned is None else record.learned.used
    since = max((one.at for one in record.revoked if one.is_final), default=0.0)
    known = {one.row.input for one in rows.chosen}
    fresh: list[Taken] = []
    for one in rows.uniform:
        if one.number > used and one.row.at >= since:
            fresh.append(one)
        else:
            known.add(one.row.input)
    fresh = [one for one in fresh if one.row.input not in known]
    if len(fresh) < record.fast_table.min_rows:
        return NotEnough(len(fresh), record.fast_table.min_rows)
    parts = split([one.row.input for one in fresh], record.id, record.certify.holdout)
    certify = [fresh[index] for index in parts.certify]
    held = {one.row.input for one in certify}
    fit = [one for one in (*rows.uniform, *rows.chosen) if one.row.input not in held]
    fit.sort(key=lambda one: (one.row.at, one.id))
    return Parts(fit[-MAX_FIT:], certify, max(one.number for one in rows.uniform))


def candidates(
    record: TaskRecord,
    parts: Parts,
    labels: Mapping[str, int],
    students: Mapping[str, Student],
    progress: Progress,
) -> list[Trained]:
    """Fit and certify.

    The certificate is gold where enough of the certification rows have labels to prove anything at all, and
    then it is about those alone; else it is about agreement with the engine.

    Args:
        record: the task.
        parts: from `divide`.
        labels: row id -> option.
        students: by kind.
        progress: told the share done.

    Raises:
        InvalidRequest: the fit rows have a single answer, or a single input.
    """
    question = QuestionReader().read(record.question_id, dict(record.question))
    assert question is not None  # it was valid when it was registered
    assert record.certify is not None
    delta = share(record.certify.delta, record.looks + 1, len(students))
    labelled = [one for one in parts.certify if one.id in labels]
    is_gold = len({one.row.input for one in labelled}) >= _fewest(record.certify, delta)
    held = _held(labelled, labels) if is_gold else _held(parts.certify, {})
    given = [labels.get(one.id) if is_gold else None for one in parts.fit]
    tops = [one.row.top if label is None else label for one, label in zip(parts.fit, given, strict=True)]
    soft = np.array([one.row.answer for one in parts.fit], np.float32)
    for place, label in enumerate(given):
        if label is not None:
            soft[place] = 0.0
            soft[place, label] = 1.0
    course = Course(
        record.id,
        question,
        record.certify,
        record.looks + 1,
        lambda _: _seen(parts.fit),
        Answers(np.array(tops, np.int64), soft),
        [one.row.input for one in parts.fit],
        held,
    )
    return take(course, students, progress)


def coverage(table: Table, threshold: float, rows: Sequence[Taken]) -> float:
    """Share of rows of which a table is sure enough, 0 to 1."""
    sure = sum(verdict.confidence >= threshold for verdict in _ask(table, rows))
    return sure / len(rows) if rows else 0.0


def _fewest(settings: CertifySettings, delta: float) -> int:
    return max(fewest_all_right(settings.alpha, delta), settings.min_examples or 0)


def _held(rows: Sequence[Taken], labels: Mapping[str, int]) -> Held:
    """Certification inputs, with labels where there are any, or else with the engine's answers."""
    inputs = [one.row.input for one in rows]
    once = distinct(inputs, [labels.get(one.id, one.row.top) for one in rows])
    first = [rows[index] for index in once.indices]
    return Held(
        lambda table: _ask(table, first),
        once.labels,
        tuple(inputs[index] for index in once.indices),
        len(rows),
        once.effective_n,
        "gold" if labels else "agreement",
    )


def _ask(table: Table, rows: Sequence[Taken]) -> list[Verdict]:
    if table.kind == "static":
        return [table.judge(one.row.features) for one in rows]
    return [table.judge(one.row.features, _vector(one.row)) for one in rows]


def _seen(rows: Sequence[Taken]) -> Seen:
    with_vectors = bool(rows) and all(one.row.vector is not None for one in rows)
    vectors = np.stack([_vector(one.row) for one in rows]) if with_vectors else None
    return Seen([one.row.features for one in rows], vectors)


def _vector(row: Row) -> npt.NDArray[np.float32]:
    assert row.vector is not None  # rows without were left out
    return row.vector
