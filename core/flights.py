"""One computation per key in this process: callers join it, leave it, and never disturb one another.

The work belongs to the server and not to a caller. Any caller may leave, the first one included, and the work
goes on: its answer is stored, and the client that gave up and asks again finds it. A failure reaches those
who waited and is forgotten; where another try is worth it, only the first caller fails and the work is done
once more for the others. A hang is bounded. A flight removes itself, once, by identity.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextvars import Context
from dataclasses import dataclass
from typing import Generic, TypeVar

from core.errors import DeadlineExceeded, EngineUnavailable, Overloaded

RETRY_AFTER_S = 1.0

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Landed(Generic[V]):
    """What a flight brought, and whether this caller started it or joined it."""

    value: V
    joined: bool


class SingleFlight(Generic[K, V]):
    """Run at most one computation per key at a time.

    Joining and leaving cost O(1), whatever the number of waiters.

    Args:
        max_s: seconds after which a computation is cancelled and its waiters get `DeadlineExceeded`.
        max_waiting: callers of one key; more get `Overloaded`.
        is_worth_another_try: whether a failure may be of its caller alone.
    """

    def __init__(
        self,
        max_s: float,
        max_waiting: int = 1_000_000,
        is_worth_another_try: Callable[[Exception], bool] = lambda _error: False,
    ) -> None:
        self._max_s = max_s
        self._max_waiting = max_waiting
        self._is_worth_another_try = is_worth_another_try
        self._flights: dict[K, _Flight[V]] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def waiting(self, key: K) -> int:
        """How many callers wait for `key` at this moment."""
        flight = self._flights.get(key)
        return 0 if flight is None else len(flight.waiters)

    async def run(self, key: K, work: Callable[[], Awaitable[V]]) -> Landed[V]:
        """Join the flight for `key`, or start it with `work`.

        Raises:
            DeadlineExceeded: the computation took longer than `max_s`.
            Overloaded: too many wait for this key.
            EngineUnavailable: the computation was cancelled from within, or the event loop stops.
            Exception: whatever `work` raised, to each caller that waited.
        """
        flight = self._flights.get(key)
        joined = flight is not None
        if flight is not None and len(flight.waiters) >= self._max_waiting:
            raise Overloaded(f"{self._max_waiting} callers wait for this decision", RETRY_AFTER_S)
        if flight is None:
            flight = self._flights[key] = _Flight()
            # The flight holds its task: a task that nobody refers to may be collected while it runs. The task
            # has a context of its own: whoever cancels what was begun for one caller must not find it there.
            flight.task = asyncio.create_task(self._fly(key, flight, work), context=Context())
        waiter: asyncio.Future[V] = asyncio.get_running_loop().create_future()
        flight.waiters[waiter] = None
        try:
            return Landed(await waiter, joined)
        finally:
            flight.waiters.pop(waiter, None)

    async def drain(self) -> None:
        """Wait until every flight has landed; used at shutdown."""
        while self._flights:
            await asyncio.wait([flight.task for flight in self._flights.values() if flight.task])

    async def _fly(self, key: K, flight: "_Flight[V]", work: Callable[[], Awaitable[V]]) -> None:
        try:
            async with asyncio.timeout(self._max_s) as limit:
                value = await self._twice_if_need_be(flight, work)
        except asyncio.CancelledError:
            # The loop stops, or something inside `work` was cancelled. The callers were not: they get an
            # error.
            stopped = EngineUnavailable("the computation was cancelled")
            self._land(key, flight, lambda waiter: waiter.set_exception(stopped))
            raise
        except Exception as error:
            failure = DeadlineExceeded(self._max_s) if limit.expired() else error
            self._land(key, flight, lambda waiter: waiter.set_exception(failure))
        else:
            self._land(key, flight, lambda waiter: waiter.set_result(value))

    async def _twice_if_need_be(self, flight: "_Flight[V]", work: Callable[[], Awaitable[V]]) -> V:
        try:
            return await work()
        except Exception as error:
            if len(flight.waiters) < 2 or not self._is_worth_another_try(error):
                raise
            first = next(iter(flight.waiters))
            if not first.done():
                first.set_exception(error)
            del flight.waiters[first]
        return await work()

    def _land(self, key: K, flight: "_Flight[V]", tell: Callable[[asyncio.Future[V]], object]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
        for waiter in tuple(flight.waiters):
            if not waiter.done():  # a caller that left between two turns of the loop
                tell(waiter)


class _Flight(Generic[V]):
    __slots__ = ("task", "waiters")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.waiters: dict[asyncio.Future[V], None] = {}  # in order of arrival
