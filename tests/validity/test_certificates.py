"""That certificates are wrong no more often than they say, counted against known truth."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from core.tables.certify import Outcomes, Sample, certify
from core.tables.spending import share
from core.tables.split import distinct

Floats = npt.NDArray[np.float64]
Risk = Callable[[Floats], Floats]  # confidence -> probability of a wrong answer
Draw = Callable[[np.random.Generator, int], Floats]

ALPHA = 0.05
DRAWS = 2_000
GRID = np.linspace(0.0, 1.0, 2_001)


def uniform(rng, n):
    return rng.random(n)


def half_tied(rng, n):
    return np.where(rng.random(n) < 0.5, 0.8, rng.random(n))


def sample(n: int) -> Sample:
    return Sample("support", n, float(n), [])


def drawn(rng: np.random.Generator, n: int, risk: Risk, draw: Draw) -> Outcomes:
    confidence = draw(rng, n)
    return Outcomes(confidence, rng.random(n) < risk(confidence))


def true_error(threshold: float, risk: Risk, draw: Draw) -> float:
    confidence = draw(np.random.default_rng(99), 200_000)
    covered = confidence[confidence >= threshold]
    return float(risk(covered).mean()) if len(covered) else 0.0


def violations(risk: Risk, draw: Draw, n: int, delta: float, draws: int = DRAWS) -> float:
    """Share of draws whose certificate promises less error than there is."""
    known: dict[float, bool] = {}
    false = 0
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        rehearsal, held_out = (drawn(rng, n, risk, draw) for _ in range(2))
        found = certify(rehearsal, held_out, sample(n), alpha=ALPHA, delta=delta)
        if not found.certified:
            continue
        place = round(found.threshold, 3)
        if place not in known:
            known[place] = true_error(found.threshold, risk, draw) > ALPHA
        false += known[place]
    return false / draws


def allowed(delta: float, draws: int = DRAWS) -> float:
    """Delta and three standard errors."""
    return float(delta + 3 * np.sqrt(delta * (1 - delta) / draws))


FLAT_ABOVE = pytest.param(lambda c: np.full_like(c, ALPHA * 1.02), uniform, id="flat, just above alpha")
PEAKED = pytest.param(lambda c: 0.5 * (1 - c) ** 1.5, uniform, id="peaked")
STEEP = pytest.param(lambda c: np.where(c > 0.6, 0.01, 0.4), uniform, id="steep")
INVERTED = pytest.param(lambda c: 0.12 * c, uniform, id="the surest answers are the worst")
TIED = pytest.param(lambda c: np.where(c >= 0.8, ALPHA * 1.05, 0.3), half_tied, id="half of them tied")


@pytest.mark.validity
@pytest.mark.parametrize("n", [59, 300, 1_500])
@pytest.mark.parametrize(("risk", "draw"), [FLAT_ABOVE, PEAKED, STEEP, INVERTED, TIED])
def test_a_certificate_is_wrong_no_more_often_than_delta(risk, draw, n):
    delta = 0.1

    assert violations(risk, draw, n, delta) <= allowed(delta)


@pytest.mark.validity
def test_a_student_that_errs_just_under_alpha_by_far_is_certified_nearly_whole():
    shares = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        rehearsal, held_out = (drawn(rng, 1_000, lambda c: np.full_like(c, 0.024), uniform) for _ in range(2))
        found = certify(rehearsal, held_out, sample(1_000), alpha=ALPHA, delta=0.05)
        shares.append(found.certified_share)

    assert np.mean(np.array(shares) == 0.0) < 0.01
    assert np.mean(shares) > 0.95


@pytest.mark.validity
def test_a_task_with_two_students_and_three_looks_ever_serves_a_false_certificate_no_more_often_than_delta():
    delta, lives, n = 0.1, 1_000, 400
    false = 0
    for seed in range(lives):
        rng = np.random.default_rng(seed)
        false += any(
            certify(
                drawn(rng, n, lambda c: np.full_like(c, ALPHA * 1.02), uniform),
                drawn(rng, n, lambda c: np.full_like(c, ALPHA * 1.02), uniform),
                sample(n),
                alpha=ALPHA,
                delta=share(delta, look, 2),
            ).certified
            for look in (1, 2, 3)
            for _student in range(2)
        )

    assert false / lives <= allowed(delta, lives)


@pytest.mark.validity
def test_choosing_the_threshold_by_the_held_out_answers_would_break_the_promise():
    """The same count notices a procedure that is not valid, so the tests above can fail."""
    delta, false = 0.1, 0
    for seed in range(500):
        rng = np.random.default_rng(seed)
        held_out = drawn(rng, 1_000, lambda c: np.full_like(c, ALPHA * 1.02), uniform)
        order = np.argsort(-held_out.confidence)
        errors = np.cumsum(held_out.wrong[order])
        counts = np.arange(1, 1_001)
        false += bool(np.any(errors[100:] / counts[100:] <= ALPHA * 0.8))

    assert false / 500 > allowed(delta, 500)


@pytest.mark.validity
def test_a_text_that_is_a_third_of_the_examples_does_not_decide_the_certificate():
    """Counted as one input, it can hide no error of the others."""
    delta, false, draws = 0.1, 0, 1_000
    risk = ALPHA * 1.05
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        digests = [b"x"] * 300 + [b"%d" % i for i in range(600)]
        once = distinct(digests, [0] * 900)
        wrong = rng.random(len(once.indices)) < risk
        wrong[0] = False  # the frequent text is one that the student has right
        confidence = rng.random(len(wrong))
        rehearsal = Outcomes(rng.random(900), rng.random(900) < risk)
        found = certify(rehearsal, Outcomes(confidence, wrong), sample(900), alpha=ALPHA, delta=delta)
        false += found.certified

    assert false / draws <= allowed(delta, draws)
