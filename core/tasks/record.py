"""What is kept of a task: one value, replaced as a whole."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from core.tables.certificate import Certificate


class State(StrEnum):
    """What a task's fast table is doing."""

    LEARNING = "learning"  # being fitted
    TIMING = "timing"  # being timed on this host
    ACTIVE = "active"  # answers what it may
    SUSPENDED = "suspended"  # withdrawn until it is certified anew
    UNAVAILABLE = "unavailable"  # cannot be run here: its student is missing, or another one
    OFF = "off"  # not wanted, not certified, or not worth it


@dataclass(frozen=True, slots=True)
class CertifySettings:
    """How a task is to be certified."""

    alpha: float = 0.05
    delta: float = 0.1
    holdout: float = 0.5
    min_examples: int | None = None
    level_error: int = 0  # score tasks: levels that an answer may be off without being wrong, 0 or 1


@dataclass(frozen=True, slots=True)
class FastTableSettings:
    """Which table is wanted."""

    kind: str = "static"  # "static", "encoder" or "auto"
    static_model: str = "english"  # or "multilingual", or a path or hub id of a model2vec model
    min_saving: float = 0.1  # keep a table only if it saves this share of the mean time


@dataclass(frozen=True, slots=True)
class TableRef:
    """A fitted and certified table, as a record names it."""

    version: int  # 1, 2, ... of this task
    kind: str  # "static" or "encoder"
    object: str  # hex digest of its bytes in the task store
    student: str  # digest of everything outside the bytes that it needs, such as the encoder; "" for nothing
    certificate: Certificate


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One task of one tenant, immutable."""

    tenant: str
    id: str
    question_id: str  # as the examples name it
    question: Mapping[str, Any]  # the question's JSON, as registered
    context: str | None = None
    certify: CertifySettings | None = field(default_factory=CertifySettings)  # None: not to be certified
    fast_table: FastTableSettings | None = field(default_factory=FastTableSettings)  # None: no table
    n_examples: int = 0
    per_option: tuple[int, ...] = ()  # fit examples of each option
    fit_object: str | None = None  # hex digest of the fit inputs' digests in the task store
    looks: int = 0  # certifications so far: what of delta is spent (core.tables.spending)
    table: TableRef | None = None
    report: Mapping[str, Any] = field(default_factory=dict)  # fast_table_report: kept, reason, guard, kinds
    state: State = State.OFF
    reason: str = "no table was asked for"
    created_at: float = 0.0  # Unix seconds
    updated_at: float = 0.0
    version: int = 0  # of the record, as the store counts; 0 before it is stored

    @property
    def context_revision(self) -> str:
        """Digest of the context: another context makes other decisions. Empty without one."""
        return revision_of(self.context)


def revision_of(context: str | None) -> str:
    """The revision under which decisions about `context` are keyed."""
    return "" if context is None else blake2b(context.encode(), digest_size=8).hexdigest()
