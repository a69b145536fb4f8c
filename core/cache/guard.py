"""A store that fails costs speed, never a decision: calls have a deadline, and a failing store is left alone.

    closed    calls pass; a timeout opens both breakers, any other failure the one of its own direction
    open      calls are refused at once
    probing   after a pause one caller tries; its success closes, its failure doubles the pause

Reads and writes have a breaker each, since a full or read-only store still answers what it holds.
"""

import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from core.cache.alarm import Alarm
from core.cache.stores.base import FenceTable, Store
from core.errors import StoreUnavailable
from core.waiting import within

T = TypeVar("T")


class StoreState(StrEnum):
    """What a breaker does with the next call."""

    CLOSED = "closed"
    OPEN = "open"
    PROBING = "probing"


@dataclass(frozen=True, slots=True)
class Guarding:
    """How a store is watched."""

    deadline_s: float = 0.05  # the longest that one call may take
    pause_s: float = 0.25  # how long a failing store is left alone at first
    max_pause_s: float = 5.0  # and at most, when probes keep failing
    patience_s: float = 2.0  # the longest that an operator's call may take: no request waits for those


@dataclass(slots=True)
class GuardCounts:
    """What became of the calls that did not succeed."""

    errors: int = 0  # the store failed, timeouts included
    timeouts: int = 0
    skipped: int = 0  # not sent, because the store was failing


class Admission(StrEnum):
    """As what a call may go to the store."""

    NORMAL = "normal"
    PROBE = "probe"


class Breaker:
    """Keep callers from a failing store, and let one at a time find out whether it is back.

    Args:
        pause_s: how long it stays open at first; doubled by each failed probe.
        max_pause_s: the longest pause.
        jitter: numbers in [0, 1) that spread the probes of many processes.
    """

    def __init__(
        self, pause_s: float, max_pause_s: float, jitter: Callable[[], float] = random.random
    ) -> None:
        self._first_pause_s = pause_s
        self._max_pause_s = max_pause_s
        self._jitter = jitter
        self._pause_s = pause_s
        self._opened_at = 0.0
        self._retry_at = 0.0
        self.state = StoreState.CLOSED

    def admit(self, now: float) -> Admission | None:
        """Whether a call may go to the store, and as what; once it ended, `settle` must be told."""
        if self.state is StoreState.CLOSED:
            return Admission.NORMAL
        # A clock that was set back must not keep it open.
        if self.state is StoreState.PROBING or self._opened_at <= now < self._retry_at:
            return None
        self.state = StoreState.PROBING
        return Admission.PROBE

    def settle(self, admission: Admission, succeeded: bool, now: float) -> None:
        """Tell how an admitted call ended. Normal calls that outlived the opening change nothing."""
        if admission is Admission.PROBE:
            self._pause_s = self._first_pause_s if succeeded else min(2.0 * self._pause_s, self._max_pause_s)
            self.state = StoreState.CLOSED
        if not succeeded:
            self.trip(now)

    def abandon(self, admission: Admission) -> None:
        """Tell that an admitted call was given up: if it was the probe, the next caller is."""
        if admission is Admission.PROBE:
            self.state = StoreState.OPEN
            self._retry_at = self._opened_at

    def trip(self, now: float) -> None:
        """Open, unless it is open or being probed."""
        if self.state is StoreState.CLOSED:
            self.state = StoreState.OPEN
            self._opened_at = now
            self._retry_at = now + self._pause_s * (1.0 + 0.25 * self._jitter())


