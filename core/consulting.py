"""What the tables of a request's tasks say, and what their certificates let them say."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from core.contract.questions import Question
from core.errors import RetryLater
from core.tables.verdict import Verdict
from core.tasks.selection import Part, Selection

Vector = npt.NDArray[np.float32]  # (dim,)
EncodeTexts = Callable[[Sequence[str]], Awaitable[Sequence[Vector]]]

BELOW_THRESHOLD: Final = "below_threshold"
TOO_LITTLE_KNOWN: Final = "too_little_known"
ENCODER_UNAVAILABLE: Final = "encoder_unavailable"
OPTIONS_CHANGED: Final = "options_changed"


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of one question of a task: a certified distribution, or the reason why the engine answers."""

    part: Part
    distribution: tuple[float, ...] | None
    reason: str | None

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
        answered = self.distribution is not None and record.table is not None
        return f"{record.id}@{record.table.version}" if answered and record.table is not None else None


def ask_static(selection: Selection, state: str, questions: Mapping[str, Question]) -> dict[str, Heard]:
    """Ask the tables that need nothing but the text, by question id. Takes microseconds.

    Questions whose table needs a sentence vector are left out.
    """
    heard = {}
    for name, part in selection.parts.items():
        table = part.task.table
        if part.reason is not None or table is None:
            heard[name] = Heard(part, None, part.reason)
        elif table.kind == "static":
            heard[name] = _judged(part, table.decide(state), questions[name])
    return heard


async def ask_encoded(
    selection: Selection, state: str, questions: Mapping[str, Question], encode: EncodeTexts
) -> dict[str, Heard]:
    """Ask the tables that need the sentence vector of the state, which is made once for all of them."""
    waiting = {
        name: part
        for name, part in selection.parts.items()
        if part.reason is None and part.task.table is not None and part.task.table.kind != "static"
    }
    if not waiting:
        return {}
    try:
        (vector,) = await encode([state])
    except RetryLater:
        return {name: Heard(part, None, ENCODER_UNAVAILABLE) for name, part in waiting.items()}
    return {
        name: _judged(part, part.task.table.decide(state, vector), questions[name])
        for name, part in waiting.items()
        if part.task.table is not None
    }


def is_complete(heard: Mapping[str, Heard], questions: Mapping[str, Question]) -> bool:
    """Whether tables answer every question, so that no engine is needed."""
    return len(heard) == len(questions) and all(one.distribution is not None for one in heard.values())


def _judged(part: Part, verdict: Verdict, question: Question) -> Heard:
    table = part.task.record.table
    if table is None or len(verdict.probabilities) != question.size:
        return Heard(part, None, OPTIONS_CHANGED)
    if table.certificate.covers(verdict.confidence):
        return Heard(part, verdict.probabilities, None)
    unknown = verdict.confidence != verdict.confidence  # NaN
    return Heard(part, None, TOO_LITTLE_KNOWN if unknown else BELOW_THRESHOLD)
