"""Purges that cost O(1): a fence for a scope, instead of a search for what lies in it.

Every purge begins an epoch in the store, and fences its scope with that epoch. A decision carries the epoch
that its writer knew when the request began. It is valid as long as that is not below the epoch of any fence
whose scope covers it. So no clock is compared with another, and a writer that was under way when the purge
came cannot bring an old answer back: the epoch it carries is too low, whenever it arrives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import product
from typing import Final

import orjson

from core.cache.decision import Decision
from core.cache.stores.base import FenceTable
from core.errors import InvalidRequest, Problem
from core.identity import Identity

MAX_SCOPES: Final = 10_000  # a purge that would add another is widened, so that the table stays small


@dataclass(frozen=True, slots=True)
class Scope:
    """Which decisions a purge is about: those that match every member that is given.

    Raises:
        InvalidRequest: no member is given and `everything` is not spelled out, or it stands beside others.
    """

    tenant: str | None = None
    deployment: str | None = None
    evidence: str | None = None
    contract: str | None = None
    task: str | None = None
    table_version: str | None = None  # "task@version"
    everything: bool = False

    def __post_init__(self) -> None:
        members = self.members()
        if self.everything and members:
            raise _refusal("all=true does not go with another filter; drop one of them")
        if not self.everything and not members:
            raise _refusal(f"a purge needs a filter ({', '.join(_MEMBERS)}), or all=true spelled out")
        try:
            "".join(members.values()).encode()
        except UnicodeEncodeError:
            raise _refusal("a filter holds half of a surrogate pair") from None

    def members(self) -> dict[str, str]:
        """The members that are given, by name."""
        return {name: value for name in _MEMBERS if (value := getattr(self, name)) is not None}

    def covers(self, other: "Scope") -> bool:
        """Whether a fence for this scope makes one for `other` superfluous."""
        return self.members().items() <= other.members().items()

    def encode(self) -> bytes:
        """The form in which stores keep it."""
        return orjson.dumps({"everything": True} if self.everything else self.members())


def _refusal(msg: str) -> InvalidRequest:
    return InvalidRequest((Problem(("query",), msg, "value_error"),))


_MEMBERS: Final = tuple(f.name for f in fields(Scope) if f.name != "everything")

EVERYTHING: Final = Scope(everything=True)
NOTHING: Final = b"{}"  # begins an epoch without a fence


@lru_cache(maxsize=4 * MAX_SCOPES)
def read_scope(encoded: bytes) -> Scope | None:
    """Read a stored scope; None for `NOTHING`.

    What this version does not understand is read as a wider scope: that may cost an answer, never keep one.
    """
    try:
        raw = orjson.loads(encoded)
    except orjson.JSONDecodeError:
        return EVERYTHING
    if raw == {}:
        return None
    if not isinstance(raw, dict) or not all(isinstance(value, str) for value in raw.values()):
        return EVERYTHING
    members = {name: raw[name] for name in _MEMBERS if name in raw}
    return Scope(**members) if members else EVERYTHING


@dataclass(frozen=True, slots=True)
class Fences:
    """All fences of a store, arranged so that a decision is checked with a few dictionary lookups."""

    table: FenceTable = field(default_factory=FenceTable)  # all purges up to its epoch
    newest: int = 0  # no fence is above it
    everything: int = 0  # the epoch of the newest purge of everything
    _by_shape: Mapping[tuple[str, ...], Mapping[tuple[str | None, ...], int]] = field(default_factory=dict)

    @classmethod
    def of(cls, table: FenceTable) -> "Fences":
        """Arrange a store's table."""
        newest = everything = 0
        by_shape: dict[tuple[str, ...], dict[tuple[str | None, ...], int]] = {}
        for encoded, epoch in table.by_scope.items():
            scope = read_scope(encoded)
            if scope is None:
                continue
            newest = max(newest, epoch)
            if scope.everything:
                everything = max(everything, epoch)
                continue
            members = scope.members()
            fenced = by_shape.setdefault(tuple(members), {})
            values: tuple[str | None, ...] = tuple(members.values())
            fenced[values] = max(epoch, fenced.get(values, 0))
        return cls(table, newest, everything, by_shape)

    def allow(self, decision: Decision, identity: Identity) -> bool:
        """Whether `decision`, asked for by `identity`, is on the valid side of every fence."""
        if decision.epoch >= self.newest:
            return True
        if decision.epoch < self.everything:
            return False
        values = _values(decision, identity)
        return all(
            decision.epoch >= fenced.get(key, 0)
            for shape, fenced in self._by_shape.items()
            for key in product(*(values[name] for name in shape))
        )

    def with_fence(self, scope: Scope, epoch: int) -> "Fences":
        """These fences, and a new one with its epoch."""
        table = self.table
        dropped = self.superfluous_beside(scope)
        by_scope = {other: e for other, e in table.by_scope.items() if other not in dropped}
        by_scope[scope.encode()] = epoch
        # With purges of others in between, those are still to be read: the known epoch stays where it is.
        known = epoch if epoch == table.epoch + 1 else table.epoch
        return Fences.of(FenceTable(table.founding, known, by_scope))

    def superfluous_beside(self, scope: Scope) -> set[bytes]:
        """Encoded scopes that need no fence of their own once `scope` has a new one."""
        return {
            encoded
            for encoded in self.table.by_scope
            if (other := read_scope(encoded)) is None or scope.covers(other)
        }

    def widened(self, scope: Scope) -> Scope:
        """The scope to fence for `scope`: its tenant or everything, once there are too many others."""
        scopes = self.table.by_scope
        if scope.encode() in scopes or len(scopes) < MAX_SCOPES:
            return scope
        if scope.tenant is not None and len(scopes) < 2 * MAX_SCOPES:
            return Scope(tenant=scope.tenant)
        return EVERYTHING


def is_covered(decision: Decision, identity: Identity, scopes: Sequence[Scope]) -> bool:
    """Whether any of `scopes` is about this decision."""
    values = _values(decision, identity)
    return any(all(value in values[name] for name, value in scope.members().items()) for scope in scopes)


def _values(decision: Decision, identity: Identity) -> dict[str, tuple[str | None, ...]]:
    return {
        "tenant": (identity.tenant,),
        "deployment": (identity.deployment,),
        "evidence": (identity.evidence,),
        "contract": (identity.contract,),
        "task": decision.tasks,
        "table_version": decision.table_versions,
    }
