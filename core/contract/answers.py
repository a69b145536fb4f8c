"""From one unrounded distribution per question to the answers of a response.

Choice, score, confidence and margin are computed from the distribution as the engine gave it; each number is
rounded once, at the end, to `DECIMALS`. What is written here is what is stored: a replay repeats these bytes.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core.contract.questions import Choice, Noul, Question
from core.contract.strict_json import encode
from core.errors import EngineFailed

DECIMALS = 6
SUM_TOLERANCE = 1e-6


def answer(question: Question, distribution: Sequence[float]) -> dict[str, Any]:
    """The answer to one question.

    Args:
        question: the question asked.
        distribution: one finite probability in [0, 1] per option, in the question's order, with sum 1.
            Noul: (P(yes), P(no)).
    """
    if isinstance(question, Noul):
        return {"type": "noul", "noul": _rounded(distribution[0])}
    if isinstance(question, Choice):
        return {
            "type": "choice",
            "choice": question.options[top_option(question.options, distribution)],
            "probabilities": dict(zip(question.options, map(_rounded, distribution), strict=True)),
            "confidence": _rounded(choice_confidence(distribution)),
        }
    return {
        "type": "score",
        "score": _rounded(sum(level * p for level, p in enumerate(distribution))),
        "legend": {str(level): text for level, text in enumerate(question.legend)},
        "probabilities": {str(level): _rounded(p) for level, p in enumerate(distribution)},
        "confidence": _rounded(score_confidence(distribution)),
    }


def top_option(options: Sequence[str], distribution: Sequence[float]) -> int:
    """Index of the most probable option; exact ties go to the name that sorts first by code point.

    The rule does not depend on the order of the request, so a client that sorts its options sees no flips.
    """
    most = max(distribution)
    tied = [index for index, share in enumerate(distribution) if share == most]
    return min(tied, key=options.__getitem__)


def choice_confidence(distribution: Sequence[float]) -> float:
    """How far the top probability stands above chance, 0 to 1; 1 for one option.

    (n * p_max - 1) / (n - 1) for n options.
    """
    n = len(distribution)
    return 1.0 if n == 1 else _unit((n * max(distribution) - 1.0) / (n - 1))


def score_confidence(distribution: Sequence[float]) -> float:
    """How concentrated the levels are, 0 to 1.

    One minus the mean distance from the most probable level (the lowest of equals), divided by the mean
    distance of n equally likely levels from their middle, floor(n * n / 4) / n; not below 0; 1 for one level.
    """
    n = len(distribution)
    if n == 1:
        return 1.0
    mode = max(range(n), key=distribution.__getitem__)
    spread = sum(p * abs(level - mode) for level, p in enumerate(distribution))
    return _unit(1.0 - spread / ((n * n // 4) / n))


def margin(distribution: Sequence[float]) -> float:
    """How far the answer is from flipping, 0 to 1: the top probability less the next; 1 for one option."""
    if len(distribution) == 1:
        return 1.0
    first, second = sorted(distribution, reverse=True)[:2]
    return _unit(first - second)


def noul_margin(probability: float, threshold: float = 0.5) -> float:
    """How far P(yes) is from the threshold, as a share of the room on its side, 0 to 1.

    At or above the threshold the answer is yes. With threshold 0.5 this is |2p - 1|.

    Args:
        probability: P(yes), in [0, 1].
        threshold: in (0, 1).
    """
    room = 1.0 - threshold if probability >= threshold else threshold
    return _unit(abs(probability - threshold) / room)


def margins(answers: Mapping[str, Any], thresholds: Mapping[str, float] | None = None) -> dict[str, float]:
    """Margins of answers as they were sent, by question id, with a threshold of your own for any noul.

    Args:
        answers: the `answers` member of a response.
        thresholds: question id -> P(yes) from which the answer counts as yes, in (0, 1); 0.5 where absent.
    """
    asked = thresholds or {}
    return {
        name: _rounded(
            noul_margin(given["noul"], asked.get(name, 0.5))
            if given["type"] == "noul"
            else margin(tuple(given["probabilities"].values()))
        )
        for name, given in answers.items()
    }


def write_answers(
    questions: Mapping[str, Question],
    distributions: Iterable[Sequence[float]],
    additions: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[bytes, dict[str, float]]:
    """Write the `answers` of a response, with the margin of each.

    Args:
        questions: by id.
        distributions: one per question, in their order.
        additions: more members for the answers of some questions, by id.

    Raises:
        EngineFailed: a distribution that is none: wrong length, not finite, outside [0, 1], or sum not 1.
    """
    answers: dict[str, Any] = {}
    by_question: dict[str, float] = {}
    for (name, question), distribution in zip(questions.items(), distributions, strict=True):
        check(question, distribution)
        answers[name] = answer(question, distribution)
        if additions and name in additions:
            answers[name] |= additions[name]
        by_question[name] = _rounded(margin(distribution))
    return encode(answers), by_question


def check(question: Question, distribution: Sequence[float]) -> None:
    """Refuse what is not a distribution over the question's options.

    Raises:
        EngineFailed: names the fault, without the text of the request.
    """
    if len(distribution) != question.size:
        raise EngineFailed(f"{len(distribution)} probabilities for {question.size} options")
    try:
        within = all(0.0 <= p <= 1.0 for p in distribution)  # False for NaN
    except TypeError:
        raise EngineFailed("a probability that is no number") from None
    if not within:
        raise EngineFailed("a probability outside [0, 1]")
    total = math.fsum(distribution)
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise EngineFailed(f"probabilities with sum {total:.6f} instead of 1")


def _rounded(value: float) -> float:
    return round(float(value), DECIMALS)


def _unit(value: float) -> float:
    return min(1.0, max(0.0, value))
