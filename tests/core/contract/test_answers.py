"""From distributions to answers: values worked by hand, ties, rounding, margins, and what is refused."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.contract.answers import (
    DECIMALS,
    answer,
    check,
    choice_confidence,
    margin,
    margins,
    noul_margin,
    score_confidence,
    top_option,
    write_answers,
)
from core.contract.questions import Choice, Noul, Question, Score
from core.errors import EngineFailed

NOUL = Noul("?", None, None)


def choice(*options: str) -> Choice:
    return Choice(None, options, (None,) * len(options))


def score(levels: int) -> Score:
    texts = tuple(f"level {i}" for i in range(levels))
    return Score(None, texts, texts)


@st.composite
def distributions(draw: st.DrawFn, least: int = 1, most: int = 40) -> list[float]:
    """Distributions flat, peaked, with zeros and with ties."""
    size = draw(st.integers(least, most))
    weight = st.sampled_from([0.0, 1.0, 1.0, 1e-9, 1e6]) | st.floats(0, 1)
    weights = draw(st.lists(weight, min_size=size, max_size=size))
    if not sum(weights):
        weights[draw(st.integers(0, size - 1))] = 1.0
    total = math.fsum(weights)
    return [w / total for w in weights]


class TestConfidence:
    @pytest.mark.parametrize(
        ("distribution", "expected"),
        [
            ([0.82, 0.18], 0.64),
            ([0.7, 0.2, 0.1], 0.55),
            ([0.2] * 5, 0.0),
            ([1.0], 1.0),
            ([0.0, 1.0], 1.0),
            ([0.5, 0.5], 0.0),
            ([1 / 255] * 255, 0.0),
        ],
    )
    def test_of_a_choice(self, distribution, expected):
        assert choice_confidence(distribution) == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize(
        ("distribution", "expected_score", "expected"),
        [
            ([0.01, 0.02, 0.07, 0.3, 0.6], 3.46, 0.55),
            ([0.1, 0.1, 0.8], 1.7, 0.55),
            ([0.5, 0.0, 0.5], 1.0, 0.0),
            ([0.5, 0.5], 0.5, 0.0),
            ([0.0, 1.0, 0.0], 1.0, 1.0),
            ([0.25] * 4, 1.5, 0.0),
            ([0.2] * 5, 2.0, 0.0),
            ([1.0], 0.0, 1.0),
        ],
    )
    def test_of_a_score_beside_its_expectation(self, distribution, expected_score, expected):
        given_answer = answer(score(len(distribution)), distribution)

        assert given_answer["score"] == pytest.approx(expected_score, abs=1e-9)
        assert given_answer["confidence"] == pytest.approx(expected, abs=1e-9)

    @pytest.mark.parametrize(
        ("levels", "spread"),
        [(2, 0.5), (3, 2 / 3), (4, 1), (5, 1.2), (6, 1.5), (7, 12 / 7), (8, 2), (9, 20 / 9), (10, 2.5)],
    )
    def test_of_a_score_is_scaled_by_the_spread_of_equally_likely_levels(self, levels, spread):
        # Everything on level 0 but a tenth, one level up: a mean distance of a tenth.
        distribution = [0.9, 0.1] + [0.0] * (levels - 2)

        assert score_confidence(distribution) == pytest.approx(1 - 0.1 / spread, abs=1e-12)

    def test_of_a_score_with_two_modes_is_measured_from_the_lower(self):
        assert score_confidence([0.0, 0.4, 0.4, 0.1, 0.1]) == pytest.approx(1 - (0.4 + 0.2 + 0.3) / 1.2)

    @given(distributions())
    def test_stays_between_zero_and_one(self, distribution):
        assert 0 <= choice_confidence(distribution) <= 1
        assert 0 <= score_confidence(distribution) <= 1


class TestTies:
    def test_equal_probabilities_go_to_the_name_that_sorts_first_by_code_point(self):
        assert answer(choice("b", "a", "B"), [0.25, 0.375, 0.375])["choice"] == "B"
        assert answer(choice("é", "z", "🙂"), [1 / 3] * 3)["choice"] == "z"

    @given(st.data(), st.lists(st.text(max_size=3), min_size=2, max_size=6, unique=True))
    def test_the_order_of_the_request_does_not_decide(self, data, names):
        weights = dict(zip(names, data.draw(distributions(len(names), len(names))), strict=True))
        shuffled = data.draw(st.permutations(names))

        first = top_option(names, [weights[name] for name in names])
        second = top_option(shuffled, [weights[name] for name in shuffled])

        assert names[first] == shuffled[second]

    def test_a_difference_that_rounding_hides_still_decides(self):
        given_answer = answer(choice("a", "b"), [0.5 - 1e-9, 0.5 + 1e-9])

        assert given_answer["choice"] == "b"
        assert given_answer["probabilities"] == {"a": 0.5, "b": 0.5}


class TestRounding:
    def test_a_noul_is_its_probability_of_yes_and_nothing_else(self):
        assert answer(NOUL, [0.123456789, 0.876543211]) == {"type": "noul", "noul": 0.123457}

    def test_almost_certain_is_rounded_to_certain_while_its_neighbour_is_not(self):
        assert answer(NOUL, [0.9999999, 0.0000001])["noul"] == 1.0
        assert answer(NOUL, [0.999999, 0.000001])["noul"] == 0.999999

    def test_every_number_of_a_choice_is_computed_before_it_is_rounded(self):
        thirds = answer(choice("a", "b", "c"), [2 / 3, 1 / 6, 1 / 6])

        assert thirds["probabilities"] == {"a": 0.666667, "b": 0.166667, "c": 0.166667}
        assert thirds["confidence"] == 0.5  # 0.500001 from the rounded probabilities

    def test_255_almost_equal_options_keep_their_winner(self):
        distribution = [1 / 255] * 255
        distribution[200] += 1e-9
        distribution[7] -= 1e-9
        names = [f"{i:03}" for i in range(255)]

        given_answer = answer(choice(*names), distribution)

        assert given_answer["choice"] == "200"
        assert set(given_answer["probabilities"].values()) == {0.003922}
        assert list(given_answer["probabilities"]) == names

    def test_two_options_at_exactly_one_half_stay_there(self):
        assert answer(choice("y", "x"), [0.5, 0.5]) == {
            "type": "choice",
            "choice": "x",
            "probabilities": {"y": 0.5, "x": 0.5},
            "confidence": 0.0,
        }

    @given(distributions(most=255))
    def test_what_is_printed_stays_within_the_tolerances_of_the_conformance_suite(self, distribution):
        n = len(distribution)
        names = [str(i) for i in range(n)]

        printed = answer(choice(*names), distribution)

        shown = printed["probabilities"].values()
        step = 0.5 * 10**-DECIMALS
        assert math.fsum(shown) - 1 <= max(0.05, step * sum(p > 0 for p in shown))
        assert 1 - math.fsum(shown) <= max(0.05, step * n)
        assert printed["probabilities"][printed["choice"]] >= max(shown) - 0.005
        if n > 1:
            reference = (n * max(shown) - 1) / (n - 1)
            assert abs(printed["confidence"] - reference) <= 0.02 + step / (1 - 1 / n) + 1e-9

    @given(distributions(2, 10))
    def test_a_printed_score_agrees_with_its_printed_probabilities(self, distribution):
        n = len(distribution)

        printed = answer(score(n), distribution)

        shown = list(printed["probabilities"].values())
        step = 0.5 * 10**-DECIMALS
        expectation = sum(i * p for i, p in enumerate(shown))
        assert abs(printed["score"] - expectation) <= step * (1 + n * (n - 1) / 2) + 1e-9
        mode = shown.index(max(shown))
        spread = n * n // 4 / n
        reference = max(0.0, 1 - sum(p * abs(i - mode) for i, p in enumerate(shown)) / spread)
        if sorted(shown)[-1] - sorted(shown)[-2] > 2 * step:  # else another level may be the mode
            slack = step * sum(abs(i - mode) for i in range(n)) / spread
            assert abs(printed["confidence"] - reference) <= slack + step + 1e-9


class TestTheLegend:
    def test_repeats_the_levels_as_they_were_sent(self):
        question = Score(None, ("low", '{"label":"high"}', "[]"), ("low", {"label": "high"}, []))

        assert answer(question, [0.2, 0.3, 0.5])["legend"] == {"0": "low", "1": {"label": "high"}, "2": []}

    def test_and_the_probabilities_have_the_same_decimal_keys(self):
        printed = answer(score(10), [0.1] * 10)

        assert list(printed["legend"]) == list(printed["probabilities"]) == [str(i) for i in range(10)]


class TestMargins:
    @pytest.mark.parametrize(
        ("distribution", "expected"),
        [
            ([0.7, 0.2, 0.1], 0.5),
            ([0.1, 0.45, 0.45], 0.0),
            ([1.0, 0.0], 1.0),
            ([1.0], 1.0),
            ([0.4, 0.6], 0.2),
        ],
    )
    def test_is_the_lead_of_the_first_over_the_second(self, distribution, expected):
        assert margin(distribution) == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize(
        ("probability", "threshold", "expected"),
        [
            (0.5, 0.5, 0.0),
            (0.9, 0.5, 0.8),
            (0.1, 0.5, 0.8),
            (1.0, 0.5, 1.0),
            (0.8, 0.8, 0.0),
            (0.9, 0.8, 0.5),
            (0.4, 0.8, 0.5),
            (0.0, 0.8, 1.0),
            (1.0, 0.2, 1.0),
        ],
    )
    def test_of_a_noul_is_the_share_of_the_room_on_its_side_of_the_threshold(
        self, probability, threshold, expected
    ):
        assert noul_margin(probability, threshold) == pytest.approx(expected, abs=1e-12)

    @given(st.floats(0, 1), st.floats(1e-6, 1 - 1e-6))
    def test_of_a_noul_stays_between_zero_and_one(self, probability, threshold):
        assert 0 <= noul_margin(probability, threshold) <= 1

    @given(st.floats(0, 1))
    def test_of_a_noul_at_one_half_is_the_lead_of_yes_over_no(self, probability):
        assert noul_margin(probability) == pytest.approx(margin([probability, 1 - probability]), abs=1e-12)

    def test_of_sent_answers_may_be_read_under_a_threshold_of_ones_own(self):
        sent = {
            "safe": {"type": "noul", "noul": 0.9},
            "team": {
                "type": "choice",
                "choice": "a",
                "probabilities": {"a": 0.7, "b": 0.3},
                "confidence": 0.4,
            },
        }

        assert margins(sent) == {"safe": 0.8, "team": 0.4}
        assert margins(sent, {"safe": 0.8}) == {"safe": 0.5, "team": 0.4}

    def test_are_computed_before_rounding(self):
        _, by_question = write_answers({"q": choice("a", "b", "c")}, [[0.40000049, 0.39999951, 0.2]])

        assert by_question == {"q": 0.000001}  # 0.000000 from the rounded probabilities


class TestWriting:
    def test_answers_stand_under_the_ids_and_in_the_order_of_the_questions(self):
        questions: dict[str, Question] = {"z 🎯": NOUL, "a": choice("x"), "": score(2)}

        written, by_question = write_answers(questions, [[0.25, 0.75], [1.0], [0.5, 0.5]])

        assert list(json.loads(written)) == list(by_question) == list(questions)
        assert (
            written
            == (
                '{"z 🎯":{"type":"noul","noul":0.25},'
                '"a":{"type":"choice","choice":"x","probabilities":{"x":1.0},"confidence":1.0},'
                '"":{"type":"score","score":0.5,"legend":{"0":"level 0","1":"level 1"},'
                '"probabilities":{"0":0.5,"1":0.5},"confidence":0.0}}'
            ).encode()
        )

    def test_an_integer_of_any_length_comes_back_in_the_legend(self):
        question = Score(None, ("[18446744073709551616]", "b"), ([2**64], "b"))

        written, _ = write_answers({"q": question}, [[0.5, 0.5]])

        assert b'"legend":{"0":[18446744073709551616],"1":"b"}' in written

    @pytest.mark.parametrize("kind", [np.float32, np.float64])
    def test_the_numbers_of_an_array_are_written_as_plain_numbers(self, kind):
        distribution = tuple(np.array([0.25, 0.75], dtype=kind))

        assert write_answers({"q": NOUL}, [distribution])[0] == b'{"q":{"type":"noul","noul":0.25}}'

    @pytest.mark.parametrize("count", [0, 2])
    def test_more_or_fewer_distributions_than_questions_are_a_bug(self, count):
        with pytest.raises(ValueError, match="zip"):
            write_answers({"q": NOUL}, [[0.5, 0.5]] * count)


NOT_DISTRIBUTIONS: dict[str, Any] = {
    "too few": [1.0],
    "too many": [0.5, 0.25, 0.25],
    "none": [],
    "sum too small": [0.5, 0.4],
    "sum too large": [0.6, 0.5],
    "just off": [0.5, 0.500002],
    "unnormalised": [3.0, 1.0],
    "all zero": [0.0, 0.0],
    "negative": [-0.5, 1.5],
    "slightly negative": [-1e-9, 1 + 1e-9],
    "not a number": [math.nan, 1.0],
    "all nan": [math.nan, math.nan],
    "infinite": [math.inf, 0.0],
    "opposite infinities": [math.inf, -math.inf],
    "text": ["0.5", "0.5"],
    "null": [None, 1.0],
    "nested": [[0.5], [0.5]],
    "complex": [0.5 + 0j, 0.5],
}


@pytest.mark.parametrize("distribution", NOT_DISTRIBUTIONS.values(), ids=NOT_DISTRIBUTIONS)
def test_what_is_no_distribution_is_refused(distribution):
    with pytest.raises(EngineFailed):
        check(NOUL, distribution)
    with pytest.raises(EngineFailed):
        write_answers({"q": choice("secret-a", "secret-b")}, [distribution])


@given(distributions())
def test_every_distribution_is_accepted(distribution):
    check(choice(*map(str, range(len(distribution)))), distribution)


def test_a_float32_softmax_over_255_options_is_accepted():
    logits = np.random.default_rng(0).normal(size=255).astype(np.float32) * 9
    weights = np.exp(logits - logits.max())

    check(choice(*map(str, range(255))), list(weights / weights.sum()))


def test_the_complaint_repeats_nothing_of_the_request():
    with pytest.raises(EngineFailed) as failed:
        check(choice("secret-a", "secret-b"), [0.5, 0.6])

    assert "secret" not in str(failed.value)
    assert "1.100000" in str(failed.value)
