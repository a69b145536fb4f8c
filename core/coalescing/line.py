"""A Router's line to one shard: at most one call in flight, and the next carries all that arrived meanwhile.

A second call listens while this Router waits for others; it returns when something happened to one of the
waits. Both calls renew the leases, and an empty batch does while this Router computes and waits for nobody.

When a call fails, whoever waits computes at once, and the line tries again behind the callers' backs. A call
that failed may or may not have been carried out. So what it said is said again, except for claims, which are
taken back: every other operation may be repeated without harm.
"""

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Callable, Sequence

from core.coalescing.bounds import Bounds
from core.coalescing.messages import (
    Batch,
    Claim,
    Event,
    Handed,
    Leave,
    Operation,
    Release,
    Run,
    Settle,
    Shard,
    Shed,
    Verdict,
)
from core.coalescing.seats import Phase, Seat, Tally
from core.waiting import within

log = logging.getLogger("precedent.coalescing")

MAX_OPERATIONS = 1_000  # in one batch
MAX_BATCH_BYTES = 1024 * 1024  # of values in one batch, unless a single one is longer
FIRST_RETRY_S = 0.1
LAST_RETRY_S = 2.0


class Line:
    """One Router's line to one shard. It belongs to one event loop.

    Args:
        shard: how to reach it.
        bounds: the same that the shard was built with.
        tally: counts what happens.
        jitter: numbers in [0, 1), so that Routers do not all come back at once.
    """

    def __init__(self, shard: Shard, bounds: Bounds, tally: Tally, jitter: Callable[[], float]) -> None:
        self._shard = shard
        self._bounds = bounds
        self._tally = tally
        self._jitter = jitter
        self._session = uuid.uuid4().hex
        self._tickets = 0
        self._seats: dict[int, Seat] = {}  # by ticket: those that ask, wait or run
        self._waiting: set[int] = set()
        self._outgoing: deque[Operation] = deque()
        self._renewal_due = False
        self._up = True
        self._retry_s = FIRST_RETRY_S
        self._closed = False
        self._sending: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._returning: asyncio.Task[None] | None = None
        self._renewing: asyncio.TimerHandle | None = None

    @property
    def up(self) -> bool:
        """Whether the shard answered lately."""
        return self._up

    @property
    def waiting(self) -> int:
        """How many seats wait for another Router, or for the shard's word."""
        return len(self._seats) - self.running

    @property
    def running(self) -> int:
        """How many seats compute while others may wait for them."""
        return sum(seat.phase is Phase.RUNNING for seat in self._seats.values())

    def claim(self, key: bytes) -> Seat:
        """Take a seat; its `changed` is set once it has an outcome."""
        self._tickets += 1
        seat = Seat(key, self._tickets)
        if not self._up or self._closed:
            seat.become(Phase.ALONE)
            return seat
        self._seats[seat.ticket] = seat
        self._say(Claim(seat.ticket, key))
        return seat

    def settle(self, seat: Seat, value: bytes) -> None:
        """End a run with everybody's answer."""
        if seat.phase is Phase.RUNNING:
            carried = value if len(value) <= self._bounds.max_value_bytes else None
            self._end(seat, Settle(seat.key, seat.token, carried))

    def leave(self, seat: Seat) -> None:
        """Give up a seat, whatever it is: a run goes to another waiter at once."""
        if seat.phase is Phase.RUNNING:
            self._end(seat, Release(seat.key, seat.token))
        elif seat.pending:
            self._end(seat, Leave(seat.ticket))

    async def close(self) -> None:
        """Leave every seat, say what is left to say, and stop."""
        self._closed = True
        for seat in tuple(self._seats.values()):
            self.leave(seat)
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=self._bounds.call_s)
        self._drop_renewal()
        tasks = self._cancelled(self._sending, self._listening, self._returning)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _end(self, seat: Seat, word: Operation) -> None:
        self._forget(seat.ticket)
        seat.become(Phase.GONE)
        self._say(word)

    def _forget(self, ticket: int) -> None:
        self._seats.pop(ticket, None)
        self._waiting.discard(ticket)

    def _say(self, operation: Operation) -> None:
        self._outgoing.append(operation)
        self._send()

    def _send(self) -> None:
        if self._up and self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._outgoing or self._renewal_due:
                await self._exchange()
        except Exception as error:
            self._go_down(error)
        else:
            self._sending = None

    async def _exchange(self) -> None:
        batch = self._next_batch()
        try:
            async with within(self._bounds.call_s):
                verdicts = await self._shard.exchange(batch)
        except BaseException:
            self._put_back(batch.operations)
            raise
        if verdicts is None:  # the session lapsed with all that it held, so there is nothing to say again
            self._stop_waiting()
        else:
            self._hear_verdicts(batch.operations, verdicts)

    def _put_back(self, operations: Sequence[Operation]) -> None:
        self._outgoing.extendleft(word for word in reversed(operations) if not isinstance(word, Claim))

    def _next_batch(self) -> Batch:
        operations: list[Operation] = []
        size = 0
        while self._outgoing and len(operations) < MAX_OPERATIONS:
            operation = self._outgoing[0]
            if isinstance(operation, Settle):
                size += len(operation.value or b"")
                if size > MAX_BATCH_BYTES and operations:
                    break
            operations.append(self._outgoing.popleft())
        self._renewal_due = False
        return Batch(self._session, not self._waiting, tuple(operations))

    def _hear_verdicts(self, operations: Sequence[Operation], verdicts: Sequence[Verdict]) -> None:
        for operation, verdict in zip(operations, verdicts, strict=True):
            if isinstance(operation, Claim):
                self._hear_claim(self._seats.get(operation.ticket), verdict)
            elif verdict is False:
                self._tally.lapses += 1

    def _hear_claim(self, seat: Seat | None, verdict: Verdict) -> None:
        # A caller that left meanwhile has said so, and an event may have overtaken the verdict it follows.
        if seat is None or seat.phase is not Phase.ASKING:
            return
        if isinstance(verdict, Run):
            self._start_run(seat, verdict.token)
        elif isinstance(verdict, Shed):
            seat.retry_after_s = verdict.retry_after_s
            self._forget(seat.ticket)
            seat.become(Phase.SHED)
        else:
            self._tally.waits += 1
            self._waiting.add(seat.ticket)
            seat.become(Phase.WAITING)
            self._listen()

    def _hear_event(self, event: Event) -> None:
        seat = self._seats.get(event.ticket)
        if seat is None:
            return
        if seat.phase is Phase.ASKING:  # the event overtook the verdict
            self._tally.waits += 1
        if isinstance(event, Handed):
            seat.taken_over = True
            self._start_run(seat, event.token)
            return
        self._forget(event.ticket)
        seat.answer = event.value
        seat.become(Phase.ALONE if event.value is None else Phase.ANSWERED)

    def _start_run(self, seat: Seat, token: int) -> None:
        seat.token = token
        self._waiting.discard(seat.ticket)
        seat.become(Phase.RUNNING)
        self._keep_renewing()

    def _listen(self) -> None:
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(self._listen_on())

    async def _listen_on(self) -> None:
        try:
            while self._waiting:
                async with within(self._bounds.listen_s + self._bounds.call_s):
                    events = await self._shard.listen(self._session)
                if events is None:
                    self._stop_waiting()
                    break
                for event in events:
                    self._hear_event(event)
        except Exception as error:
            self._go_down(error)
        else:
            self._listening = None

    def _keep_renewing(self) -> None:
        if self._renewing is None and self._seats:
            loop = asyncio.get_running_loop()
            self._renewing = loop.call_later(self._bounds.listen_s, self._renew)

    def _renew(self) -> None:
        self._renewing = None
        if not self._waiting and self._seats:  # whoever waits listens, and that renews too
            self._renewal_due = True
            self._send()
        self._keep_renewing()

    def _drop_renewal(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None

    def _stop_waiting(self) -> None:
        """Let all who ask or wait compute for themselves, and take back what they asked for. Runs go on."""
        for seat in [seat for seat in self._seats.values() if seat.pending]:
            self._forget(seat.ticket)
            self._outgoing.append(Leave(seat.ticket))
            seat.become(Phase.ALONE)

    def _go_down(self, error: Exception) -> None:
        self._up = False
        self._cancelled(self._sending, self._listening)
        self._sending = self._listening = None
        self._stop_waiting()
        log.warning("the Coalescer was not reached (%s); decisions go on without it", type(error).__name__)
        if not self._closed:
            self._returning = asyncio.get_running_loop().create_task(self._return())

    async def _return(self) -> None:
        while not self._up:
            await asyncio.sleep(self._retry_s * (0.5 + self._jitter() / 2))
            self._retry_s = min(2 * self._retry_s, LAST_RETRY_S)
            try:
                await self._exchange()
            except Exception as error:
                log.debug("the Coalescer is still not reached: %r", error)
            else:
                self._up = True
        self._retry_s = FIRST_RETRY_S
        self._returning = None
        log.info("the Coalescer is reached again")
        self._send()

    @staticmethod
    def _cancelled(*tasks: asyncio.Task[None] | None) -> list[asyncio.Task[None]]:
        others = [task for task in tasks if task is not None and task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        return others
