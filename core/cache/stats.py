"""What a cache has done, as numbers."""

from dataclasses import dataclass, field, fields

from core.cache.guard import StoreState


@dataclass(slots=True)
class ShadowTally:
    """How replays would have compared with the fresh answers that were given instead."""

    compared: int = 0
    equal: int = 0  # byte for byte
    flipped: int = 0  # another yes or no, option or most probable level in some question
    largest_difference: float = 0.0  # of any probability

    def __add__(self, other: "ShadowTally") -> "ShadowTally":
        return ShadowTally(
            self.compared + other.compared,
            self.equal + other.equal,
            self.flipped + other.flipped,
            max(self.largest_difference, other.largest_difference),
        )


@dataclass(slots=True)
class Tally:
    """What happened to the decisions of one tenant."""

    hits_memory: int = 0  # replayed from this process's memory
    hits_store: int = 0  # replayed from the store
    misses: int = 0  # looked up and not there
    added: int = 0  # settled by this cache: the first decision was its own
    conflicts: int = 0  # came second: the caller got the decision stored first
    unstored: int = 0  # the store failed: the decision is kept in this process's memory alone, for now
    not_kept: int = 0  # time to live 0, or the evidence had expired
    renewals: int = 0  # expiries extended by a replay
    fenced: int = 0  # not replayed, or not stored, because of a purge
    too_large: int = 0  # not stored because of its size
    retention_errors: int = 0  # the operator's retention function failed; not kept
    shadow: ShadowTally = field(default_factory=ShadowTally)

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Tally)))


@dataclass(slots=True)
class Oddities:
    """Values in the store that are no decisions to replay."""

    corrupt: int = 0
    foreign: int = 0  # of another key or tenant
    newer: int = 0  # of a later format, left alone
    misfits: int = 0  # the answers are to other questions than those asked


@dataclass(frozen=True, slots=True)
class CacheStats:
    """A moment's numbers of one cache in one process, since it was made."""

    entries: int  # decisions in this process's memory
    unsettled: int  # of these, not yet in the store
    evictions: int  # left memory to make room
    tally: Tally  # of the tenant asked for, or of all
    oddities: Oddities
    errors: int  # calls in which the store failed, timeouts included
    timeouts: int
    skipped: int  # calls not made, because the store was failing
    reading: StoreState
    writing: StoreState

    @property
    def hits(self) -> int:
        """Replays, from memory or from the store."""
        return self.tally.hits_memory + self.tally.hits_store
