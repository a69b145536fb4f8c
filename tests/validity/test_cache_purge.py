"""However purges, writers, readers and polls interleave, no answer comes back from behind a fence.

A hundred writers, and readers in between, run over three caches on one store while scopes are purged. Every
store operation is torn apart by random turns of the event loop. The rule that is checked knows nothing of
epochs: once a cache has purged, or has read its fences after somebody else's purge, it replays no decision of
that scope whose request began before the purge was called.
"""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import orjson
import pytest

from core.cache.cache import DecisionCache
from core.cache.decision import Decision
from core.cache.fences import EVERYTHING, Scope, is_covered
from core.cache.guard import Guarding
from core.identity import Identity
from tests.core.cache.faulty import NOW, FaultyStore, key, noul

IDENTITIES = [Identity("a", "x", "r1"), Identity("a", "y", "r2"), Identity("b", "x", "r1")]
SCOPES = [
    Scope(tenant="a"),
    Scope(tenant="b"),
    Scope(evidence="r1"),
    Scope(tenant="a", deployment="y"),
    EVERYTHING,
]
PATIENT = Guarding(deadline_s=60.0, patience_s=60.0)
CACHES, WRITERS, READERS, PURGES = 3, 100, 200, 8


class Torn(FaultyStore):
    """A store whose operations are interrupted at random."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    async def _meet(self, operation: str) -> None:
        for _ in range(self._chance.randrange(4)):
            await asyncio.sleep(0)


@dataclass
class Purge:
    scope: Scope
    called_at: int
    in_force_at: dict[int, int] = field(default_factory=dict)  # cache -> from when on it must be respected


@dataclass
class Run:
    """One interleaving, and what it showed."""

    seed: int
    stale: list[str] = field(default_factory=list)
    replays: int = 0
    replays_after_a_purge: int = 0

    async def play(self) -> "Run":
        self.chance = random.Random(self.seed)
        self.clock = itertools.count()
        self.store = Torn(self.chance)
        self.caches = [DecisionCache(self.store, guarding=PATIENT) for _ in range(CACHES)]
        self.began: dict[int, int] = {}  # number of the writer -> when its request began
        self.purges: list[Purge] = []
        for cache in self.caches:
            await cache.maintain(NOW)
        await asyncio.gather(
            *(self.at_some_time(partial(self.write, number)) for number in range(WRITERS)),
            *(self.at_some_time(self.read) for _ in range(READERS)),
            *(self.at_some_time(self.purge) for _ in range(PURGES)),
            *(self.at_some_time(self.poll) for _ in range(4 * PURGES)),
        )
        return self

    async def at_some_time(self, action: Callable[[], Awaitable[None]]) -> None:
        for _ in range(self.chance.randrange(200)):
            await asyncio.sleep(0)
        await action()

    async def write(self, number: int) -> None:
        cache, identity = self.chance.choice(self.caches), self.chance.choice(IDENTITIES)
        self.began[number] = next(self.clock)
        decision = noul(self.key_of(identity), (number + 1) / 1_000, epoch=cache.epoch)
        for _ in range(self.chance.randrange(60)):  # the engine runs
            await asyncio.sleep(0)
        await cache.add(decision, identity, NOW)

    async def read(self) -> None:
        index, identity = self.chance.randrange(CACHES), self.chance.choice(IDENTITIES)
        asked_at = next(self.clock)
        in_force = [purge for purge in self.purges if purge.in_force_at.get(index, asked_at) < asked_at]
        found = await self.caches[index].get(key(self.key_of(identity)), identity, NOW)
        if found is not None:
            self.check(found, identity, in_force)

    def check(self, found: Decision, identity: Identity, in_force: list[Purge]) -> None:
        number = round(orjson.loads(found.answers)["q"]["noul"] * 1_000) - 1
        covering = [purge for purge in in_force if is_covered(found, identity, [purge.scope])]
        self.replays += 1
        self.replays_after_a_purge += bool(covering)
        self.stale += [
            f"{purge} did not stop writer {number}, which began at {self.began[number]}"
            for purge in covering
            if self.began[number] < purge.called_at
        ]

    async def purge(self) -> None:
        index = self.chance.randrange(CACHES)
        purge = Purge(self.chance.choice(SCOPES), next(self.clock))
        await self.caches[index].purge(purge.scope, NOW)
        purge.in_force_at[index] = next(self.clock)
        self.purges.append(purge)

    async def poll(self) -> None:
        index = self.chance.randrange(CACHES)
        told = [purge for purge in self.purges if index not in purge.in_force_at]
        assert await self.caches[index].refresh_fences(NOW)
        for purge in told:
            purge.in_force_at.setdefault(index, next(self.clock))

    def key_of(self, identity: Identity) -> int:
        return 10 * IDENTITIES.index(identity) + self.chance.randrange(3)


@pytest.mark.validity
def test_a_purge_racing_a_hundred_writers_never_lets_a_fenced_answer_be_replayed():
    runs = [asyncio.run(Run(seed).play()) for seed in range(60)]

    assert [stale for run in runs for stale in run.stale] == []
    assert sum(run.replays for run in runs) > 4_000  # it was not for lack of replays
    assert sum(run.replays_after_a_purge for run in runs) > 800
