"""Values in this process, for one process."""

import heapq
from collections import OrderedDict
from collections.abc import Collection, Sequence
from itertools import islice

from core.cache.stores.base import FenceTable, check_max_entries, new_founding

PRUNE_STEP = 1_000
BUCKET_S = 10.0


class MemoryStore:
    """A `Store` that lives and dies with its process.

    Args:
        max_entries: above it the least recently stored or replaced value leaves.
    """

    def __init__(self, max_entries: int = 100_000) -> None:
        check_max_entries(max_entries)
        self._max_entries = max_entries
        self._entries: OrderedDict[bytes, tuple[bytes, float | None]] = OrderedDict()
        self._expiring = _Expiring()
        self._fences = FenceTable()

    async def get_many(self, keys: Sequence[bytes], now: float) -> dict[bytes, bytes]:
        """Return the values that are there, by key."""
        found = {}
        for key in keys:
            value = self._live(key, now)
            if value is not None:
                found[key] = value
        return found

    async def add(self, key: bytes, value: bytes, expires_at: float | None, now: float) -> bytes:
        """Store `value` unless a live one is there, and return the one that survives."""
        there = self._live(key, now)
        if there is not None:
            return there
        self._put(key, value, expires_at)
        return value

    async def replace(self, key: bytes, old: bytes, new: bytes, expires_at: float | None, now: float) -> bool:
        """Put `new` where exactly `old` stands."""
        if self._live(key, now) != old:
            return False
        self._put(key, new, expires_at)
        return True

    async def discard(self, key: bytes, old: bytes) -> bool:
        """Remove the value if it is exactly `old`."""
        entry = self._entries.get(key)
        if entry is None or entry[0] != old:
            return False
        self._remove(key)
        return True

    async def prune(self, now: float) -> int:
        """Remove up to `PRUNE_STEP` expired values; return how many went."""
        expired = self._expiring.before(now, PRUNE_STEP)
        for key in expired:
            self._remove(key)
        return len(expired)

    async def count(self, now: float) -> int:
        """How many live values there are."""
        return len(self._entries) - len(self._expiring.before(now, len(self._entries)))

    async def read_fences(self, known: FenceTable) -> FenceTable | None:
        """The purges so far, or None when nothing is new."""
        return None if self._fences.is_as(known) else self._fences

    async def add_fence(self, scope: bytes, at_least: int, dropped: Collection[bytes]) -> int:
        """Begin the next epoch and fence `scope` with it."""
        epoch = max(self._fences.epoch + 1, at_least)
        gone = set(dropped)
        kept = {s: e for s, e in self._fences.by_scope.items() if s not in gone}
        self._fences = FenceTable(self._fences.founding or new_founding(), epoch, {**kept, scope: epoch})
        return epoch

    async def close(self) -> None:
        """Nothing to release."""

    def _live(self, key: bytes, now: float) -> bytes | None:
        entry = self._entries.get(key)
        if entry is None or (entry[1] is not None and entry[1] <= now):
            return None
        return entry[0]

    def _put(self, key: bytes, value: bytes, expires_at: float | None) -> None:
        self._remove(key)
        self._entries[key] = (value, expires_at)
        self._expiring.add(key, expires_at)
        if len(self._entries) > self._max_entries:
            self._remove(next(iter(self._entries)))

    def _remove(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._expiring.remove(key, entry[1])


class _Expiring:
    """Keys by the time at which they expire, in buckets: adding and removing cost O(1)."""

    def __init__(self) -> None:
        self._buckets: dict[int, dict[bytes, float]] = {}
        self._order: list[int] = []  # a heap of the buckets' numbers

    def add(self, key: bytes, expires_at: float | None) -> None:
        if expires_at is None:
            return
        number = int(expires_at // BUCKET_S)
        if number not in self._buckets:
            self._buckets[number] = {}
            heapq.heappush(self._order, number)
        self._buckets[number][key] = expires_at

    def remove(self, key: bytes, expires_at: float | None) -> None:
        if expires_at is not None:
            del self._buckets[int(expires_at // BUCKET_S)][key]

    def before(self, now: float, most: int) -> list[bytes]:
        """At most `most` keys with an expiry at or before `now`."""
        while self._order and not self._buckets[self._order[0]]:
            del self._buckets[heapq.heappop(self._order)]
        last = int(now // BUCKET_S)
        found: list[bytes] = []
        for number in sorted(n for n in self._order if n <= last):
            due = self._buckets[number].items()
            found.extend(islice((key for key, at in due if at <= now), most - len(found)))
            if len(found) == most:
                break
        return found
