"""Watching tables, held against values worked by hand. What the watches promise is in tests/validity."""

import math
from itertools import chain, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from core.tables.tails import tail_of
from core.tables.watching import BETS, Bets, Drift, Tail, assumed_rates, error_interval

CHECKS = st.lists(st.booleans(), max_size=60)


def test_nothing_is_won_or_lost_before_the_first_check():
    assert Bets().wealth == 1.0
    assert not Bets().is_alarm


@pytest.mark.parametrize("wrong", [True, False], ids=["wrong", "right"])
def test_the_first_check_pays_the_odds_of_each_rate_on_what_was_laid(wrong):
    alpha = 0.1
    laid = 1 - 1 / (1 + math.log(2))
    odds = [rate / alpha if wrong else (1 - rate) / (1 - alpha) for rate in assumed_rates(alpha)]
    expected = 1 / (1 + math.log(2)) + laid * sum(odds) / BETS

    assert Bets().after([wrong], alpha).wealth == pytest.approx(expected, rel=1e-12)


@given(CHECKS, st.sampled_from([0.001, 0.05, 0.5, 0.9]))
def test_a_check_at_an_error_rate_of_alpha_leaves_the_expected_wealth_as_it_is(before, alpha):
    bets = Bets().after(before, alpha)
    expected = alpha * bets.after([True], alpha).wealth + (1 - alpha) * bets.after([False], alpha).wealth

    assert expected == pytest.approx(bets.wealth, rel=1e-9)


@given(CHECKS, CHECKS)
def test_checks_may_come_in_parts(first, second):
    whole = Bets().after(first + second, 0.05)

    assert Bets().after(first, 0.05).after(second, 0.05) == whole
    assert (whole.checks, whole.errors) == (len(first + second), sum(first + second))


@given(st.floats(1e-6, 1 - 1e-6))
def test_the_rates_that_are_bet_on_rise_from_above_alpha(alpha):
    rates = assumed_rates(alpha)

    assert alpha < rates[0] < rates[-1] < 1.0
    assert [*rates] == sorted(rates)


def test_a_table_that_was_good_for_ten_thousand_checks_is_found_out_within_four_times_as_many_as_a_new_one():
    def until_alarm(bets):
        for n, wrong in enumerate(chain.from_iterable(repeat([True, False, False, False]))):
            if bets.is_alarm:
                return n
            bets = bets.after([wrong], 0.05)
        raise AssertionError

    old = Bets().after(([True] + [False] * 39) * 250, 0.05)
    assert not old.is_alarm
    assert until_alarm(old) <= 4 * until_alarm(Bets())


def test_a_long_row_of_errors_does_not_overflow():
    assert math.isfinite(Bets().after([True] * 10_000, 0.01).wealth)


def test_the_interval_of_ten_right_answers_ends_where_the_bet_has_won_twentyfold():
    low, high = error_interval(0, 10)

    # 1 / 11 / (1 - high)^10 = 20
    assert low == 0.0
    assert high == pytest.approx(1 - (1 / 220) ** 0.1, abs=1e-9)


def test_the_interval_without_a_check_says_nothing():
    assert error_interval(0, 0) == (0.0, 1.0)


@given(st.integers(0, 50), st.integers(0, 50))
def test_the_interval_holds_what_was_seen_and_mirrors(wrong, right):
    low, high = error_interval(wrong, wrong + right)
    mirrored = error_interval(right, wrong + right)

    assert 0.0 <= low <= (wrong / (wrong + right) if wrong + right else 0.5) <= high <= 1.0
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-9)


def test_the_tail_begins_at_the_fifth_part_of_the_confidences():
    tail = tail_of(n / 200 for n in range(200))

    assert tail is not None
    assert tail.below == 40 / 200
    # With that share, as few as 40 of 200 happen once in a hundred times.
    assert binom.cdf(40, 200, tail.normal) == pytest.approx(0.01, rel=1e-6)


def test_texts_that_the_table_may_not_judge_are_in_the_tail():
    tail = tail_of([math.nan] * 60 + [n / 100 for n in range(1, 141)])

    assert tail is not None
    assert tail.below == 0.01
    assert [tail.holds(one) for one in (math.nan, 0.0, 0.01)] == [True, True, False]


@pytest.mark.parametrize(
    "confidences",
    [[], [0.5] * 500, [n / 4 for n in range(4)], [math.nan] * 90 + [0.5] * 10],
    ids=["none", "all equal", "fewer than five", "hardly any that it may judge"],
)
def test_where_no_tail_can_be_told_there_is_none(confidences):
    assert tail_of(confidences) is None


def test_the_sum_rises_by_the_log_of_the_ratio_and_never_falls_below_nothing():
    tail = Tail(0.2, 0.1)

    assert Drift().after([False] * 9, tail).total == 0.0
    assert Drift().after([True], tail).total == pytest.approx(math.log(1.5))
    assert Drift().after([True, False], tail).total == pytest.approx(math.log(1.5 * 0.85 / 0.9))


@given(CHECKS, CHECKS)
def test_texts_may_come_in_parts(first, second):
    tail = Tail(0.2, 0.06)
    whole = Drift().after(first + second, tail)

    assert Drift().after(first, tail).after(second, tail) == whole
    assert (whole.texts, whole.low) == (len(first + second), sum(first + second))
