"""A Router's side of coalescing: a turn at a key is either somebody else's answer or leave to compute.

    async with coalescer.turn(key) as turn:
        if turn.answer is not None:
            return turn.answer
        ...                     # look into the store once more, then compute
        turn.settle(value)      # leaving the block without it passes the key to another waiter

Whatever becomes of the Coalescer, a turn comes: at once while it cannot be reached, after `max_wait_s` at the
latest. The store's rule that the first decision wins is what keeps answers equal; this saves computations.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Protocol

from core.coalescing.bounds import Bounds
from core.coalescing.line import Line
from core.coalescing.messages import Shard
from core.coalescing.seats import Phase, Seat, Tally
from core.errors import Overloaded


@dataclass(frozen=True, slots=True)
class CoalescerStats:
    """What happened since the start, and what is the case now.

    Each of `claims` ends as one of runs, takeovers, coalesced, uncoordinated, sheds and left, unless it is
    among `waiting` still.
    """

    claims: int = 0  # turns asked for
    runs: int = 0  # granted at once
    waits: int = 0  # told to wait for another Router
    coalesced: int = 0  # ended with another Router's answer
    takeovers: int = 0  # waited, and then had to compute: the other failed or vanished
    uncoordinated: int = 0  # computed without anybody knowing
    sheds: int = 0  # refused, since too many wait for that key
    left: int = 0  # given up by the caller before there was an outcome
    lapses: int = 0  # ended a run whose lease had lapsed
    waiting: int = 0  # seats at this moment
    running: int = 0  # seats at this moment


class Turn(Protocol):
    """One caller's turn at a key."""

    @property
    def answer(self) -> bytes | None:
        """What another Router found; None when this one is to compute."""
        ...

    def settle(self, value: bytes) -> None:
        """Give everybody who waits for the key the answer that counts: the one that survived in the store."""
        ...


class Turns(Protocol):
    """Hands out turns at keys."""

    def turn(self, key: bytes) -> AbstractAsyncContextManager[Turn]:
        """Wait for a turn.

        Raises:
            Overloaded: on entering, when too many wait for this key.
        """
        ...


class Alone:
    """Turns where no other Router exists: each is to compute."""

    answer: bytes | None = None

    @asynccontextmanager
    async def turn(self, key: bytes) -> AsyncIterator[Turn]:
        """Compute, at once."""
        yield self

    def settle(self, value: bytes) -> None:
        """Nobody waits."""


class Coalescer:
    """Turns among all Routers that reach the same shards. It belongs to one event loop.

    Args:
        shards: every shard, in the same order in every Router; at least one.
        bounds: the same that the shards were built with.
        jitter: numbers in [0, 1) that spread the Routers' attempts to come back.
    """

    def __init__(
        self, shards: Sequence[Shard], bounds: Bounds, jitter: Callable[[], float] = random.random
    ) -> None:
        if not shards:
            raise AssertionError("a Coalescer needs a shard; without one, use Alone. This is a bug.")
        self._bounds = bounds
        self._tally = Tally()
        self._lines = tuple(Line(shard, bounds, self._tally, jitter) for shard in shards)

    @property
    def reachable(self) -> bool:
        """Whether every shard answered lately."""
        return all(line.up for line in self._lines)

    @asynccontextmanager
    async def turn(self, key: bytes) -> AsyncIterator[Turn]:
        """Wait for a turn at `key`, at most `max_wait_s`; the key is passed on unless the turn is settled.

        Raises:
            Overloaded: too many wait for this key.
        """
        line = self._lines[shard_of(key, len(self._lines))]
        self._tally.claims += 1
        seat = line.claim(key)
        try:
            await self._wait(line, seat)
            self._count(seat)
            if seat.phase is Phase.SHED:
                raise Overloaded("too many callers wait for this decision", seat.retry_after_s)
            yield _Turn(line, seat)
        finally:
            line.leave(seat)

    def stats(self) -> CoalescerStats:
        """Counters and gauges of this moment."""
        return CoalescerStats(
            **asdict(self._tally),
            waiting=sum(line.waiting for line in self._lines),
            running=sum(line.running for line in self._lines),
        )

    async def close(self) -> None:
        """Give up every turn, tell the shards, and stop. Later turns are to compute."""
        await asyncio.gather(*(line.close() for line in self._lines))

    async def _wait(self, line: Line, seat: Seat) -> None:
        try:
            async with asyncio.timeout(self._bounds.max_wait_s):
                await seat.changed
        except TimeoutError:
            if seat.pending:  # the outcome may have come in the same instant
                line.leave(seat)
        except asyncio.CancelledError:
            self._tally.left += 1
            raise

    def _count(self, seat: Seat) -> None:
        tally = self._tally
        match seat.phase:
            case Phase.RUNNING if seat.taken_over:
                tally.takeovers += 1
            case Phase.RUNNING:
                tally.runs += 1
            case Phase.ANSWERED:
                tally.coalesced += 1
            case Phase.SHED:
                tally.sheds += 1
            case _:
                tally.uncoordinated += 1


class _Turn:
    __slots__ = ("_line", "_seat")

    def __init__(self, line: Line, seat: Seat) -> None:
        self._line = line
        self._seat = seat

    @property
    def answer(self) -> bytes | None:
        return self._seat.answer

    def settle(self, value: bytes) -> None:
        self._line.settle(self._seat, value)


def shard_of(key: bytes, shards: int) -> int:
    """The shard that keeps `key`, by its first four bytes; keys are digests, so shards fill evenly."""
    return int.from_bytes(key[:4], "big") % shards
