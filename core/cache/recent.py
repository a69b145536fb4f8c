"""Decoded decisions in this process's memory, for replays that wait for nothing."""

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from core.cache.decision import Decision
from core.cache.stats import Tally
from core.identity import Identity

ENTRY_BYTES = 1_500  # what an entry takes besides its answers, which are kept as stored and as replayed


@dataclass(slots=True)
class Entry:
    """A decision in memory, with what is needed to see in an instant whether it may be replayed."""

    decision: Decision
    identity: Identity
    tally: Tally  # of the tenant
    settled: bool  # the store has it
    known_at: float = -math.inf  # when it was made here: until then at least, no purge can have reached it
    renew_at: float = math.inf
    look_again_at: float = field(default=-math.inf, init=False)  # from then on it expires or is to be renewed
    generation: int = field(default=-1, init=False)  # of the fences, when it was last checked against them
    size: int = field(default=0, init=False)  # bytes, roughly


class Recent:
    """At most so many decisions and bytes; the least recently replayed leaves first.

    Args:
        max_entries: how many.
        max_bytes: how large they may be together, roughly.
        is_good: looks closely at an entry that has reached its `look_again_at`, or is of another generation,
            or comes while the fences are not known; it may not be replayed when False comes back.
    """

    def __init__(self, max_entries: int, max_bytes: int, is_good: Callable[[Entry, float], bool]) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._is_good = is_good
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()
        self._bytes = 0
        self.generation = 0
        self.trusted_until = -math.inf  # as far as the fences are known
        self.evictions = 0
        self.unsettled: dict[bytes, None] = {}  # keys in order of age
        self.to_renew: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def peek(self, key: bytes, now: float) -> Decision | None:
        """The decision for `key`, if it may be replayed."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if (
            entry.generation != self.generation or not now < entry.look_again_at or now >= self.trusted_until
        ) and not self._is_good(entry, now):
            return None
        entry.tally.hits_memory += 1
        self._entries.move_to_end(key)
        return entry.decision

    def get(self, key: bytes) -> Entry | None:
        """The entry for `key`, whether or not it may be replayed."""
        return self._entries.get(key)

    def put(self, entry: Entry) -> None:
        """Keep an entry; others may have to leave."""
        key = entry.decision.key
        if key in self._entries:
            self.drop(key)
        entry.size = ENTRY_BYTES + 2 * len(entry.decision.answers)
        self._entries[key] = entry
        self._bytes += entry.size
        if not entry.settled:
            self.unsettled[key] = None
        while len(self._entries) > self._max_entries or self._bytes > self._max_bytes:
            self._forget(*self._entries.popitem(last=False))
            self.evictions += 1

    def drop(self, key: bytes) -> None:
        """Forget an entry."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._forget(key, entry)

    def _forget(self, key: bytes, entry: Entry) -> None:
        self._bytes -= entry.size
        self.unsettled.pop(key, None)
        self.to_renew.pop(key, None)
