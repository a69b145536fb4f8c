import pytest

from core.coalescing.bounds import Bounds
from core.coalescing.messages import Handed, Run, Settled, Shed, Wait
from core.coalescing.table import Table
from core.errors import SettingsError

BOUNDS = Bounds(lease_s=3.0, max_run_s=15.0, max_waiters=2)
K, L = b"k" * 16, b"l" * 16


@pytest.fixture
def table() -> Table:
    table = Table(BOUNDS)
    for session in "abcd":
        table.open(session, 0.0)
    return table


def claimed(table: Table, key: bytes, session: str, ticket: int = 1, now: float = 0.0) -> Run:
    verdict = table.claim(key, session, ticket, now)
    assert isinstance(verdict, Run)
    return verdict


def test_the_first_to_claim_a_key_runs_it_and_the_others_wait(table):
    assert isinstance(table.claim(K, "a", 1, 0.0), Run)
    assert table.claim(K, "b", 1, 0.0) == Wait()
    assert table.claim(K, "c", 1, 0.0) == Wait()


def test_another_key_is_another_run(table):
    first, second = claimed(table, K, "a"), claimed(table, L, "b")

    assert first.token != second.token


def test_settling_wakes_every_waiter_with_the_answer_and_forgets_the_key(table):
    token = claimed(table, K, "a").token
    table.claim(K, "b", 7, 0.0)
    table.claim(K, "c", 8, 0.0)

    assert table.settle(K, token, b"answer")

    assert table.take_events() == [("b", Settled(7, b"answer")), ("c", Settled(8, b"answer"))]
    assert (len(table), table.seats) == (0, 0)


def test_a_key_that_was_settled_is_run_anew_by_the_next_to_claim_it(table):
    token = claimed(table, K, "a").token
    table.settle(K, token, b"answer")

    assert claimed(table, K, "b").token > token


def test_releasing_hands_the_key_to_the_one_that_waited_longest_and_to_nobody_else(table):
    token = claimed(table, K, "a").token
    table.claim(K, "b", 7, 0.0)
    table.claim(K, "c", 8, 0.0)

    assert table.release(K, token, 1.0)

    ((session, event),) = table.take_events()
    assert session == "b"
    assert isinstance(event, Handed)
    assert event.ticket == 7
    assert event.token > token


def test_releasing_a_key_for_which_nobody_waits_forgets_it(table):
    table.release(K, claimed(table, K, "a").token, 1.0)

    assert (len(table), table.seats, table.take_events()) == (0, 0, [])


def test_a_token_is_refused_once_its_run_was_handed_on(table):
    token = claimed(table, K, "a").token
    table.claim(K, "b", 1, 0.0)
    table.release(K, token, 1.0)

    assert not table.settle(K, token, b"late")
    assert not table.release(K, token, 1.0)


def test_a_token_settles_no_key_but_its_own(table):
    token = claimed(table, K, "a").token

    assert not table.settle(L, token, b"answer")
    assert table.settle(K, token, b"answer")


def test_a_silent_session_lapses_exactly_one_lease_after_it_was_last_heard(table):
    token = claimed(table, K, "a").token
    table.claim(K, "b", 1, 0.0)
    table.renew("a", 1.0)
    table.renew("b", 2.0)

    assert "a" not in table.expire(3.999)
    assert table.expire(4.0) == ["a"]
    assert not table.settle(K, token, b"late")
    assert [session for session, _ in table.take_events()] == ["b"]


def test_the_lapse_of_a_session_hands_each_of_its_keys_to_one_waiter_and_frees_its_waits(table):
    claimed(table, K, "a", 1)
    claimed(table, L, "a", 2)
    claimed(table, b"m", "b", 1)
    table.claim(b"m", "a", 3, 0.0)
    for session in "bc":
        table.claim(K, session, 10, 0.0)
        table.claim(L, session, 11, 0.0)
        table.renew(session, 2.0)

    assert table.expire(3.0) == ["a", "d"]

    assert sorted((session, event.ticket) for session, event in table.take_events()) == [("b", 10), ("b", 11)]
    assert table.seats == 5


def test_a_session_that_lapses_is_not_handed_its_own_key(table):
    claimed(table, K, "a", 1)
    table.claim(K, "a", 2, 0.0)
    table.claim(K, "b", 1, 0.0)
    table.renew("b", 2.0)

    table.expire(3.0)

    assert [session for session, _ in table.take_events()] == ["b"]


def test_a_run_that_takes_too_long_is_handed_on_although_its_session_is_alive(table):
    token = claimed(table, K, "a").token
    table.claim(K, "b", 1, 14.0)
    for session in "ab":
        table.renew(session, 14.0)

    table.expire(15.0)

    assert [session for session, _ in table.take_events()] == ["b"]
    assert not table.settle(K, token, b"late")
    assert table.renew("a", 15.0)


def test_a_lapsed_session_must_be_opened_again(table):
    table.expire(3.0)

    assert not table.renew("a", 3.0)
    table.open("a", 3.0)
    assert table.renew("a", 3.0)


def test_a_waiter_that_leaves_is_forgotten_at_once(table):
    token = claimed(table, K, "a").token
    table.claim(K, "b", 1, 0.0)

    table.leave("b", 1, 0.0)
    table.settle(K, token, b"answer")

    assert table.take_events() == []
    assert table.seats == 0


def test_an_owner_that_leaves_hands_the_key_on(table):
    claimed(table, K, "a", 1)
    table.claim(K, "b", 1, 0.0)

    table.leave("a", 1, 0.0)

    assert [session for session, _ in table.take_events()] == ["b"]


def test_leaving_twice_or_without_a_seat_does_nothing(table):
    claimed(table, K, "a", 1)
    table.leave("b", 99, 0.0)
    table.leave("nobody", 1, 0.0)
    table.leave("a", 1, 0.0)
    table.leave("a", 1, 0.0)

    assert (len(table), table.seats) == (0, 0)


def test_more_waiters_than_the_bound_are_told_when_to_come_back(table):
    claimed(table, K, "a")
    assert table.claim(K, "b", 1, 0.0) == Wait()
    assert table.claim(K, "c", 1, 0.0) == Wait()

    assert table.claim(K, "d", 1, 0.0) == Shed(BOUNDS.retry_after_s)

    table.leave("b", 1, 0.0)
    assert table.claim(K, "d", 2, 0.0) == Wait()


def test_the_next_lapse_is_that_of_the_session_heard_least_recently_or_of_the_oldest_run(table):
    claimed(table, K, "a")
    assert table.next_lapse() == 3.0
    for session in "abcd":
        table.renew(session, 14.0)
    assert table.next_lapse() == 15.0
    assert Table(BOUNDS).next_lapse() is None


def test_a_ticket_used_twice_is_a_bug(table):
    claimed(table, K, "a", 1)

    with pytest.raises(AssertionError, match="bug"):
        table.claim(L, "a", 1, 0.0)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_bounds_are_positive_numbers(value):
    with pytest.raises(SettingsError, match="lease_s"):
        Bounds(lease_s=value)


def test_a_shard_that_stalls_for_a_lease_was_given_up_by_then():
    assert BOUNDS.listen_s + BOUNDS.call_s < BOUNDS.lease_s
