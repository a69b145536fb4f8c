"""What is to be learned, and what came of it: values that travel between a Router and a task that fits."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.contract.questions import Question
from core.tables.certificate import Certificate
from core.tasks.record import CertifySettings
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a lesson is to be learned by."""

    kind: str  # "static", "encoder" or "auto"
    static_model: str
    models_dir: str
    encoder_dir: str  # the embedded model
    recertify: tuple[bytes, bytes] | None = None  # table and fit: certify those instead of fitting
