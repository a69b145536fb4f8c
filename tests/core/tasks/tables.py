"""Tasks and tables by script, for tests of what is done with them."""

from dataclasses import replace
from math import inf, nan
from typing import Any

from core.tables.certificate import Certificate
from core.tables.verdict import Verdict
from core.tasks.record import State, TableRef, TaskRecord

CHOICE = {"type": "choice", "instructions": "Which team?", "criteria": {"billing": None, "sales": None}}


def certificate(threshold: float = 0.8) -> Certificate:
    """A certificate that covers what is at or above `threshold`."""
    return Certificate(
        id="support#0123456789ab",
        kind="gold",
        alpha=0.05,
        delta=0.05,
        threshold=threshold,
        n=100,
        distinct=100,
        effective_n=100.0,
        accuracy=0.9,
        certified_n=0 if threshold == inf else 80,
        errors=0,
        upper_bound=None if threshold == inf else 0.04,
        level_error=0,
        reason="too few examples" if threshold == inf else None,
    )


def table_ref(threshold: float = 0.8, kind: str = "static", version: int = 1) -> TableRef:
    """What a record says of its table."""
    return TableRef(version, kind, "00" * 16, "", certificate(threshold))


def record(
    task_id: str = "support", *, threshold: float = 0.8, kind: str = "static", **fields: Any
) -> TaskRecord:
    """A task whose table is active."""
    whole = TaskRecord(
        tenant="acme",
        id=task_id,
        question_id="team",
        question=CHOICE,
        table=table_ref(threshold, kind),
        state=State.ACTIVE,
        reason="answers what it may",
        created_at=1.0,
    )
    return replace(whole, **fields)


class ScriptedTable:
    """A table that is as sure as the state says: `sure`, `unsure`, or something it does not know."""

    def __init__(self, kind: str = "static", probabilities: tuple[float, ...] = (0.9, 0.1)) -> None:
        self.kind = kind
        self.probabilities = probabilities
        self.asked: list[str] = []
        self.vectors: list[Any] = []

    def decide(self, text: str, vector: Any = None) -> Verdict:
        self.asked.append(text)
        self.vectors.append(vector)
        confidence = {"sure": 0.8, "unsure": 0.79}.get(text, nan)
        return Verdict(self.probabilities, confidence)
