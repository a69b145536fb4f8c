"""Claims, answers, failures, departures, silence and restarts in any order, against a ledger."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core.coalescing.bounds import Bounds
from core.coalescing.messages import Handed, Run, Settled, Shed
from core.coalescing.table import Table

BOUNDS = Bounds(lease_s=3.0, max_run_s=8.0, max_waiters=3)
SESSIONS = "abcd"
KEYS = (b"key 1", b"key 2")

sessions = st.sampled_from(SESSIONS)
keys = st.sampled_from(KEYS)
steps = st.sampled_from([0.0, 0.25, 1.0, 2.999, 3.0, 8.0])


@dataclass
class Seat:
    """One claim as its Router sees it."""

    session: str
    ticket: int
    key: bytes
    state: str  # waits, runs, or how it ended: woken, shed, left, released, settled, lapsed, restarted
    since: float
    token: int = 0


class CoalescingMachine(RuleBasedStateMachine):
    """The ledger knows when each session was heard and each run began, and nothing of how the table works."""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.ticket = 0
        self.heard: dict[str, float] = {}
        self.seats: list[Seat] = []
        self.dead_tokens: list[tuple[bytes, int]] = []
        self.table = Table(BOUNDS)

    # What Routers do.

    @rule(session=sessions)
    def open_a_session(self, session):
        self._pass_time(0.0)
        self.table.open(session, self.now)
        self.heard[session] = self.now

    @rule(session=sessions)
    def renew_leases(self, session):
        self._pass_time(0.0)
        assert self.table.renew(session, self.now) == (session in self.heard)
        if session in self.heard:
            self.heard[session] = self.now

    @precondition(lambda self: self.heard)
    @rule(data=st.data(), key=keys)
    def claim(self, data, key):
        self._pass_time(0.0)
        session = data.draw(st.sampled_from(sorted(self.heard)))
        self.ticket += 1
        runner, waiters = self._runner(key), self._waiters(key)

        verdict = self.table.claim(key, session, self.ticket, self.now)

        seat = Seat(session, self.ticket, key, "waits", self.now)
        self.seats.append(seat)
        if runner is None:
            assert isinstance(verdict, Run)
            self._start(seat, verdict.token)
        elif len(waiters) >= BOUNDS.max_waiters:
            assert isinstance(verdict, Shed)
            seat.state = "shed"

    @precondition(lambda self: self._in_state("runs"))
    @rule(data=st.data())
    def settle(self, data):
        self._pass_time(0.0)
        if not self._in_state("runs"):
            return
        seat = data.draw(st.sampled_from(self._in_state("runs")))
        waiters = self._waiters(seat.key)

        assert self.table.settle(seat.key, seat.token, b"answer %d" % seat.token)

        self._stop(seat, "settled")
        woken = self._hear()
        assert {waiter.ticket for waiter in waiters} == set(woken)
        assert set(woken.values()) <= {b"answer %d" % seat.token}

    @precondition(lambda self: self._in_state("runs"))
    @rule(data=st.data())
    def fail(self, data):
        self._pass_time(0.0)
        if not self._in_state("runs"):
            return
        seat = data.draw(st.sampled_from(self._in_state("runs")))

        assert self.table.release(seat.key, seat.token, self.now)

        self._stop(seat, "released")
        self._hear()

    @precondition(lambda self: self.seats)
    @rule(data=st.data())
    def leave(self, data):
        self._pass_time(0.0)
        seat = data.draw(st.sampled_from(self.seats))

        self.table.leave(seat.session, seat.ticket, self.now)

        if seat.state == "runs":
            self._stop(seat, "left")
        elif seat.state == "waits":
            seat.state = "left"
        self._hear()

    @precondition(lambda self: self.dead_tokens)
    @rule(data=st.data())
    def answer_too_late(self, data):
        self._pass_time(0.0)
        key, token = data.draw(st.sampled_from(self.dead_tokens))

        assert not self.table.settle(key, token, b"late")
        assert not self.table.release(key, token, self.now)
        assert self.table.take_events() == []

    # What happens to them.

    @rule(seconds=steps)
    def pass_time(self, seconds):
        self._pass_time(seconds)

    @rule()
    def restart(self):
        for seat in self._in_state("runs"):
            self._stop(seat, "restarted")
        for seat in self._in_state("waits"):
            seat.state = "restarted"
        self.heard = {}
        highest = max((token for _, token in self.dead_tokens), default=0)
        self.table = Table(BOUNDS, first_token=highest + 1)

    # What must hold.

    @invariant()
    def each_key_has_one_owner_while_anybody_waits_for_it_and_none_otherwise_outlives_its_owner(self):
        wanted = {seat.key for seat in self._live()}
        for key in wanted:
            assert len([seat for seat in self._in_state("runs") if seat.key == key]) == 1
        assert len(self.table) == len(wanted)

    @invariant()
    def the_table_holds_exactly_the_seats_that_have_not_ended(self):
        assert self.table.seats == len(self._live())

    @invariant()
    def nobody_holds_anything_beyond_a_lease(self):
        for seat in self._live():
            assert self.now < self.heard[seat.session] + BOUNDS.lease_s
            assert seat.state == "waits" or self.now < seat.since + BOUNDS.max_run_s

    def teardown(self):
        """Whatever happened, silence ends it: nothing is left and everybody was told or lapsed."""
        for _ in range(len(self.seats) + len(SESSIONS)):
            self._pass_time(BOUNDS.lease_s)
        assert self._live() == []
        assert (len(self.table), self.table.seats, self.table.next_lapse()) == (0, 0, None)

    # The ledger.

    def _pass_time(self, seconds):
        self.now += seconds
        due = {session for session, heard in self.heard.items() if heard + BOUNDS.lease_s <= self.now}

        assert set(self.table.expire(self.now)) == due

        for seat in self._live():
            if seat.session in due:
                if seat.state == "runs":
                    self._stop(seat, "lapsed")
                seat.state = "lapsed"
            elif seat.state == "runs" and seat.since + BOUNDS.max_run_s <= self.now:
                self._stop(seat, "lapsed")
        for session in due:
            del self.heard[session]
        self._hear()

    def _hear(self):
        """Enter the table's events; the answers given, by ticket. A session that is gone hears nothing."""
        answers = {}
        for session, event in self.table.take_events():
            if session not in self.heard:
                continue
            (seat,) = [seat for seat in self.seats if (seat.session, seat.ticket) == (session, event.ticket)]
            assert seat.state == "waits"
            if isinstance(event, Handed):
                assert self._runner(seat.key) is None
                assert seat is self._waiters(seat.key)[0], "the one that waited longest is next"
                self._start(seat, event.token)
            else:
                assert isinstance(event, Settled)
                seat.state = "woken"
                answers[event.ticket] = event.value
        return answers

    def _start(self, seat, token):
        assert token > max([0, *(token for _, token in self.dead_tokens)]), "tokens only grow"
        seat.state, seat.token, seat.since = "runs", token, self.now

    def _stop(self, seat, state):
        seat.state = state
        self.dead_tokens.append((seat.key, seat.token))

    def _in_state(self, state):
        return [seat for seat in self.seats if seat.state == state]

    def _live(self):
        return self._in_state("runs") + self._in_state("waits")

    def _runner(self, key):
        return next((seat for seat in self._in_state("runs") if seat.key == key), None)

    def _waiters(self, key):
        return [seat for seat in self._in_state("waits") if seat.key == key]


TestCoalescing = CoalescingMachine.TestCase
TestCoalescing.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
