"""What the tables of a request's tasks say, and what their certificates let them say."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from core.contract.answers import top_option
from core.contract.questions import Question, Score
from core.engines.base import Reading
from core.errors import RetryLater
from core.tables.verdict import Verdict
from core.tasks.record import TableRef, TaskRecord
from core.tasks.registration import option_names
from core.tasks.rows import is_drawn
from core.tasks.selection import ASKED_ALL_THE_SAME, OPTIONS_CHANGED, Part, Selection

Vector = npt.NDArray[np.float32]  # (dim,)
EncodeTexts = Callable[[Sequence[str]], Awaitable[Sequence[Vector]]]

BELOW_THRESHOLD: Final = "below_threshold"
TOO_LITTLE_KNOWN: Final = "too_little_known"
ENCODER_UNAVAILABLE: Final = "encoder_unavailable"
EXPLORE: Final = "explore"


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of one question of a task: a certified distribution, or the reason why the engine answers."""

    part: Part
    distribution: tuple[float, ...] | None
    reason: str | None
    verdict: Verdict | None = None  # of the table, also where it may not answer; None where none was asked

    def additions(self) -> dict[str, Any]:
        """The members by which the answer says who gave it and what is certified."""
        table = self.part.task.record.table
        certificate = None if table is None else table.certificate
        said: dict[str, Any] = {
            "answered_by": "model" if self.distribution is None else "table",
            "certified": self.distribution is not None,
            "certificate": None if certificate is None else certificate.id,
            "certificate_kind": None if certificate is None else certificate.kind,
        }
        return said if self.reason is None else said | {"certified_reason": self.reason}

    @property
    def table_version(self) -> str | None:
        """The table that answered, as "task@version"; None where the engine did."""
        record = self.part.task.record
        return None if self.distribution is None or record.table is None else version_of(record, record.table)


@dataclass(frozen=True, slots=True)
class Settled:
    """A first decision about questions of registered tasks, for whoever learns from it."""

    key: bytes
    tenant: str
    state: str
    questions: Mapping[str, Question]  # by id
    heard: Mapping[str, Heard]  # by question id
    readings: Mapping[str, Reading]  # of the engine, where it was asked


def version_of(record: TaskRecord, table: TableRef) -> str:
    """How decisions and purges name a version of a task's table."""
    return f"{record.id}@{table.version}"


def ask_static(
    selection: Selection, key: bytes, state: str, questions: Mapping[str, Question]
) -> dict[str, Heard]:
    """Ask the tables that need nothing but the text, by question id. Takes microseconds.

    Questions whose table needs a sentence vector are left out.

    Args:
        selection: the tasks of the request.
        key: of the request, which draws those that the engine is to answer.
        state: the state's text.
        questions: of the request.
    """
    heard = {}
    for name, part in selection.parts.items():
        table = part.task.table
        if table is None or not _is_asked(part):
            heard[name] = Heard(part, None, part.reason)
        elif table.kind == "static":
            heard[name] = _judged(part, key, table.decide(state), questions[name])
    return heard


async def ask_encoded(
    selection: Selection, key: bytes, state: str, questions: Mapping[str, Question], encode: EncodeTexts
) -> dict[str, Heard]:
    """Ask the tables that need the sentence vector of the state, which is made once for all of them."""
    waiting = {
        name: part
        for name, part in selection.parts.items()
        if part.task.table is not None and part.task.table.kind != "static" and _is_asked(part)
    }
    if not waiting:
        return {}
    try:
        (vector,) = await encode([state])
    except RetryLater:
        return {name: Heard(part, None, part.reason or ENCODER_UNAVAILABLE) for name, part in waiting.items()}
    return {
        name: _judged(part, key, part.task.table.decide(state, vector), questions[name])
        for name, part in waiting.items()
        if part.task.table is not None
    }


def is_complete(heard: Mapping[str, Heard], questions: Mapping[str, Question]) -> bool:
    """Whether tables answer every question, so that no engine is needed."""
    return len(heard) == len(questions) and all(one.distribution is not None for one in heard.values())


def differs(question: Question, level_error: int, said: Sequence[float], right: Sequence[float]) -> bool:
    """Whether two distributions name different options; levels may be `level_error` apart."""
    names = option_names(question)
    off = abs(top_option(names, said) - top_option(names, right))
    return off > (level_error if isinstance(question, Score) else 0)


def _is_asked(part: Part) -> bool:
    return part.reason is None or part.reason in ASKED_ALL_THE_SAME


def _judged(part: Part, key: bytes, verdict: Verdict, question: Question) -> Heard:
    record = part.task.record
    table, wanted = record.table, record.fast_table
    if table is None or wanted is None or len(verdict.probabilities) != question.size:
        return Heard(part, None, OPTIONS_CHANGED)
    if part.reason is not None:
        return Heard(part, None, part.reason, verdict)
    if is_drawn(key, f"explore {version_of(record, table)}", wanted.explore):
        return Heard(part, None, EXPLORE, verdict)
    if table.certificate.covers(verdict.confidence):
        return Heard(part, verdict.probabilities, None, verdict)
    unknown = verdict.confidence != verdict.confidence  # NaN
    return Heard(part, None, TOO_LITTLE_KNOWN if unknown else BELOW_THRESHOLD, verdict)
