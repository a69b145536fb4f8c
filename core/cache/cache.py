"""Keep decisions, and give them back: the first one stored for a key is everybody's answer.

Two layers: decoded decisions in this process's memory, and a store that others may share. What the store says
counts; memory repeats it. Where the store fails, a decision goes on without it: it is kept in memory, its
caller is told that it is not stored, and `maintain` offers it to the store later, where an earlier one wins.
"""

import asyncio
import contextlib
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from core.cache.alarm import Alarm
from core.cache.comparison import difference
from core.cache.decision import Decision
from core.cache.envelope import encode
from core.cache.fences import Scope
from core.cache.guard import Guarded, Guarding, StoreState
from core.cache.purging import Purged, Purging
from core.cache.recent import Entry, Recent
from core.cache.retention import NotKept, Retention
from core.cache.stats import CacheStats, Tally
from core.cache.stores.base import Store
from core.cache.vault import Added, Asked, Vault
from core.contract.questions import Question
from core.errors import StoreUnavailable
from core.identity import Identity

WRITES_AT_ONCE: Final = 64  # in maintenance
PRUNE_STEPS: Final = 10  # in one round of maintenance


@dataclass(frozen=True, slots=True)
class Limits:
    """What a cache may use, and how long it goes on without its store."""

    memory_entries: int = 50_000
    memory_bytes: int = 256 * 2**20  # roughly
    poll_s: float = 1.0  # fences of other processes are read at least this often
    grace_s: float | None = 10.0  # how long memory is replayed while they cannot be read; None: for ever
    prune_every_s: float = 10.0


