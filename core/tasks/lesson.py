"""What is to be learned, and what came of it: values that travel between a Router and a task that fits."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.contract.questions import Question
from core.tables.certificate import Certificate
from core.tables.watching import Tail
from core.tasks.record import CertifySettings, TableRef, object_digest
from core.tasks.registration import Examples


@dataclass(frozen=True, slots=True)
class Lesson:
    """What is to be learned and proven."""

    task_id: str
    raw_question: Mapping[str, Any]
    question: Question
    examples: Examples
    certify: CertifySettings
    certify_examples: Examples | None = None  # in place of a part of `examples`
    looks: int = 0  # certifications of the task so far


@dataclass(frozen=True, slots=True)
class Trained:
    """One student's table, with its proof."""

    kind: str
    table: bytes
    student: str  # digest of what the table needs beside its bytes
    certificate: Certificate
    per_option: tuple[int, ...]  # fit examples
    fit: bytes  # what a later certification must know of the fit
    tail: Tail | None  # how often it is unsure of the certification inputs


def ref_of(trained: Trained, version: int, engine: str = "", *, is_timed: bool = True) -> TableRef:
    """How a record names a table.

    Args:
        trained: the table.
        version: number among the tables of its task.
        engine: fingerprint of the engine that an agreement certificate is about.
        is_timed: whether it is known to be worth it.
    """
    return TableRef(
        version,
        trained.kind,
        object_digest(trained.table),
        trained.student,
        trained.certificate,
        object_digest(trained.fit),
        trained.per_option,
        engine if trained.certificate.kind == "agreement" else "",
        trained.tail,
        is_timed,
    )


def objects_of(trained: Trained) -> dict[str, bytes]:
    """What a record with `trained` names, by digest."""
    return {object_digest(data): data for data in (trained.table, trained.fit)}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a lesson is to be learned by."""

    kind: str  # "static", "encoder" or "auto"
    static_model: str
    models_dir: str
    encoder_dir: str  # the embedded model
    recertify: tuple[bytes, bytes] | None = None  # table and fit: certify those instead of fitting
