"""What the decision cache asks of a place that keeps bytes."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from core.errors import SettingsError


@dataclass(frozen=True, slots=True)
class FenceTable:
    """Every purge that still counts. Epochs number the purges of one store, from 1; 0 is before the first."""

    founding: bytes = b""  # drawn at random when the store's first fence was added; empty before
    epoch: int = 0  # of the newest purge
    by_scope: Mapping[bytes, int] = field(default_factory=dict)  # encoded scope -> epoch of its newest purge

    def is_as(self, other: "FenceTable") -> bool:
        """Whether both are the same state of the same store."""
        return (self.founding, self.epoch) == (other.founding, other.epoch)


def new_founding() -> bytes:
    """A mark by which a store that has lost its fences is recognised."""
    return os.urandom(8)


class Store(Protocol):
    """Values by 16-byte key, each with an absolute expiry. A miss is an absent key, never an exception.

    Times are Unix seconds and always an argument: a store has no clock of its own. `expires_at=None` means
    never. A value whose `expires_at <= now` is a miss for every operation, whether or not it was removed.
    Where the number of entries is bounded, the least recently stored or replaced leaves first.
    Failures raise `StoreUnavailable`, and nothing else is raised.
    """

    async def get_many(self, keys: Sequence[bytes], now: float) -> dict[bytes, bytes]:
        """Return the values that are there, by key."""
        ...

    async def add(self, key: bytes, value: bytes, expires_at: float | None, now: float) -> bytes:
        """Store `value` unless a live one is there, and return the one that survives: the first wins."""
        ...

    async def replace(self, key: bytes, old: bytes, new: bytes, expires_at: float | None, now: float) -> bool:
        """Put `new` where exactly `old` stands; False when something else, or nothing live, is there."""
        ...

    async def discard(self, key: bytes, old: bytes) -> bool:
        """Remove the value if it is exactly `old`; False when something else, or nothing, is there."""
        ...

    async def prune(self, now: float) -> int:
        """Remove some expired values, at most a few thousand; return how many went, 0 when none is left."""
        ...

    async def count(self, now: float) -> int:
        """How many live values there are (an estimate where counting would scan a shared server)."""
        ...

    async def read_fences(self, known: FenceTable) -> FenceTable | None:
        """The purges of this store, or None when it is still as `known`."""
        ...

    async def add_fence(self, scope: bytes, at_least: int, dropped: Collection[bytes]) -> int:
        """Begin the next epoch and fence `scope` with it, in one step; return that epoch.

        Args:
            scope: what was purged; the store does not read it.
            at_least: the epoch is this or higher, even if the store has forgotten its own.
            dropped: scopes whose fences the new one makes superfluous.
        """
        ...

    async def close(self) -> None:
        """Release files, connections and threads."""
        ...


def check_max_entries(max_entries: int) -> None:
    """Refuse a bound that keeps nothing.

    Raises:
        SettingsError: fewer than 1.
    """
    if max_entries < 1:
        raise SettingsError("max_entries", f"is {max_entries}; keep at least 1 entry")
