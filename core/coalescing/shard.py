"""One shard at work: the table, a mailbox for each session, and an alarm for what is due to lapse."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from core.coalescing.bounds import Bounds
from core.coalescing.messages import Batch, Claim, Event, Leave, Operation, Release, Settle, Verdict
from core.coalescing.table import Table


@dataclass(frozen=True, slots=True)
class ShardLoad:
    """What a shard holds at this moment."""

    sessions: int
    keys: int  # being computed
    seats: int  # runs and waits


class LocalShard:
    """A `Shard` in this process, which an actor offers to all others. It belongs to one event loop.

    Args:
        bounds: the same that its Routers were built with.
        first_token: above every token that an earlier life of this shard gave.
    """

    def __init__(self, bounds: Bounds, first_token: int = 1) -> None:
        self._bounds = bounds
        self._table = Table(bounds, first_token)
        self._mail: dict[str, _Mailbox] = {}
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def load(self) -> ShardLoad:
        """What it holds."""
        return ShardLoad(len(self._mail), len(self._table), self._table.seats)

    async def exchange(self, batch: Batch) -> Sequence[Verdict] | None:
        """Apply a batch in order; one verdict for each operation, or None when the session is not known."""
        now = self._advance()
        if batch.opening:
            self._table.open(batch.session, now)
            self._mail.setdefault(batch.session, _Mailbox())
        elif not self._table.renew(batch.session, now):
            return None
        verdicts = [self._apply(batch.session, operation, now) for operation in batch.operations]
        self._deliver()
        self._set_alarm()
        return verdicts

    async def listen(self, session: str) -> Sequence[Event] | None:
        """Wait up to `listen_s` for an event of this session's waits; None when the session is not known."""
        now = self._advance()
        if not self._table.renew(session, now):
            return None
        mailbox = self._mail[session]
        await mailbox.wait(self._bounds.listen_s)
        # It may have lapsed after all, if this process stood still for longer than a lease.
        return mailbox.take() if self._mail.get(session) is mailbox else None

    def _apply(self, session: str, operation: Operation, now: float) -> Verdict:
        match operation:
            case Claim(ticket, key):
                return self._table.claim(key, session, ticket, now)
            case Settle(key, token, value):
                return self._table.settle(key, token, value)
            case Release(key, token):
                return self._table.release(key, token, now)
            case Leave(ticket):
                self._table.leave(session, ticket, now)
                return True

    def _advance(self) -> float:
        now = asyncio.get_running_loop().time()
        for session in self._table.expire(now):
            del self._mail[session]
        self._deliver()
        return now

    def _deliver(self) -> None:
        for session, event in self._table.take_events():
            mailbox = self._mail.get(session)
            if mailbox is not None:
                mailbox.put(event)

    def _set_alarm(self) -> None:
        due = self._table.next_lapse()
        if due is None or (self._alarm is not None and self._alarm.when() <= due):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_at(due, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._advance()
        self._set_alarm()


class _Mailbox:
    """What one session has not heard yet; at most one event for each of its waits."""

    __slots__ = ("_arrived", "_events")

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._arrived = asyncio.Event()

    def put(self, event: Event) -> None:
        self._events.append(event)
        self._arrived.set()

    def take(self) -> list[Event]:
        events, self._events = self._events, []
        self._arrived.clear()
        return events

    async def wait(self, most_s: float) -> None:
        try:
            async with asyncio.timeout(most_s):
                await self._arrived.wait()
        except TimeoutError:
            return
