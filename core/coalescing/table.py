"""The state of one shard: who computes each key, who waits for it, and what becomes of both if one vanishes.

Pure: no event loop, no clock, no transport. Time is an argument in seconds of any clock that never goes back.
What must be told to others is collected, and handed out by `take_events`.

A key in the table has one owner, the session that computes it, and may have waiters. It leaves the table
when its run ends and nobody waits. A session that is not heard for `lease_s` loses all that it owns and waits
for; a run that lasts `max_run_s` is passed on although its session is alive. Both are found at the front of a
queue in order of time, since every lease and every run lasts equally long.
"""

from collections import OrderedDict

from core.coalescing.bounds import Bounds
from core.coalescing.messages import Event, Handed, Run, Settled, Shed, Wait

Seat = tuple[str, int]
"""A session and one of its tickets."""


class Table:
    """Claims and leases of the keys of one shard. Operations take O(1), amortised over the seats they end.

    Args:
        bounds: lengths of leases and runs, and how many may wait.
        first_token: tokens grow from here; a restarted shard must begin above every token it ever gave.
    """

    def __init__(self, bounds: Bounds, first_token: int = 1) -> None:
        self._bounds = bounds
        self._next_token = first_token
        self._sessions: OrderedDict[str, _Session] = OrderedDict()  # least recently heard first
        self._runs: OrderedDict[int, _Run] = OrderedDict()  # by token, oldest first
        self._keys: dict[bytes, _Run] = {}
        self._events: list[tuple[str, Event]] = []

    def __len__(self) -> int:
        """How many keys are being computed."""
        return len(self._keys)

    @property
    def seats(self) -> int:
        """How many runs and waits there are, all sessions together."""
        return sum(len(session.seats) for session in self._sessions.values())

    def open(self, session: str, now: float) -> None:
        """Begin a session, or renew it."""
        if session not in self._sessions:
            self._sessions[session] = _Session(now)
        self.renew(session, now)

    def renew(self, session: str, now: float) -> bool:
        """Renew every lease of a session; False when it lapsed or was never opened."""
        about = self._sessions.get(session)
        if about is None:
            return False
        about.lapses_at = now + self._bounds.lease_s
        self._sessions.move_to_end(session)
        return True

    def claim(self, key: bytes, session: str, ticket: int, now: float) -> Run | Wait | Shed:
        """Give `key` to this seat to compute, or let it wait. The session is open, the ticket new to it."""
        seats = self._sessions[session].seats
        if ticket in seats:
            raise AssertionError(f"ticket {ticket} was used twice in session {session}. This is a bug.")
        run = self._keys.get(key)
        if run is None:
            run = self._keys[key] = _Run(key)
            self._grant(run, (session, ticket), now)
            return Run(run.token)
        if len(run.waiters) >= self._bounds.max_waiters:
            return Shed(self._bounds.retry_after_s)
        run.waiters[session, ticket] = None
        seats[ticket] = run
        return Wait()

    def settle(self, key: bytes, token: int, value: bytes | None) -> bool:
        """End a run with its answer and wake everybody who waits; False when the token is not current."""
        run = self._current(key, token)
        if run is None:
            return False
        self._end(run)
        for session, ticket in run.waiters:
            del self._sessions[session].seats[ticket]
            self._events.append((session, Settled(ticket, value)))
        del self._keys[key]
        return True

    def release(self, key: bytes, token: int, now: float) -> bool:
        """End a run without an answer: exactly one waiter takes over. False when the token is not current."""
        run = self._current(key, token)
        if run is None:
            return False
        self._pass_on(run, now)
        return True

    def leave(self, session: str, ticket: int, now: float) -> None:
        """Free a seat at once; if it is the one that computes, a waiter takes over."""
        about = self._sessions.get(session)
        run = about.seats.get(ticket) if about is not None else None
        if run is None:
            return
        if run.seat == (session, ticket):
            self._pass_on(run, now)
        else:
            self._stop_waiting(run, (session, ticket))

    def expire(self, now: float) -> list[str]:
        """Let lapse what is due, and hand each key concerned to exactly one waiter; the sessions that ended.

        Call it before the other operations of a moment, so that a token is never taken after its lease.
        """
        ended = []
        while self._sessions:
            session, about = next(iter(self._sessions.items()))
            if about.lapses_at > now:
                break
            self._dismiss(session, about, now)
            ended.append(session)
        while self._runs:
            run = next(iter(self._runs.values()))
            if run.ends_at > now:
                break
            self._pass_on(run, now)
        return ended

    def next_lapse(self) -> float | None:
        """The first moment at which `expire` may have something to do; None when nothing can lapse."""
        if not self._sessions:
            return None
        soonest = next(iter(self._sessions.values())).lapses_at
        return min(soonest, next(iter(self._runs.values())).ends_at) if self._runs else soonest

    def take_events(self) -> list[tuple[str, Event]]:
        """What happened to waiters since the last call, by session; a session may have ended since."""
        events, self._events = self._events, []
        return events

    def _current(self, key: bytes, token: int) -> "_Run | None":
        run = self._runs.get(token)
        return run if run is not None and run.key == key else None

    def _grant(self, run: "_Run", seat: Seat, now: float) -> None:
        run.seat, run.token, run.ends_at = seat, self._next_token, now + self._bounds.max_run_s
        self._next_token += 1
        self._runs[run.token] = run
        session, ticket = seat
        self._sessions[session].seats[ticket] = run

    def _end(self, run: "_Run") -> None:
        del self._runs[run.token]
        session, ticket = run.seat
        del self._sessions[session].seats[ticket]

    def _pass_on(self, run: "_Run", now: float) -> None:
        self._end(run)
        if not run.waiters:
            del self._keys[run.key]
            return
        seat, _ = run.waiters.popitem(last=False)
        self._grant(run, seat, now)
        session, ticket = seat
        self._events.append((session, Handed(ticket, run.token)))

    def _stop_waiting(self, run: "_Run", seat: Seat) -> None:
        session, ticket = seat
        del run.waiters[seat]
        del self._sessions[session].seats[ticket]

    def _dismiss(self, session: str, about: "_Session", now: float) -> None:
        owned = []
        for ticket, run in list(about.seats.items()):
            if run.seat == (session, ticket):
                owned.append(run)
            else:  # before its runs are passed on: a session that ended must not be handed its own key
                self._stop_waiting(run, (session, ticket))
        for run in owned:
            self._pass_on(run, now)
        del self._sessions[session]


class _Session:
    __slots__ = ("lapses_at", "seats")

    def __init__(self, now: float) -> None:
        self.lapses_at = now
        self.seats: dict[int, _Run] = {}


class _Run:
    """A key being computed, and the seats that wait, longest first.

    An ordered dictionary rather than a plain one, here and above: to take the first of a plain one again and
    again is to walk over all that were taken before.
    """

    __slots__ = ("ends_at", "key", "seat", "token", "waiters")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.seat: Seat = ("", 0)
        self.token = 0
        self.ends_at = 0.0
        self.waiters: OrderedDict[Seat, None] = OrderedDict()
