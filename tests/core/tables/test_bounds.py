"""Exact bounds, against values worked by hand and against the binomial distribution itself."""

import math

import pytest

from core.tables.bounds import fewest_with, upper_bound
from core.tables.spending import fewest_all_right, share


@pytest.mark.parametrize(
    ("errors", "n", "delta", "expected"),
    [
        (0, 59, 0.05, 1 - 0.05 ** (1 / 59)),  # (1 - U)^n = delta
        (0, 59, 0.05, 0.0495),
        (0, 58, 0.05, 0.0503),
        (1, 93, 0.05, 0.04999),
        (0, 1, 0.5, 0.5),
    ],
)
def test_the_bound_is_what_a_hand_works_out(errors, n, delta, expected):
    assert upper_bound(errors, n, delta) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(("errors", "n"), [(0, 0), (1, 1), (5, 5)])
def test_nothing_is_known_where_nothing_was_seen_or_nothing_was_right(errors, n):
    assert upper_bound(errors, n, 0.1) == 1.0


@pytest.mark.parametrize(("errors", "n"), [(0, 30), (3, 200), (40, 900)])
@pytest.mark.parametrize("delta", [0.01, 0.05, 0.1])
def test_at_the_bound_so_few_errors_have_exactly_the_probability_delta(errors, n, delta):
    rate = upper_bound(errors, n, delta)
    so_few = sum(math.comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(errors + 1))

    assert so_few == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize(
    ("alpha", "delta", "expected"),
    [
        (0.05, 0.05, 59),
        (0.05, 0.1, 45),
        (0.05, 0.025, 72),
        (0.05, 0.01, 90),
        (0.02, 0.05, 149),
        (0.01, 0.05, 299),
        (0.1, 0.05, 29),
        (0.2, 0.05, 14),
        (0.5, 0.5, 1),
    ],
)
def test_the_fewest_answers_that_prove_anything_are_known(alpha, delta, expected):
    assert fewest_all_right(alpha, delta) == expected
    assert upper_bound(0, expected, delta) <= alpha
    assert upper_bound(0, expected - 1, delta) > alpha


@pytest.mark.parametrize(
    ("alpha", "expected"), [(0.01, (473, 628, 773)), (0.02, (236, 313, 386)), (0.05, (93, 124, 153))]
)
def test_so_are_the_fewest_with_one_two_or_three_errors(alpha, expected):
    assert tuple(fewest_with(errors, alpha, 0.05) for errors in (1, 2, 3)) == expected
    assert fewest_with(0, alpha, 0.05) == fewest_all_right(alpha, 0.05)


def test_the_first_look_of_one_student_spends_half():
    assert share(0.1, 1, 1) == pytest.approx(0.05)
    assert share(0.1, 1, 2) == pytest.approx(0.025)
    assert share(0.1, 2, 1) == pytest.approx(0.1 / 6)


def test_all_looks_together_never_spend_more_than_delta():
    spent = [sum(share(0.1, look, 3) * 3 for look in range(1, last)) for last in (2, 10, 10_000)]

    assert spent == sorted(spent)
    assert 0.0999 < spent[-1] < 0.1
