"""Routers, a Coalescer and a store in one process, with faults on request."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from core.coalescing.bounds import Bounds
from core.coalescing.client import Coalescer, Turns
from core.coalescing.messages import Batch, Event, Verdict
from core.coalescing.shard import LocalShard
from core.flights import SingleFlight

CALL_S = 0.002

T = TypeVar("T")


class ShardDied(Exception):
    """What a call ends in when its actor dies."""


@dataclass
class FlakyShard:
    """A shard behind a network: each call takes a while, and may fail on its way there or back."""

    shard: LocalShard
    delay_s: float = CALL_S
    reply_s: float = 0.0  # how much longer the reply of an exchange takes than that of a listen
    down: bool = False
    deaf: bool = False  # exchanges work, and listening fails
    frozen: bool = False  # takes calls, and neither answers nor does anything
    lose_replies: int = 0  # so many exchanges are carried out, and their replies are lost
    batches: list[Batch] = field(default_factory=list)
    tries: int = 0  # exchanges that were begun
    listens: int = 0
    in_flight: int = 0
    most_in_flight: int = 0

    def __post_init__(self) -> None:
        self._died = asyncio.Event()

    async def exchange(self, batch: Batch) -> Sequence[Verdict] | None:
        self.tries += 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._unless_it_dies(self._exchange(batch))
        finally:
            self.in_flight -= 1

    async def listen(self, session: str) -> Sequence[Event] | None:
        self.listens += 1
        return await self._unless_it_dies(self._listen(session))

    def die(self, successor: LocalShard) -> None:
        """All calls end in an error, and the next ones reach `successor`."""
        self.shard = successor
        died, self._died = self._died, asyncio.Event()
        died.set()

    async def _exchange(self, batch: Batch) -> Sequence[Verdict] | None:
        await self._travel()
        self.batches.append(batch)
        verdicts = await self.shard.exchange(batch)
        if self.lose_replies:
            self.lose_replies -= 1
            raise ShardDied
        await asyncio.sleep(self.reply_s)
        await self._travel()
        return verdicts

    async def _listen(self, session: str) -> Sequence[Event] | None:
        await self._travel()
        if self.deaf:
            raise ShardDied
        events = await self.shard.listen(session)
        await self._travel()
        return events

    async def _travel(self) -> None:
        if self.frozen:
            await asyncio.Event().wait()
        await asyncio.sleep(self.delay_s)
        if self.down:
            raise ShardDied

    async def _unless_it_dies(self, call: Coroutine[Any, Any, T]) -> T:
        work, death = asyncio.ensure_future(call), asyncio.ensure_future(self._died.wait())
        try:
            await asyncio.wait({work, death}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ShardDied
            return work.result()
        finally:
            work.cancel()
            death.cancel()


@dataclass
class Engine:
    """Computes slowly, remembers what it computed, and fails when told to."""

    takes_s: float = 0.3
    failures: dict[bytes, int] = field(default_factory=dict)  # how many times more a key fails
    runs: Counter[bytes] = field(default_factory=Counter)

    async def compute(self, key: bytes) -> bytes:
        self.runs[key] += 1
        run = self.runs[key]
        await asyncio.sleep(self.takes_s)
        if self.failures.get(key, 0) > 0:
            self.failures[key] -= 1
            raise EngineBroke
        return b"%b answered by run %d" % (key, run)


class EngineBroke(Exception):
    """The engine failed."""


class Router:
    """What a Router does with a request: local flight, store, turn, store again, engine."""

    def __init__(
        self, turns: Turns, store: dict[bytes, bytes], engine: Engine, deadline_s: float = 9.0
    ) -> None:
        self.turns = turns
        self.store = store
        self.engine = engine
        self._dead = False
        self._flights: SingleFlight[bytes, bytes] = SingleFlight(deadline_s)

    def die(self, wire: FlakyShard) -> None:
        """Say and store nothing any more, as a process that was killed."""
        self._dead = True
        wire.frozen = True

    async def decide(self, key: bytes) -> bytes:
        return (await self._flights.run(key, lambda: self._settle(key))).value

    async def _settle(self, key: bytes) -> bytes:
        if key in self.store:
            return self.store[key]
        async with self.turns.turn(key) as turn:
            if turn.answer is not None:
                return turn.answer
            if key not in self.store:
                fresh = await self.engine.compute(key)
                if self._dead:
                    await asyncio.Event().wait()
                self.store.setdefault(key, fresh)  # the first wins
            turn.settle(self.store[key])
            return self.store[key]


@dataclass
class Fleet:
    """Three Routers, each with a connection of its own to the one shard."""

    bounds: Bounds = field(default_factory=Bounds)
    engine: Engine = field(default_factory=Engine)
    store: dict[bytes, bytes] = field(default_factory=dict)
    size: int = 3

    def __post_init__(self) -> None:
        self.shard = LocalShard(self.bounds)
        self.wires = [FlakyShard(self.shard) for _ in range(self.size)]
        self.clients = [Coalescer([wire], self.bounds, jitter=lambda: 0.5) for wire in self.wires]
        self.routers = [Router(client, self.store, self.engine) for client in self.clients]

    def restart_shard(self) -> None:
        """The actor dies and another takes its place: whatever it knew is lost."""
        self.shard = LocalShard(self.bounds, first_token=1_000_000)
        for wire in self.wires:
            wire.die(self.shard)

    def kill_router(self, number: int) -> None:
        self.routers[number].die(self.wires[number])

    async def close(self) -> None:
        for client in self.clients:
            await client.close()


async def outcomes(work: Iterable[Awaitable[T]]) -> list[T | BaseException]:
    """Every outcome, errors and cancellations included."""
    return await asyncio.gather(*work, return_exceptions=True)
