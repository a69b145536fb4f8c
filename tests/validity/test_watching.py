"""What the watches on serving tables promise, by simulation against known truth."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from core.tables.tails import DELTA, tail_of
from core.tables.watching import ALARM_DELTA, DRIFT_LIMIT, Bets, Drift, error_interval

pytestmark = pytest.mark.validity


def at_most(share, n):
    """So many of n happen with probability 0.999 or more where the probability of each is `share`."""
    return int(binom.ppf(0.999, n, share))


def is_ever_alarmed(wrong, alpha):
    bets = Bets()
    for one in wrong:
        bets = bets.after([one], alpha)
        if bets.is_alarm:
            return True
    return False


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.3])
def test_a_table_at_the_edge_of_its_certificate_is_hardly_ever_suspected_in_a_thousand_checks(alpha):
    rng = np.random.default_rng(int(1_000 * alpha))
    lives = (rng.random((1_000, 1_000)) < alpha).tolist()

    assert sum(is_ever_alarmed(life, alpha) for life in lives) <= at_most(ALARM_DELTA, len(lives))


def test_a_table_whose_errors_come_in_runs_is_hardly_ever_suspected_either():
    # The chance of an error depends on what came before, and is never above alpha.
    alpha, rng = 0.1, np.random.default_rng(7)
    alarmed = 0
    for draws in rng.random((1_000, 1_000)).tolist():
        bets, last = Bets(), False
        for draw in draws:
            last = draw < (alpha if last or bets.wealth > 2 else alpha / 2)
            bets = bets.after([last], alpha)
            if bets.is_alarm:
                alarmed += 1
                break
    assert alarmed <= at_most(ALARM_DELTA, 1_000)


@pytest.mark.parametrize(("times", "median"), [(2, 400), (4, 90), (10, 25)])
def test_a_table_that_errs_too_often_is_found_out_within_so_many_checks(times, median):
    alpha, rng = 0.05, np.random.default_rng(times)
    found = []
    for life in (rng.random((200, 3_000)) < times * alpha).tolist():
        bets = Bets()
        for wrong in life:
            bets = bets.after([wrong], alpha)
            if bets.is_alarm:
                break
        found.append(bets.checks)

    assert np.median(found) <= median


def test_the_interval_holds_the_rate_at_every_check_of_a_life():
    rate, rng = 0.1, np.random.default_rng(3)
    left = 0
    for life in rng.random((300, 300)) < rate:
        errors = np.cumsum(life).tolist()
        intervals = (error_interval(seen, n) for n, seen in enumerate(errors, 1))
        left += any(not low <= rate <= high for low, high in intervals)

    assert left <= at_most(0.05, 300)


def test_the_share_below_the_tail_is_within_its_bound():
    rng = np.random.default_rng(5)
    beyond = 0
    for confidences in rng.random((2_000, 300)):
        tail = tail_of(confidences.tolist())
        assert tail is not None
        beyond += tail.below > tail.normal  # of uniform numbers, the share below is the number itself

    assert beyond <= at_most(DELTA, 2_000)


def test_texts_of_the_known_kind_raise_no_more_alarms_than_promised():
    # With a limit that simulation can reach, at the normal share exactly.
    tail = tail_of(n / 400 for n in range(400))
    assert tail is not None
    limit, n, lives = math.log(1_000), 100, 4_000
    rng = np.random.default_rng(6)
    alarms = 0
    for life in (rng.random((lives, n)) < tail.normal).tolist():
        drift = Drift()
        for low in life:
            drift = drift.after([low], tail)
            if drift.total >= limit:
                alarms += 1
                break

    assert alarms <= at_most(n * math.exp(-limit), lives)
    assert 100_000 * math.exp(-DRIFT_LIMIT) <= 0.01


@pytest.mark.parametrize(("share", "median"), [(0.37, 450), (0.5, 140), (0.9, 50)])
def test_texts_of_another_kind_are_found_out_within_so_many(share, median):
    tail = tail_of(n / 1_000 for n in range(1_000))
    assert tail is not None
    rng, found = np.random.default_rng(8), []
    for life in (rng.random((200, 5_000)) < share).tolist():
        drift = Drift().after([False] * 1_000, tail)
        for low in life:
            drift = drift.after([low], tail)
            if drift.is_alarm:
                break
        found.append(drift.texts - 1_000)

    assert np.median(found) <= median
