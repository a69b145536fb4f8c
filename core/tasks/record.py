"""What is kept of a task: one value, replaced as a whole."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final

from core.tables.certificate import Certificate
from core.tables.watching import Tail

KEPT_VERSIONS: Final = 5
KEPT_REVOCATIONS: Final = 20


class State(StrEnum):
    """What a task's fast table is doing."""

    LEARNING = "learning"  # being fitted, or short of rows
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
    mode: str = "on"  # "shadow": the table decides, the engine answers, and the two are compared
    learn: bool = False  # from the engine's answers, not from examples
    explore: float = 0.0  # share of what the table might answer that goes to the engine by lot
    spot_check: float = 0.0  # share of the table's answers about which the engine is asked as well
    min_rows: int = 1_000  # rows that may certify, before a table is fitted to them
    on_revoke: str = "drop"  # decisions of a version that is withdrawn: "drop" or "keep"


@dataclass(frozen=True, slots=True)
class TableRef:
    """A fitted and certified table, as a record names it."""

    version: int  # 1, 2, ... of this task
    kind: str  # "static" or "encoder"
    object: str  # hex digest of its bytes in the task store
    student: str  # digest of everything outside the bytes that it needs, such as the encoder; "" for nothing
    certificate: Certificate
    fit: str | None = None  # hex digest of what a later certification must know of the fit
    per_option: tuple[int, ...] = ()  # fit examples of each option
    engine: str = ""  # fingerprint of the engine that it was proven to agree with; "" for gold
    tail: Tail | None = None  # how often it is unsure of the texts that it was certified on
    is_timed: bool = True  # whether it is known to be worth it; otherwise each replica finds out

    @property
    def objects(self) -> tuple[str, ...]:
        """Digests of what it names in the task store."""
        return (self.object,) if self.fit is None else (self.object, self.fit)


@dataclass(frozen=True, slots=True)
class Revocation:
    """A version that answers no more."""

    version: int
    at: float  # Unix seconds
    reason: str
    is_final: bool  # it was suspended, so only a new certificate helps; others may be rolled back to


@dataclass(frozen=True, slots=True)
class Learned:
    """How far learning from traffic is."""

    used: int = 0  # number of the newest row that may certify and was looked at
    at: float = 0.0  # Unix seconds of that look
    why_not: str | None = None  # why nothing came of it


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
    looks: int = 0  # certifications so far: what of delta is spent (core.tables.spending)
    table: TableRef | None = None  # the version that is served
    versions: tuple[TableRef, ...] = ()  # those that can be served, `table` among them, the newest first
    revoked: tuple[Revocation, ...] = ()  # the latest last
    learned: Learned | None = None  # None for tasks that learn from examples
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

    @property
    def learns(self) -> bool:
        """Whether it learns from traffic."""
        return self.fast_table is not None and self.fast_table.learn

    def is_revoked(self, version: int) -> bool:
        """Whether a version answers no more."""
        return any(one.version == version for one in self.revoked)

    def with_table(self, table: TableRef) -> "TaskRecord":
        """The record with a new version, which need not be served; the oldest of too many goes."""
        others = [one for one in self.versions if one.version != table.version]
        return replace(self, table=table, versions=(table, *others)[:KEPT_VERSIONS])

    def with_revoked(self, revocation: Revocation) -> "TaskRecord":
        """The record with a version that answers no more."""
        others = [one for one in self.revoked if one.version != revocation.version]
        return replace(self, revoked=(*others, revocation)[-KEPT_REVOCATIONS:])


def revision_of(context: str | None) -> str:
    """The revision under which decisions about `context` are keyed."""
    return "" if context is None else blake2b(context.encode(), digest_size=8).hexdigest()


def object_digest(data: bytes) -> str:
    """The name of an object: its content, 32 hex digits."""
    return blake2b(data, digest_size=16).hexdigest()
