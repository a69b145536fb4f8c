"""A decision on its way to a caller, in this process or another."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from core.cache import envelope
from core.cache.decision import Decision


class Source(StrEnum):
    """Where an answer came from, as `x_precedent.source` says it."""

    REPLAY = "replay"
    TABLE = "table"
    MODEL = "model"
    COALESCED = "coalesced"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A decision, where it came from, and whether the store has it."""

    decision: Decision
    source: Source
    stored: bool = True
    warning: str | None = None  # about the request, for its caller

    def body(self, now: float, thresholds: Mapping[str, float] | None = None) -> bytes:
        """The response body, with margins by the caller's own thresholds."""
        if self.source is Source.REPLAY:
            return self.decision.replay(now, thresholds)
        return self.decision.first_reply(self.source, thresholds, stored=self.stored)

    @property
    def usage(self) -> tuple[int, int]:
        """Input and output tokens of this call's own inference."""
        return self.decision.usage(self.source)


def replayed(decision: Decision) -> Outcome:
    """A decision that was there before."""
    return Outcome(decision, Source.REPLAY, decision.is_stored)


def sealed(outcome: Outcome, tenant: str) -> bytes:
    """An outcome as it travels to those who wait in other processes; empty when it is too large for that."""
    value = envelope.encode(outcome.decision, tenant)
    return b"" if value is None else (b"+" if outcome.stored else b"-") + value


def unsealed(value: bytes, key: bytes, tenant: str) -> Outcome | None:
    """What travelled; None when it is not a decision about `key` of `tenant`."""
    found = envelope.decode(value[1:], key, tenant)
    return Outcome(found, Source.COALESCED, value[:1] == b"+") if isinstance(found, Decision) else None


def is_tabled(decision: Decision) -> bool:
    """Whether tables answered every question."""
    by = decision.answered_by
    return bool(by) and "model" not in by.values() and len(by) == len(decision.margins)
