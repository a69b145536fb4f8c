"""A cache that is used, watched, or left out: one for each tenant, with the same calls.

on      decisions are stored and replayed
shadow  decisions are stored; what would be replayed is compared with the fresh answer, which is given
off     nothing is looked up and nothing is stored
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

from core.cache.cache import DecisionCache
from core.cache.decision import Decision
from core.cache.vault import Added
from core.contract.questions import Question
from core.identity import Identity


class Mode(StrEnum):
    """What a tenant's requests do with the cache."""

    ON = "on"
    SHADOW = "shadow"
    OFF = "off"


class CacheView(Protocol):
    """What deciding needs of a cache. `DecisionCache` is one itself."""

    @property
    def epoch(self) -> int:
        """What a decision must carry whose request begins now."""
        ...

    def allows(self, decision: Decision, identity: Identity) -> bool:
        """Whether no purge covers a decision that somebody else made."""
        ...

    def adopt(self, decision: Decision, identity: Identity, now: float) -> None:
        """Remember a decision that another process settled in the store."""
        ...

    def peek(self, key: bytes, now: float, /) -> Decision | None:
        """The decision in memory."""
        ...

    async def get(
        self, key: bytes, identity: Identity, now: float, questions: Mapping[str, Question] | None = None
    ) -> Decision | None:
        """The decision in memory or in the store."""
        ...

    async def add(self, decision: Decision, identity: Identity, now: float) -> Added:
        """Store a fresh decision unless one is there, and return the one that counts."""
        ...

    async def add_first(self, decision: Decision, identity: Identity, now: float) -> Added:
        """Do what `add` does, as the lookup of a decision that cost nothing to make."""
        ...


def view(cache: DecisionCache, mode: Mode) -> CacheView:
    """The cache as requests in this mode see it."""
    match mode:
        case Mode.ON:
            return cache
        case Mode.SHADOW:
            return Shadow(cache)
        case Mode.OFF:
            return Off(cache)


class Off:
    """No cache: every decision is made afresh."""

    def __init__(self, cache: DecisionCache) -> None:
        self._cache = cache

    @property
    def epoch(self) -> int:
        """See `CacheView`."""
        return self._cache.epoch

    def allows(self, decision: Decision, identity: Identity) -> bool:
        """See `CacheView`."""
        return self._cache.allows(decision, identity)

    def adopt(self, decision: Decision, identity: Identity, now: float) -> None:
        """Nothing is remembered."""

    def peek(self, key: bytes, now: float, /) -> Decision | None:
        """Nothing."""
        return None

    async def get(
        self, key: bytes, identity: Identity, now: float, questions: Mapping[str, Question] | None = None
    ) -> Decision | None:
        """Nothing."""
        return None

    async def add(self, decision: Decision, identity: Identity, now: float) -> Added:
        """Return the fresh decision, which is stored nowhere."""
        return Added(replace(decision, stored_at=now), won=True, stored=False)

    async def add_first(self, decision: Decision, identity: Identity, now: float) -> Added:
        """See `add`."""
        return await self.add(decision, identity, now)


class Shadow(Off):
    """A cache that is filled and compared with, and never answers."""

    async def add(self, decision: Decision, identity: Identity, now: float) -> Added:
        """Return the fresh decision, and count how it differs from the one that would have been replayed."""
        settled = await self._cache.settle(decision, identity, now)
        if not settled.won:
            self._cache.compare(settled.decision, decision, identity)
        return Added(replace(decision, stored_at=now), won=True, stored=settled.won and settled.stored)
