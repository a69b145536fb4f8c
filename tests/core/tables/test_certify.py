"""Which threshold is certified, and what is said where none is."""

import math

import numpy as np
import pytest

from core.tables.certify import Outcomes, Sample, candidates, certify

SAMPLE = Sample("support", 100, 100.0, [b"x" * 32])


def outcomes(confidence, wrong=None) -> Outcomes:
    confidence = np.array(confidence, np.float64)
    return Outcomes(confidence, np.zeros(len(confidence), bool) if wrong is None else np.array(wrong, bool))


def falling(n: int, wrong_from: int | None = None) -> Outcomes:
    """Confidences from 1 down, every other answer wrong from a place on."""
    wrong = [wrong_from is not None and i >= wrong_from and (i - wrong_from) % 2 == 1 for i in range(n)]
    return outcomes(np.linspace(1, 0.3, n), wrong)


def run(rehearsal, held_out, alpha=0.05, delta=0.05, **more):
    return certify(rehearsal, held_out, SAMPLE, alpha=alpha, delta=delta, **more)


class TestNumbers:
    @pytest.mark.parametrize(("n", "certified"), [(0, False), (1, False), (58, False), (59, True)])
    def test_59_right_answers_prove_5_percent_and_58_do_not(self, n, certified):
        certificate = run(falling(200), falling(n))

        assert certificate.certified is certified
        assert math.isinf(certificate.threshold) is not certified

    def test_one_wrong_among_59_proves_nothing(self):
        held_out = outcomes([0.9] * 59, [True] + [False] * 58)

        assert not run(falling(200), held_out).certified

    def test_the_reason_says_how_many_more_are_needed(self):
        reason = run(falling(200), falling(41)).reason

        assert reason is not None
        assert "41 distinct inputs" in reason
        assert "59" in reason
        assert "18 more are needed" in reason

    def test_with_a_few_errors_the_reason_says_how_many_would_do(self):
        held_out = outcomes([0.9] * 80, [True] * 2 + [False] * 78)

        reason = run(outcomes([0.9] * 80, [True] * 2 + [False] * 78), held_out).reason

        assert reason is not None
        assert "2 were wrong" in reason
        assert "about 44 more" in reason  # 124 with two errors

    def test_with_too_many_errors_more_of_the_same_would_not_do(self):
        half = outcomes([0.9] * 100, [True, False] * 50)

        reason = run(half, half).reason

        assert reason is not None
        assert "more than alpha 0.05 allows" in reason

    def test_what_is_certified_has_no_reason_and_its_numbers(self):
        certificate = run(falling(400, 300), falling(400, 300))

        assert certificate.reason is None
        assert certificate.errors <= 0.05 * certificate.certified_n
        assert certificate.upper_bound is not None
        assert certificate.upper_bound <= 0.05
        assert 300 < certificate.certified_n < 400
        assert certificate.certified_share == certificate.certified_n / 400


class TestThresholds:
    def test_come_from_the_rehearsal_alone(self):
        rehearsal = falling(300, 200)

        one, other = run(rehearsal, falling(400)), run(rehearsal, falling(400, 350))

        tried = candidates(rehearsal, 400, 0.05)
        assert one.threshold in tried
        assert other.threshold in tried

    def test_are_tried_from_the_one_that_looks_safest_to_the_most_lenient(self):
        tried = candidates(falling(300, 200), 400, 0.05)

        assert tried == sorted(tried, reverse=True)
        assert tried[0] == pytest.approx(np.linspace(1, 0.3, 300)[200], abs=0.02)

    def test_do_not_begin_where_too_few_answers_could_prove_anything(self):
        # All right, so that the strictest threshold looks no better than the others but for its few answers.
        tried = candidates(falling(1_000), 100, 0.05)

        assert (falling(100).confidence >= tried[0]).sum() >= 59

    def test_at_which_nothing_was_answered_are_none(self):
        nothing = outcomes([math.nan] * 50)

        certificate = run(nothing, falling(100))

        assert not certificate.certified
        assert certificate.reason is not None
        assert "answered no example" in certificate.reason

    def test_take_or_leave_a_group_of_ties_whole(self):
        tied = outcomes([0.9] * 150 + [0.5] * 150, [False] * 150 + [True, False] * 75)

        certificate = run(tied, tied)

        assert certificate.threshold == 0.9
        assert certificate.certified_n == 150

    def test_cover_what_is_exactly_at_them_and_never_what_is_no_number(self):
        certificate = run(falling(200), falling(200))

        assert certificate.covers(certificate.threshold)
        assert not certificate.covers(np.nextafter(certificate.threshold, 0))
        assert not certificate.covers(math.nan)

    def test_of_what_is_not_certified_cover_nothing(self):
        certificate = run(falling(10), falling(10))

        assert not certificate.covers(1.0)
        assert not certificate.covers(math.inf) or math.isinf(certificate.threshold)

    def test_pass_over_answers_that_must_not_be_given(self):
        held_out = outcomes([math.nan] * 100 + [0.9] * 100, [True] * 100 + [False] * 100)

        certificate = run(falling(200), held_out)

        assert certificate.certified
        assert certificate.certified_n == 100
        assert certificate.errors == 0


class TestIdentity:
    def test_is_the_tasks_name_and_a_digest(self):
        assert run(falling(200), falling(200)).id.startswith("support#")
        assert len(run(falling(200), falling(200)).id) == len("support#") + 12

    def test_is_the_same_for_the_same_and_another_for_another(self):
        one = run(falling(200), falling(200))

        assert run(falling(200), falling(200)).id == one.id
        assert run(falling(200), falling(200), alpha=0.1).id != one.id
        assert run(falling(200), falling(200), kind="agreement").id != one.id