class DecisionCache:
    """Decisions by key, for one event loop. `now` is Unix seconds, and everywhere an argument.

    Args:
        store: where decisions are kept; the cache closes it.
        retention: how long; without expiry by default.
        limits: what memory it may use.
        guarding: how long it waits for the store.
        alarm: takes warnings, few per minute.
    """

    def __init__(
        self,
        store: Store,
        retention: Retention | None = None,
        limits: Limits | None = None,
        guarding: Guarding | None = None,
        alarm: Alarm | None = None,
    ) -> None:
        self._retention = retention or Retention()
        self._limits = limits or Limits()
        self._alarm = alarm or Alarm()
        self._store = Guarded(store, guarding or Guarding(), self._alarm)
        self._purging = Purging(self._store, self._limits.poll_s)
        self._vault = Vault(self._store, self._purging, self._alarm)
        self._recent = Recent(self._limits.memory_entries, self._limits.memory_bytes, self._may_be_replayed)
        # The decision in memory for a key, at an instant; bound here since a method would cost a third more.
        self.peek: Callable[[bytes, float], Decision | None] = self._recent.peek
        self._tallies: defaultdict[str, Tally] = defaultdict(Tally)
        self._pruned_at = -math.inf
        self._take_over_fences()

    @property
    def epoch(self) -> int:
        """What a decision must carry as its `epoch`: read it when the request begins, not when it ends."""
        return self._purging.epoch

    def allows(self, decision: Decision, identity: Identity) -> bool:
        """Whether no purge known here covers a decision that another caller, or another process, made."""
        return self._purging.allows(decision, identity)

    def adopt(self, decision: Decision, identity: Identity, now: float) -> None:
        """Remember a decision that another process settled in the store."""
        self._remember(
            decision, Asked(decision.key, identity, now, self._tallies[identity.tenant]), settled=True
        )

    async def get(
        self, key: bytes, identity: Identity, now: float, questions: Mapping[str, Question] | None = None
    ) -> Decision | None:
        """The decision in memory or in the store; None where there is none, or the store fails.

        Args:
            key: of the request.
            identity: whose request it is.
            now: Unix seconds.
            questions: those of the request; a stored decision about any other is not used.
        """
        decision = self.peek(key, now)
        if decision is not None:
            return decision
        asked = Asked(key, identity, now, self._tallies[identity.tenant])
        if self._purging.is_due(now):
            await self.refresh_fences(now, only_if_due=True)
        decision = await self._vault.find(asked, questions)
        if decision is None:
            asked.tally.misses += 1
            return None
        asked.tally.hits_store += 1
        self._remember(decision, asked, settled=True)
        return decision

    async def add(self, decision: Decision, identity: Identity, now: float) -> Added:
        """Store a fresh decision unless one is there, and return the one that counts.

        `decision.epoch` is what `epoch` was when the request began, and `decision.last_expiry` the deadline
        of its evidence. When the store fails, the decision counts in this process and `stored` is False. It
        is not stored either where retention, a purge since the request began, or its size forbid it.
        """
        added = await self.settle(decision, identity, now)
        if not added.won:
            self._tallies[identity.tenant].conflicts += 1
        return added

    async def add_first(self, decision: Decision, identity: Identity, now: float) -> Added:
        """Look up and store in one round trip, for a decision that cost nothing to make.

        Does what `add` does; one that was there before counts as a hit, not as a lost race.
        """
        if self._purging.is_due(now):
            await self.refresh_fences(now, only_if_due=True)
        added = await self.settle(decision, identity, now)
        tally = self._tallies[identity.tenant]
        tally.misses += added.won
        tally.hits_store += not added.won
        return added

    async def settle(self, decision: Decision, identity: Identity, now: float) -> Added:
        """Do what `add` does, without counting a lost race."""
        asked = Asked(decision.key, identity, now, self._tallies[identity.tenant])
        kept = self._retention.stamp(decision, now)
        if isinstance(kept, NotKept):
            asked.tally.not_kept += 1
            asked.tally.retention_errors += kept is NotKept.FUNCTION_FAILED
            return Added(replace(decision, stored_at=now), won=True, stored=False)
        value = encode(kept, identity.tenant)
        if value is None:
            asked.tally.too_large += 1
        elif not self._purging.allows(kept, identity):
            asked.tally.fenced += 1
        else:
            return await self._offer(kept, value, asked)
        return Added(kept, won=True, stored=False)

    def compare(self, stored: Decision, fresh: Decision, identity: Identity) -> None:
        """Count how a stored decision differs from a fresh one about the same request."""
        apart = difference(stored.answers, fresh.answers)
        counts = self._tallies[identity.tenant].shadow
        counts.compared += 1
        counts.equal += apart.equal
        counts.flipped += apart.flipped
        counts.largest_difference = max(counts.largest_difference, apart.largest)

    async def purge(self, scope: Scope, now: float) -> Purged:
        """Fence a scope: nothing in it that was decided so far, or is being decided, is replayed again.

        In force here on return, and in every other cache of the store once it has read its fences.
        """
        purged = await self._purging.purge(scope, now)
        self._take_over_fences()
        return purged

    async def refresh_fences(self, now: float, *, only_if_due: bool = False) -> bool:
        """Learn what others purged; False when the store did not say."""
        answered = await self._purging.refresh(now, only_if_due=only_if_due)
        self._take_over_fences()
        return answered

    async def maintain(self, now: float) -> None:
        """Learn of purges, bring the store what it missed, renew what was replayed, remove what expired.

        To be called at least once a second; `keep_up` does.
        """
        if not await self.refresh_fences(now):
            return
        await self._in_steps(self._recent.unsettled, self._settle_late, now)
        await self._in_steps(self._recent.to_renew, self._renew, now)
        if not self._pruned_at <= now < self._pruned_at + self._limits.prune_every_s:
            self._pruned_at = now
            await self.prune(now)

    async def keep_up(self, clock: Callable[[], float], every_s: float = 0.5) -> None:
        """Maintain until cancelled, whatever happens."""
        while True:
            now = clock()
            try:
                await self.maintain(now)
            except Exception as error:  # nobody waits for this task: it would end unseen
                self._alarm.ring("maintenance", f"the cache could not be maintained: {error!r}", now)
            await asyncio.sleep(every_s)

    async def prune(self, now: float) -> int:
        """Remove expired decisions from the store, in small steps; return how many went."""
        gone = 0
        for _ in range(PRUNE_STEPS):
            try:
                step = await self._store.prune(now)
            except StoreUnavailable:
                break
            if step == 0:
                break
            gone += step
        return gone

    async def count(self, now: float) -> int | None:
        """How many decisions the store holds; None when it does not say."""
        try:
            return await self._store.count(now)
        except StoreUnavailable:
            return None

    def stats(self, tenant: str | None = None) -> CacheStats:
        """This process's numbers, for one tenant or for all."""
        tallies = self._tallies.values() if tenant is None else [self._tallies.get(tenant, Tally())]
        counts = self._store.counts
        return CacheStats(
            entries=len(self._recent),
            unsettled=len(self._recent.unsettled),
            evictions=self._recent.evictions,
            tally=sum(tallies, Tally()),
            oddities=replace(self._vault.oddities),
            errors=counts.errors,
            timeouts=counts.timeouts,
            skipped=counts.skipped,
            reading=self._store.reading,
            writing=self._store.writing,
        )

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()

    async def _offer(self, decision: Decision, value: bytes, asked: Asked) -> Added:
        try:
            added = await self._vault.settle(decision, value, asked)
        except StoreUnavailable:
            asked.tally.unstored += 1
            alone = replace(decision, is_stored=False)
            self._remember(alone, asked, settled=False)
            return Added(alone, won=True, stored=False)
        asked.tally.added += added.won and added.stored
        self._remember(added.decision, asked, settled=True)
        return added

    def _remember(self, decision: Decision, asked: Asked, *, settled: bool) -> None:
        entry = Entry(decision, asked.identity, asked.tally, settled)
        if not settled:
            entry.known_at = asked.now
        if self._retention.renew_on_hit:
            entry.renew_at = self._retention.renew_at(decision)
        self._recent.put(entry)

    def _may_be_replayed(self, entry: Entry, now: float) -> bool:
        decision = entry.decision
        if decision.expires_at is not None and decision.expires_at <= now:
            self._recent.drop(decision.key)
            return False
        if not self._purging.allows(decision, entry.identity):
            entry.tally.fenced += 1
            self._recent.drop(decision.key)
            return False
        grace_s = self._limits.grace_s
        if now >= self._recent.trusted_until and grace_s is not None and now >= entry.known_at + grace_s:
            return False
        if now >= entry.renew_at and entry.settled:
            self._recent.to_renew[decision.key] = None
            entry.renew_at = math.inf
        entry.generation = self._recent.generation
        entry.look_again_at = min(
            math.inf if decision.expires_at is None else decision.expires_at, entry.renew_at
        )
        return True

    def _take_over_fences(self) -> None:
        grace_s = self._limits.grace_s
        self._recent.generation = self._purging.generation
        self._recent.trusted_until = math.inf if grace_s is None else self._purging.read_at + grace_s

    async def _in_steps(
        self, keys: dict[bytes, None], write: Callable[[Entry, float], Awaitable[None]], now: float
    ) -> None:
        waiting = [*keys]
        for start in range(0, len(waiting), WRITES_AT_ONCE):
            batch = waiting[start : start + WRITES_AT_ONCE]
            entries = [entry for key in batch if (entry := self._recent.get(key)) is not None]
            await asyncio.gather(*(write(entry, now) for entry in entries))
            if self._store.writing is not StoreState.CLOSED:  # what is left waits for the next round
                return

    async def _settle_late(self, entry: Entry, now: float) -> None:
        decision, identity = replace(entry.decision, is_stored=True), entry.identity
        value = encode(decision, identity.tenant)
        if value is None or not self._may_be_replayed(entry, now):
            self._recent.drop(decision.key)
            return
        asked = Asked(decision.key, identity, now, entry.tally)
        with contextlib.suppress(StoreUnavailable):
            added = await self._vault.settle(decision, value, asked)
            asked.tally.added += added.won and added.stored
            asked.tally.conflicts += not added.won
            self._remember(added.decision, asked, settled=True)

    async def _renew(self, entry: Entry, now: float) -> None:
        decision = entry.decision
        renewed = self._retention.renew(decision, now)
        if renewed is None:
            self._recent.to_renew.pop(decision.key, None)
            return
        asked = Asked(decision.key, entry.identity, now, entry.tally)
        with contextlib.suppress(StoreUnavailable):
            if await self._vault.renew(decision, renewed, asked):
                entry.tally.renewals += 1
                self._remember(renewed, asked, settled=True)
            else:
                self._recent.drop(decision.key)  # the next lookup takes what the store has
