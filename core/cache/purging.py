"""What one cache knows of the fences of its store: it reads them at least once a second and adds its own."""

import asyncio
import math
from dataclasses import dataclass
from typing import Final

from core.cache.decision import Decision
from core.cache.fences import EVERYTHING, NOTHING, Fences, Scope, is_covered
from core.cache.guard import Guarded
from core.cache.stores.base import FenceTable
from core.errors import StoreUnavailable
from core.identity import Identity

NEVER_READ: Final = -math.inf


@dataclass(frozen=True, slots=True)
class Purged:
    """What a purge fenced."""

    scope: Scope  # wider than the one asked for where there are too many fences
    epoch: int | None  # None: in force here; other caches learn of it when the store answers again


class Purging:
    """The fences as this cache knows them.

    Args:
        store: where caches exchange them.
        poll_s: after this time the knowledge is out of date.
    """

    def __init__(self, store: Guarded, poll_s: float) -> None:
        self._store = store
        self._poll_s = poll_s
        self._fences = Fences()
        self._waiting: list[Scope] = []  # purged here while the store could not be told
        self._one_at_a_time = asyncio.Lock()  # an older table must not arrive after a newer one
        self.read_at = NEVER_READ  # Unix seconds of the last time the store said what is fenced
        self.generation = 0  # goes up whenever something that was allowed may be allowed no more

    @property
    def epoch(self) -> int:
        """What a decision must carry whose request begins now."""
        return self._fences.table.epoch

    def allows(self, decision: Decision, identity: Identity) -> bool:
        """Whether `decision`, asked for by `identity`, may be replayed."""
        if self._waiting and is_covered(decision, identity, self._waiting):
            return False
        return decision.epoch >= self._fences.newest or self._fences.allow(decision, identity)

    def is_due(self, now: float) -> bool:
        """Whether the fences were read too long ago."""
        return not self.read_at <= now < self.read_at + self._poll_s

    async def refresh(self, now: float, *, only_if_due: bool = False) -> bool:
        """Read what is new in the store, and tell it what it could not be told before.

        Returns whether the store answered.
        """
        if only_if_due and self._one_at_a_time.locked() and self.read_at != NEVER_READ:
            return True  # they are being read; until then what was known a moment ago will do
        async with self._one_at_a_time:
            if only_if_due and not self.is_due(now):  # somebody else read them while we waited
                return True
            try:
                await self._read(now)
                await self._tell_what_waits(now)
            except StoreUnavailable:
                return False
            return True

    async def purge(self, scope: Scope, now: float) -> Purged:
        """Fence `scope`, here at once and everywhere within a poll; what the store cannot be told waits."""
        async with self._one_at_a_time:
            try:
                return await self._fence(scope, now)
            except StoreUnavailable:
                self._waiting = [other for other in self._waiting if not scope.covers(other)] + [scope]
                self.generation += 1
                return Purged(scope, None)

    async def _read(self, now: float) -> None:
        known = self._fences.table
        table = await self._store.read_fences(known, now)
        self.read_at = now
        if table is None:
            if not known.founding:
                await self._begin(NOTHING, known, now)
            return
        fences = Fences.of(table)
        lost = known.founding and (table.founding != known.founding or table.epoch < known.epoch)
        if lost and fences.everything <= known.epoch:
            # The store has lost fences and perhaps decisions. What is in memory here and elsewhere may
            # disagree with what it will hold next, so nothing older counts any more.
            await self._begin(EVERYTHING.encode(), known, now)
        else:
            self._adopt(fences)

    async def _begin(self, scope: bytes, known: FenceTable, now: float) -> None:
        await self._store.found_fences(scope, known.epoch + 1, now)
        table = await self._store.read_fences(known, now)
        if table is not None:
            self._adopt(Fences.of(table))

    async def _tell_what_waits(self, now: float) -> None:
        while self._waiting:
            await self._fence(self._waiting[0], now)
            self._waiting = self._waiting[1:]

    async def _fence(self, scope: Scope, now: float) -> Purged:
        known = self._fences
        wide = known.widened(scope)
        dropped = known.superfluous_beside(wide)
        epoch = await self._store.add_fence(wide.encode(), known.table.epoch + 1, dropped, now)
        self._adopt(known.with_fence(wide, epoch))
        return Purged(wide, epoch)

    def _adopt(self, fences: Fences) -> None:
        self._fences = fences
        self.generation += 1
