"""Routers as processes of their own on a local Ray, with one Coalescer and one store between them."""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import ray

from core.coalescing.bounds import Bounds
from core.coalescing.client import Coalescer, CoalescerStats
from core.flights import SingleFlight
from deployments.coalescer import MAX_CALLS, ActorShard, CoalescerShard

DEADLINE_S = 20.0
ENGINE_S = 0.3
SHARD = "coalescer-0"


class Records:
    """A store of which the first writer wins, and a count of the runs of each key."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._runs: Counter[bytes] = Counter()

    async def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    async def add(self, key: bytes, value: bytes) -> bytes:
        return self._values.setdefault(key, value)

    async def begin(self, key: bytes) -> None:
        self._runs[key] += 1

    async def runs(self) -> dict[bytes, int]:
        return dict(self._runs)


class RouterProcess:
    """What a Router does with a request, without HTTP and with an engine that sleeps."""

    def __init__(self, records: Any, bounds: dict[str, Any], engine_s: float, seed: int) -> None:
        self._records = records
        self._engine_s = engine_s
        self._chance = random.Random(seed)
        self._flights: SingleFlight[bytes, bytes] = SingleFlight(DEADLINE_S)
        self._turns = Coalescer([ActorShard(SHARD, ray.get_actor)], Bounds(**bounds))

    async def pid(self) -> int:
        return os.getpid()

    async def stats(self) -> CoalescerStats:
        return self._turns.stats()

    async def reachable(self) -> bool:
        return self._turns.reachable

    async def decide_all(self, keys: Sequence[bytes], leaving: float = 0.0) -> list[bytes | None]:
        """Answers in order. A share `leaving` of the callers leaves at random times and has none."""
        callers = [asyncio.create_task(self._decide(key)) for key in keys]
        loop = asyncio.get_running_loop()
        for caller in callers:
            if self._chance.random() < leaving:
                loop.call_later(self._chance.uniform(0, 2 * self._engine_s), caller.cancel)
        ends = await asyncio.gather(*callers, return_exceptions=True)
        return [None if isinstance(end, asyncio.CancelledError) else _answer(end) for end in ends]

    async def _decide(self, key: bytes) -> bytes:
        return (await self._flights.run(key, lambda: self._settle(key))).value

    async def _settle(self, key: bytes) -> bytes:
        stored = await self._records.get.remote(key)
        if stored is not None:
            return bytes(stored)
        async with self._turns.turn(key) as turn:
            if turn.answer is not None:
                return turn.answer
            stored = await self._records.get.remote(key)
            if stored is None:
                await self._records.begin.remote(key)
                await asyncio.sleep(self._engine_s)
                stored = await self._records.add.remote(key, b"%b by process %d" % (key, os.getpid()))
            turn.settle(stored)
            return bytes(stored)


def _answer(end: bytes | BaseException) -> bytes:
    if isinstance(end, BaseException):
        raise end
    return end


@dataclass
class Cluster:
    """The actors, as the tests use them."""

    bounds: Bounds
    shard: Any
    records: Any
    routers: list[Any]

    def runs(self, keys: Sequence[bytes]) -> list[int]:
        """How often the engine ran for each key."""
        runs: dict[bytes, int] = ray.get(self.records.runs.remote())
        return [runs.get(key, 0) for key in keys]

    def load(self) -> dict[str, int]:
        load: dict[str, int] = ray.get(self.shard.load.remote())
        return load

    def stats(self) -> list[CoalescerStats]:
        stats: list[CoalescerStats] = ray.get([router.stats.remote() for router in self.routers])
        return stats

    def totals(self) -> Counter[str]:
        """The counters of all Routers together."""
        totals: Counter[str] = Counter()
        for stats in self.stats():
            totals.update(asdict(stats))
        return totals

    def add_router(self) -> Any:
        """One more process, which is not among `routers`."""
        router = start_router(self.records, self.bounds, seed=len(self.routers))
        ray.get(router.pid.remote())
        return router

    def start_shard(self) -> None:
        self.shard = start_shard(self.bounds)

    def stop(self) -> None:
        for actor in (*self.routers, self.shard, self.records):
            ray.kill(actor)


def start_shard(bounds: Bounds) -> Any:
    actor = ray.remote(CoalescerShard).options(name=SHARD, num_cpus=0, max_concurrency=MAX_CALLS)
    return actor.remote(asdict(bounds))


def start_router(records: Any, bounds: Bounds, seed: int) -> Any:
    process: Any = ray.remote(RouterProcess).options(num_cpus=0, max_concurrency=MAX_CALLS)
    return process.remote(records, asdict(bounds), ENGINE_S, seed)


def start(bounds: Bounds, routers: int) -> Cluster:
    """Start everything and wait until each Router process answers."""
    shard = start_shard(bounds)
    records = ray.remote(Records).options(num_cpus=0, max_concurrency=MAX_CALLS).remote()
    handles = [start_router(records, bounds, seed) for seed in range(routers)]
    ray.get([handle.pid.remote() for handle in handles])
    return Cluster(bounds, shard, records, handles)