class Guarded:
    """A store behind a deadline and two breakers. Every failure is counted and is `StoreUnavailable`."""

    def __init__(self, store: Store, guarding: Guarding, alarm: Alarm) -> None:
        self._store = store
        self._guarding = guarding
        self._alarm = alarm
        self._reads = Breaker(guarding.pause_s, guarding.max_pause_s)
        self._writes = Breaker(guarding.pause_s, guarding.max_pause_s)
        self.counts = GuardCounts()

    @property
    def reading(self) -> StoreState:
        """What becomes of the next lookup."""
        return self._reads.state

    @property
    def writing(self) -> StoreState:
        """What becomes of the next write."""
        return self._writes.state

    async def get_many(self, keys: Sequence[bytes], now: float) -> dict[bytes, bytes]:
        """See `Store`."""
        return await self._watch("get", self._reads, now, lambda: self._store.get_many(keys, now))

    async def add(self, key: bytes, value: bytes, expires_at: float | None, now: float) -> bytes:
        """See `Store`."""
        return await self._watch(
            "add", self._writes, now, lambda: self._store.add(key, value, expires_at, now)
        )

    async def replace(self, key: bytes, old: bytes, new: bytes, expires_at: float | None, now: float) -> bool:
        """See `Store`."""
        return await self._watch(
            "replace", self._writes, now, lambda: self._store.replace(key, old, new, expires_at, now)
        )

    async def discard(self, key: bytes, old: bytes, now: float) -> bool:
        """See `Store`."""
        return await self._watch("discard", self._writes, now, lambda: self._store.discard(key, old))

    async def read_fences(self, known: FenceTable, now: float) -> FenceTable | None:
        """See `Store`."""
        return await self._watch("read_fences", self._reads, now, lambda: self._store.read_fences(known))

    async def add_fence(self, scope: bytes, at_least: int, dropped: Collection[bytes], now: float) -> int:
        """See `Store`. A purge is tried even where the store was failing, and may take longer."""
        return await self._insist("add_fence", now, lambda: self._store.add_fence(scope, at_least, dropped))

    async def found_fences(self, scope: bytes, epoch: int, now: float) -> int:
        """Begin the fences of a store that has none. Nobody waits for it: a failing store is left alone."""
        return await self._watch(
            "add_fence", self._writes, now, lambda: self._store.add_fence(scope, epoch, ())
        )

    async def prune(self, now: float) -> int:
        """See `Store`."""
        return await self._insist("prune", now, lambda: self._store.prune(now))

    async def count(self, now: float) -> int:
        """See `Store`."""
        return await self._insist("count", now, lambda: self._store.count(now))

    async def close(self) -> None:
        """See `Store`."""
        await self._store.close()

    async def _watch(self, what: str, side: Breaker, now: float, call: Callable[[], Awaitable[T]]) -> T:
        admission = side.admit(now)
        if admission is None:
            self.counts.skipped += 1
            raise StoreUnavailable(what, "not asked, because it was failing a moment ago")
        try:
            result = await self._within(what, self._guarding.deadline_s, call)
        except StoreUnavailable as error:
            side.settle(admission, False, now)
            if self._note(error, now):
                self._reads.trip(now)
                self._writes.trip(now)
            raise
        except BaseException:
            side.abandon(admission)
            raise
        side.settle(admission, True, now)
        return result

    async def _insist(self, what: str, now: float, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await self._within(what, self._guarding.patience_s, call)
        except StoreUnavailable as error:
            self._note(error, now)
            raise

    async def _within(self, what: str, deadline_s: float, call: Callable[[], Awaitable[T]]) -> T:
        try:
            async with within(deadline_s):
                return await call()
        except StoreUnavailable:
            raise
        except TimeoutError as error:
            raise StoreUnavailable(what, f"no reply within {deadline_s:g} s") from error
        except Exception as error:  # a store that breaks its promise is a failing store
            raise StoreUnavailable(what, type(error).__name__) from error

    def _note(self, error: StoreUnavailable, now: float) -> bool:
        """Count a failure and tell of it; True when it was a timeout, whoever noticed that."""
        timed_out = isinstance(error.__cause__, TimeoutError)
        self.counts.errors += 1
        self.counts.timeouts += timed_out
        self._alarm.ring("store", f"{error}; decisions go on without it", now)
        return timed_out
